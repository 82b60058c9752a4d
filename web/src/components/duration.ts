import { useEffect, useRef, useState } from "react";

/** How long things took that this page has seen begin and end, in milliseconds. */
const measured = new Map<string, number>();

/** Measure how long something runs; undefined if the page did not see it begin. */
export function useDuration(key: string, running: boolean): number | undefined {
  const began = useRef<number>(undefined);
  const [took, setTook] = useState(() => measured.get(key));
  useEffect(() => {
    if (running) began.current ??= performance.now();
    else if (began.current !== undefined) {
      measured.set(key, performance.now() - began.current);
      setTook(measured.get(key));
      began.current = undefined;
    }
  }, [key, running]);
  return took;
}

export function inWords(milliseconds: number): string {
  if (milliseconds < 1000) return `${Math.max(1, Math.round(milliseconds))} ms`;
  return `${milliseconds < 10_000 ? (milliseconds / 1000).toFixed(1).replace(/\.0$/, "") : Math.round(milliseconds / 1000)} s`;
}
