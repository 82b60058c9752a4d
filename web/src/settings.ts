import { isEmbedded } from "./embedding";

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
  /** The address of the logo, or an empty text. */
  logo: string;
  /** The accent colour and what is written on it, in the light and in the dark theme, where they were chosen. */
  accent: { light: Accent; dark: Accent } | null;
  /** The URL that DefaultChatTransport posts to. */
  api: string;
  /** The URL that checks a stream, if the server has one. */
  check?: string;
  /** Whether the page begins with a sign-in. */
  auth: boolean;
  /** The address of the sign-in, or an empty text: then the page asks for a token. */
  loginUrl: string;
  /** The origins whose pages may show this one in a frame. */
  embed: string[];
  /** The origin of the sandbox of MCP Apps, or an empty text: then no apps are shown. */
  appsOrigin: string;
  /** Suggested first messages. */
  suggestions: string[];
  /** Whether the server stores chats and lists them. */
  chats: boolean;
  /** Whether stored chats can be shared by a link. */
  share: boolean;
  /** Whether the page has the inspector, which is for developers: never in the page of somebody else. */
  inspector: boolean;
}

/** A colour, and that of the letters on it. */
export interface Accent {
  colour: string;
  text: string;
}

const DEFAULTS: Settings = {
  title: "usechat",
  hasTitle: true,
  name: "",
  description: "",
  logo: "",
  accent: null,
  api: "api/chat",
  auth: false,
  loginUrl: "",
  embed: [],
  appsOrigin: "",
  suggestions: [],
  chats: false,
  share: false,
  inspector: false,
};

export function readSettings(): Settings {
  const content = document.querySelector<HTMLMetaElement>('meta[name="usechat"]')?.content ?? "{}";
  const settings = { ...DEFAULTS, ...(JSON.parse(content) as Partial<Settings>) };
  const hasTitle = settings.title !== "";
  const inspector = settings.inspector && !isEmbedded();
  return { ...settings, hasTitle, inspector, title: settings.title || "Chat", api: absolute(settings.api), check: settings.check && absolute(settings.check) };
}

/** Give the page its accent. The style sheet chooses the shade of the theme. */
export function applyAccent({ accent }: Settings): void {
  const { style } = document.documentElement;
  for (const theme of accent ? (["light", "dark"] as const) : []) {
    style.setProperty(`--accent-${theme}`, accent![theme].colour);
    style.setProperty(`--on-accent-${theme}`, accent![theme].text);
  }
}

/** Addresses are relative to the page, which may live under a prefix; names in braces come from its own query. */
function absolute(path: string): string {
  const query = new URLSearchParams(location.search);
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(query.get(name) ?? ""));
  return new URL(filled, document.baseURI).pathname;
}
