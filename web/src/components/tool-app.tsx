import * as hooks from "@ai-sdk/react";
import type { MCPAppRendererProps } from "@ai-sdk/react";
import { useEffect, useMemo, useRef, useState } from "react";
import { toolTitle, type ToolPart } from "../parts";
import { fetchAsUser, reasonOf } from "../token";
import { Button } from "../ui/button";
import type { App, AppHost } from "./app-host";

type Handlers = NonNullable<MCPAppRendererProps["handlers"]>;

/** What an app wants to do that only the person may do, by a click. */
interface Wish {
  question: string;
  detail: string;
  button: string;
  decide: (isGranted: boolean) => void;
}

/** More messages in ten seconds are a flood: an app that is dragged sends one per picture, at most 60 a second. */
const MOST_MESSAGES = 1000;
const COUNTED = 10_000;
/** How many requests of an app are answered at once: a browser sends no message of the person while many wait. */
const AT_ONCE = 3;
const HEIGHT = { first: 240, least: 40, most: 720 };

/** The server decides which tools an app may call: the page knows no tool of it. */
class EveryTool extends Array<string> {
  override includes(): boolean {
    return true;
  }
}
const EVERY_TOOL = new EveryTool();

/** The MCP App of a tool call: HTML of an MCP server, in a sandbox. What it asks of its server goes through ours. */
export function ToolApp({ part, app, host }: { part: ToolPart; app: App; host: AppHost }) {
  const [height, setHeight] = useState(HEIGHT.first);
  const [wish, setWish] = useState<Wish>();
  const [end, setEnd] = useState("");
  const place = useRef<HTMLElement>(null);
  useEffect(() => onFlood(place.current!, () => setEnd("This app was stopped: it sent too many messages.")), []);

  const { url, sandbox } = host;
  const { serverId } = app;
  const ask = useMemo(() => requestsTo(url, serverId), [url, serverId]);
  const send = useRef(host.send);
  send.current = host.send;
  const handlers = useMemo<Handlers>(() => {
    const person = asking(setWish);
    return {
      allowedTools: EVERY_TOOL,
      callTool: (params) => ask("tools/call", params),
      readResource: (params) => ask("resources/read", params),
      listResources: () => ask("resources/list", {}),
      async openLink(params) {
        const { href } = new URL(params.url);
        await person({ question: "The app wants to open a page:", detail: href, button: "Open" });
        open(href, "_blank", "noopener,noreferrer");
        return {};
      },
      async sendMessage(params) {
        const detail = textIn(params);
        await person({ question: "The app wants to send a message in your name:", detail, button: "Send" });
        send.current(detail);
        return {};
      },
      updateModelContext: () => {
        throw new Error("This page adds nothing to the messages of a person.");
      },
      onSizeChange: (size) => {
        if (typeof size.height === "number") setHeight(Math.min(HEIGHT.most, Math.max(HEIGHT.least, size.height)));
      },
    };
  }, [ask]);
  const loadResource = useMemo(() => {
    return async ({ resourceUri: uri }: { resourceUri: string }) => {
      try {
        return await ask("mcp-apps/read-resource", { uri });
      } catch (error) {
        setEnd("The app of this tool could not be loaded.");
        throw error;
      }
    };
  }, [ask]);
  const drawn = useMemo(() => ({ ...part, toolMetadata: { app } }) as MCPAppRendererProps["part"], [part, app]);
  const context = useMemo(() => ({ theme: themeOfPage(), displayMode: "inline" as const, availableDisplayModes: ["inline" as const] }), []);
  const frame = { url: sandbox, title: `App of ${toolTitle(part)}`, className: "block w-full", style: { height } };
  return (
    <section ref={place} className="tool-app overflow-hidden rounded-xl border border-line" aria-label={frame.title}>
      {end ? (
        <p className="px-3 py-2 text-sm text-soft" role="status">{end}</p>
      ) : (
        // The hook of AI SDK 5 and 6 has no renderer.
        hooks.MCPAppRenderer && <hooks.MCPAppRenderer part={drawn} sandbox={frame} loadResource={loadResource} handlers={handlers} hostContext={context} />
      )}
      {!end && wish && <WishBar wish={wish} disabled={host.busy && wish.button === "Send"} />}
    </section>
  );
}

function WishBar({ wish, disabled }: { wish: Wish; disabled: boolean }) {
  return (
    <div className="flex flex-wrap items-center gap-2 border-t border-line bg-surface px-3 py-2 text-sm" role="group" aria-label={wish.question}>
      <div className="min-w-0 flex-1 basis-60">
        <p className="text-soft">{wish.question}</p>
        <p className="max-h-40 overflow-y-auto break-words whitespace-pre-wrap" dir="auto" tabIndex={0}>{wish.detail}</p>
      </div>
      <Button onClick={() => wish.decide(false)}>Not now</Button>
      <Button kind="primary" disabled={disabled} onClick={() => wish.decide(true)}>{wish.button}</Button>
    </div>
  );
}

/** Ask the person one thing at a time. What comes meanwhile is refused: an app must not stack its questions. */
function asking(setWish: (wish: Wish | undefined) => void) {
  let isAsked = false;
  return async (wish: Omit<Wish, "decide">): Promise<void> => {
    if (isAsked) throw new Error("The person is being asked something already.");
    isAsked = true;
    const isGranted = await new Promise<boolean>((decide) => setWish({ ...wish, decide }));
    isAsked = false;
    setWish(undefined);
    if (!isGranted) throw new Error("The person did not want this.");
  };
}

/** Return what sends the requests of an app to our server, which knows what the app may. */
function requestsTo(url: string, serverId: string | undefined) {
  let running = 0;
  const fetched = async (method: string, params: object) => {
    const body = JSON.stringify({ method, params: { ...params, serverId } });
    const response = await fetchAsUser(url, { method: "POST", headers: { "content-type": "application/json" }, body });
    if (!response.ok) throw new Error(await reasonOf(response));
    return response.json();
  };
  return async (method: string, params: object) => {
    if (running >= AT_ONCE) throw new Error(`An app may have ${AT_ONCE} requests at once.`);
    running += 1;
    return fetched(method, params).finally(() => (running -= 1));
  };
}

function textIn(params: unknown): string {
  const { content } = (params ?? {}) as { content?: unknown };
  const texts = [content].flat().map((block) => (block as { text?: unknown } | undefined)?.text);
  const text = texts.filter((each) => typeof each === "string").join("\n\n").trim();
  if (!text) throw new Error("A message of an app has text.");
  return text;
}

function themeOfPage(): "light" | "dark" {
  return document.documentElement.dataset["theme"] === "dark" ? "dark" : "light";
}

/** Call `flooded` when the frames in an element send more messages than anybody could use, and hide those messages. */
function onFlood(place: HTMLElement, flooded: () => void): () => void {
  let [count, since] = [0, 0];
  const listener = (event: MessageEvent) => {
    if (!isFrom(event.source, place.querySelector("iframe"))) return;
    if (event.timeStamp - since > COUNTED) [count, since] = [0, event.timeStamp];
    count += 1;
    if (count <= MOST_MESSAGES) return;
    event.stopImmediatePropagation();
    flooded();
  };
  addEventListener("message", listener, { capture: true });
  return () => removeEventListener("message", listener, { capture: true });
}

/** Whether a message is from the sandbox, or from the app in it, which can write to this page past the sandbox. */
function isFrom(source: MessageEventSource | null, frame: HTMLIFrameElement | null): boolean {
  const sandbox = frame?.contentWindow;
  return sandbox != null && (source === sandbox || source === sandbox[0]);
}
