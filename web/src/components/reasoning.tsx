import { Brain, ChevronRight } from "lucide-react";
import { useEffect, useId, useRef, useState } from "react";
import { classes } from "../ui/classes";
import { inWords, useDuration } from "./duration";
import { Markdown } from "./markdown";

/** The model's reasoning: open while it streams, collapsed when it is done, unless the user has toggled it. */
export function Reasoning({ id, text, streaming }: { id: string; text: string; streaming: boolean }) {
  const [open, setOpen] = useState(streaming);
  const content = useId();
  const touched = useRef(false);
  const took = useDuration(id, streaming);
  useEffect(() => {
    if (!touched.current) setOpen(streaming);
  }, [streaming]);
  return (
    <div className="reasoning">
      <button
        type="button"
        aria-expanded={open}
        aria-controls={open ? content : undefined}
        onClick={() => {
          touched.current = true;
          setOpen(!open);
        }}
        className="-ml-2 flex min-h-8 pointer-coarse:min-h-10 items-center gap-2 rounded-lg px-2 text-sm text-soft hover:bg-muted hover:text-ink"
      >
        <Brain aria-hidden="true" className={classes("icon size-4", streaming && "animate-pulse")} />
        {streaming ? "Thinking…" : took === undefined ? "Thoughts" : `Thought for ${took < 1000 ? "a moment" : inWords(took)}`}
        <ChevronRight aria-hidden="true" className={classes("icon size-4 transition-transform", open && "rotate-90")} />
      </button>
      {/* No collapsible of Radix: it measures what it closes, which takes long for a long text. */}
      {open && (
        <div id={content} className="mt-1 ml-2 border-l-2 border-line pl-4 text-sm text-soft">
          <Markdown text={text} streaming={streaming} />
        </div>
      )}
    </div>
  );
}
