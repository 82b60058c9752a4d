import type { UIMessage } from "ai";
import { readSettings } from "./settings";
import { local, session } from "./storage";

/** An entry in the list of chats. */
export interface ChatEntry {
  id: string;
  title: string;
  /** Milliseconds since 1970. */
  changed: number;
  pinned?: boolean | undefined;
  /** Whether a link lets others read it. */
  shared?: boolean;
  /** Whether the server has it. */
  stored?: boolean;
  /** Whether the user gave the title. */
  named?: boolean | undefined;
}

/** Agents that are served at the same address, one after the other, have chats of their own. */
const PREFIX = `usechat:${readSettings().api}:${readSettings().name}:`;
const LIST = `${PREFIX}chats`;
const SAVED = "usechat-saved";

/** Where a tab keeps the ids of the chats that it has made, so that a reload knows them. */
const MADE = `${PREFIX}made`;
/** The chats that this page has made and not shown yet. */
const unseen = new Set<string>();

export function newId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (byte) => (byte % 36).toString(36)).join("");
}

function newChatId(): string {
  const id = newId();
  session.set(MADE, [id, ...idsMadeHere().slice(0, 99)].join(" "));
  unseen.add(id);
  return id;
}

/** The chat for a new question: the one that this tab has made last, if its first message was typed and not sent. */
export function openNewChat(): string {
  const last = idsMadeHere()[0] ?? "";
  return loadDraft(last) && loadChat(last).messages.length === 0 ? last : newChatId();
}

/** Whether this tab has made a chat. Any other comes from a link, or from the list. */
export function isMadeHere(id: string): boolean {
  return idsMadeHere().includes(id);
}

function idsMadeHere(): string[] {
  return (session.get(MADE) ?? "").split(" ");
}

/** Whether a chat is shown for the first time since this page made it: nobody else can have written in it. */
export function isFirstShown(id: string): boolean {
  return unseen.delete(id);
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
  /** The agent that the user chose, where the server offers several. */
  agent?: string | undefined;
  /** The answer that the user has stopped, by its id, or the question if its answer had not begun. */
  stopped?: string | undefined;
}

/** The text of each chat as this tab has last read or saved it. */
const texts = new Map<string, string | null>();

export function loadChat(id: string): StoredChat {
  texts.set(id, local.get(PREFIX + id));
  return (read(PREFIX + id) as StoredChat | undefined) ?? { messages: [], running: false };
}

/** Whether one tab still reads an answer of which another has read as much, and its end. */
export function isBehind(one: StoredChat, other: StoredChat): boolean {
  const [last, end] = [one.messages.at(-1), other.messages.at(-1)];
  if (!one.running || other.running || last?.role !== "assistant" || last.id !== end?.id) return false;
  return JSON.stringify(last).length <= JSON.stringify(end).length;
}

/** Chats that were deleted while they were open: later updates to them are not saved. */
const removed = new Set<string>();

/**
 * Save a chat, and move it to the top of the list if it has changed; returns whether storage had room for it. What
 * another tab has saved of the same answer stays if it is whole, and whatever it has saved since this one looked: the
 * event that tells of it is on its way.
 */
export function saveChat(id: string, chat: StoredChat): boolean {
  const text = JSON.stringify(chat);
  const there = local.get(PREFIX + id);
  if (there !== null && texts.has(id) && there !== texts.get(id)) return true;
  if (removed.has(id) || there === text || isBehind(chat, loadChat(id))) return true;
  const kept = local.set(PREFIX + id, text) || local.set(PREFIX + id, JSON.stringify(withoutContents(chat)));
  texts.set(id, local.get(PREFIX + id));
  const chats = loadChats();
  const known = chats.find((entry) => entry.id === id);
  const title = known?.named ? known.title : titleOf(chat.messages);
  const others = chats.filter((entry) => entry.id !== id);
  const listed = writeList([{ ...known, id, title, changed: Date.now() }, ...others]);
  dispatchEvent(new Event(SAVED));
  return kept && listed;
}

/** Remove a chat; returns the function that puts it back. */
export function removeChat(id: string): () => void {
  const entry = loadChats().find((chat) => chat.id === id);
  const text = local.get(PREFIX + id);
  removed.add(id);
  local.remove(PREFIX + id);
  saveDraft(id, "");
  writeList(loadChats().filter((chat) => chat.id !== id));
  dispatchEvent(new Event(SAVED));
  return () => {
    removed.delete(id);
    if (text !== null) local.set(PREFIX + id, text);
    if (entry) writeList([...loadChats(), entry].sort((one, other) => other.changed - one.changed));
    dispatchEvent(new Event(SAVED));
  };
}

/** Change the title of a chat, or whether it is pinned. */
export function changeEntry(id: string, change: Pick<ChatEntry, "title" | "named"> | Pick<ChatEntry, "pinned">): void {
  writeList(loadChats().map((entry) => (entry.id === id ? { ...entry, ...change } : entry)));
  dispatchEvent(new Event(SAVED));
}

/** The text that was typed in a chat and not sent. */
export function loadDraft(id: string): string {
  return local.get(`${PREFIX}draft:${id}`) ?? "";
}

export function saveDraft(id: string, text: string): void {
  const key = `${PREFIX}draft:${id}`;
  if (text) local.set(key, text);
  else local.remove(key);
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
    return JSON.parse(local.get(key) ?? "null") ?? undefined;
  } catch {
    return undefined;
  }
}

function writeList(chats: ChatEntry[]): boolean {
  return local.set(LIST, JSON.stringify(chats));
}
