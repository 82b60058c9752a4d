/** The server's settings for the page, in a meta element: no inline script is needed. */
export interface Settings {
  /** The title of the page. */
  title: string;
  /** Whether the title was chosen; otherwise an empty chat shows the name of its agent. */
  hasTitle: boolean;
  /** What is served: chats in the browser are kept under this name. */
  name: string;
  /** What the agent does, in a sentence. */
  description: string;
  /** The URL that DefaultChatTransport posts to. */
  api: string;
  /** The URL that checks a stream, if the server has one. */
  check?: string;
  /** Whether requests need a bearer token. */
  auth: boolean;
  /** Suggested first messages. */
  suggestions: string[];
  /** Whether the server stores chats and lists them. */
  chats: boolean;
  /** Whether stored chats can be shared by a link. */
  share: boolean;
}

const DEFAULTS: Settings = {
  title: "usechat",
  hasTitle: true,
  name: "",
  description: "",
  api: "api/chat",
  auth: false,
  suggestions: [],
  chats: false,
  share: false,
};

export function readSettings(): Settings {
  const content = document.querySelector<HTMLMetaElement>('meta[name="usechat"]')?.content ?? "{}";
  const settings = { ...DEFAULTS, ...(JSON.parse(content) as Partial<Settings>) };
  const hasTitle = settings.title !== "";
  return { ...settings, hasTitle, title: settings.title || "Chat", api: absolute(settings.api), check: settings.check && absolute(settings.check) };
}

/** Addresses are relative to the page, which may live under a prefix; names in braces come from its own query. */
function absolute(path: string): string {
  const query = new URLSearchParams(location.search);
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(query.get(name) ?? ""));
  return new URL(filled, document.baseURI).pathname;
}
