import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "react";
import { useScrollBehavior } from "../use-media";
import { isDrawingOutOfSight } from "./turns";

/**
 * Where a conversation is read, which is one of three places:
 *
 * - `end`: the view follows what arrives. A chat that is opened or resumed begins there.
 * - `question`: the question that the user has just sent stays at the top, and its answer grows below it. The turn of the
 *   question is at least as high as the view (see `.turn.asked` of the style sheet), so that there is room for that.
 * - `anywhere`: the user has scrolled or followed a link, and the view stays where it is.
 *
 * Whoever scrolls leaves `end` and `question`; whoever scrolls down to the end follows it from there.
 */
type Place = "end" | "question" | "anywhere";

/** Pixels from the end that count as the end: positions of a zoomed page are rounded. */
const NEAR = 4;
/** Milliseconds without a scroll event after which a smooth scroll has ended, if the browser has not said so. */
const SMOOTH = 800;
/** Milliseconds after a turn of the wheel, in which a scroll is the user's even if the height changes meanwhile. */
const BY_HAND = 200;

/** The question that the user has just sent: its number, so that each one is gone to once, and its turn. */
export interface Question {
  number: number;
  turn: string;
}

export function useReadingPlace(question: Question | undefined) {
  const scroller = useRef<HTMLDivElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const place = useRef<Place>("end");
  /** The height and the position that the last scroll event or change of the height has left. */
  const known = useRef({ height: 0, top: 0 });
  /** The timer that ends a smooth scroll of ours, while there is one: what it scrolls is not the user's doing. */
  const moving = useRef<number>(undefined);
  /** When the user has last turned the wheel, moved a finger or pressed a key here. */
  const touched = useRef(-Infinity);
  const [isAtEnd, setAtEnd] = useState(true);
  const behavior = useScrollBehavior();

  const look = useCallback(() => {
    const { scrollHeight: height, scrollTop: top, clientHeight } = scroller.current!;
    known.current = { height, top };
    setAtEnd(height - top - clientHeight <= NEAR);
  }, []);

  const goTo = useCallback((top: number, how: ScrollBehavior) => {
    const element = scroller.current!;
    const target = Math.min(Math.max(top, 0), element.scrollHeight - element.clientHeight);
    // Without a way to go no `scrollend` would follow, and the next scroll of the user would count as ours.
    const isAway = Math.abs(target - element.scrollTop) > 1;
    clearTimeout(moving.current);
    moving.current = how === "smooth" && isAway ? endSoon(element) : undefined;
    element.scrollTo({ top, behavior: how });
  }, []);

  const goToQuestion = useCallback((how: ScrollBehavior) => {
    const turn = scroller.current?.querySelector<HTMLElement>(".turn.asked");
    if (turn) goTo(turn.offsetTop - margin(turn), how);
  }, [goTo]);

  const goToEnd = useCallback(() => {
    place.current = "end";
    touched.current = -Infinity; // the wheel was turned before that
    goTo(scroller.current!.scrollHeight, behavior);
  }, [goTo, behavior]);

  const keep = useCallback(() => {
    const isOnTheWay = moving.current !== undefined;
    if (place.current === "end" && !isOnTheWay) goTo(scroller.current!.scrollHeight, "instant");
    if (place.current === "question" && !isOnTheWay) goToQuestion("instant");
    look();
  }, [goTo, goToQuestion, look]);

  // The place is kept when the height of anything changes: of the answer, of messages that are drawn late, of the window.
  useLayoutEffect(() => {
    keep();
    const observer = new ResizeObserver(keep);
    observer.observe(scroller.current!);
    observer.observe(content.current!);
    return () => observer.disconnect();
  }, [keep]);

  useEffect(() => {
    const element = scroller.current!;
    const scrolled = () => {
      const { height, top } = known.current;
      const byHand = performance.now() < touched.current + BY_HAND;
      const isOnTheWay = moving.current !== undefined;
      const isClamped = touched.current < 0 && isDrawingOutOfSight();
      const isOurs = !byHand && (isOnTheWay || element.scrollHeight !== height || isClamped);
      const step = element.scrollTop - top;
      look();
      clearTimeout(moving.current);
      moving.current = isOurs && isOnTheWay ? endSoon(element) : undefined;
      if (isOurs) return keep();
      if (Math.abs(step) <= 1) return;
      place.current = step > 0 && height - element.scrollTop - element.clientHeight <= NEAR ? "end" : "anywhere";
    };
    const touch = () => (touched.current = performance.now());
    const follow = (event: Event) => {
      if (!(event.target as Element).closest('a[href^="#"]')) return;
      // Also on the way: it would go on after the browser has gone where the link leads.
      clearTimeout(moving.current);
      moving.current = undefined;
      place.current = "anywhere";
    };
    const arrived = () => {
      clearTimeout(moving.current);
      moving.current = undefined;
      keep();
    };
    const hands = ["wheel", "touchmove", "keydown"];
    element.addEventListener("scroll", scrolled, { passive: true });
    element.addEventListener("scrollend", arrived);
    element.addEventListener("click", follow);
    hands.forEach((name) => element.addEventListener(name, touch, { passive: true }));
    return () => {
      element.removeEventListener("scroll", scrolled);
      element.removeEventListener("scrollend", arrived);
      element.removeEventListener("click", follow);
      hands.forEach((name) => element.removeEventListener(name, touch));
    };
  }, [look, keep]);

  useLayoutEffect(() => {
    if (!question) return undefined;
    place.current = "question";
    // Not here: the position needs a layout, which would make one long task of the drawing and itself.
    const frame = requestAnimationFrame(() => goToQuestion(behavior));
    return () => cancelAnimationFrame(frame);
  }, [question?.number, question?.turn]);

  return { scroller, content, isAtEnd, goToEnd };
}

function endSoon(scroller: HTMLElement): number {
  return setTimeout(() => scroller.dispatchEvent(new Event("scrollend")), SMOOTH);
}

function margin(turn: HTMLElement): number {
  return Number.parseFloat(getComputedStyle(turn).scrollMarginTop);
}
