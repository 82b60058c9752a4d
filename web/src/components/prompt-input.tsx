import type { UIMessage } from "ai";
import { ArrowUp, FileText, Paperclip, Square, X } from "lucide-react";
import { useEffect, useRef, useState, type ReactNode } from "react";
import { loadDraft, saveDraft } from "../chats";
import type { Limits } from "../server-settings";
import { IconButton } from "../ui/button";
import { useGrowingField } from "../use-growing-field";

interface Props {
  chat: string;
  busy: boolean;
  limits: Limits;
  /** What is sent with every message: the chat so far. */
  messages: UIMessage[];
  send: (text: string, files: FileList | undefined) => void;
  stop: () => void;
  /** Chooses the agent. */
  picker: ReactNode;
  editLast: () => void;
}

export function focusPrompt(): void {
  document.getElementById("prompt")?.focus();
}

/** The message input. Enter sends, Shift+Enter inserts a new line; files can be chosen, pasted, or dropped anywhere. */
export function PromptInput({ chat, busy, limits, messages, send, stop, picker: agents, editLast }: Props) {
  const [text, setText] = useState(() => loadDraft(chat));
  const [files, setFiles] = useState<File[]>([]);
  const [refusal, setRefusal] = useState<string>();
  const area = useGrowingField(text);
  const picker = useRef<HTMLInputElement>(null);
  const ready = !busy && (text.trim() !== "" || files.length > 0);
  const dropping = useDroppedFiles(attach);

  const saved = useRef("");
  useEffect(() => {
    if (saved.current === text) return; // a chat that is only looked at changes no draft
    saved.current = text;
    saveDraft(chat, text);
  }, [chat, text]);

  /** Take files that fit. The list is read at once: the input that it belongs to is emptied right after. */
  function attach(list: Iterable<File>): void {
    const more = [...list];
    const taken: File[] = [];
    const sent = sizeOf(messages);
    let refused: string | undefined;
    for (const file of more) {
      const reason = reasonAgainst(file, [...files, ...taken], sent, limits);
      if (reason) refused = reason;
      else taken.push(file);
    }
    if (more.length) setRefusal(refused);
    setFiles((chosen) => [...chosen, ...taken]);
  }

  function submit(): void {
    if (!ready) return;
    // The limits may have come after the files.
    const sent = sizeOf(messages);
    const refused = files.map((file, index) => reasonAgainst(file, files.slice(0, index), sent, limits)).find(Boolean);
    if (refused) return setRefusal(refused);
    saveDraft(chat, "");
    send(text, files.length ? listOf(files) : undefined);
    setText("");
    setFiles([]);
    setRefusal(undefined);
  }

  return (
    <form
      className="screen-only mx-auto w-full max-w-3xl px-4 pb-4"
      aria-label="Message"
      onSubmit={(event) => {
        event.preventDefault();
        submit();
      }}
    >
      {dropping && (
        <div className="pointer-events-none fixed inset-4 z-50 grid place-items-center rounded-2xl border-2 border-dashed border-accent bg-canvas/90 text-lg font-medium">
          Drop files to attach them
        </div>
      )}
      {refusal && (
        <p role="alert" className="mb-2 rounded-xl bg-bad-surface px-4 py-2 text-sm text-bad">
          {refusal}
        </p>
      )}
      <div className="rounded-3xl border border-line bg-canvas shadow-sm transition-colors focus-within:border-soft/50">
        {files.length > 0 && (
          <ul className="flex flex-wrap gap-2 px-3 pt-3" aria-label="Attached files">
            {files.map((file, index) => (
              <li key={index} className="flex max-w-60 items-center gap-2 rounded-xl border border-line bg-surface p-1 text-sm">
                <Preview file={file} />
                <span className="truncate">{file.name}</span>
                <IconButton
                  small
                  icon={X}
                  label={`Remove ${file.name}`}
                  onClick={() => {
                    setFiles(files.filter((_, other) => other !== index));
                    focusPrompt();
                  }}
                />
              </li>
            ))}
          </ul>
        )}
        <textarea
          ref={area}
          id="prompt"
          rows={1}
          autoFocus
          dir="auto"
          className="block max-h-52 w-full resize-none bg-transparent px-5 pt-3.5 pb-1 outline-none placeholder:text-soft"
          aria-label="Your message"
          placeholder="Send a message…"
          value={text}
          onChange={(event) => setText(event.target.value)}
          onPaste={(event) => attach(event.clipboardData.files)}
          onKeyDown={(event) => {
            if (event.key === "Enter" && !event.shiftKey && !event.nativeEvent.isComposing) {
              event.preventDefault();
              submit();
            } else if (event.key === "ArrowUp" && text === "" && !busy) {
              event.preventDefault();
              editLast();
            }
          }}
        />
        <div className="flex items-center justify-between p-2">
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
          <div className="flex min-w-0 items-center gap-1">
            <IconButton icon={Paperclip} label="Attach files" onClick={() => picker.current?.click()} />
            {agents}
          </div>
          {busy ? (
            <IconButton
              icon={Square}
              label="Stop"
              shortcut="Esc"
              round
              primary
              className="[&_svg]:fill-current"
              onClick={stop}
            />
          ) : (
            <IconButton
              type="submit"
              icon={ArrowUp}
              label="Send"
              shortcut="Enter"
              round
              primary
              disabled={!ready}
            />
          )}
        </div>
      </div>
    </form>
  );
}

