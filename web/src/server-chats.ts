import type { UIMessage } from "ai";
import type { ChatEntry } from "./chats";
import type { Settings } from "./settings";
import { fetchAsUser } from "./token";

/** A chat as the server has it; siblings, ratings and outcomes stand beside the messages. */
export interface LoadedChat {
  messages: UIMessage[];
  headId: string | null;
  siblings: Record<string, string[]>;
  /** `attempt`: how many processes have answered; older servers do not say it. */
  running: { messageId: string | null; attempt?: number } | null;
  feedback: Record<string, unknown>;
  /** How each answer ended. */
  outcomes: Record<string, string>;
  /** The agent that answered last. */
  agent: string;
  version: number;
}

interface ListedChat {
  id: string;
  title: string;
  updatedAt: string;
  pinned: boolean;
  shared: boolean;
}

/** The routes of a server that stores chats. Each returns undefined, or false, where the server cannot answer. */
export class ServerChats {
  constructor(private readonly settings: Settings) {}

  /** The chats that fit a search, the newest first. */
  async list(query: string): Promise<ChatEntry[] | undefined> {
    const response = await this.ask(`${this.settings.api}s?limit=100&q=${encodeURIComponent(query)}`);
    if (!response) return undefined;
    const { chats } = (await response.json()) as { chats: ListedChat[] };
    return chats.map(({ id, title, updatedAt, pinned, shared }) => ({
      id,
      title,
      pinned,
      shared,
      changed: Date.parse(updatedAt),
      stored: true,
    }));
  }

  /** The id of the last answer that the server knows of a chat, running or not; null if it knows none. */
  async lastAnswer(id: string): Promise<string | null | undefined> {
    try {
      const response = await fetchAsUser(this.address(id));
      if (response.status === 404) return null;
      return response.ok ? ((await response.json()) as { messageId?: string }).messageId : undefined;
    } catch {
      return undefined;
    }
  }

  async load(id: string): Promise<LoadedChat | undefined> {
    const response = await this.ask(`${this.address(id)}/messages`);
    return response && ((await response.json()) as LoadedChat);
  }

  /** The end of the branch that begins with a message: its newest answer, that one's newest question, and so on. */
  async leafOf(id: string, message: string): Promise<string | undefined> {
    const response = await this.ask(`${this.address(id)}/messages?tree=1`);
    if (!response) return undefined;
    const { messages } = (await response.json()) as { messages: { parentId: string | null; message: UIMessage }[] };
    const newest = new Map(messages.map((row) => [row.parentId, row.message.id]));
    let leaf = message;
    for (let next = newest.get(leaf); next !== undefined; next = newest.get(leaf)) leaf = next;
    return leaf;
  }

  async change(id: string, change: { title?: string; pinned?: boolean; headId?: string }): Promise<boolean> {
    return (await this.ask(this.address(id), { method: "PATCH", body: JSON.stringify(change) })) !== undefined;
  }

  /** `keepalive`: the request goes out even if the page is being closed. */
  async remove(id: string): Promise<boolean> {
    return (await this.ask(this.address(id), { method: "DELETE", keepalive: true })) !== undefined;
  }

  async rate(id: string, message: string, feedback: unknown): Promise<boolean> {
    const address = `${this.address(id)}/messages/${encodeURIComponent(message)}/feedback`;
    return (await this.ask(address, { method: "PUT", body: JSON.stringify(feedback ?? null) })) !== undefined;
  }

  async export(id: string, format: "json" | "markdown"): Promise<string | undefined> {
    return (await this.ask(`${this.address(id)}/export?format=${format}`))?.text();
  }

  /** The link with which anyone can read a chat; the same one until it is revoked. */
  async share(id: string): Promise<string | undefined> {
    const response = await this.ask(`${this.address(id)}/share`, { method: "PUT" });
    if (!response) return undefined;
    const { token } = (await response.json()) as { token: string };
    const link = new URL(location.href);
    link.search = `?shared=${token}`;
    return link.href;
  }

  async unshare(id: string): Promise<boolean> {
    return (await this.ask(`${this.address(id)}/share`, { method: "DELETE" })) !== undefined;
  }

  private address(id: string): string {
    return `${this.settings.api}/${encodeURIComponent(id)}`;
  }

  private async ask(url: string, init: RequestInit = {}): Promise<Response | undefined> {
    if (!this.settings.chats) return undefined;
    try {
      const response = await fetchAsUser(url, { ...init, headers: { "content-type": "application/json" } });
      return response.ok ? response : undefined;
    } catch {
      return undefined;
    }
  }
}
