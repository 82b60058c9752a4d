import { useSyncExternalStore } from "react";

/** The chat that the address bar names, so that reloads and links open it. */
export function useChatInAddress(): string | null {
  return useSyncExternalStore(subscribe, () => new URLSearchParams(location.search).get("chat"));
}

export function showChat(id: string, how: "push" | "replace" = "push"): void {
  const address = new URL(location.href);
  address.searchParams.set("chat", id);
  history[how === "push" ? "pushState" : "replaceState"](null, "", address);
  dispatchEvent(new PopStateEvent("popstate"));
}

function subscribe(changed: () => void): () => void {
  addEventListener("popstate", changed);
  return () => removeEventListener("popstate", changed);
}
