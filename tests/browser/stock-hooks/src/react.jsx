import { useChat } from "@ai-sdk/react";
import { useRef } from "react";
import { createRoot } from "react-dom/client";
import { decisions, isTool, options, toolText } from "./options";

function Page() {
  const { messages, status, sendMessage, stop, addToolApprovalResponse } = useChat({ ...options, resume: true });
  const files = useRef(null);
  const send = (form) => {
    void sendMessage({ text: form.get("text"), files: files.current.files });
  };
  return (
    <form action={send} data-status={status}>
      {messages.map((message) => (
        <section key={message.id} data-role={message.role}>
          {message.parts.map((part, index) => (
            <Part key={index} part={part} approve={addToolApprovalResponse} />
          ))}
        </section>
      ))}
      <input name="text" aria-label="Message" />
      <input type="file" ref={files} aria-label="Files" />
      <button>Send</button>
      <button type="button" onClick={() => void stop()}>
        Stop
      </button>
    </form>
  );
}

function Part({ part, approve }) {
  if (part.type === "text") return <p data-part="text">{part.text}</p>;
  if (part.type === "reasoning") return <p data-part="reasoning">{part.text}</p>;
  if (part.type === "file") return <img data-part="file" src={part.url} alt={part.filename ?? "file"} />;
  if (!isTool(part)) return null;
  return (
    <p data-part="tool">
      {toolText(part)}
      {part.state === "approval-requested" &&
        Object.entries(decisions).map(([name, approved]) => (
          <button key={name} type="button" onClick={() => void approve({ id: part.approval.id, approved })}>
            {name}
          </button>
        ))}
    </p>
  );
}

createRoot(document.getElementById("root")).render(<Page />);
