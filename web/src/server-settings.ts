import { useEffect, useState } from "react";
import type { Settings } from "./settings";
import { authorization } from "./token";

/** An agent that the server offers. */
export interface Agent {
  name: string;
  /** What it says about itself; may be empty. */
  description: string;
}

/** What the server accepts in one request, in bytes of its body. */
export interface Limits {
  maximumFileBytes: number;
  maximumBytes: number;
  maximumFiles: number;
}

/** What the server says about itself. */
export interface ServerSettings {
  /** The agents that can answer; the first is the default. Empty until they are known. */
  agents: Agent[];
  limits: Limits;
}

const MEBIBYTE = 1024 * 1024;
const UNKNOWN: ServerSettings = {
  agents: [],
  limits: { maximumFileBytes: 16 * MEBIBYTE, maximumBytes: 16 * MEBIBYTE, maximumFiles: 500 },
};

/** Milliseconds after which a token that is being typed counts as complete. */
const TYPED = 300;

/** Ask the server for its agents and limits; where it needs a token, when there is one. */
export function useServerSettings(settings: Settings, token: string): ServerSettings {
  const [known, setKnown] = useState(UNKNOWN);
  useEffect(() => {
    if (settings.auth && !token) return;
    let current = true;
    const ask = async () => {
      const [listed, limits] = await Promise.all([
        describe<{ agents: Agent[] }>(settings, "agents"),
        describe<Limits>(settings, "limits"),
      ]);
      if (current) setKnown({ agents: listed?.agents ?? [], limits: limits ?? UNKNOWN.limits });
    };
    const soon = setTimeout(() => void ask(), settings.auth ? TYPED : 0);
    return () => {
      current = false;
      clearTimeout(soon);
    };
  }, [settings, token]);
  return known;
}

/** Read a route beside that of the chat; undefined from a server that has none. */
async function describe<Described>(settings: Settings, name: string): Promise<Described | undefined> {
  try {
    const response = await fetch(settings.api.replace(/[^/]*$/, name), { headers: authorization() });
    return response.ok ? ((await response.json()) as Described) : undefined;
  } catch {
    return undefined;
  }
}
