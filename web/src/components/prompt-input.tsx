import { useLayoutEffect, useRef, useState } from "react";
import { Icon } from "./icons";

interface Props {
  busy: boolean;
  send: (text: string, files: FileList | undefined) => void;
  stop: () => void;
}

export function focusPrompt(): void {
  document.getElementById("prompt")?.focus();
}

/** The message input. Enter sends, Shift+Enter inserts a new line. */
export function PromptInput({ busy, send, stop }: Props) {
  const [text, setText] = useState("");
  const [files, setFiles] = useState<File[]>([]);
  const area = useRef<HTMLTextAreaElement>(null);
  const picker = useRef<HTMLInputElement>(null);
  const ready = !busy && (text.trim() !== "" || files.length > 0);

  useLayoutEffect(() => {
    if (!area.current) return;
    area.current.style.height = "auto";
    area.current.style.height = `${area.current.scrollHeight}px`;
  }, [text]);

  function attach(more: Iterable<File>): void {
    setFiles((chosen) => [...chosen, ...more]);
  }

  function submit(): void {
    if (!ready) return;
    send(text, files.length ? listOf(files) : undefined);
    setText("");
    setFiles([]);
  }

  return (
    <form
      className="prompt"
      aria-label="Message"
      onSubmit={(event) => {
        event.preventDefault();
        submit();
      }}
      onDragOver={(event) => event.preventDefault()}
      onDrop={(event) => {
        event.preventDefault();
        attach(event.dataTransfer.files);
      }}
    >
      {files.length > 0 && (
        <ul className="chosen" aria-label="Attached files">
          {files.map((file, index) => (
            <li key={index}>
              {file.name}
              <button
                type="button"
                className="icon-button"
                aria-label={`Remove ${file.name}`}
                onClick={() => setFiles(files.filter((_, other) => other !== index))}
              >
                <Icon name="close" />
              </button>
            </li>
          ))}
        </ul>
      )}
      <textarea
        ref={area}
        id="prompt"
        rows={1}
        autoFocus
        aria-label="Your message"
        placeholder="Send a message…"
        value={text}
        onChange={(event) => setText(event.target.value)}
        onPaste={(event) => attach(event.clipboardData.files)}
        onKeyDown={(event) => {
          if (event.key === "Enter" && !event.shiftKey && !event.nativeEvent.isComposing) {
            event.preventDefault();
            submit();
          }
        }}
      />
      <div className="prompt-buttons">
        <input
          ref={picker}
          type="file"
          multiple
          hidden
          aria-hidden="true"
          onChange={(event) => {
            attach(event.target.files ?? []);
            event.target.value = "";
            focusPrompt();
          }}
        />
        <button type="button" className="icon-button" aria-label="Attach files" onClick={() => picker.current?.click()}>
          <Icon name="attach" />
        </button>
        {busy ? (
          <button type="button" className="icon-button primary" aria-label="Stop" onClick={stop}>
            <Icon name="stop" />
          </button>
        ) : (
          <button type="submit" className="icon-button primary" aria-label="Send" disabled={!ready}>
            <Icon name="send" />
          </button>
        )}
      </div>
    </form>
  );
}

function listOf(files: File[]): FileList {
  const transfer = new DataTransfer();
  for (const file of files) transfer.items.add(file);
  return transfer.files;
}
