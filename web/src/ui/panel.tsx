import { X } from "lucide-react";
import { useState, type ReactNode } from "react";
import { local } from "../storage";
import { useMedia } from "../use-media";
import { IconButton } from "./button";

const LEAST = 280;
const MOST = 900;
const STEP = 32;

interface Props {
  name: string;
  /** Pixels, before the user drags the edge. */
  width: number;
  title: ReactNode;
  close: () => void;
  children: ReactNode;
}

/** A panel beside the chat with an edge that can be dragged; on a narrow screen, a sheet over it. */
export function Panel({ name, width: initial, title, close, children }: Props) {
  const key = `usechat:panel:${name}`;
  const [width, setWidth] = useState(() => Number(local.get(key)) || initial);
  const wide = useMedia("(min-width: 64rem)");

  function resize(wanted: number): void {
    const next = Math.round(Math.min(Math.max(wanted, LEAST), MOST, innerWidth * 0.6));
    setWidth(next);
    local.set(key, String(next));
  }

  return (
    <>
      {!wide && <div className="fixed inset-0 z-20 bg-black/40" aria-hidden="true" onClick={close} />}
      <aside
        aria-label={name}
        data-panel={name}
        style={wide ? { width } : undefined}
        className="screen-only relative flex min-h-0 shrink-0 flex-col border-line bg-canvas max-lg:fixed max-lg:inset-x-0 max-lg:bottom-0 max-lg:z-30 max-lg:h-[75dvh] max-lg:rounded-t-2xl max-lg:shadow-float lg:border-l"
      >
        {wide && (
          <div
            role="separator"
            aria-orientation="vertical"
            aria-label={`Width of ${name}`}
            aria-valuenow={width}
            aria-valuemin={LEAST}
            aria-valuemax={MOST}
            tabIndex={0}
            className="absolute inset-y-0 -left-1 z-10 w-2 cursor-col-resize touch-none hover:bg-accent/30"
            onPointerDown={(event) => {
              event.preventDefault(); // WebKit would select the text over which the pointer moves
              event.currentTarget.focus();
              event.currentTarget.setPointerCapture(event.pointerId);
            }}
            onPointerMove={(event) => {
              if (event.currentTarget.hasPointerCapture(event.pointerId)) resize(innerWidth - event.clientX);
            }}
            onKeyDown={(event) => {
              if (event.key === "ArrowLeft") resize(width + STEP);
              if (event.key === "ArrowRight") resize(width - STEP);
            }}
          />
        )}
        <header className="flex h-14 shrink-0 items-center gap-2 pr-2 pl-4">
          <div className="flex min-w-0 flex-1 items-center gap-2">{title}</div>
          <IconButton icon={X} label={`Close ${name.toLowerCase()}`} onClick={close} />
        </header>
        {children}
      </aside>
    </>
  );
}
