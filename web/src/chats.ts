import type { UIMessage } from "ai";

/** A chat of the side list. */
export interface ChatEntry {
  id: string;
  title: string;
  changed: number;
}

const PREFIX = `usechat:${location.pathname}:`;
const LIST = `${PREFIX}chats`;
const SAVED = "usechat-saved";

export function newChatId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (byte) => (byte % 36).toString(36)).join("");
}

export function loadChats(): ChatEntry[] {
  return (read(LIST) as ChatEntry[] | undefined) ?? [];
}

/** What is kept of a chat; `running` says that its last answer was still being written. */
export interface StoredChat {
  messages: UIMessage[];
  running: boolean;
}

export function loadChat(id: string): StoredChat {
  return (read(PREFIX + id) as StoredChat | undefined) ?? { messages: [], running: false };
}

/** Keep a chat, and put it on top of the list if it has changed. */
export function saveChat(id: string, chat: StoredChat): void {
  const before = localStorage.getItem(PREFIX + id);
  if (before === JSON.stringify(chat)) return;
  if (!write(PREFIX + id, chat)) {
    write(PREFIX + id, { ...chat, messages: chat.messages.map(withoutContents) });
  }
  const others = loadChats().filter((entry) => entry.id !== id);
  write(LIST, [{ id, title: titleOf(chat.messages), changed: Date.now() }, ...others]);
  dispatchEvent(new Event(SAVED));
}

export function removeChat(id: string): void {
  localStorage.removeItem(PREFIX + id);
  write(
    LIST,
    loadChats().filter((chat) => chat.id !== id),
  );
  dispatchEvent(new Event(SAVED));
}

/** Call back when the list changes, in this tab or another; returns what ends that. */
export function onListChanged(changed: () => void): () => void {
  const listener = (event: StorageEvent) => event.key === LIST && changed();
  addEventListener("storage", listener);
  addEventListener(SAVED, changed);
  return () => {
    removeEventListener("storage", listener);
    removeEventListener(SAVED, changed);
  };
}

/** Call back when another tab changes this chat; returns what ends that. */
export function onChatChanged(id: string, changed: () => void): () => void {
  const listener = (event: StorageEvent) => event.key === PREFIX + id && event.newValue !== null && changed();
  addEventListener("storage", listener);
  return () => removeEventListener("storage", listener);
}

function titleOf(messages: UIMessage[]): string {
  for (const message of messages) {
    for (const part of message.role === "user" ? message.parts : []) {
      if (part.type === "text" && part.text.trim()) {
        return part.text.trim().replace(/\s+/g, " ").slice(0, 60);
      }
    }
  }
  return "New chat";
}

/** Local storage holds a few megabytes: when it is full, attachments keep their names only. */
function withoutContents(message: UIMessage): UIMessage {
  const parts = message.parts.map((part) =>
    part.type === "file" && part.url.startsWith("data:") ? { ...part, url: "data:," } : part,
  );
  return { ...message, parts };
}

function read(key: string): unknown {
  try {
    return JSON.parse(localStorage.getItem(key) ?? "null") ?? undefined;
  } catch {
    return undefined;
  }
}

function write(key: string, value: unknown): boolean {
  try {
    localStorage.setItem(key, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}
