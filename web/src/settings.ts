/** What the server tells the page about itself, in a meta element: no inline script is needed. */
export interface Settings {
  /** What is served. */
  title: string;
  /** Where DefaultChatTransport posts to. */
  api: string;
  /** Where a stream is judged, if the server offers it. */
  check?: string;
  /** Whether requests need a bearer token. */
  auth: boolean;
  /** What a newcomer may ask. */
  suggestions: string[];
}

const DEFAULTS: Settings = { title: "usechat", api: "api/chat", auth: false, suggestions: [] };

export function readSettings(): Settings {
  const told = document.querySelector<HTMLMetaElement>('meta[name="usechat"]')?.content ?? "{}";
  const settings = { ...DEFAULTS, ...(JSON.parse(told) as Partial<Settings>) };
  return { ...settings, api: absolute(settings.api), check: settings.check && absolute(settings.check) };
}

/** Addresses are relative to the page, which may live under a prefix; names in braces come from its own query. */
function absolute(path: string): string {
  const query = new URLSearchParams(location.search);
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(query.get(name) ?? ""));
  return new URL(filled, document.baseURI).pathname;
}
