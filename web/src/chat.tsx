import { useEffect, useMemo, useRef } from "react";
import { Conversation } from "./components/conversation";
import { Icon } from "./components/icons";
import { Message } from "./components/message";
import { focusPrompt, PromptInput } from "./components/prompt-input";
import { flowOf } from "./flow/graph";
import { FlowView } from "./flow/flow-view";
import { FrameTap } from "./frames";
import { Inspector } from "./inspector/inspector";
import type { Settings } from "./settings";
import { useAnswers, type Answers } from "./use-answers";

/** The state of a chat that the page around it needs. */
export interface ChatState {
  busy: boolean;
  hasFlow: boolean;
}

interface Props {
  id: string;
  settings: Settings;
  /** Whether this chat is visible. A hidden chat keeps receiving its answer. */
  shown: boolean;
  showFlow: boolean;
  inspecting: boolean;
  closeInspector: () => void;
  tell: (id: string, state: ChatState) => void;
}

/** One chat, with its flow diagram and its inspector. */
export function Chat({ id, settings, shown, showFlow, inspecting, closeInspector, tell }: Props) {
  const tap = useMemo(() => new FrameTap(), []);
  const answers = useAnswers(id, settings, tap);
  const { busy, messages, stop } = answers;
  const flow = useMemo(() => flowOf(messages), [messages]);
  const hasFlow = flow !== undefined;
  useEffect(() => tell(id, { busy, hasFlow }), [id, busy, hasFlow, tell]);
  const stopAndWrite = () => {
    void stop();
    focusPrompt(); // the button that may have the focus goes away
  };
  useShortcuts(shown, busy, stopAndWrite);
  if (!shown) return null;
  return (
    <>
      <main className="chat">
        <Conversation busy={busy}>
          {messages.length === 0 && <Welcome settings={settings} send={answers.send} />}
          {messages.map((message, index) => (
            <Message
              key={message.id}
              message={message}
              streaming={busy && index === messages.length - 1 && message.role === "assistant"}
              busy={busy}
              approve={answers.approve}
              edit={answers.edit}
              regenerate={answers.regenerate}
            />
          ))}
          <State answers={answers} />
        </Conversation>
        <PromptInput busy={busy} send={answers.send} stop={stopAndWrite} />
      </main>
      {flow && showFlow && <FlowView flow={flow} />}
      {inspecting && (
        <Inspector
          tap={tap}
          message={messages.findLast((message) => message.role === "assistant")}
          check={settings.check}
          close={closeInspector}
        />
      )}
    </>
  );
}

/** `/` focuses the input, Escape stops the answer. */
function useShortcuts(shown: boolean, busy: boolean, stop: () => void): void {
  const latest = useRef({ shown, busy, stop });
  latest.current = { shown, busy, stop };
  useEffect(() => {
    const listener = (event: KeyboardEvent) => {
      const writing = event.target instanceof HTMLElement && event.target.matches("input, textarea, select");
      if (!latest.current.shown || event.defaultPrevented) return;
      if (event.key === "/" && !writing && !event.ctrlKey && !event.metaKey) {
        event.preventDefault();
        focusPrompt();
      } else if (event.key === "Escape" && latest.current.busy) {
        latest.current.stop();
      }
    };
    addEventListener("keydown", listener);
    return () => removeEventListener("keydown", listener);
  }, []);
}

function State({ answers }: { answers: Answers }) {
  if (answers.failure !== undefined) {
    return (
      <div className="failure" role="alert">
        <span>{answers.failure}</span>
        {answers.messages.length > 0 && (
          <button type="button" className="button" onClick={() => answers.regenerate()}>
            Try again
          </button>
        )}
      </div>
    );
  }
  if (answers.resuming) {
    return (
      <p className="waiting" role="status">
        The connection was lost. Reconnecting…
      </p>
    );
  }
  if (answers.status === "submitted") {
    return (
      <p className="waiting" role="status">
        <span className="dots" aria-hidden="true" />
        Waiting for the answer…
      </p>
    );
  }
  if (!answers.kept) {
    return (
      <p className="waiting" role="status">
        Browser storage is full: this chat will be lost on reload. Delete old chats to keep it.
      </p>
    );
  }
  return null;
}

function Welcome({ settings, send }: { settings: Settings; send: (text: string) => void }) {
  return (
    <div className="welcome">
      <h1>{settings.title}</h1>
      <p>
        A stock <code>useChat</code> page. Send a message; open the inspector to see every frame of the answer.
      </p>
      <div className="suggestions">
        {settings.suggestions.map((text) => (
          <button key={text} type="button" className="button" onClick={() => send(text)}>
            <Icon name="send" />
            {text}
          </button>
        ))}
      </div>
      <p className="hint">
        <kbd>Enter</kbd>: send. <kbd>Shift</kbd>+<kbd>Enter</kbd>: new line. <kbd>Esc</kbd>: stop. <kbd>/</kbd>: focus
        the input.
      </p>
    </div>
  );
}
