import { AssistantRuntimeProvider } from "@assistant-ui/react";
import { useChatRuntime } from "@assistant-ui/react-ai-sdk";
import { Thread, makeMarkdownText } from "@assistant-ui/react-ui";
import "@assistant-ui/react-ui/styles/index.css";
import "@assistant-ui/react-ui/styles/markdown.css";
import { createRoot } from "react-dom/client";

const assistantMessage = { components: { Text: makeMarkdownText() } };

function Page() {
  return (
    <AssistantRuntimeProvider runtime={useChatRuntime()}>
      <Thread assistantMessage={assistantMessage} />
    </AssistantRuntimeProvider>
  );
}

createRoot(document.getElementById("root")).render(<Page />);
