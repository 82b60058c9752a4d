import { useLayoutEffect, useRef, useState } from "react";
import type { Frame } from "../frames";

/** Pixels, as in the style of `.frames td`. */
const ROW = 22;
const BEYOND = 10;

/** A table of any number of frames; only visible rows are in the document. It scrolls along with new frames. */
export function FrameTable({ frames, chosen, choose }: {
  frames: Frame[];
  chosen: number | undefined;
  choose: (number: number) => void;
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
    <div className="frames" ref={box} onScroll={updateVisible} tabIndex={0} role="group" aria-label="Frames">
      <table aria-rowcount={frames.length + 1}>
        <thead>
          <tr>
            <th scope="col">#</th>
            <th scope="col">Time</th>
            <th scope="col">Type</th>
            <th scope="col">Bytes</th>
          </tr>
        </thead>
        <tbody>
          <Space rows={first} />
          {shown.map((frame, index) => (
            <tr key={frame.number} aria-rowindex={first + index + 2} aria-selected={frame.number === chosen}>
              <td>{frame.number}</td>
              <td>{frame.time.toFixed(0)} ms</td>
              <td>
                <button type="button" className="frame-type" onClick={() => choose(frame.number)}>
                  {frame.type}
                </button>
              </td>
              <td>{frame.size}</td>
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
      <td colSpan={4} className="space" height={rows * ROW} />
    </tr>
  );
}
