import { useEffect, useState } from "react";
import type { Settings } from "./settings";
import { fetchAsUser } from "./token";

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

/** Ask the server for its agents and limits; again when the user has signed in again. */
export function useServerSettings(settings: Settings, visit: number): ServerSettings {
  const [known, setKnown] = useState(UNKNOWN);
  useEffect(() => {
    let current = true;
    const ask = async () => {
      const [listed, limits] = await Promise.all([
        describe<{ agents: Agent[] }>(settings, "agents"),
        describe<Limits>(settings, "limits"),
      ]);
      if (current) setKnown({ agents: listed?.agents ?? [], limits: limits ?? UNKNOWN.limits });
    };
    void ask();
    return () => {
      current = false;
    };
  }, [settings, visit]);
  return known;
}

/** Read a route beside that of the chat; undefined from a server that has none. */
async function describe<Described>(settings: Settings, name: string): Promise<Described | undefined> {
  try {
    const response = await fetchAsUser(settings.api.replace(/[^/]*$/, name));
    return response.ok ? ((await response.json()) as Described) : undefined;
  } catch {
    return undefined;
  }
}
