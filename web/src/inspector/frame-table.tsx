import { useLayoutEffect, useRef, useState } from "react";
import type { Frame } from "../frames";

/** Pixels, as in the class of the rows. */
const ROW = 24;
const BEYOND = 10;

/** A table of any number of frames; only visible rows are in the document. It scrolls along with new frames. */
export function FrameTable({ frames, chosen, choose }: {
  frames: Frame[];
  chosen: number | undefined;
  choose: (index: number) => void;
}) {
  const [seen, setSeen] = useState({ top: 0, height: 600 });
  const box = useRef<HTMLDivElement>(null);
  const following = useRef(true);
  const first = Math.max(0, Math.min(Math.floor(seen.top / ROW), frames.length) - BEYOND);
  const shown = frames.slice(first, first + Math.ceil(seen.height / ROW) + 2 * BEYOND);

  function updateVisible(): void {
    const { scrollTop, clientHeight, scrollHeight } = box.current as HTMLDivElement;
    following.current = scrollTop + clientHeight >= scrollHeight - ROW;
    setSeen({ top: scrollTop, height: clientHeight });
  }

  useLayoutEffect(() => {
    if (box.current && following.current) box.current.scrollTop = box.current.scrollHeight;
  }, [frames.length]);

  return (
    <div
      className="frames min-h-32 flex-1 basis-56 overflow-auto rounded-lg border border-line"
      ref={box}
      onScroll={updateVisible}
      tabIndex={0}
      role="group"
      aria-label="Frames"
    >
      <table className="w-full font-mono text-xs" aria-rowcount={frames.length + 1}>
        <thead className="sticky top-0 bg-surface text-left text-soft">
          <tr className="h-7">
            {["#", "Time", "Type", "Bytes"].map((name) => (
              <th key={name} scope="col" className="px-2 font-normal">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          <Space rows={first} />
          {shown.map((frame, row) => (
            <tr
              key={frame.index}
              className="h-6 whitespace-nowrap aria-selected:bg-muted"
              aria-rowindex={first + row + 2}
              aria-selected={frame.index === chosen}
            >
              <td className="px-2 text-soft">{frame.number ?? "·"}</td>
              <td className="px-2 text-soft tabular-nums">{frame.time.toFixed(0)} ms</td>
              <td className="px-2">
                <button type="button" className="text-accent hover:underline" onClick={() => choose(frame.index)}>
                  {frame.type}
                </button>
              </td>
              <td className="px-2 text-soft tabular-nums">{frame.size}</td>
            </tr>
          ))}
          <Space rows={frames.length - first - shown.length} />
        </tbody>
      </table>
    </div>
  );
}

/** A spacer in place of the rows that are not visible. */
function Space({ rows }: { rows: number }) {
  if (rows <= 0) return null;
  return (
    <tr aria-hidden="true">
      <td colSpan={4} height={rows * ROW} />
    </tr>
  );
}
