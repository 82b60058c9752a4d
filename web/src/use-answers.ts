import { useChat } from "@ai-sdk/react";
import * as sdk from "ai";
import { DefaultChatTransport, type UIMessage } from "ai";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { isBehind, isFirstShown, isMadeHere, loadChat, onChatChanged, saveChat, type StoredChat } from "./chats";
import { CLIENT_TOOLS } from "./client-tools";
import { QUESTION } from "./components/question";
import type { Question } from "./components/use-reading-place";
import type { Rating } from "./components/message";
import { failureOf, isNetworkError, isProxyError } from "./failures";
import type { FrameTap } from "./frames";
import { isOpenCall, isTool, isUnfinished, textOf, toolName, type Part, type ToolPart } from "./parts";
import type { LoadedChat, ServerChats } from "./server-chats";
import type { Agent } from "./server-settings";
import type { Settings } from "./settings";
import { fetchAsUser } from "./token";
import { useKept } from "./use-kept";
import { useLatest } from "./use-latest";

const MAXIMUM_TRIES = 8;

/** How often a message that did not arrive is sent again by itself: something on the way may break at it. */
const MAXIMUM_SENDINGS = 3;

/** What a call says that ran when its answer was broken off; the server says the same. */
const BROKEN_OFF = "The run was stopped before this tool finished.";

/** How often a tab looks for an answer that another one has asked for, and for the stored end of its own. */
const MAXIMUM_LOOKS = 4;

/**
 * One chat: `useChat` with its own transport, kept in local storage, resumed after a reload and after a network error.
 *
 * A resumed answer is replayed from its start. What is there of it already is taken out of the messages and shown until
 * the replay begins: the hooks of AI SDK 5 and 6 would double it otherwise. An answer that went on after an approval is
 * put back to what it was then, because only what came after that is replayed.
 *
 * A server that stores chats owns the messages: they are loaded before a resume, which then replays the whole message,
 * and again when an answer has ended.
 */
