import { addFrame, type Exchange } from "../frames";

/** What follows the URL of the endpoint in the path of a request. */
function pathOf(exchange: Exchange, api: string): string {
  return exchange.url.startsWith(api) ? exchange.url.slice(api.length) : exchange.url;
}

/** Write exchanges as a recording, `*.usechat.jsonl`: the format of `usechat record`, which `usechat check` reads. */
export function writeRecording(exchanges: Exchange[], api: string): string {
  const start = Math.min(...exchanges.map((exchange) => exchange.began));
  const lines = exchanges.flatMap((exchange) => linesOf(exchange, exchange.began - start, pathOf(exchange, api)));
  lines.sort((one, other) => one.at - other.at); // stable: the lines of an exchange keep their order
  const head = { usechat: "recording", version: 1, url: new URL(api, location.origin).href };
  return [head, ...lines].map((line) => `${JSON.stringify(line)}\n`).join("");
}

function linesOf(exchange: Exchange, began: number, path: string) {
  const line = (milliseconds: number, event: object) => ({
    exchange: exchange.number,
    at: Math.round(began + milliseconds) / 1000,
    ...event,
  });
  const headers = exchange.release === undefined ? {} : { "x-ai-sdk": exchange.release };
  const last = exchange.frames.at(-1)?.time ?? 0;
  const first = exchange.frames[0]?.time ?? 0;
  return [
    line(0, { request: { method: exchange.method, path, headers, body: exchange.body ?? null } }),
    ...(exchange.status === undefined ? [] : [line(first, { response: { status: exchange.status, headers: exchange.headers } })]),
    ...exchange.frames.map((frame) => line(frame.time, { data: `${frame.raw}\n\n` })),
    ...(exchange.ended ? [line(last, { end: exchange.error ? "broken" : "complete" })] : []),
  ];
}

interface Line {
  exchange: number;
  at: number;
  request?: { method: string; path: string; headers?: Record<string, string>; body?: unknown };
  response?: { status: number; headers: Record<string, string> };
  data?: string;
  bytes?: string;
  end?: string;
}

/** Read a recording. Throws an error that says which line is wrong. */
export function readRecording(text: string): Exchange[] {
  const exchanges = new Map<number, Exchange>();
  const waiting = new Map<number, string>();
  text.split("\n").forEach((line, index) => {
    if (!line.trim()) return;
    try {
      const value = JSON.parse(line) as Line & { usechat?: string; version?: number };
      if (index > 0) readLine(value, exchanges, waiting);
      else if (value.usechat !== "recording" || value.version !== 1) throw new Error("a recording of version 1 is expected");
    } catch (error) {
      throw new Error(`This is no recording: line ${index + 1}: ${error instanceof Error ? error.message : String(error)}`);
    }
  });
  return [...exchanges.values()];
}

function readLine(line: Line, exchanges: Map<number, Exchange>, waiting: Map<number, string>): void {
  if (line.request) {
    const { method, path, headers, body } = line.request;
    exchanges.set(line.exchange, {
      number: line.exchange,
      method,
      url: path || "/",
      release: headers?.["x-ai-sdk"],
      body,
      began: line.at * 1000,
      status: undefined,
      headers: {},
      frames: [],
      ended: false,
    });
    return;
  }
  const exchange = exchanges.get(line.exchange);
  if (!exchange) throw new Error(`exchange ${line.exchange} has no request`);
  if (line.response) Object.assign(exchange, { status: line.response.status, headers: line.response.headers });
  else if (line.end) {
    exchange.ended = true;
    if (line.end === "broken") exchange.error = "the endpoint disconnected";
  } else {
    const text = (waiting.get(line.exchange) ?? "") + (line.data ?? decode(line.bytes ?? ""));
    const pieces = text.split(/\r?\n\r?\n/);
    waiting.set(line.exchange, pieces.pop() ?? "");
    for (const raw of pieces) addFrame(exchange.frames, raw, line.at * 1000 - exchange.began);
  }
}

function decode(base64: string): string {
  return new TextDecoder().decode(Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0)));
}
