import { useState } from "react";
import { useAiChat } from "./use-ai-chat";

interface Props {
  sessionId: string;
  token: string;
}

/** It knows nothing of the session's own protocol: every tool runs behind the route, and is a part of the message. */
export function AiChatPanel({ sessionId, token }: Props) {
  const { messages, sendMessage, stop, status, error } = useAiChat(sessionId, token);
  const [input, setInput] = useState("");
  const ready = status === "ready" || status === "error";
  return (
    <section>
      {messages.map((message) => (
        <article key={message.id} data-role={message.role}>
          {message.parts.map((part, index) => {
            if (part.type === "text") return <span key={index}>{part.text}</span>;
            if (part.type !== "dynamic-tool") return null;
            return (
              <p key={index} data-tool={part.state}>
                <strong>{part.toolName}</strong>:{" "}
                {part.state === "output-error" ? part.errorText : JSON.stringify(part.output)}
              </p>
            );
          })}
        </article>
      ))}
      {error && <p role="alert">{error.message}</p>}
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (!ready || input.trim() === "") return;
          void sendMessage({ text: input });
          setInput("");
        }}
      >
        <input
          aria-label="Message"
          placeholder="Send a message…"
          value={input}
          onChange={(event) => setInput(event.target.value)}
        />
        {/* With keys these are two buttons. Without, a click on Stop becomes a click on Send when the status changes. */}
        {ready ? (
          <button key="send" type="submit">
            Send
          </button>
        ) : (
          <button key="stop" type="button" onClick={() => void stop()}>
            Stop
          </button>
        )}
      </form>
    </section>
  );
}
