import { session } from "./storage";

const KEY = "usechat:token";

/** The bearer token that the user typed; it is gone when the tab is closed. */
export function loadToken(): string {
  return session.get(KEY) ?? "";
}

export function saveToken(token: string): void {
  session.set(KEY, token);
}

export function authorization(): Record<string, string> {
  const token = loadToken();
  return token ? { authorization: `Bearer ${token}` } : {};
}
