import { createRoot } from "react-dom/client";
import { Chat } from "./chat";

const id = new URLSearchParams(location.search).get("chat") ?? crypto.randomUUID();
history.replaceState(null, "", `?chat=${id}`);
const response = await fetch(`/api/chat/${id}/messages`);
const { messages } = response.ok ? await response.json() : { messages: [] };
createRoot(document.getElementById("root")).render(<Chat id={id} history={messages} />);
