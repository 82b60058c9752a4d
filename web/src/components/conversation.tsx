import { ArrowDown } from "lucide-react";
import type { ReactNode } from "react";
import { useStickToBottom } from "use-stick-to-bottom";
import { IconButton } from "../ui/button";
import { useScrollBehavior } from "../use-media";

/** The scrolling column of messages; it scrolls along with new text unless the user scrolls up. An empty one does not. */
export function Conversation({ children, busy, empty = false }: { children: ReactNode; busy: boolean; empty?: boolean }) {
  const motion = useScrollBehavior();
  const { scrollRef, contentRef, isAtBottom, scrollToBottom } = useStickToBottom({
    initial: empty ? false : "instant",
    resize: motion,
  });
  return (
    <div className="relative min-h-0 flex-1">
      <div
        className="h-full overflow-y-auto"
        ref={scrollRef}
        role="log"
        aria-label="Conversation"
        aria-live="polite"
        aria-busy={busy}
        tabIndex={0}
      >
        <div className="mx-auto flex min-h-full w-full max-w-3xl flex-col gap-6 px-4 py-4 sm:py-8" ref={contentRef}>
          {children}
        </div>
      </div>
      <div
        aria-hidden="true"
        className="screen-only pointer-events-none absolute right-3 bottom-0 left-0 h-4 bg-linear-to-t from-canvas to-transparent"
      />
      {!isAtBottom && !empty && (
        <IconButton
          round
          icon={ArrowDown}
          label="Scroll to the end"
          className="screen-only absolute bottom-4 left-1/2 -translate-x-1/2 border border-line bg-canvas shadow-float"
          // Messages that come into view change the height, which would count as the user scrolling up.
          onClick={() => void scrollToBottom({ animation: motion, ignoreEscapes: true })}
        />
      )}
    </div>
  );
}
