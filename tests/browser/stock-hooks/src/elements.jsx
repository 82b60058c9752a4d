import { useChat } from "@ai-sdk/react";
import { useRef } from "react";
import { createRoot } from "react-dom/client";
import { Streamdown } from "streamdown";
import { StickToBottom } from "use-stick-to-bottom";
import { decisions, isTool, options, toolText } from "./options";

/** The packages in AI Elements, which itself is no package: Conversation is StickToBottom, the text of a Message is
 * Streamdown, and PromptInput is a form that passes on `{ text, files }`. */
function Page() {
  const { messages, status, sendMessage, stop, addToolApprovalResponse } = useChat({ ...options, resume: true });
  const files = useRef(null);
  const submit = (form) => {
    void sendMessage({ text: form.get("text"), files: files.current.files });
  };
  return (
    <>
      <StickToBottom data-conversation style={{ height: 300, overflowY: "hidden" }} initial="instant" role="log">
        <StickToBottom.Content>
          {messages.map((message) => (
            <section key={message.id} data-role={message.role}>
              {message.parts.map((part, index) => (
                <Part key={index} part={part} approve={addToolApprovalResponse} />
              ))}
            </section>
          ))}
        </StickToBottom.Content>
      </StickToBottom>
      <form action={submit} data-status={status}>
        <textarea name="text" aria-label="Message" />
        <input type="file" ref={files} aria-label="Files" />
        <button>Send</button>
        <button type="button" onClick={() => void stop()}>
          Stop
        </button>
      </form>
    </>
  );
}

function Part({ part, approve }) {
  if (part.type === "text") {
    return (
      <div data-part="text">
        <Streamdown>{part.text}</Streamdown>
      </div>
    );
  }
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
