import { useEffect } from "react";
import { Conversation } from "./components/conversation";
import { Icon } from "./components/icons";
import { Message } from "./components/message";
import { PromptInput } from "./components/prompt-input";
import { flowOf } from "./flow/graph";
import { FlowView } from "./flow/flow-view";
import type { FrameTap } from "./frames";
import { Inspector } from "./inspector/inspector";
import type { Settings } from "./settings";
import { useAnswers, type Answers } from "./use-answers";

interface Props {
  id: string;
  settings: Settings;
  tap: FrameTap;
  showFlow: boolean;
  inspecting: boolean;
  closeInspector: () => void;
}

/** One chat, with what may stand beside it. */
export function Chat({ id, settings, tap, showFlow, inspecting, closeInspector }: Props) {
  const answers = useAnswers(id, settings, tap);
  const flow = flowOf(answers.messages);
  useEffect(() => {
    const listener = (event: KeyboardEvent) => {
      const writing = event.target instanceof HTMLElement && event.target.matches("input, textarea, select");
      if (event.key === "/" && !writing && !event.ctrlKey && !event.metaKey) {
        event.preventDefault();
        document.getElementById("prompt")?.focus();
      }
    };
    addEventListener("keydown", listener);
    return () => removeEventListener("keydown", listener);
  }, []);
  return (
    <>
      <main className="chat">
        <Conversation busy={answers.busy}>
          {answers.messages.length === 0 && <Welcome settings={settings} send={answers.send} />}
          {answers.messages.map((message, index) => (
            <Message
              key={message.id}
              message={message}
              streaming={answers.busy && index === answers.messages.length - 1 && message.role === "assistant"}
              busy={answers.busy}
              approve={answers.approve}
              edit={answers.edit}
              regenerate={answers.regenerate}
            />
          ))}
          <State answers={answers} />
        </Conversation>
        <PromptInput busy={answers.busy} send={answers.send} stop={() => void answers.stop()} />
      </main>
      {flow && showFlow && <FlowView flow={flow} />}
      {inspecting && (
        <Inspector
          tap={tap}
          message={answers.messages.findLast((message) => message.role === "assistant")}
          check={settings.check}
          close={closeInspector}
        />
      )}
    </>
  );
}

function State({ answers }: { answers: Answers }) {
  if (answers.failure !== undefined) {
    return (
      <div className="failure" role="alert">
        <span>{answers.failure}</span>
        <button type="button" className="button" onClick={() => answers.regenerate()}>
          Try again
        </button>
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
  return null;
}

function Welcome({ settings, send }: { settings: Settings; send: (text: string) => void }) {
  return (
    <div className="welcome">
      <h1>{settings.title}</h1>
      <p>
        A stock <code>useChat</code> page. Ask something; open the inspector to see every frame of the answer.
      </p>
      <div className="suggestions">
        {settings.suggestions.map((text) => (
          <button key={text} type="button" className="button" onClick={() => send(text)}>
            <Icon name="send" />
            {text}
          </button>
        ))}
      </div>
    </div>
  );
}
