import { useCallback, useRef, useState, type RefObject } from "react";

/** State that can also be read between two renderings. */
export function useLatest<T>(first: T): [T, (value: T) => void, RefObject<T>] {
  const [value, setValue] = useState(first);
  const latest = useRef(first);
  const set = useCallback((next: T) => {
    latest.current = next;
    setValue(next);
  }, []);
  return [value, set, latest];
}
