import { useChat } from "@ai-sdk/react";
import { DefaultChatTransport } from "ai";
import { useMemo } from "react";

/** The chat of an Agent Ops session: stock `useChat`, pointed at the session's route. No tools are declared here. */
export function useAiChat(sessionId: string, token: string) {
  const transport = useMemo(
    () =>
      new DefaultChatTransport({
        api: `api/sessions/${encodeURIComponent(sessionId)}/chat`,
        headers: { Authorization: `Bearer ${token}` },
      }),
    [sessionId, token],
  );
  return useChat({ id: sessionId, transport });
}
