import { isEmbedded } from "./embedding";
import { local, session } from "./storage";

const KEY = "usechat:token";
/** Where the user left for the sign-in of another page. All tabs know it: that page may have opened in a new one. */
const LEFT = "usechat:signing-in";
/** Milliseconds within which a user comes back from there. */
const RETURN_TIME = 60 * 60 * 1000;
const REFUSED = "usechat-refused";

/** The token that the page around this one has given: it stays in memory. */
let given = "";

/** The bearer token of the user; it is gone when the tab is closed. */
export function loadToken(): string {
  return isEmbedded() ? given : (session.get(KEY) ?? "");
}

export function saveToken(token: string): void {
  if (isEmbedded()) given = token;
  else if (token) session.set(KEY, token);
  else session.remove(KEY);
}

export function authorization(token = loadToken()): Record<string, string> {
  return token ? { authorization: `Bearer ${token}` } : {};
}

/** Fetch with the token of the user. Whoever listens is told if the server does not know the user any more. */
export async function fetchAsUser(input: RequestInfo | URL, init?: RequestInit): Promise<Response> {
  const token = loadToken();
  const headers = new Headers(init?.headers);
  for (const [name, value] of Object.entries(authorization(token))) headers.set(name, value);
  const response = await fetch(input, { ...init, headers });
  // An answer to a token that was replaced meanwhile says nothing about the user.
  if (response.status === 401 && token === loadToken()) {
    const reason = token ? await reasonOf(response.clone()) : "You were signed out.";
    dispatchEvent(new CustomEvent(REFUSED, { detail: reason }));
  }
  return response;
}

/** Subscribe to the reasons for which the server refuses the user; returns the function that unsubscribes. */
export function onRefused(refused: (reason: string) => void): () => void {
  const listener = (event: Event) => refused((event as CustomEvent<string>).detail);
  addEventListener(REFUSED, listener);
  return () => removeEventListener(REFUSED, listener);
}

/** What a refused request says: never a proxy's HTML page. */
export async function reasonOf(response: Response): Promise<string> {
  const text = await response.text().catch(() => "");
  return /^\s*(<|$)/.test(text) ? "The server could not answer." : text;
}

/** Note that the user leaves for the sign-in of another page, and where to come back to. */
export function leaveForSignIn(): void {
  local.set(LEFT, JSON.stringify({ query: location.search, time: Date.now() }));
}

export function hasTokenInAddress(): boolean {
  return tokenInAddress() !== null;
}

/** A token that came with the address. `wanted`: whether the user has left for it; anybody can make a link with one. */
export interface GivenToken {
  token: string;
  wanted: boolean;
}

/** Come back from the sign-in of another page: to the same chat, and with the token that the address no longer has. */
export function comeBack(): GivenToken | undefined {
  const [token, left] = [tokenInAddress(), whereLeft()];
  local.remove(LEFT);
  if (token !== null || left) history.replaceState(history.state, "", location.pathname + (location.search || (left ?? "")));
  return token ? { token, wanted: left !== undefined } : undefined;
}

function tokenInAddress(): string | null {
  return new URLSearchParams(location.hash.slice(1)).get("token");
}

function whereLeft(): string | undefined {
  const { query, time } = JSON.parse(local.get(LEFT) ?? "{}") as { query?: string; time?: number };
  return time !== undefined && Date.now() - time < RETURN_TIME ? query : undefined;
}
