import type { UIMessage } from "ai";
import { useState, useSyncExternalStore } from "react";
import { Icon } from "../components/icons";
import { asEventStream, dataOf, type Exchange, type Frame, type FrameTap } from "../frames";
import { pretty } from "../parts";
import { FrameTable } from "./frame-table";
import { Verdict } from "./verdict";

type View = "frames" | "message" | "check";

/** Every frame as it arrived, the resulting message, and the report of `usechat check`. */
export function Inspector({ tap, message, check, close }: {
  tap: FrameTap;
  message: UIMessage | undefined;
  check: string | undefined;
  close: () => void;
}) {
  const exchanges = useSyncExternalStore(tap.subscribe, () => tap.exchanges);
  const [chosen, setChosen] = useState<number>();
  const [view, setView] = useState<View>("frames");
  const streams = exchanges.filter((each) => each.frames.length > 0 || !each.ended || each.error);
  const exchange = streams.find((each) => each.number === chosen) ?? streams.at(-1);
  const views: View[] = check ? ["frames", "message", "check"] : ["frames", "message"];
  return (
    <aside className="inspector" aria-label="Inspector">
      <header>
        <h2>Inspector</h2>
        <select
          aria-label="Request"
          value={exchange?.number ?? ""}
          onChange={(event) => setChosen(Number(event.target.value))}
        >
          {streams.map((each) => (
            <option key={each.number} value={each.number}>
              {each.number}: {each.method} {each.url} {each.status ?? "…"}
            </option>
          ))}
        </select>
        <button type="button" className="icon-button" aria-label="Close inspector" onClick={close}>
          <Icon name="close" />
        </button>
      </header>
      <div className="tabs" role="tablist" aria-label="Views">
        {views.map((each) => (
          <button key={each} type="button" role="tab" aria-selected={view === each} onClick={() => setView(each)}>
            {each[0]?.toUpperCase() + each.slice(1)}
          </button>
        ))}
      </div>
      {view === "frames" && <Frames exchange={exchange} />}
      {view === "message" && (
        <pre className="inspector-json" tabIndex={0} aria-label="Message">
          {message ? pretty(message) : "No answer yet."}
        </pre>
      )}
      {view === "check" && check && <Verdict exchange={exchange} url={check} />}
    </aside>
  );
}

function Frames({ exchange }: { exchange: Exchange | undefined }) {
  const [filter, setFilter] = useState("");
  const [chosen, setChosen] = useState<number>();
  if (!exchange) return <p className="hint">No frames yet. Send a message.</p>;
  const found = filter ? exchange.frames.filter((frame) => matches(frame, filter)) : exchange.frames;
  const frame = exchange.frames.find((each) => each.number === chosen);
  return (
    <>
      <div className="inspector-tools">
        <input
          type="search"
          placeholder="Filter by type or text"
          aria-label="Filter frames"
          value={filter}
          onChange={(event) => setFilter(event.target.value)}
        />
        <button
          type="button"
          className="button"
          onClick={() => void navigator.clipboard.writeText(asEventStream(exchange.frames))}
        >
          Copy as .sse
        </button>
      </div>
      <p className="hint" role="status">
        {found.length} of {exchange.frames.length} frames
        {exchange.error ? `, connection lost: ${exchange.error}` : exchange.ended ? "" : ", still streaming"}
      </p>
      <FrameTable frames={found} chosen={chosen} choose={setChosen} />
      {frame && (
        <pre className="inspector-json" tabIndex={0} aria-label={`Frame ${frame.number}`}>
          {readable(frame)}
        </pre>
      )}
    </>
  );
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
