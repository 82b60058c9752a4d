import { useCallback, useEffect, useRef, useState } from "react";
import { changeEntry, loadChats, onListChanged, removeChat, type ChatEntry } from "./chats";
import type { ServerChats } from "./server-chats";

/** Milliseconds in which a deleted chat can be put back. */
const UNDO_TIME = 8000;

/** A chat that was deleted a moment ago. */
export interface Removed {
  id: string;
  title: string;
  undo: () => void;
}

/**
 * The list of chats: those of this browser, and those that the server stores. `changes` counts what may have changed
 * the server's list.
 */
export function useChatList(server: ServerChats, changes: number) {
  const [query, setQuery] = useState("");
  const [kept, setKept] = useState<ChatEntry[]>(loadChats);
  const [stored, setStored] = useState<ChatEntry[]>([]);
  const [removed, setRemoved] = useState<Removed>();
  const [gone, setGone] = useState<string[]>([]);
  const forget = useRef<() => void>(undefined);

  const refresh = useCallback(
    async (text: string) => {
      const found = await server.list(text);
      if (found) setStored(found);
    },
    [server],
  );
  useEffect(() => onListChanged(() => setKept(loadChats())), []);
  useEffect(() => {
    const soon = setTimeout(() => void refresh(query), query ? 200 : 0);
    return () => clearTimeout(soon);
  }, [query, changes, refresh]);
  useEffect(() => {
    const now = () => forget.current?.();
    addEventListener("pagehide", now);
    return () => removeEventListener("pagehide", now);
  }, []);

  function rename(id: string, title: string): void {
    changeEntry(id, { title, named: true });
    setStored((all) => all.map((chat) => (chat.id === id ? { ...chat, title } : chat)));
    void server.change(id, { title });
  }

  function pin(id: string, pinned: boolean): void {
    changeEntry(id, { pinned });
    setStored((all) => all.map((chat) => (chat.id === id ? { ...chat, pinned } : chat)));
    void server.change(id, { pinned });
  }

  /** Delete a chat here at once, and on the server when it can no longer be put back. */
  function remove({ id, title }: ChatEntry): void {
    forget.current?.();
    const restore = removeChat(id);
    setGone((all) => [...all, id]);
    const finish = () => {
      clearTimeout(timer);
      forget.current = undefined;
      setRemoved(undefined);
    };
    const timer = setTimeout(() => forget.current?.(), UNDO_TIME);
    forget.current = () => {
      finish();
      void server.remove(id);
    };
    setRemoved({
      id,
      title,
      undo: () => {
        finish();
        restore();
        setGone((all) => all.filter((each) => each !== id));
      },
    });
  }

  const chats = merged(kept, stored, query).filter((chat) => !gone.includes(chat.id));
  return { chats, query, setQuery, removed, rename, pin, remove };
}

/** What the server says of a chat counts; chats that only this browser has are searched by their title. */
function merged(kept: ChatEntry[], stored: ChatEntry[], query: string): ChatEntry[] {
  const known = new Set(stored.map((chat) => chat.id));
  const words = query.toLowerCase();
  const local = kept.filter((chat) => !known.has(chat.id) && chat.title.toLowerCase().includes(words));
  return [...stored, ...local].sort((one, other) => other.changed - one.changed);
}
