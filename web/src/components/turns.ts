import { useLayoutEffect, useReducer, useRef, type RefObject } from "react";
import { flushSync } from "react-dom";

/** How many parts of a text may be drawn in a frame together with whatever else changes. */
const AT_ONCE = 2;
/** How many others are drawn in a frame, and for how many milliseconds: to lay them out takes longer than that. */
const MORE = 4;
const TIME = 3;

const updates: (() => void)[] = [];
const waiting = new Set<() => void>();
/** What is out of sight: it is drawn when nothing else waits, the last of it first. */
const outOfSight = new Set<() => void>();
let left = AT_ONCE;
let asked = false;
let drawsOutOfSight = false;

/**
 * What to draw now: the value, or, if much is to be drawn, what was drawn before, until its turn comes in one of the next
 * frames. So an answer that arrives at once is drawn over many frames.
 */
export function useTurn<T>(value: T, atOnce: boolean): T | undefined {
  const drawn = useRef<T>(undefined);
  if (drawn.current !== value && (atOnce || turnIsFree())) drawn.current = value;
  useDrawingLater(drawn, value, waiting);
  return drawn.current;
}

/** Whether to draw something that is out of sight: not before everything else is drawn. What is `inSight` is drawn at once. */
export function useLateTurn(inSight: boolean): boolean {
  const drawn = useRef(inSight);
  drawn.current ||= inSight;
  useDrawingLater(drawn, true, outOfSight);
  return drawn.current;
}

/** Draw the value, if it is not drawn yet, when its turn in the queue comes. */
function useDrawingLater<T>(drawn: RefObject<T | undefined>, value: T, queue: Set<() => void>): void {
  const [, redraw] = useReducer((count: number) => count + 1, 0);
  const waits = drawn.current !== value;
  useLayoutEffect(() => {
    if (!waits) return undefined;
    const draw = () => {
      drawn.current = value;
      flushSync(redraw);
    };
    queue.add(draw);
    askForFrame();
    return () => void queue.delete(draw);
  }, [drawn, waits, value, queue]);
}

// Paper shows what is out of sight on the screen, too.
addEventListener("beforeprint", () => [...waiting, ...outOfSight].forEach((draw) => draw()));

/**
 * Whether something out of sight was drawn in the last frame. It is lower at first: a browser without scroll anchoring
 * (WebKit) then scrolls up, and no observer of sizes sees why.
 */
export function isDrawingOutOfSight(): boolean {
  return drawsOutOfSight;
}

/** Update what is drawn in the next frame, together with what has its turn there: then the page is laid out once. */
export function inNextFrame(update: () => void): void {
  updates.push(update);
  askForFrame();
}

function turnIsFree(): boolean {
  askForFrame();
  if (left === 0 || waiting.size > 0) return false;
  left -= 1;
  return true;
}

function askForFrame(): void {
  if (!asked) requestAnimationFrame(drawSome);
  asked = true;
}

function drawSome(): void {
  asked = false;
  left = AT_ONCE;
  drawsOutOfSight = outOfSight.size > 0;
  const end = performance.now() + TIME;
  flushSync(() => updates.splice(0).forEach((update) => update()));
  const queue = waiting.size > 0 ? waiting : outOfSight;
  for (const draw of queue === waiting ? [...waiting].slice(0, MORE) : [...outOfSight].slice(-MORE).reverse()) {
    if (queue.delete(draw)) draw();
    if (performance.now() > end) break;
  }
  if (waiting.size + outOfSight.size > 0 || drawsOutOfSight) askForFrame();
}
