import { useChat } from "@ai-sdk/react";

/** The smallest page: `useChat`, and no code of usechat. */
export function Chat() {
  const { messages, sendMessage } = useChat();
  const parts = messages.flatMap((message) => message.parts);
  const send = (form) => void sendMessage({ text: form.get("text") });
  return (
    <form action={send}>
      {parts.map((part, index) => part.type === "text" && <p key={index}>{part.text}</p>)}
      <input name="text" aria-label="Message" />
    </form>
  );
}
