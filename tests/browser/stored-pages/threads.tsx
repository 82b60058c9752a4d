import {
  AssistantRuntimeProvider,
  ComposerPrimitive,
  MessagePrimitive,
  ThreadListItemPrimitive,
  ThreadListPrimitive,
  ThreadPrimitive,
} from "@assistant-ui/react";
import { createRoot } from "react-dom/client";
import { useStoredThreads } from "./page";

const message = (role: string) => () => (
  <MessagePrimitive.Root data-role={role}>
    <MessagePrimitive.Parts />
  </MessagePrimitive.Root>
);

function ThreadListItem() {
  return (
    <ThreadListItemPrimitive.Root>
      <ThreadListItemPrimitive.Trigger>
        <ThreadListItemPrimitive.Title fallback="New chat" />
      </ThreadListItemPrimitive.Trigger>
      <ThreadListItemPrimitive.Archive>Archive</ThreadListItemPrimitive.Archive>
      <ThreadListItemPrimitive.Delete>Delete</ThreadListItemPrimitive.Delete>
    </ThreadListItemPrimitive.Root>
  );
}

function Page() {
  return (
    <AssistantRuntimeProvider runtime={useStoredThreads()}>
      <ThreadListPrimitive.Root aria-label="Chats" role="navigation">
        <ThreadListPrimitive.New>New</ThreadListPrimitive.New>
        <ThreadListPrimitive.Items components={{ ThreadListItem }} />
      </ThreadListPrimitive.Root>
      <ThreadPrimitive.Root>
        <ThreadPrimitive.Messages
          components={{ UserMessage: message("user"), AssistantMessage: message("assistant") }}
        />
        <ComposerPrimitive.Root>
          <ComposerPrimitive.Input aria-label="Message" />
          <ComposerPrimitive.Send>Send</ComposerPrimitive.Send>
        </ComposerPrimitive.Root>
      </ThreadPrimitive.Root>
    </AssistantRuntimeProvider>
  );
}

createRoot(document.getElementById("root")!).render(<Page />);
