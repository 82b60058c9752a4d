import { useChat } from "@ai-sdk/react";
import * as sdk from "ai";
import { DefaultChatTransport, type UIMessage } from "ai";
import { useEffect, useMemo, useRef, useState } from "react";
import { loadChat, onChatChanged, saveChat } from "./chats";
import type { FrameTap } from "./frames";
import type { Settings } from "./settings";
import { authorization } from "./token";

const MAXIMUM_TRIES = 8;
/** Milliseconds between two saves of an answer that is being written. */
const SAVE_EVERY = 400;

/**
 * One chat: `useChat` with its own transport, kept in local storage, resumed after a reload and after a network error.
 *
 * A resumed answer is replayed from its start. The part of it that is there already is taken out of the messages and
 * shown until the replay begins: the hooks of AI SDK 5 and 6 would double it otherwise.
 */
export function useAnswers(id: string, settings: Settings, tap: FrameTap) {
  const stored = useMemo(() => withoutUnfinished(loadChat(id)), [id]);
  const [held, setHeld] = useState<UIMessage | undefined>(stored.unfinished);
  const [cutOff, setCutOff] = useState(false);
  const tries = useRef(0);
  const broken = useRef(false);
  const saved = useRef(0);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);

  const transport = useMemo(
    () => new DefaultChatTransport({ api: settings.api, headers: requestHeaders, fetch: tap.fetch }),
    [settings, tap],
  );
  const chat = useChat({
    id,
    messages: stored.messages,
    transport,
    throttle: 50,
    experimental_throttle: 50,
    // AI SDK 5 knows no approvals.
    sendAutomaticallyWhen: sdk.lastAssistantMessageIsCompleteWithApprovalResponses,
    onError: (error) => {
      if (!isNetworkError(error)) return;
      broken.current = true;
      planResume();
    },
  });
  const busy = chat.status === "submitted" || chat.status === "streaming";
  const latest = useRef(chat);
  latest.current = chat;

  function planResume(): void {
    if (tries.current >= MAXIMUM_TRIES) return;
    tries.current += 1;
    clearTimeout(timer.current);
    timer.current = setTimeout(() => void resume(true), Math.min(250 * 2 ** tries.current, 8000));
  }

  async function resume(afterError: boolean): Promise<void> {
    const { messages, setMessages, resumeStream, status } = latest.current;
    if (status === "submitted" || status === "streaming") return;
    let part = held;
    const last = messages.at(-1);
    if (afterError && last?.role === "assistant") {
      part = last;
      setHeld(last);
      setMessages(messages.slice(0, -1));
    }
    broken.current = false;
    await resumeStream();
    if (broken.current) return; // the next try is planned
    let replayed = true;
    setMessages((current) => {
      replayed = current.at(-1)?.role === "assistant";
      return replayed || !part ? current : [...current, part];
    });
    setHeld(undefined);
    if (replayed) tries.current = 0;
    setCutOff(!replayed && (afterError || part !== undefined));
  }

  useEffect(() => {
    void resume(false);
    const again = () => tries.current > 0 && planResume();
    addEventListener("online", again);
    return () => {
      clearTimeout(timer.current);
      removeEventListener("online", again);
    };
    // Once per chat: the component has the chat's id as its key.
  }, []);

  useEffect(() => {
    const save = () => {
      saved.current = Date.now();
      const messages = held ? [...chat.messages, held] : chat.messages;
      if (messages.length) saveChat(id, { messages, running: busy || held !== undefined });
    };
    const wait = busy ? Math.max(0, saved.current + SAVE_EVERY - Date.now()) : 0;
    const soon = setTimeout(save, wait);
    addEventListener("pagehide", save);
    return () => {
      clearTimeout(soon);
      removeEventListener("pagehide", save);
    };
  }, [id, chat.messages, busy, held]);

  useEffect(() => {
    if (busy) return;
    return onChatChanged(id, () => {
      const changed = withoutUnfinished(loadChat(id));
      chat.setMessages(changed.messages);
      setHeld(changed.unfinished);
      if (changed.running) void resume(false);
    });
  }, [id, busy]);

  function ask(what: () => Promise<void>): void {
    tries.current = 0;
    clearTimeout(timer.current);
    setCutOff(false);
    chat.clearError();
    void what();
  }

  return {
    id,
    busy,
    status: chat.status,
    /** What people read: the text of an error chunk, or of a refused request. */
    failure: failureOf(chat.error, cutOff, tries.current > 0 && tries.current < MAXIMUM_TRIES),
    resuming: tries.current > 0 && (held !== undefined || isNetworkError(chat.error)),
    messages: held && chat.messages.at(-1)?.role !== "assistant" ? [...chat.messages, held] : chat.messages,
    send: (text: string, files?: FileList) => ask(() => chat.sendMessage({ text, files })),
    edit: (message: UIMessage, text: string) => ask(() => chat.sendMessage({ text, messageId: message.id })),
    regenerate: (message?: UIMessage) => ask(() => chat.regenerate(message && { messageId: message.id })),
    approve: (approvalId: string, approved: boolean) =>
      void chat.addToolApprovalResponse({ id: approvalId, approved }),
    /** The stop route ends the answer wherever it is made; closing the connection would only leave it. */
    stop: async () => {
      const url = `${settings.api}/${encodeURIComponent(id)}/stop`;
      const options = { method: "POST", headers: requestHeaders(), signal: AbortSignal.timeout(6000) };
      await fetch(url, options).catch(() => undefined);
      await chat.stop();
    },
  };
}

export type Answers = ReturnType<typeof useAnswers>;

/** The server makes the stream for the release that reads it. */
function requestHeaders(): Record<string, string> {
  return { "x-ai-sdk": AI_SDK_RELEASE, ...authorization() };
}

function withoutUnfinished({ messages, running }: { messages: UIMessage[]; running: boolean }) {
  const last = messages.at(-1);
  const unfinished = running && last?.role === "assistant" ? last : undefined;
  return { messages: unfinished ? messages.slice(0, -1) : messages, unfinished, running };
}

/** What `fetch` throws when there is no connection, or no more. */
function isNetworkError(error: Error | undefined): boolean {
  return error instanceof TypeError || /network|failed to fetch/i.test(error?.message ?? "");
}

function failureOf(error: Error | undefined, cutOff: boolean, trying: boolean): string | undefined {
  if (cutOff) return "The connection was lost before the answer was complete.";
  if (!error) return undefined;
  if (!isNetworkError(error)) return error.message || "Something went wrong.";
  return trying ? undefined : "The server cannot be reached.";
}
