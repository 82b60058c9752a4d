import type { HighlightedGroup, HighlightRequest, Token } from "./highlighting-worker";

export type { Token };
export type ShowGroup = (group: number, lines: Token[][]) => void;

/** Longer blocks stay plain: thousands of coloured words make the page slow. */
const MAXIMUM_LENGTH = 30_000;

const waiting = new Map<number, ShowGroup>();
let worker: Worker | undefined;
let asked = 0;

/**
 * Highlight code in a worker, because the first block of a language alone takes longer than a frame. `show` gets the
 * tokens group by group; never, if the language is unknown or the code too long. Returns the function that cancels it.
 */
export function highlight(code: string, language: string, show: ShowGroup): () => void {
  if (!language || code.length > MAXIMUM_LENGTH) return () => undefined;
  worker ??= start();
  const id = (asked += 1);
  waiting.set(id, show);
  worker.postMessage({ id, code, language: language.toLowerCase() } satisfies HighlightRequest);
  return () => waiting.delete(id);
}

function start(): Worker {
  const started = new Worker(new URL("./highlighting-worker.ts", import.meta.url), { type: "module" });
  started.onmessage = ({ data: { id, group, lines } }: MessageEvent<HighlightedGroup>) => waiting.get(id)?.(group, lines);
  return started;
}
