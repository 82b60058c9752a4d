import type { ReactNode } from "react";
import { useStickToBottom } from "use-stick-to-bottom";
import { Icon } from "./icons";

/** The scrolling column of messages; it scrolls along with new text unless the user scrolls up. */
export function Conversation({ children, busy }: { children: ReactNode; busy: boolean }) {
  const { scrollRef, contentRef, isAtBottom, scrollToBottom } = useStickToBottom({ initial: "instant" });
  return (
    <div className="conversation">
      <div
        className="conversation-scroll"
        ref={scrollRef}
        role="log"
        aria-label="Conversation"
        aria-live="polite"
        aria-busy={busy}
        tabIndex={0}
      >
        <div className="conversation-content" ref={contentRef}>
          {children}
        </div>
      </div>
      {!isAtBottom && (
        <button
          className="icon-button to-bottom"
          type="button"
          aria-label="Scroll to the end"
          onClick={() => void scrollToBottom()}
        >
          <Icon name="down" />
        </button>
      )}
    </div>
  );
}
