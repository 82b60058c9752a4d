import { useLayoutEffect, useRef } from "react";

/** A field that is as high as its text. Not every browser has `field-sizing`. */
export function useGrowingField(text: string) {
  const field = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => {
    if (!field.current) return;
    field.current.style.height = "auto";
    field.current.style.height = `${field.current.scrollHeight}px`;
  }, [text]);
  return field;
}
