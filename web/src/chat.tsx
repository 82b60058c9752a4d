import { LoaderCircle } from "lucide-react";
import { lazy, Suspense, useEffect, useMemo, useRef, useState } from "react";
import { AppHostContext, type AppHost } from "./components/app-host";
import { Conversation } from "./components/conversation";
import { followUpsIn } from "./components/data";
import { Message, Stopped } from "./components/message";
import { loadReader } from "./components/markdown-reader";
import { focusPrompt, PromptInput } from "./components/prompt-input";
import { flowOf } from "./flow/graph";
import { FlowView } from "./flow/flow-view";
import { FrameTap } from "./frames";
import { AgentPicker } from "./agent-picker";
import { isOpenCall } from "./parts";
import type { ServerChats } from "./server-chats";
import type { ServerSettings } from "./server-settings";
import type { Settings } from "./settings";
import { Button } from "./ui/button";
import { classes } from "./ui/classes";
import { useAnswers, type Answers } from "./use-answers";
import { FollowUps, Greeting, Suggestions } from "./welcome";

/** For developers: it is loaded when it is opened. */
const Inspector = lazy(async () => ({ default: (await import("./inspector/inspector")).Inspector }));

/** The state of a chat that the page around it needs. */
export interface ChatState {
  busy: boolean;
  hasFlow: boolean;
}

export type PanelName = "flow" | "inspector";

interface Props {
  id: string;
  settings: Settings;
  server: ServerChats;
  served: ServerSettings;
  /** How many times the user has signed in. */
  visit: number;
  /** Whether this chat is visible. A hidden chat keeps receiving its answer. */
  shown: boolean;
  panels: Record<PanelName, boolean>;
  closePanel: (name: PanelName) => void;
  tell: (id: string, state: ChatState) => void;
}

/** One chat, with its flow diagram and its inspector. */
export function Chat({ id, settings, server, served, visit, shown, panels, closePanel, tell }: Props) {
  const tap = useMemo(() => new FrameTap(), []);
  const answers = useAnswers(id, settings, tap, server, served.agents, visit);
  const { busy, messages, stop } = answers;
  const [editing, setEditing] = useState<string>();
  const flow = useMemo(() => flowOf(messages), [messages]);
  const hasFlow = flow !== undefined;
  const hasMessages = messages.length > 0;
  useEffect(() => void (hasMessages && loadReader()), [hasMessages]);
  useEffect(() => tell(id, { busy, hasFlow }), [id, busy, hasFlow, tell]);
  const host = useAppHost(id, settings, answers);
  const stopAndWrite = () => {
    void stop();
    focusPrompt(); // the button that may have the focus goes away
  };
  useShortcuts(shown, () => {
    if (busy) stopAndWrite();
    else if (panels.inspector) closePanel("inspector");
  });
  if (!shown) return null;
  const last = messages.length - 1;
  const empty = messages.length === 0;
  const isOpen = messages[last]?.parts.some(isOpenCall) ?? false;
  const failure = answers.failure !== undefined && <Failure answers={answers} />;
  const ended = !answers.running && !isOpen && messages[last]?.role === "assistant";
  const followUps = ended ? followUpsIn(messages[last]!) : [];
  const agent = served.agents.find(({ name }) => name === answers.agent) ?? served.agents[0];
  return (
    <>
      <main className={classes("flex min-h-0 min-w-0 flex-1 flex-col", empty && "overflow-y-auto")}>
        {empty ? (
          <Greeting settings={settings} agent={agent}>
            {failure}
            {answers.unknown && (
              <p className="rounded-xl bg-muted px-4 py-2 text-sm" role="status">
                There is no chat at this address: it was deleted, or another browser keeps it. A message begins a new one.
              </p>
            )}
            <State answers={answers} kept />
          </Greeting>
        ) : (
          <AppHostContext value={host}>
            <Conversation
              busy={busy}
              question={answers.question}
              messages={messages}
              draw={(message, index) => (
                <Message
                  key={message.id}
                  message={message}
                  streaming={busy && index === last && message.role === "assistant"}
                  // Without an open call nothing of these is needed, and a long message is not drawn again when they change.
                  live={isOpen && index === last && answers.running}
                  editing={editing === message.id}
                  setEditing={setEditing}
                  failure={index === last && failure}
                  stopped={index === last && answers.stopped}
                  approve={isOpen && index === last ? answers.approve : undefined}
                  answer={isOpen && index === last ? answers.answer : undefined}
                  edit={answers.edit}
                  regenerate={answers.regenerate}
                  versions={(answers.siblings[message.id] ?? []).join(" ")}
                  showVersion={settings.chats ? answers.showVersion : undefined}
                  rating={answers.ratings[message.id]}
                  rate={settings.chats ? answers.rate : undefined}
                  followers={last - index}
                />
              )}
            >
              {messages[last]?.role !== "assistant" && failure}
              {messages[last]?.role === "user" && answers.stopped && <Stopped regenerate={answers.tryAgain} />}
              {followUps.length > 0 && <FollowUps texts={followUps} send={answers.send} />}
              <State answers={answers} kept={answers.kept || settings.chats} />
            </Conversation>
          </AppHostContext>
        )}
        <PromptInput
          chat={id}
          busy={busy}
          limits={served.limits}
          messages={messages}
          send={answers.send}
          stop={stopAndWrite}
          picker={<AgentPicker agents={served.agents} chosen={answers.agent ?? ""} choose={answers.choose} />}
          editLast={() => setEditing(messages.findLast((message) => message.role === "user")?.id)}
        />
        {empty && <Suggestions texts={settings.suggestions} send={answers.send} />}
      </main>
      {flow && panels.flow && <FlowView flow={flow} close={() => closePanel("flow")} />}
      {panels.inspector && (
        <Suspense>
          <Inspector
            tap={tap}
            message={messages.findLast((message) => message.role === "assistant")}
            settings={settings}
            close={() => closePanel("inspector")}
          />
        </Suspense>
      )}
    </>
  );
}