function Preview({ file }: { file: File }) {
  const [url, setUrl] = useState<string>();
  useEffect(() => {
    if (!file.type.startsWith("image/")) return;
    const made = URL.createObjectURL(file);
    setUrl(made);
    return () => URL.revokeObjectURL(made);
  }, [file]);
  if (url) return <img src={url} alt="" className="size-8 shrink-0 rounded-lg object-cover" />;
  return (
    <span aria-hidden="true" className="grid size-8 shrink-0 place-items-center rounded-lg bg-muted text-soft">
      <FileText className="icon size-4" />
    </span>
  );
}

/** Take files that are dropped anywhere on the page, which would leave the page otherwise; returns whether some hover. */
function useDroppedFiles(attach: (files: Iterable<File>) => void): boolean {
  const [over, setOver] = useState(false);
  const latest = useRef(attach);
  latest.current = attach;
  useEffect(() => {
    const dragged = (event: DragEvent) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      setOver(true);
    };
    const left = (event: DragEvent) => event.relatedTarget === null && setOver(false);
    const dropped = (event: DragEvent) => {
      setOver(false);
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      latest.current(event.dataTransfer.files);
      focusPrompt();
    };
    addEventListener("dragover", dragged);
    addEventListener("dragleave", left);
    addEventListener("drop", dropped);
    return () => {
      removeEventListener("dragover", dragged);
      removeEventListener("dragleave", left);
      removeEventListener("drop", dropped);
    };
  }, []);
  return over;
}

/** How much is sent with every message. Files that the server has stored are only links. */
interface Sent {
  bytes: number;
  files: number;
}

function sizeOf(messages: UIMessage[]): Sent {
  const files = messages.flatMap(({ parts }) => parts).filter((part) => part.type === "file");
  return { bytes: files.reduce((sum, { url }) => sum + url.length, 0), files: files.length };
}

/** Say why a file cannot be sent; the server would refuse it. Files are sent in base64, which takes a third more. */
function reasonAgainst(file: File, others: File[], sent: Sent, limits: Limits): string | undefined {
  const { maximumFileBytes, maximumBytes, maximumFiles } = limits;
  const encoded = (bytes: number) => (bytes * 4) / 3 + 100;
  if (encoded(file.size) > maximumFileBytes) {
    return `${file.name} is too large: ${megabytes(file.size)}. A file may have ${megabytes((maximumFileBytes * 3) / 4)}.`;
  }
  const all = [...others, file];
  if (sent.bytes + encoded(all.reduce((sum, each) => sum + each.size, 0)) > maximumBytes) {
    return `${file.name} is not attached: all files of the chat together may have ${megabytes((maximumBytes * 3) / 4)}.`;
  }
  if (sent.files + all.length > maximumFiles) {
    return `${file.name} is not attached: a chat may have ${maximumFiles} files.`;
  }
  return undefined;
}

function megabytes(bytes: number): string {
  return bytes < 1_000_000 ? `${Math.round(bytes / 1000)} kB` : `${(bytes / 1_000_000).toFixed(1)} MB`;
}

function listOf(files: File[]): FileList {
  const transfer = new DataTransfer();
  for (const file of files) transfer.items.add(file);
  return transfer.files;
}
