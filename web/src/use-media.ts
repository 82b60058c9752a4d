import { useSyncExternalStore } from "react";

/** Whether a media query matches. */
export function useMedia(query: string): boolean {
  return useSyncExternalStore(
    (changed) => {
      const media = matchMedia(query);
      media.addEventListener("change", changed);
      return () => media.removeEventListener("change", changed);
    },
    () => matchMedia(query).matches,
  );
}

/** How to scroll by script, which no style sheet stops. */
export function useScrollBehavior(): "instant" | "smooth" {
  return useMedia("(prefers-reduced-motion: reduce)") ? "instant" : "smooth";
}
