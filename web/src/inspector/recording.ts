import { type End, type Exchange, newExchange, receive } from "../frames";

const ENDS: readonly string[] = ["complete", "broken", "left"] satisfies End[];

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
  const { status, responded, frames, rest, end } = exchange;
  return [
    line(0, { request: { method: exchange.method, path, headers, body: exchange.body ?? null } }),
    ...(status === undefined ? [] : [line(responded, { response: { status, headers: exchange.headers } })]),
    ...frames.map((frame) => line(frame.time, { data: `${frame.raw}\n\n` })),
    ...(rest ? [line(end?.time ?? frames.at(-1)?.time ?? responded, { data: rest })] : []),
    ...(end ? [line(end.time, { end: end.how })] : []),
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
  text.split("\n").forEach((line, index) => {
    if (!line.trim()) return;
    try {
      const value = JSON.parse(line) as Line & { usechat?: string; version?: number };
      if (index > 0) readLine(value, exchanges);
      else if (value.usechat !== "recording" || value.version !== 1) throw new Error("a recording of version 1 is expected");
    } catch (error) {
      throw new Error(`This is not a recording: line ${index + 1}: ${error instanceof Error ? error.message : String(error)}`);
    }
  });
  return [...exchanges.values()];
}

function readLine(line: Line, exchanges: Map<number, Exchange>): void {
  if (line.request) {
    const { method, path, headers, body } = line.request;
    const request = { number: line.exchange, method, url: path || "/", release: headers?.["x-ai-sdk"], body };
    exchanges.set(line.exchange, newExchange({ ...request, began: line.at * 1000 }));
    return;
  }
  const exchange = exchanges.get(line.exchange);
  if (!exchange) throw new Error(`exchange ${line.exchange} has no request`);
  const time = line.at * 1000 - exchange.began;
  if (line.response) {
    Object.assign(exchange, { status: line.response.status, headers: line.response.headers, responded: time });
  } else if (line.end !== undefined) {
    if (!ENDS.includes(line.end)) throw new Error(`end is one of ${ENDS.join(", ")}, not ${line.end}`);
    exchange.end = { how: line.end as End, time };
    if (line.end === "broken") exchange.error = "the endpoint disconnected";
  } else {
    receive(exchange, line.data ?? decode(line.bytes ?? ""), time);
  }
}

function decode(base64: string): string {
  return new TextDecoder().decode(Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0)));
}
