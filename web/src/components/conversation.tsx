import { ArrowDown } from "lucide-react";
import type { UIMessage } from "ai";
import type { ReactNode } from "react";
import { IconButton } from "../ui/button";
import { classes } from "../ui/classes";
import { useReadingPlace, type Question } from "./use-reading-place";

interface Props {
  messages: UIMessage[];
  /** Draws a message. */
  draw: (message: UIMessage, index: number) => ReactNode;
  busy: boolean;
  /** What the user has just sent, and reads the answer of. */
  question?: Question | undefined;
  /** What follows the last message. */
  children?: ReactNode;
}

/** The scrolling column of messages. `useReadingPlace` says which of them is in sight. */
export function Conversation({ messages, draw, busy, question, children }: Props) {
  const { scroller, content, isAtEnd, goToEnd } = useReadingPlace(question);
  const turns = turnsOf(messages);
  const last = turns.at(-1)?.id;
  return (
    <div className="relative min-h-0 flex-1">
      <div
        className="conversation h-full overflow-y-auto"
        ref={scroller}
        role="log"
        aria-label="Conversation"
        aria-live="polite"
        aria-busy={busy}
        tabIndex={0}
      >
        <div className="relative mx-auto flex min-h-full w-full max-w-3xl flex-col gap-6 px-4 py-4 sm:py-8" ref={content}>
          {turns.map(({ id, start, messages: own }) => (
            <section key={id} className={classes("turn", id === question?.turn && "asked")}>
              {own.map((message, index) => draw(message, start + index))}
              {id === last && children}
            </section>
          ))}
          {turns.length === 0 && children}
        </div>
      </div>
      <div
        aria-hidden="true"
        className="screen-only pointer-events-none absolute right-3 bottom-0 left-0 h-4 bg-linear-to-t from-canvas to-transparent"
      />
      {!isAtEnd && (
        <IconButton
          round
          icon={ArrowDown}
          label="Scroll to the end"
          className="screen-only absolute bottom-4 left-1/2 -translate-x-1/2 border border-line bg-canvas shadow-float"
          onClick={goToEnd}
        />
      )}
    </div>
  );
}

/** A question and the answers to it. */
interface Turn {
  /** That of its first message. */
  id: string;
  /** The place of its first message in the chat. */
  start: number;
  messages: UIMessage[];
}

function turnsOf(messages: UIMessage[]): Turn[] {
  const turns: Turn[] = [];
  messages.forEach((message, start) => {
    const current = turns.at(-1);
    if (current && message.role !== "user") current.messages.push(message);
    else turns.push({ id: message.id, start, messages: [message] });
  });
  return turns;
}
