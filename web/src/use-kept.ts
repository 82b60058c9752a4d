import { useEffect, useRef, useState, type RefObject } from "react";
import { saveChat, type StoredChat } from "./chats";

/** Milliseconds between two saves of an answer that is streaming. */
const SAVE_EVERY = 400;

/**
 * Save a chat to local storage as it changes and when the page closes; returns whether storage had room for it.
 * `outdated`: another tab has saved something newer, which must stay.
 */
export function useKept(
  id: string,
  { messages, running, continued, agent, stopped }: StoredChat,
  outdated: RefObject<boolean>,
): boolean {
  const [kept, setKept] = useState(true);
  const saved = useRef(0);
  const save = useRef(() => {});
  save.current = () => {
    saved.current = Date.now();
    if (messages.length && !outdated.current) setKept(saveChat(id, { messages, running, continued, agent, stopped }));
  };
  useEffect(() => {
    const wait = running ? Math.max(0, saved.current + SAVE_EVERY - Date.now()) : 0;
    const soon = setTimeout(() => save.current(), wait);
    return () => clearTimeout(soon);
  }, [id, messages, running, continued, agent, stopped]);
  useEffect(() => {
    const now = () => save.current();
    addEventListener("pagehide", now);
    return () => {
      removeEventListener("pagehide", now);
      now();
    };
  }, []);
  return kept;
}
