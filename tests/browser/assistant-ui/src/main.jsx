import { AssistantRuntimeProvider, ComposerPrimitive, MessagePrimitive, ThreadPrimitive } from "@assistant-ui/react";
import { useChatRuntime } from "@assistant-ui/react-ai-sdk";
import { createRoot } from "react-dom/client";

function UserMessage() {
  return (
    <MessagePrimitive.Root data-role="user">
      <MessagePrimitive.Parts />
    </MessagePrimitive.Root>
  );
}

function AssistantMessage() {
  return (
    <MessagePrimitive.Root data-role="assistant">
      <MessagePrimitive.Parts
        components={{
          Reasoning: ({ text }) => <p data-part="reasoning">{text}</p>,
          tools: {
            Fallback: ({ toolName, result }) => (
              <p data-part="tool">
                {toolName}: {JSON.stringify(result)}
              </p>
            ),
          },
        }}
      />
    </MessagePrimitive.Root>
  );
}

function Page() {
  return (
    <AssistantRuntimeProvider runtime={useChatRuntime()}>
      <ThreadPrimitive.Root>
        <ThreadPrimitive.Viewport>
          <ThreadPrimitive.Messages components={{ UserMessage, AssistantMessage }} />
        </ThreadPrimitive.Viewport>
        <ComposerPrimitive.Root>
          <ComposerPrimitive.Input aria-label="Message" />
          <ComposerPrimitive.Send>Send</ComposerPrimitive.Send>
        </ComposerPrimitive.Root>
      </ThreadPrimitive.Root>
    </AssistantRuntimeProvider>
  );
}

createRoot(document.getElementById("root")).render(<Page />);