export function useAnswers(id: string, settings: Settings, tap: FrameTap, server: ServerChats, agents: Agent[], visit: number) {
  const stored = useMemo(() => withoutUnfinished(loadChat(id)), [id]);
  const [held, setHeld, heldNow] = useLatest<UIMessage | undefined>(stored.unfinished);
  /** Whether the connection is lost and the page is trying to resume. */
  const [lost, setLost, lostNow] = useLatest(false);
  /** Whether another tab expects an answer that this one has not read. */
  const [watching, setWatching, watchingNow] = useLatest(false);
  /** Whether another tab has saved the chat while this one was occupied. */
  const told = useRef(false);
  /** Whether what it saved has another answer, which must not be overwritten. */
  const outdated = useRef(false);
  const [cutOff, setCutOff] = useState(false);
  /** Whether the answer goes on in another process than the one that began it. */
  const [restarted, setRestarted] = useState(false);
  /** Whether the answer is being stopped: its open calls wait for nobody. */
  const [stopped, setStopped] = useState(false);
  /** The answer that the user has stopped, by its id, or the question if its answer had not begun. */
  const [stoppedAnswer, setStoppedAnswer] = useState(stored.stopped);
  /** How many questions the user has sent here, and which question the last of them follows. */
  const [questions, setQuestions] = useState<{ number: number; after: string | undefined }>({ number: 0, after: undefined });
  const question = useRef<Question>(undefined);
  /** Whether the page has asked the server for a chat that it did not make. */
  const [opened, setOpened] = useState(false);
  const [siblings, setSiblings] = useState<Record<string, string[]>>({});
  const [ratings, setRatings] = useState<Record<string, Rating | undefined>>({});
  const [agent, setAgent] = useState(stored.agent);
  /** Whether the user has chosen an agent since the last message: what the server has kept is older then. */
  const picked = useRef(false);
  /** The agent that answers the next message; undefined where there is no choice. */
  const answering = agents.length > 1 ? (agents.find(({ name }) => name === agent) ?? agents[0])?.name : undefined;
  const answeringNow = useRef(answering);
  answeringNow.current = answering;
  /** The last answer as it was when the page sent the request that continues it. */
  const continued = useRef(stored.continued);
  /** Whether an answer is expected: if there is none to resume, it was lost. */
  const expected = useRef(stored.running);
  const failures = useRef(0);
  /** Whether the server could not be reached at the last try. */
  const away = useRef(false);
  /** Whether no agent may have got the last message, or the last answer to a call; and how often it was sent again. */
  const undelivered = useRef(false);
  const sendings = useRef(0);
  /** The last answer when the user sent a message, by its id. */
  const answerBefore = useRef<string>(undefined);
  /** How many requests the user has made: a resume that ends after a newer one says nothing about it. */
  const asked = useRef(0);
  /** Whether the page has the output of a call that was not sent yet: of a tool of its own, or an answer of the user. */
  const hasOutput = useRef(false);
  /** Whether a resume loads the chat or reads its stream. */
  const resuming = useRef(false);
  const tries = useRef(0);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);

  const transport = useMemo(
    () =>
      new DefaultChatTransport({
        api: settings.api,
        headers: REQUEST_HEADERS,
        body: () => (answeringNow.current === undefined ? {} : { agent: answeringNow.current }),
        fetch: tap.fetch,
      }),
    [settings, tap],
  );
  const chat = useChat({
    id,
    messages: stored.messages,
    transport,
    throttle: 50,
    experimental_throttle: 50,
    sendAutomaticallyWhen: (options) => {
      // AI SDK 5 knows no approvals.
      const approved = sdk.lastAssistantMessageIsCompleteWithApprovalResponses?.(options) ?? false;
      const ran = hasOutput.current && sdk.lastAssistantMessageIsCompleteWithToolCalls(options);
      const goesOn = approved || ran;
      if (goesOn) {
        hasOutput.current = false;
        continued.current = options.messages.at(-1);
      }
      expected.current ||= goesOn;
      return goesOn;
    },
    // The hook of AI SDK 5 keeps the first function that it is given, so this one reads nothing but refs.
    onError: (error) => {
      failures.current += 1;
      away.current = isNetworkError(error) || (tap.isServerAway && (lostNow.current || isProxyError(error)));
      undelivered.current ||= tap.isUndelivered;
      const again = away.current && tries.current < MAXIMUM_TRIES;
      setLost(again);
      clearTimeout(timer.current);
      if (again) tryLater(resume);
    },
  });
  const busy = lost || isWorking(chat.status);
  const messages = useMemo(
    () => (chat.status === "streaming" ? chat.messages : withHeld(chat.messages, held)),
    [chat.messages, chat.status, held],
  );
  const latest = useRef({ chat, messages });
  latest.current = { chat, messages };

  function isOccupied(): boolean {
    return resuming.current || lostNow.current || isWorking(latest.current.chat.status);
  }

  function tryLater(what: () => unknown): void {
    clearTimeout(timer.current);
    tries.current += 1;
    timer.current = setTimeout(() => void what(), Math.min(250 * 2 ** tries.current, 8000));
  }

  /** Resume once at a time: a second one would set the messages back while the first one reads.
   * `before`: the messages so far, for a caller that has just set them and whose change is not rendered yet. */
  async function resume(before = latest.current.chat.messages): Promise<void> {
    if (resuming.current || isWorking(latest.current.chat.status)) return;
    resuming.current = true;
    try {
      await loadAndResume(before);
    } finally {
      resuming.current = false;
      if (told.current) follow();
    }
  }

  async function loadAndResume(before: UIMessage[]): Promise<void> {
    const { setMessages, resumeStream } = latest.current.chat;
    const [failuresBefore, askedBefore, continuedBefore] = [failures.current, asked.current, continued.current];
    const loaded = await server.load(id);
    // The user may have sent a message meanwhile, or answered the last question of the answer.
    if (asked.current > askedBefore || continued.current !== continuedBefore) return;
    if (loaded && !loaded.running) {
      const shown = takeOver(loaded);
      const missing = expected.current && (shown.at(-1)?.role === "user" || isUnsent(shown, loaded.messages));
      if (missing && (await neverArrived(shown, loaded))) return actionsNow.current?.sendAgain();
      if (missing && shown.at(-1)?.role === "user") setMessages((current) => withHeld(current, heldNow.current));
      return conclude(missing || isOnlyHere(shown, loaded.messages) || loaded.outcomes[shown.at(-1)?.id ?? ""] === "lost");
    }
    if (loaded) {
      setRestarted((loaded.running?.attempt ?? 1) > 1);
      expected.current = true;
      continued.current = undefined;
    }
    const last = before.at(-1);
    const unfinished = expected.current && last?.role === "assistant" && last !== continued.current;
    if (unfinished) setHeld(longer(heldNow.current, last));
    if (loaded) setMessages(loaded.messages);
    else if (unfinished) setMessages([...before.slice(0, -1), ...(continued.current ? [continued.current] : [])]);
    await resumeStream();
    if (asked.current > askedBefore) return;
    const failed = failures.current > failuresBefore;
    if (failed && (lostNow.current || away.current)) return; // the next try is planned, or the user's
    if (!failed && !loaded && (await neverArrived(latest.current.chat.messages, undefined))) return actionsNow.current?.sendAgain();
    let replayed = false;
    const elsewhere = (loaded && (await endedMeanwhile())) ?? loadChat(id);
    // What has no answer to the approval that the user gave, which the server never got, is from before that.
    const isBefore = (all: UIMessage[]) => continued.current !== undefined && isUnsent([continued.current], all);
    const ended = isComplete(elsewhere) && !isBefore(elsewhere.messages);
    setMessages((current) => {
      const end = current.at(-1);
      if (continued.current && isBefore(current)) return [...current.slice(0, -1), continued.current];
      replayed = end?.role === "assistant" && end !== continued.current;
      if (replayed) return current;
      return expected.current && ended ? elsewhere.messages : withHeld(current, heldNow.current);
    });
    conclude(expected.current && !replayed && !failed && !ended);
  }

  /** Whether no agent has got what the user has sent while the server was away: it can be sent again. */
  async function neverArrived(shown: UIMessage[], loaded: LoadedChat | undefined): Promise<boolean> {
    if (!undelivered.current || sendings.current >= MAXIMUM_SENDINGS) return false;
    if (loaded) return isUnsent(shown, loaded.messages);
    // An answer that goes on has the id that it had before: nobody can tell whether the server has gone on with it.
    if (shown.at(-1)?.role !== "user") return false;
    const answered = await server.lastAnswer(id);
    return answered === null || (answered !== undefined && answered === answerBefore.current);
  }

  /** Try to reach the server again, from the first try on. */
  function reconnect(): void {
    latest.current.chat.clearError();
    tries.current = 0;
    setCutOff(false);
    setLost(true);
    void resume();
  }

  /** End a resume. An answer that is missing is lost, unless another tab has only just asked for it. */
  function conclude(missing: boolean): void {
    if (missing && watchingNow.current && tries.current < MAXIMUM_LOOKS) return tryLater(follow);
    if (missing && !continued.current) endCalls();
    setCutOff(missing);
    settle();
  }

  /** Show what another tab has saved: now, or as soon as this one is free. It reads nothing but refs. */
  function follow(): void {
    const [saved, shown] = [loadChat(id), latest.current.messages];
    told.current = isOccupied();
    outdated.current = told.current && !isSameAnswer(saved.messages, shown);
    if (told.current) return;
    const running = watchingNow.current || heldNow.current !== undefined;
    const own = { messages: shown, running, agent: saved.agent };
    if (isBehind(saved, own)) return void saveChat(id, own);
    const changed = withoutUnfinished(saved);
    if (!changed.running) settle();
    latest.current.chat.setMessages(keepEqual(shown, changed.messages));
    setHeld(changed.unfinished);
    setCutOff(false);
    setWatching(changed.running);
    continued.current = changed.continued;
    expected.current = changed.running;
    if (changed.running) void resume(changed.messages);
  }

  /** Read what the server has of an answer that has ended here: it stores the end shortly after its last chunk. */
  async function readEnd(): Promise<void> {
    const askedBefore = asked.current;
    for (let looks = 1; looks <= MAXIMUM_LOOKS; looks += 1) {
      const loaded = await server.load(id);
      if (asked.current !== askedBefore || isWorking(latest.current.chat.status) || lostNow.current || !loaded) return;
      if (!loaded.running) return void takeOver(loaded);
      await new Promise((done) => setTimeout(done, 250 * 2 ** looks));
    }
  }

  /** The chat as the server has it, if its answer has ended. */
  async function endedMeanwhile(): Promise<StoredChat | undefined> {
    const loaded = await server.load(id);
    return loaded && !loaded.running ? { messages: loaded.messages, running: false } : undefined;
  }

  /** Run the tools of the page that the answer calls; returns whether there were any. The hook then sends the outputs. */
  function runClientTools(): boolean {
    const { messages: said, status } = latest.current.chat;
    const calls = (said.at(-1)?.parts ?? []).filter(isTool).filter((part) => part.state === "input-available");
    const ours = status === "ready" ? calls.filter((part) => toolName(part) in CLIENT_TOOLS) : [];
    for (const part of ours) addOutput(part, CLIENT_TOOLS[toolName(part)]?.());
    return ours.length > 0;
  }

  /** Give a call of the last answer its output. The hook sends it as soon as every call of the last step has one. */
  function addOutput(call: ToolPart, output: unknown): void {
    const { toolCallId } = call;
    const { addToolOutput, addToolResult, messages: said, setMessages, sendMessage } = latest.current.chat;
    const last = said.at(-1);
    hasOutput.current = true;
    if (!last || !said.slice(0, -1).some((message) => message.parts.some((each) => isCall(each, toolCallId)))) {
      // The hook of AI SDK 5 has an older name for it.
      void (addToolOutput ?? addToolResult)({ tool: toolName(call), toolCallId, output: output as never });
      return;
    }
    // The hook would change the first call of the chat that has this id.
    const parts = last.parts.map((each) => (isCall(each, toolCallId) ? ({ ...each, state: "output-available", output } as Part) : each));
    const answered = { ...last, parts };
    const messages = [...said.slice(0, -1), answered];
    setMessages(messages);
    if (!sdk.lastAssistantMessageIsCompleteWithToolCalls({ messages })) return;
    [hasOutput.current, continued.current, expected.current] = [false, answered, true];
    void sendMessage();
  }

  /** End the calls of an answer that was broken off: they wait for nobody. */
  function endCalls(): void {
    latest.current.chat.setMessages((all) => {
      const last = all.at(-1);
      if (last?.role !== "assistant" || !last.parts.some(isRunning)) return all;
      const parts = last.parts.map((part) => (isRunning(part) ? ({ ...part, state: "output-error", errorText: BROKEN_OFF } as Part) : part));
      return [...all.slice(0, -1), { ...last, parts }];
    });
  }

  /**
   * Show what the server has, unless the page has something that the server never got; returns what is shown.
   * It looks at what the hook has: what the user answered a moment ago is not rendered yet.
   */
  function takeOver(loaded: LoadedChat, anyway = false): UIMessage[] {
    setSiblings(loaded.siblings);
    if (!picked.current) setAgent(loaded.agent);
    setRatings(Object.fromEntries(Object.entries(loaded.feedback).map(([message, given]) => [message, ratingOf(given)])));
    let shown = loaded.messages;
    latest.current.chat.setMessages((current) => {
      const isNewer = isUnsent(current, loaded.messages) || isOnlyHere(current, loaded.messages);
      const keeps = loaded.messages.length === 0 || (!anyway && isNewer);
      shown = keeps ? current : keepEqual(current, loaded.messages);
      return shown;
    });
    return shown;
  }

  function settle(): void {
    clearTimeout(timer.current);
    tries.current = 0;
    expected.current = false;
    away.current = false;
    undelivered.current = false;
    setLost(false);
    setRestarted(false);
    setHeld(undefined);
    setWatching(false);
  }

  useEffect(() => {
    if (!isFirstShown(id)) void resume().then(() => setOpened(true)).then(runClientTools);
    const again = () => {
      if (lostNow.current) void resume();
      else if (away.current) reconnect();
    };
    addEventListener("online", again);
    return () => {
      clearTimeout(timer.current);
      removeEventListener("online", again);
    };
    // Once per chat: the component has the chat's id as its key.
  }, []);

  useEffect(() => {
    // The new answer has begun in the place of what was kept, or has arrived as a whole, so that nobody saw it begin. A
    // resume keeps it until its end: it may break again.
    const arrived = chat.status === "ready" && latest.current.chat.messages.at(-1)?.role === "assistant";
    if ((chat.status === "streaming" || arrived) && !resuming.current) setHeld(undefined);
  }, [chat.status]);

  const wasBusy = useRef(false);
  useEffect(() => {
    const ended = wasBusy.current && !busy;
    wasBusy.current = busy;
    if (!ended || runClientTools()) return;
    void readEnd();
  }, [id, busy]);

  const running = busy || watching || held !== undefined;
  const chatNow = { messages, running, continued: running ? continued.current : undefined, agent, stopped: stoppedAnswer };
  const kept = useKept(id, chatNow, outdated);

  useEffect(() => onChatChanged(id, follow), [id]);
  useEffect(() => {
    if (!busy && told.current) follow();
  }, [busy]);

  const addOutputNow = useCallback(addOutput, []); // it reads nothing but refs
  const actions = useMemo(() => {
    type Hook = (typeof latest.current)["chat"];
    const asContinued = (last: UIMessage | undefined) =>
      JSON.stringify(last) === JSON.stringify(continued.current) ? last : undefined;
    /** Give the hook the messages that are shown, and send the request. `goesOn`: the answer that the request continues. */
    const ask = (what: (hook: Hook) => Promise<void>, goesOn?: UIMessage): void => {
      const { chat: hook, messages: shown } = latest.current;
      setStoppedAnswer(undefined);
      if (heldNow.current) hook.setMessages(shown);
      settle();
      setCutOff(false);
      hasOutput.current = false;
      continued.current = goesOn;
      expected.current = true;
      picked.current = false;
      asked.current += 1;
      sendings.current = 0;
      answerBefore.current = shown.findLast(({ role }) => role === "assistant")?.id;
      told.current = false;
      outdated.current = false;
      hook.clearError();
      void what(hook);
    };
    return {
      send: (text: string, files?: FileList) => {
        setQuestions((count) => ({ number: count.number + 1, after: lastQuestion(latest.current.messages) }));
        ask((hook) => hook.sendMessage({ text, files }));
      },
      /** Send the message again with a new text and the same files; not while an answer arrives, which it would cut off. */
      edit: (message: UIMessage, text: string): boolean => {
        if (lostNow.current || isWorking(latest.current.chat.status)) return false;
        setQuestions(({ number }) => ({ number: number + 1, after: undefined }));
        ask((hook) => {
          const files = message.parts.filter((part) => part.type === "file");
          return hook.sendMessage({ text, files, messageId: message.id });
        });
        return true;
      },
      regenerate: (message: UIMessage) => {
        setQuestions(({ number }) => ({ number: number + 1, after: undefined }));
        ask((hook) => hook.regenerate({ messageId: message.id }));
      },
      /**
       * Ask again for an answer that failed: after an approval that got no answer, from there on. What is there of the
       * answer stays until the new one begins. A server that was away may still have it.
       */
      tryAgain: () => {
        if (away.current) return reconnect();
        const last = latest.current.messages.at(-1);
        const goesOn = asContinued(last);
        ask((hook) => {
          if (!goesOn && last?.role === "assistant") setHeld(last);
          return goesOn ? hook.sendMessage() : hook.regenerate();
        }, goesOn);
      },
      /** Send what did not arrive: the last message, or the answer to a call. */
      sendAgain: () => {
        const [count, before] = [sendings.current + 1, answerBefore.current];
        ask((hook) => hook.sendMessage(), asContinued(latest.current.messages.at(-1)));
        [sendings.current, answerBefore.current] = [count, before];
      },
      approve: (approvalId: string, approved: boolean, reason?: string) =>
        void latest.current.chat.addToolApprovalResponse({ id: approvalId, approved, reason }),
      /** Let another agent answer from the next message on. */
      choose: (name: string) => {
        picked.current = true;
        setAgent(name);
      },
      /** Show another version of a message, and what followed it. */
      showVersion: async (version: string) => {
        const leaf = await server.leafOf(id, version);
        if (leaf === undefined || !(await server.change(id, { headId: leaf }))) return;
        const loaded = await server.load(id);
        if (loaded) takeOver(loaded, true);
      },
      rate: (message: UIMessage, rating: Rating | undefined) => {
        setRatings((all) => ({ ...all, [message.id]: rating }));
        void server.rate(id, message.id, rating && { rating });
      },
      /** The stop route stops the run on any worker; closing the connection would only detach from it. */
      stop: async () => {
        const url = `${settings.api}/${encodeURIComponent(id)}/stop`;
        const options = { method: "POST", headers: REQUEST_HEADERS, signal: AbortSignal.timeout(6000) };
        clearTimeout(timer.current);
        setStopped(true);
        await fetchAsUser(url, options).catch(() => undefined);
        const { chat: hook, messages: shown } = latest.current;
        await hook.stop();
        if (lostNow.current) {
          hook.setMessages(shown);
          hook.clearError();
          settle();
        }
        endCalls();
        setStopped(false);
        // What is there of the answer may not be rendered yet. An answer that has not begun is none.
        hook.setMessages((current) => {
          const begun = current.at(-1)?.role === "user" || hasContent(current.at(-1)) ? current : current.slice(0, -1);
          setStoppedAnswer(begun.at(-1)?.id);
          return begun;
        });
      },
    };
  }, [id, settings]);
  const actionsNow = useRef<typeof actions>(undefined);
  actionsNow.current = actions;

  const lastVisit = useRef(visit);
  useEffect(() => {
    if (lastVisit.current === visit) return;
    lastVisit.current = visit;
    void resume();
  }, [visit]);

  const turn = lastQuestion(messages);
  // Until the hook has the message, the question before it stays.
  if (questions.number > 0 && turn !== undefined && turn !== questions.after) question.current = { number: questions.number, turn };
  const failure = lost ? undefined : failureOf(chat.error, cutOff);
  return {
    ...actions,
    /** Give a call that waits for the page its output, which is sent when no other call waits; undefined if none waits. */
    answer: running || stopped || failure !== undefined ? undefined : addOutputNow,
    busy,
    kept,
    messages,
    siblings,
    ratings,
    /** Whether more of the last answer is to come. */
    running,
    agent: answering,
    waiting: chat.status === "submitted" || (watching && !isWorking(chat.status)),
    failure,
    /** The question that the user has just sent; undefined in a chat that was only opened. */
    question: question.current,
    /** Whether the user has stopped the last answer. */
    stopped: !running && stoppedAnswer !== undefined && stoppedAnswer === messages.at(-1)?.id,
    /** Whether the address names a chat that neither the server nor this browser has. */
    unknown: opened && messages.length === 0 && chat.error === undefined && !isMadeHere(id),
    /** Whether more of the answer comes from another process. */
    restarted: restarted && running,
    resuming: lost && chat.status !== "streaming",
  };
}

