import { ChevronDown, Copy, Download, FolderOpen } from "lucide-react";
import { readUIMessageStream, type UIMessage, type UIMessageChunk } from "ai";
import { Tabs } from "radix-ui";
import { memo, useEffect, useRef, useState, useSyncExternalStore } from "react";
import { asEventStream, dataOf, type Exchange, type Frame, type FrameTap, isRefusal } from "../frames";
import { pretty } from "../parts";
import { saveFile } from "../save-file";
import type { Settings } from "../settings";
import { Button, IconButton } from "../ui/button";
import { Panel } from "../ui/panel";
import { FrameTable } from "./frame-table";
import { readRecording, writeRecording } from "./recording";
import { Verdict } from "./verdict";

type View = "frames" | "message" | "check";

interface Recording {
  name: string;
  exchanges: Exchange[];
}

/** Every frame as it arrived, the resulting message, and the report of `usechat check`; live, or of a recording. */
export function Inspector({ tap, message, settings, close }: {
  tap: FrameTap;
  message: UIMessage | undefined;
  settings: Settings;
  close: () => void;
}) {
  const live = useSyncExternalStore(tap.subscribe, () => tap.exchanges);
  const [recording, setRecording] = useState<Recording>();
  const [failure, setFailure] = useState<string>();
  const [chosen, setChosen] = useState<number>();
  const [view, setView] = useState<View>("frames");
  const [frame, setFrame] = useState<number>();
  const picker = useRef<HTMLInputElement>(null);
  const exchanges = recording?.exchanges ?? live;
  const streams = exchanges.filter((each) => each.frames.length > 0 || each.end?.how !== "complete" || isRefusal(each));
  const exchange = streams.find((each) => each.number === chosen) ?? streams.at(-1);

  async function open(file: File): Promise<void> {
    try {
      setRecording({ name: file.name, exchanges: readRecording(await file.text()) });
      setFailure(undefined);
      setChosen(undefined);
      setFrame(undefined);
    } catch (error) {
      setFailure(error instanceof Error ? error.message : String(error));
    }
  }

  return (
    <Panel name="Inspector" width={440} title={<h2 className="font-semibold">Inspector</h2>} close={close}>
      <div className="flex min-h-0 flex-1 flex-col gap-3 px-4 pb-4">
        <div className="flex items-center gap-1">
          <div className="relative min-w-0 flex-1">
            <select
              aria-label="Request"
              className="h-9 pointer-coarse:h-11 w-full appearance-none truncate rounded-lg border border-line bg-canvas pr-8 pl-3 text-sm"
              value={exchange?.number ?? ""}
              onChange={(event) => setChosen(Number(event.target.value))}
            >
              {streams.length === 0 && <option value="">No requests yet</option>}
              {streams.map((each) => (
                <option key={each.number} value={each.number}>
                  {each.number}: {each.method} {each.url} {each.status ?? "…"}
                </option>
              ))}
            </select>
            <ChevronDown aria-hidden="true" className="pointer-events-none absolute top-1/2 right-2.5 size-4 -translate-y-1/2 text-soft" />
          </div>
          <IconButton
            icon={Download}
            label="Save a recording"
            disabled={exchanges.length === 0}
            onClick={() => saveFile("chat.usechat.jsonl", writeRecording(exchanges, settings.api), "application/jsonl")}
          />
          <IconButton icon={FolderOpen} label="Open a recording" onClick={() => picker.current?.click()} />
          <input
            ref={picker}
            type="file"
            hidden
            aria-label="Recording"
            accept=".jsonl"
            onChange={(event) => {
              const [file] = event.target.files ?? [];
              if (file) void open(file);
              event.target.value = "";
            }}
          />
        </div>
        {failure && (
          <p role="alert" className="text-sm text-bad">
            {failure}
          </p>
        )}
        {recording && (
          <p className="flex items-center justify-between gap-2 rounded-lg bg-muted py-1 pr-1 pl-3 text-sm">
            <span className="truncate">Recording: {recording.name}</span>
            <Button onClick={() => setRecording(undefined)}>Back to this chat</Button>
          </p>
        )}
        <Tabs.Root value={view} onValueChange={(value) => setView(value as View)} className="flex min-h-0 flex-1 flex-col gap-3">
          <Tabs.List aria-label="Views" className="flex gap-1 rounded-lg bg-muted p-1">
            {(settings.check ? ["frames", "message", "check"] : ["frames", "message"]).map((each) => (
              <Tabs.Trigger
                key={each}
                value={each}
                className="flex-1 rounded-md py-1 pointer-coarse:min-h-10 text-sm text-soft capitalize data-[state=active]:bg-canvas data-[state=active]:text-ink"
              >
                {each}
              </Tabs.Trigger>
            ))}
          </Tabs.List>
          <Tabs.Content value="frames" className="flex min-h-0 flex-1 flex-col gap-2">
            <Frames exchange={exchange} chosen={frame} choose={setFrame} />
          </Tabs.Content>
          <Tabs.Content value="message" className="min-h-0 flex-1">
            {recording ? (
              <RecordedMessage exchange={exchange} />
            ) : (
              <MessageText message={message} growing={live.some((each) => each.frames.length > 0 && !each.end)} />
            )}
          </Tabs.Content>
          {settings.check && (
            <Tabs.Content value="check" className="flex min-h-0 flex-1 flex-col">
              <Verdict
                exchange={exchange}
                url={settings.check}
                showFrame={(number) => {
                  setFrame(exchange?.frames.find((each) => each.number === number)?.index);
                  setView("frames");
                }}
              />
            </Tabs.Content>
          )}
        </Tabs.Root>
      </div>
    </Panel>
  );
}

