import { useLayoutEffect, useReducer, useRef } from "react";
import { flushSync } from "react-dom";

/** How many parts of a text may be drawn in a frame together with whatever else changes. */
const AT_ONCE = 2;
/** How many others are drawn in a frame, and for how many milliseconds: to lay them out takes longer than that. */
const MORE = 4;
const TIME = 3;

const updates: (() => void)[] = [];
const waiting = new Set<() => void>();
let left = AT_ONCE;
let asked = false;

/**
 * What to draw now: the value, or, if much is to be drawn, what was drawn before, until its turn comes in one of the next
 * frames. So an answer that arrives at once is drawn over many frames.
 */
export function useTurn<T>(value: T, atOnce: boolean): T | undefined {
  const drawn = useRef<T>(undefined);
  const [, redraw] = useReducer((count: number) => count + 1, 0);
  if (drawn.current !== value && (atOnce || turnIsFree())) drawn.current = value;
  const waits = drawn.current !== value;
  useLayoutEffect(() => {
    if (!waits) return undefined;
    const draw = () => {
      drawn.current = value;
      flushSync(redraw);
    };
    waiting.add(draw);
    askForFrame();
    return () => void waiting.delete(draw);
  }, [waits, value]);
  return drawn.current;
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
  const end = performance.now() + TIME;
  flushSync(() => updates.splice(0).forEach((update) => update()));
  for (const draw of [...waiting].slice(0, MORE)) {
    if (waiting.delete(draw)) draw();
    if (performance.now() > end) break;
  }
  if (waiting.size > 0) askForFrame();
}