export type Answers = ReturnType<typeof useAnswers>;

/** The server encodes the stream for the release that this header names. */
const REQUEST_HEADERS = { "x-ai-sdk": AI_SDK_RELEASE };

function isWorking(status: string): boolean {
  return status === "submitted" || status === "streaming";
}

/** Whether the page has a question, or the answer to a call, that the server never got. */
function isUnsent(before: UIMessage[], loaded: UIMessage[]): boolean {
  const [last, known] = [before.at(-1), loaded.at(-1)];
  if (last?.role === "user") return before.length > loaded.length || !loaded.some((message) => isSameQuestion(message, last));
  if (last === undefined || last.id !== known?.id) return false;
  const open = new Set(known.parts.filter(isOpenCall).map((part) => part.toolCallId));
  return last.parts.some(
    (part) => isTool(part) && open.has(part.toolCallId) && part.state !== "output-error" && !isOpenCall(part),
  );
}

/** Whether the page has read some of an answer of which the server has nothing: its process died. */
function isOnlyHere(shown: UIMessage[], loaded: UIMessage[]): boolean {
  const [question, answer] = [shown.at(-2), shown.at(-1)];
  return answer?.role === "assistant" && question?.role === "user" && loaded.at(-1)?.id === question.id;
}

/** An edit has the id of what it replaces. */
function isSameQuestion(one: UIMessage, other: UIMessage): boolean {
  return one.role === "user" && textOf(one) === textOf(other);
}

