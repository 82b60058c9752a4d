/** What a server of ours says before it hangs up on a reader: it is about to end, or the reader is too slow. */
const BROKEN_OFF = "The connection was broken off;";

/** Whether the connection is gone: `fetch` threw, which it does with a TypeError, or the server said so. */
export function isNetworkError(error: Error | undefined): boolean {
  return error instanceof TypeError || (error?.message.startsWith(BROKEN_OFF) ?? false);
}

/** What people read of an error: the text of an error chunk or of a refused request, never the page of a proxy. */
export function failureOf(error: Error | undefined, cutOff: boolean): string | undefined {
  if (cutOff) return "The connection was lost before the answer was complete.";
  if (!error) return undefined;
  if (isNetworkError(error)) return "The server cannot be reached.";
  return /^\s*(<|$)/.test(error.message) ? "The server could not answer." : error.message;
}
