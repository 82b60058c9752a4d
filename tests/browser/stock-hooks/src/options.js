import { lastAssistantMessageIsCompleteWithApprovalResponses } from "ai";

/** What each page gives to its hook: the chat that the address names, and that an approval goes on by itself. */
export const options = {
  id: new URLSearchParams(location.search).get("chat") ?? "chat",
  sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
};

/** The buttons of a call that asks, and what each answers. */
export const decisions = { Approve: true, Deny: false };

/** What a page shows of a tool part. */
export function toolText(part) {
  return `${part.type.replace("tool-", "")}: ${part.state} ${JSON.stringify(part.output ?? part.errorText ?? null)}`;
}

export function isTool(part) {
  return part.type.startsWith("tool-");
}
