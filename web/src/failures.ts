/** The error text that a usechat server sends before it closes a connection: it shuts down, or the client is too slow. */
const DISCONNECTED = "The server disconnected;";

/** Whether the connection was lost: `fetch` threw a TypeError, or the server announced it. */
export function isNetworkError(error: Error | undefined): boolean {
  return error instanceof TypeError || (error?.message.startsWith(DISCONNECTED) ?? false);
}

/** Whether a refusal says nothing, or is a web page: our server answers in sentences. */
export function isProxyError(error: Error): boolean {
  return /^\s*(<|$)/.test(error.message);
}

/** The text to show for an error: that of the error chunk or the refused request, never a proxy's HTML page. */
export function failureOf(error: Error | undefined, cutOff: boolean): string | undefined {
  if (cutOff) return "The connection was lost before the answer was complete.";
  if (!error) return undefined;
  if (isNetworkError(error)) return "The server cannot be reached.";
  return isProxyError(error) ? "The server could not answer." : error.message;
}
