import type { DynamicToolUIPart, ToolUIPart, UIMessage } from "ai";
import { asName, asTitle } from "./words";

export type Part = UIMessage["parts"][number];
export type ToolPart = ToolUIPart | DynamicToolUIPart;

export function isTool(part: Part): part is ToolPart {
  return part.type === "dynamic-tool" || part.type.startsWith("tool-");
}

export function toolName(part: ToolPart): string {
  return part.type === "dynamic-tool" ? part.toolName : part.type.slice("tool-".length);
}

/** What a person calls the tool: its title, or its name in words. */
export function toolTitle(part: ToolPart): string {
  return part.title ?? asTitle(toolName(part));
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

/**
 * The speaker of a part, where the server names it: a node of a flow, which has a label, or an agent that `data-agent`
 * introduces.
 */
export function speakerOf(part: Part, labels: Map<string, string>): string | undefined {
  if (part.type === "data-agent") return nameIn(part.data);
  const metadata =
    "providerMetadata" in part
      ? part.providerMetadata
      : "callProviderMetadata" in part
        ? part.callProviderMetadata
        : undefined;
  const node = metadata?.["openHarness"]?.["nodeId"];
  return typeof node === "string" ? (labels.get(node) ?? asTitle(node)) : undefined;
}

function nameIn(data: unknown): string | undefined {
  const name = typeof data === "object" && data !== null && "name" in data ? data.name : undefined;
  return typeof name === "string" ? asName(name) : undefined;
}

/** Show any value; a tool's input is undefined between its start and its first delta. */
export function pretty(value: unknown): string {
  return typeof value === "string" ? value : (JSON.stringify(value, null, 2) ?? "");
}
