import type { UIMessage } from "ai";

/** An entry in the list of chats. */
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

/**
 * A chat in local storage. `running`: its last answer was still streaming. `continued`: if that answer continued after
 * an approval, the message as it was before.
 */
export interface StoredChat {
  messages: UIMessage[];
  running: boolean;
  continued?: UIMessage | undefined;
}

export function loadChat(id: string): StoredChat {
  return (read(PREFIX + id) as StoredChat | undefined) ?? { messages: [], running: false };
}

/** Chats that were deleted while they were open: later updates to them are not saved. */
const removed = new Set<string>();

/** Save a chat, and move it to the top of the list if it has changed; returns whether storage had room for it. */
export function saveChat(id: string, chat: StoredChat): boolean {
  const text = JSON.stringify(chat);
  if (removed.has(id) || localStorage.getItem(PREFIX + id) === text) return true;
  const kept = write(PREFIX + id, text) || write(PREFIX + id, JSON.stringify(withoutContents(chat)));
  const others = loadChats().filter((entry) => entry.id !== id);
  const listed = writeList([{ id, title: titleOf(chat.messages), changed: Date.now() }, ...others]);
  dispatchEvent(new Event(SAVED));
  return kept && listed;
}

export function removeChat(id: string): void {
  removed.add(id);
  localStorage.removeItem(PREFIX + id);
  writeList(loadChats().filter((chat) => chat.id !== id));
  dispatchEvent(new Event(SAVED));
}

/** Subscribe to changes of the list, in this tab or another; returns the function that unsubscribes. */
export function onListChanged(changed: () => void): () => void {
  const listener = (event: StorageEvent) => event.key === LIST && changed();
  addEventListener("storage", listener);
  addEventListener(SAVED, changed);
  return () => {
    removeEventListener("storage", listener);
    removeEventListener(SAVED, changed);
  };
}

/** Subscribe to changes of a chat in another tab; returns the function that unsubscribes. */
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
function withoutContents(chat: StoredChat): StoredChat {
  const messages = chat.messages.map((message) => ({
    ...message,
    parts: message.parts.map((part) =>
      part.type === "file" && part.url.startsWith("data:") ? { ...part, url: "data:," } : part,
    ),
  }));
  return { ...chat, messages };
}

function read(key: string): unknown {
  try {
    return JSON.parse(localStorage.getItem(key) ?? "null") ?? undefined;
  } catch {
    return undefined;
  }
}

function writeList(chats: ChatEntry[]): boolean {
  return write(LIST, JSON.stringify(chats));
}

function write(key: string, text: string): boolean {
  try {
    localStorage.setItem(key, text);
    return true;
  } catch {
    return false;
  }
}
