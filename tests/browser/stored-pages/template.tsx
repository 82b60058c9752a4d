import { createRoot } from "react-dom/client";
import { Chat, History } from "./page";

const id = new URLSearchParams(location.search).get("chat") ?? crypto.randomUUID();
history.replaceState(null, "", `?chat=${id}`);
const open = (id: string) => location.assign(`?chat=${id}`);
const response = await fetch(`/api/chat/${id}/messages`);
const loaded = response.ok ? await response.json() : { messages: [], running: null };

createRoot(document.getElementById("root")!).render(
  <>
    <History open={open} />
    <Chat id={id} loaded={loaded} />
  </>,
);
