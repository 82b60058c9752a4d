import { useChat } from "@ai-sdk/react";
import { WorkflowChatTransport } from "@ai-sdk/workflow/client";

const transport = new WorkflowChatTransport({
  api: "/api/chat",
  prepareSendMessagesRequest: ({ id, messages, trigger, messageId }) => ({ body: { id, messages, trigger, messageId } }),
});

/** A page that goes on by itself when its connection breaks, and after a reload. */
export function Chat({ id, history }) {
  const { messages, sendMessage, stop, status, error } = useChat({ id, messages: history, resume: true, transport });
  const send = (form) => void sendMessage({ text: form.get("text") });
  const stopForGood = () => fetch(`/api/chat/${id}/stop`, { method: "POST" }).finally(stop);
  return (
    <form action={send}>
      {messages.map((message) => (
        <p key={message.id} aria-label={message.role}>
          {message.parts.map((part) => (part.type === "text" ? part.text : ""))}
        </p>
      ))}
      {error && <p role="alert">{error.message}</p>}
      <input name="text" aria-label="Message" />
      {status === "streaming" && <button type="button" onClick={stopForGood}>Stop</button>}
    </form>
  );
}