const TEXT = "overflow-auto rounded-lg bg-surface p-3 font-mono text-xs leading-5 break-words whitespace-pre-wrap";

/** Lines that are drawn anew if one of them has changed. */
const GROUP = 50;
/** Characters of a value that are shown while the message grows: the end of a text that is longer. */
const SHOWN = 1000;

/** A message as JSON. While it `grows`, long texts are shortened: the browser would break all their lines anew each time. */
function MessageText({ message, growing = false }: { message: UIMessage | undefined; growing?: boolean }) {
  const lines = message ? JSON.stringify(message, growing ? shortened : undefined, 2).split("\n") : ["No answer yet."];
  const groups = Array.from({ length: Math.ceil(lines.length / GROUP) }, (_, index) => lines.slice(index * GROUP, (index + 1) * GROUP));
  return (
    <pre className={`h-full ${TEXT}`} tabIndex={0} aria-label="Message">
      {groups.map((group, index) => (
        <Lines key={index} text={group.join("\n")} />
      ))}
    </pre>
  );
}

const Lines = memo(function Lines({ text }: { text: string }) {
  return <span className="block [contain-intrinsic-block-size:auto_62.5rem] [content-visibility:auto]">{text}</span>;
});

function shortened(_key: string, value: unknown): unknown {
  return typeof value === "string" && value.length > SHOWN ? `… ${value.slice(-SHOWN)}` : value;
}

/** The message that the SDK's own reader makes of a recorded answer. */
function RecordedMessage({ exchange }: { exchange: Exchange | undefined }) {
  const [message, setMessage] = useState<UIMessage>();
  useEffect(() => {
    let current = true;
    void (async () => {
      for await (const each of readUIMessageStream({ stream: chunksOf(exchange) })) if (current) setMessage(each);
    })();
    return () => {
      current = false;
    };
  }, [exchange]);
  return <MessageText message={message} />;
}

function chunksOf(exchange: Exchange | undefined): ReadableStream<UIMessageChunk> {
  return new ReadableStream({
    start(controller) {
      for (const { type, raw } of exchange?.frames ?? []) {
        if (!["comment", "[DONE]", "not JSON"].includes(type)) controller.enqueue(JSON.parse(dataOf(raw) ?? "") as UIMessageChunk);
      }
      controller.close();
    },
  });
}

function Frames({ exchange, chosen, choose }: {
  exchange: Exchange | undefined;
  chosen: number | undefined;
  choose: (index: number) => void;
}) {
  const [filter, setFilter] = useState("");
  if (!exchange) return <p className="text-sm text-soft">No frames yet. Send a message.</p>;
  const found = filter ? exchange.frames.filter((frame) => matches(frame, filter)) : exchange.frames;
  const frame = exchange.frames.find((each) => each.index === chosen);
  return (
    <>
      <div className="flex gap-2">
        <input
          type="search"
          className="h-9 min-w-0 flex-1 rounded-lg border border-line bg-canvas px-3 text-sm pointer-coarse:h-11 pointer-coarse:text-base placeholder:text-soft"
          placeholder="Filter by type or text"
          aria-label="Filter frames"
          value={filter}
          onChange={(event) => setFilter(event.target.value)}
        />
        <Button onClick={() => void navigator.clipboard.writeText(asEventStream(exchange))}>
          <Copy aria-hidden="true" className="size-4" />
          Copy as .sse
        </Button>
      </div>
      <p className="text-xs text-soft" role="status">
        {found.length} of {exchange.frames.length} frames
        {outcome(exchange)}
      </p>
      <FrameTable frames={found} chosen={chosen} choose={choose} />
      {exchange.end && exchange.rest && (
        <pre className={`max-h-64 shrink-0 ${TEXT}`} tabIndex={0} aria-label={isRefusal(exchange) ? "Refusal" : "Incomplete frame"}>
          {exchange.rest}
        </pre>
      )}
      {frame && (
        <pre className={`max-h-64 shrink-0 ${TEXT}`} tabIndex={0} aria-label={`Frame ${frame.number ?? "comment"}`}>
          {readable(frame)}
        </pre>
      )}
    </>
  );
}

function outcome({ error, end }: Exchange): string {
  if (error) return `, connection lost: ${error}`;
  if (!end) return ", still streaming";
  return end.how === "left" ? ", then the page stopped reading" : "";
}

function matches(frame: Frame, filter: string): boolean {
  return frame.raw.toLowerCase().includes(filter.toLowerCase()) || frame.type.includes(filter);
}

function readable(frame: Frame): string {
  const data = dataOf(frame.raw);
  try {
    return pretty(JSON.parse(data ?? ""));
  } catch {
    return frame.raw;
  }
}
