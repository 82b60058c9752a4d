import type { Settings } from "./settings";

/** How long the page around this one has to answer, in milliseconds: it may ask its own server. */
const PATIENCE = 10_000;

/** Whether another page shows this one in a frame. The browser lets only those do so that the server names. */
export function isEmbedded(): boolean {
  return window.parent !== window;
}

/**
 * Ask the page around this one for the token of its user; empty if it has none, or does not answer. Nobody but the origins
 * that the server names hears the question, or can answer it.
 */
export function tokenOfHost({ embed }: Settings): Promise<string> {
  return new Promise((resolve) => {
    const listener = ({ source, origin, data }: MessageEvent<unknown>) => {
      const token = source === window.parent && embed.includes(origin) ? tokenIn(data) : undefined;
      if (token !== undefined) end(token);
    };
    const end = (token: string) => {
      removeEventListener("message", listener);
      clearTimeout(timer);
      resolve(token);
    };
    const timer = setTimeout(() => end(""), PATIENCE);
    addEventListener("message", listener);
    for (const origin of embed) window.parent.postMessage({ usechat: "wants-token" }, origin);
  });
}

function tokenIn(data: unknown): string | undefined {
  const { usechat, token } = (typeof data === "object" && data !== null ? data : {}) as { usechat?: unknown; token?: unknown };
  return usechat === "token" && typeof token === "string" ? token : undefined;
}