/** What apps in this chat get of the page: only where the server keeps the chat, since it decides by it what an app may. */
function useAppHost(id: string, { api, appsOrigin, chats }: Settings, { send, busy }: Answers): AppHost | undefined {
  return useMemo(() => {
    if (!appsOrigin || !chats) return undefined;
    const sandbox = appsOrigin + new URL("mcp-sandbox.html", document.baseURI).pathname;
    return { sandbox, url: `${api}/${encodeURIComponent(id)}/apps`, send, busy };
  }, [id, api, appsOrigin, chats, send, busy]);
}

/** Where Escape has another meaning. */
const OWN_ESCAPE = ".edit, nav";
const OPEN_LAYER = '[role="dialog"], [role="menu"], [data-backdrop]';

/**
 * `/` focuses the input, Escape stops the answer or closes the inspector. It listens before the elements do, because a
 * tooltip that is open would take the Escape.
 */
function useShortcuts(shown: boolean, escape: () => void): void {
  const latest = useRef({ shown, escape });
  latest.current = { shown, escape };
  useEffect(() => {
    const listener = (event: KeyboardEvent) => {
      const writing = event.target instanceof HTMLElement && event.target.matches("input, textarea, select");
      if (!latest.current.shown || event.defaultPrevented) return;
      if (event.key === "/" && !writing && !event.ctrlKey && !event.metaKey) {
        event.preventDefault();
        focusPrompt();
      } else if (event.key === "Escape" && !document.querySelector(OPEN_LAYER)) {
        if (!(event.target instanceof Element && event.target.closest(OWN_ESCAPE))) latest.current.escape();
      }
    };
    addEventListener("keydown", listener, { capture: true });
    return () => removeEventListener("keydown", listener, { capture: true });
  }, []);
}

/** What went wrong. */
function Failure({ answers }: { answers: Answers }) {
  return (
    <div
      className="failure flex flex-wrap items-center justify-between gap-3 rounded-xl bg-bad-surface py-3 pr-3 pl-4 text-sm text-bad"
      role="alert"
    >
      <span>{answers.failure}</span>
      {answers.messages.length > 0 && (
        <Button className="text-ink" onClick={answers.tryAgain}>
          Try again
        </Button>
      )}
    </div>
  );
}

/** What happens. `kept`: whether the chat is there after a reload. */
function State({ answers, kept }: { answers: Answers; kept: boolean }) {
  if (answers.failure !== undefined) return null;
  if (answers.resuming) return <Waiting text="The connection was lost. Reconnecting…" />;
  if (answers.restarted) return <Waiting text="The server restarted. Continuing…" />;
  if (answers.waiting) return <Waiting text="Waiting for the answer…" />;
  if (!kept) {
    return (
      <p className="text-sm text-soft" role="status">
        Browser storage is full or blocked: this chat will be lost on reload. If it is full, delete old chats.
      </p>
    );
  }
  return null;
}

function Waiting({ text }: { text: string }) {
  return (
    <p className="flex items-center gap-2 text-sm text-soft" role="status">
      <LoaderCircle aria-hidden="true" className="size-4 animate-spin" />
      {text}
    </p>
  );
}