/** Whether an answer was broken off while this call ran. A question is not running: the answer ended with it. */
function isRunning(part: Part): part is ToolPart {
  return isUnfinished(part) && toolName(part) !== QUESTION;
}

function isCall(part: Part, id: string): boolean {
  return isTool(part) && part.toolCallId === id;
}

function isComplete({ messages, running }: StoredChat): boolean {
  return !running && messages.at(-1)?.role === "assistant";
}

function withoutUnfinished({ messages, running, continued, agent, stopped }: StoredChat) {
  const last = messages.at(-1);
  const unfinished = running && last?.role === "assistant" ? last : undefined;
  if (!unfinished) return { messages, unfinished, running, continued: undefined, agent, stopped };
  const before = [...messages.slice(0, -1), ...(continued ? [continued] : [])];
  return { messages: before, unfinished, running, continued, agent, stopped };
}

/** Whether two tabs show the same answer, or wait for it. */
function isSameAnswer(one: UIMessage[], other: UIMessage[]): boolean {
  const [last, end] = [one.at(-1), other.at(-1)];
  if (last?.role === "assistant" && end?.role === "assistant") return last.id === end.id;
  return lastQuestion(one) === lastQuestion(other);
}

function hasContent(message: UIMessage | undefined): boolean {
  return message?.parts.some((part) => part.type !== "step-start") ?? false;
}

function lastQuestion(messages: UIMessage[]): string | undefined {
  return messages.findLast(({ role }) => role === "user")?.id;
}

/** The messages, with the held copy of the last answer in its place. */
function withHeld(messages: UIMessage[], held: UIMessage | undefined): UIMessage[] {
  if (!held) return messages;
  return [...(messages.at(-1)?.role === "assistant" ? messages.slice(0, -1) : messages), held];
}

/** The loaded messages. One that equals what is shown stays the same object, so that it is not drawn anew. */
function keepEqual(shown: UIMessage[], loaded: UIMessage[]): UIMessage[] {
  const before = new Map(shown.map((message) => [message.id, message]));
  return loaded.map((message) => {
    const known = before.get(message.id);
    return known && JSON.stringify(known) === JSON.stringify(message) ? known : message;
  });
}

function ratingOf(feedback: unknown): Rating | undefined {
  const rating = typeof feedback === "object" && feedback !== null && "rating" in feedback ? feedback.rating : undefined;
  return rating === "good" || rating === "bad" ? rating : undefined;
}

function longer(one: UIMessage | undefined, other: UIMessage): UIMessage {
  return one && JSON.stringify(one).length > JSON.stringify(other).length ? one : other;
}
