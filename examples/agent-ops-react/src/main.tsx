import { createRoot } from "react-dom/client";
import { AiChatPanel } from "./ai-chat-panel";

const asked = new URLSearchParams(location.search);
const root = document.getElementById("root");
if (root) {
  createRoot(root).render(<AiChatPanel sessionId={asked.get("session") ?? ""} token={asked.get("token") ?? ""} />);
}
