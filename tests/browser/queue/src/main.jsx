import { Chat, useChat } from "@ai-sdk/react";
import { DefaultChatTransport } from "ai";
import { createRoot } from "react-dom/client";

const transport = new DefaultChatTransport({ api: "api/chat" });
const chat = new Chat({ id: "queue", transport, experimental_queue: true });

function Page() {
  const { messages, status, sendMessage } = useChat({ chat });
  const sendLastNow = () => chat.experimental_sendQueuedMessageNow(chat.experimental_queuedMessages.at(-1).id);
  return (
    <form action={(form) => void sendMessage({ text: form.get("text") })} data-status={status}>
      {messages.map(({ id, role, parts }) => (
        <p key={id} aria-label={role}>
          {parts.map((part) => part.text)}
        </p>
      ))}
      <input name="text" aria-label="Message" />
      <button type="button" onClick={() => void sendLastNow()}>
        Send the last one now
      </button>
    </form>
  );
}

createRoot(document.getElementById("root")).render(<Page />);
