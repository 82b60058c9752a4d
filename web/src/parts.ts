import type { DynamicToolUIPart, ToolUIPart, UIMessage } from "ai";

export type Part = UIMessage["parts"][number];
export type ToolPart = ToolUIPart | DynamicToolUIPart;

export function isTool(part: Part): part is ToolPart {
  return part.type === "dynamic-tool" || part.type.startsWith("tool-");
}

export function toolName(part: ToolPart): string {
  return part.type === "dynamic-tool" ? part.toolName : part.type.slice("tool-".length);
}

/** Whether a call has no outcome, and needs no approval. */
export function isUnfinished(part: Part): part is ToolPart {
  return isTool(part) && (part.state === "input-streaming" || part.state === "input-available");
}

/** Whether a call runs, or waits for the user. */
export function isOpenCall(part: Part): part is ToolPart {
  return isUnfinished(part) || (isTool(part) && part.state === "approval-requested");
}

export function isData(part: Part): part is Part & { type: `data-${string}`; id?: string; data: unknown } {
  return part.type.startsWith("data-");
}

export function textOf(message: UIMessage): string {
  return message.parts.flatMap((part) => (part.type === "text" ? [part.text] : [])).join("\n\n");
}

/** The node of a flow that said a part, where the server names it. */
export function nodeOf(part: Part): string | undefined {
  const metadata =
    "providerMetadata" in part
      ? part.providerMetadata
      : "callProviderMetadata" in part
        ? part.callProviderMetadata
        : undefined;
  const node = metadata?.["openHarness"]?.["nodeId"];
  return typeof node === "string" ? node : undefined;
}

/** Show any value; a tool's input is undefined between its start and its first delta. */
export function pretty(value: unknown): string {
  return typeof value === "string" ? value : (JSON.stringify(value, null, 2) ?? "");
}
