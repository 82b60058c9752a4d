import { createContext } from "react";
import { isTool, type Part } from "../parts";

/** What the page gives the MCP Apps of a chat. */
export interface AppHost {
  /** The address of the sandbox, which has another origin. */
  sandbox: string;
  /** Where the requests of apps go. */
  url: string;
  /** Send a message of the person. */
  send: (text: string) => void;
  /** Whether an answer arrives: no message can be sent. */
  busy: boolean;
}

/** Undefined where no apps are shown: in a chat that somebody else has shared, or without a sandbox. */
export const AppHostContext = createContext<AppHost | undefined>(undefined);

/** The user interface that the MCP server of a tool brings. */
export type App = { resourceUri: string; mimeType: string; serverId?: string };

/** The app of a call: every release has it in the metadata of its provider. */
export function appOf(part: Part): App | undefined {
  if (!isTool(part) || !("callProviderMetadata" in part)) return undefined;
  return part.callProviderMetadata?.["mcp"]?.["app"] as App | undefined;
}
