const KEY = "usechat:token";

/** The bearer token that the user typed; it is forgotten with the tab. */
export function loadToken(): string {
  return sessionStorage.getItem(KEY) ?? "";
}

export function saveToken(token: string): void {
  sessionStorage.setItem(KEY, token);
}

export function authorization(): Record<string, string> {
  const token = loadToken();
  return token ? { authorization: `Bearer ${token}` } : {};
}
