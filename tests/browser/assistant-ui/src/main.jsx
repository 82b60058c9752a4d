import { useChat } from "@ai-sdk/react";
import {
  AssistantRuntimeProvider,
  AuiConfig,
  ComposerPrimitive,
  McpAppRenderer,
  McpAppsRemoteHost,
  MessagePrimitive,
  ThreadPrimitive,
  Tools,
  useAuiState,
} from "@assistant-ui/react";
import { useAISDKRuntime, useChatRuntime } from "@assistant-ui/react-ai-sdk";
import { lastAssistantMessageIsCompleteWithApprovalResponses } from "ai";
import { createRoot } from "react-dom/client";

const chat = new URLSearchParams(location.search).get("chat");
const sendAutomaticallyWhen = lastAssistantMessageIsCompleteWithApprovalResponses;

const mcpApp = McpAppRenderer({ host: McpAppsRemoteHost({ url: `/api/chat/${chat}/apps` }) });
const withApps = AuiConfig({ tools: Tools({ mcpApp }) });

/** The chat that the address names, on the AI SDK's hook, with the apps of its tools. */
function NamedChat() {
  const runtime = useAISDKRuntime(useChat({ id: chat, resume: true, sendAutomaticallyWhen }));
  return <Thread runtime={runtime} config={withApps} />;
}

/** A new chat, to which assistant-ui gives an id. */
function NewChat() {
  return <Thread runtime={useChatRuntime({ sendAutomaticallyWhen })} />;
}

function Thread({ runtime, config }) {
  return (
    <AssistantRuntimeProvider runtime={runtime} config={config}>
      <ThreadPrimitive.Root>
        <ThreadPrimitive.Viewport>
          <ThreadPrimitive.Messages components={{ UserMessage, AssistantMessage }} />
        </ThreadPrimitive.Viewport>
        <Composer />
      </ThreadPrimitive.Root>
    </AssistantRuntimeProvider>
  );
}

function Composer() {
  const running = useAuiState(({ thread }) => thread.isRunning);
  return (
    <ComposerPrimitive.Root data-status={running ? "streaming" : "ready"}>
      <ComposerPrimitive.Input aria-label="Message" />
      <ComposerPrimitive.AddAttachment aria-label="Files">Attach</ComposerPrimitive.AddAttachment>
      <ComposerPrimitive.Send>Send</ComposerPrimitive.Send>
      <ComposerPrimitive.Cancel>Stop</ComposerPrimitive.Cancel>
    </ComposerPrimitive.Root>
  );
}

function UserMessage() {
  return (
    <MessagePrimitive.Root asChild>
      <section data-role="user">
        <MessagePrimitive.Parts />
      </section>
    </MessagePrimitive.Root>
  );
}

function AssistantMessage() {
  return (
    <MessagePrimitive.Root asChild>
      <section data-role="assistant">
        <MessagePrimitive.Parts>{({ part }) => part.toolUI ?? <Part part={part} />}</MessagePrimitive.Parts>
      </section>
    </MessagePrimitive.Root>
  );
}

const drawnBy = { text: Text, reasoning: Reasoning, file: File, "tool-call": Tool };

function Part({ part }) {
  const Drawn = drawnBy[part.type];
  return Drawn && <Drawn {...part} />;
}

function Text({ text }) {
  return <p data-part="text">{text}</p>;
}

function Reasoning({ text }) {
  return <p data-part="reasoning">{text}</p>;
}

function File({ data, filename }) {
  return <img data-part="file" src={data} alt={filename ?? "file"} />;
}

function Tool({ toolName, result, isError, approval, respondToApproval }) {
  const asks = approval && approval.approved === undefined;
  const output = JSON.stringify(isError ? result.error : (result ?? null));
  const settled = isError ? "output-error" : result !== undefined ? "output-available" : "called";
  const state = asks ? "approval-requested" : approval?.approved === false ? "output-denied" : settled;
  return (
    <p data-part="tool">
      {toolName}: {state} {output}
      {asks &&
        Object.entries({ Approve: true, Deny: false }).map(([name, approved]) => (
          <button key={name} type="button" onClick={() => void respondToApproval({ approved })}>
            {name}
          </button>
        ))}
    </p>
  );
}

createRoot(document.getElementById("root")).render(chat ? <NamedChat /> : <NewChat />);
