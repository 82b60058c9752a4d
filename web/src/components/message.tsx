import type { UIMessage } from "ai";
import { Fragment, memo, useState } from "react";
import { isData, isTool, nodeOf, textOf, type Part } from "../parts";
import { Attachment } from "./attachment";
import { DataPart } from "./data";
import { Icon } from "./icons";
import { Markdown } from "./markdown";
import { focusPrompt } from "./prompt-input";
import { Reasoning } from "./reasoning";
import { Sources, type Source } from "./sources";
import { Tool, type Approve } from "./tool";

export interface MessageActions {
  approve: Approve;
  edit: (message: UIMessage, text: string) => void;
  regenerate: (message: UIMessage) => void;
}

interface Props extends MessageActions {
  message: UIMessage;
  /** Whether the message is still being received. */
  streaming: boolean;
  /** Whether the chat is busy: editing and regenerating are disabled. */
  busy: boolean;
}

export const Message = memo(function Message(props: Props) {
  return props.message.role === "user" ? <UserMessage {...props} /> : <AssistantMessage {...props} />;
});

function UserMessage({ message, busy, edit }: Props) {
  const [editing, setEditing] = useState(false);
  const text = textOf(message);
  if (editing) {
    return (
      <EditForm
        text={text}
        cancel={() => setEditing(false)}
        submit={(changed) => {
          setEditing(false);
          edit(message, changed);
          focusPrompt();
        }}
      />
    );
  }
  return (
    <article className="message user" aria-label="You">
      <div className="bubble">
        {message.parts.map((part, index) => part.type === "file" && <Attachment key={index} file={part} />)}
        {text && <p className="user-text">{text}</p>}
      </div>
      <div className="actions">
        <button type="button" className="icon-button" aria-label="Edit" disabled={busy} onClick={() => setEditing(true)}>
          <Icon name="edit" />
        </button>
      </div>
    </article>
  );
}

function EditForm({ text, submit, cancel }: { text: string; submit: (text: string) => void; cancel: () => void }) {
  const [value, setValue] = useState(text);
  return (
    <form
      className="edit"
      onSubmit={(event) => {
        event.preventDefault();
        if (value.trim()) submit(value);
      }}
      onKeyDown={(event) => event.key === "Escape" && cancel()}
    >
      <textarea autoFocus aria-label="Edit message" value={value} onChange={(event) => setValue(event.target.value)} />
      <div className="edit-buttons">
        <button type="submit" className="button primary" disabled={!value.trim()}>
          Send
        </button>
        <button type="button" className="button" onClick={cancel}>
          Cancel
        </button>
      </div>
    </form>
  );
}

function AssistantMessage({ message, streaming, busy, approve, regenerate }: Props) {
  const dividers = nodeDividers(message.parts);
  const sources = message.parts.filter(isSource);
  return (
    <article className="message assistant" aria-label="Assistant">
      {message.parts.map((part, index) => (
        <Fragment key={index}>
          {dividers[index] !== undefined && (
            <div className="divider" role="separator" aria-label={`Node ${dividers[index]}`}>
              <span>{dividers[index]}</span>
            </div>
          )}
          <AssistantPart part={part} last={index === message.parts.length - 1} streaming={streaming} approve={approve} />
        </Fragment>
      ))}
      {sources.length > 0 && <Sources sources={sources} />}
      {!streaming && (
        <div className="actions">
          <CopyButton text={textOf(message)} />
          <button
            type="button"
            className="icon-button"
            aria-label="Regenerate"
            disabled={busy}
            onClick={() => regenerate(message)}
          >
            <Icon name="redo" />
          </button>
        </div>
      )}
    </article>
  );
}

interface PartProps {
  part: Part;
  last: boolean;
  streaming: boolean;
  approve: Approve;
}

function AssistantPart({ part, last, streaming, approve }: PartProps) {
  if (part.type === "text") return <Markdown text={part.text} streaming={streaming && part.state === "streaming"} />;
  if (part.type === "reasoning") {
    return part.text ? <Reasoning text={part.text} streaming={streaming && last && part.state !== "done"} /> : null;
  }
  if (part.type === "file" || part.type === "reasoning-file") return <Attachment file={part} />;
  if (isTool(part)) return <Tool part={part} approve={approve} />;
  if (isData(part)) return <DataPart type={part.type} data={part.data} />;
  return null;
}

function isSource(part: Part): part is Source {
  return part.type === "source-url" || part.type === "source-document";
}

/** The node names to show between parts: at the start of the step in which the node changes, or at its first part. */
function nodeDividers(parts: Part[]): (string | undefined)[] {
  const dividers: (string | undefined)[] = parts.map(() => undefined);
  let speaking: string | undefined;
  let step: number | undefined;
  parts.forEach((part, index) => {
    if (part.type === "step-start") step = index;
    const node = nodeOf(part);
    if (node === undefined) return;
    if (node !== speaking) dividers[step ?? index] = node;
    speaking = node;
    step = undefined;
  });
  return dividers;
}

function CopyButton({ text }: { text: string }) {
  const [copied, setCopied] = useState(false);
  if (!text) return null;
  return (
    <button
      type="button"
      className="icon-button"
      aria-label={copied ? "Copied" : "Copy"}
      onClick={() => {
        void navigator.clipboard.writeText(text).then(() => {
          setCopied(true);
          setTimeout(() => setCopied(false), 1500);
        });
      }}
    >
      <Icon name={copied ? "check" : "copy"} />
    </button>
  );
}
