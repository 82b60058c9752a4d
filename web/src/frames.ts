import { fetchAsUser } from "./token";

/** One server-sent event as it arrived. */
export interface Frame {
  /** Its place among all frames and comments, from 0. */
  index: number;
  /** Its number as `usechat check` counts, from 1; comments have none. */
  number: number | undefined;
  /** Milliseconds since the request was sent. */
  time: number;
  /** The chunk's type, `[DONE]`, or `comment`. */
  type: string;
  /** Bytes on the wire. */
  size: number;
  /** The text between two blank lines. */
  raw: string;
}

/** One request and every frame of its response. */
export interface Exchange {
  number: number;
  method: string;
  url: string;
  /** The AI SDK release that the request names. */
  release: string | undefined;
  body: unknown;
  /** Milliseconds since 1970. */
  began: number;
  status: number | undefined;
  headers: Record<string, string>;
  /** Milliseconds from the request to the head of the response. */
  responded: number;
  frames: Frame[];
  /** What follows the last complete frame: the beginning of a frame that was cut off, or the body of a refusal. */
  rest: string;
  /** How it ended, and when, in milliseconds since the request. */
  end: { how: End; time: number } | undefined;
  error?: string;
}

/** How a response ended: `broken` by the endpoint, or `left` by the page, such as with its Stop button. */
export type End = "complete" | "broken" | "left";

/** An exchange of which only the request is known. */
export function newExchange(request: Pick<Exchange, "number" | "method" | "url" | "release" | "body" | "began">): Exchange {
  return { ...request, status: undefined, headers: {}, responded: 0, frames: [], rest: "", end: undefined };
}

export function isRefusal({ status }: Exchange): boolean {
  return status !== undefined && status >= 300;
}

/** Add a piece of a response: the frames that it completes, and what follows them. The body of a refusal has no frames. */
export function receive(exchange: Exchange, text: string, time: number): void {
  const pieces = isRefusal(exchange) ? [exchange.rest + text] : (exchange.rest + text).split(/\r?\n\r?\n/);
  exchange.rest = pieces.pop() ?? "";
  for (const raw of pieces) addFrame(exchange.frames, raw, time);
}

/** Response headers that a recording keeps: none of them can hold a secret. */
const KEPT_HEADERS = ["cache-control", "content-type", "x-accel-buffering", "x-vercel-ai-ui-message-stream"];

/**
 * Bytes that are passed on at once: the hook handles all frames of a piece in one task of the main thread. For each
 * frame it copies the whole message, so that frames of a message with thousands of parts are passed on one by one.
 */
const PIECE = { most: 4096, least: 128 };
/** Milliseconds that a piece may take. */
const PIECE_TIME = 10;

/** Wraps `fetch`: records the frames of each response and passes their bytes on unchanged, in small pieces. */
export class FrameTap {
  exchanges: Exchange[] = [];
  private readonly listeners = new Set<() => void>();
  private scheduled = false;

  readonly fetch: typeof fetch = async (input, init) => {
    const request = new Request(input, init);
    const exchange = newExchange({
      number: (this.exchanges.at(-1)?.number ?? 0) + 1,
      method: request.method,
      url: new URL(request.url).pathname,
      release: request.headers.get("x-ai-sdk") ?? undefined,
      body: typeof init?.body === "string" ? jsonOf(init.body) : undefined,
      began: Date.now(),
    });
    const began = performance.now();
    const end = (how: End) => {
      exchange.end = { how, time: performance.now() - began };
      this.tell();
    };
    const fail = (error: unknown) => {
      if (request.signal.aborted) return end("left");
      exchange.error = String(error);
      end("broken");
    };
    this.exchanges = [...this.exchanges.slice(-19), exchange];
    this.tell();
    try {
      const response = inPieces(await fetchAsUser(input, init));
      exchange.status = response.status;
      exchange.headers = Object.fromEntries([...response.headers].filter(([name]) => KEPT_HEADERS.includes(name)));
      exchange.responded = performance.now() - began;
      void this.read(response.clone().body, exchange, began).then(() => end("complete"), fail);
      return response;
    } catch (error) {
      fail(error);
      throw error;
    }
  };

  /** Whether the last response says that the server is unavailable: from a proxy, or from a server that shuts down. */
  get isServerAway(): boolean {
    return [502, 503, 504].includes(this.exchanges.at(-1)?.status ?? 0);
  }

  /** Whether the last request was one of the user, and no agent has got it: nobody answered, or nobody knew the user. */
  get isUndelivered(): boolean {
    const { method, status } = this.exchanges.at(-1) ?? {};
    return method === "POST" && (status === undefined || status === 401 || this.isServerAway);
  }

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  private async read(body: ReadableStream<Uint8Array> | null, exchange: Exchange, began: number): Promise<void> {
    const decoder = new TextDecoder();
    for (const reader = body?.getReader(); reader; ) {
      const { done, value } = await reader.read();
      if (done) break;
      receive(exchange, decoder.decode(value, { stream: true }), performance.now() - began);
      this.tell();
    }
  }

  /** Notify listeners at most every 50 ms: frames arrive by the hundred. */
  private tell(): void {
    if (this.scheduled) return;
    this.scheduled = true;
    setTimeout(() => {
      this.scheduled = false;
      this.exchanges = [...this.exchanges];
      for (const listener of this.listeners) listener();
    }, 50);
  }
}

/** What a stream ends with. A text that an answer quotes has backslashes before these quotes. */
const ENDING = /^data: ?(?:\[DONE\]|\{"type": ?"(?:finish|abort|error)")/m;
/** The last characters of a stream that are searched for its ending. */
const ENDING_LENGTH = 4096;

/**
 * The same response, whose body comes in pieces between which the browser can draw and handle events. A stream that stops
 * without an ending is a lost connection: WebKit says so of none, and no browser if a proxy has closed it properly.
 */
function inPieces(response: Response): Response {
  if (!response.body || response.status !== 200) return response; // a 204 has no body, although WebKit gives it one
  const isStream = response.headers.get("content-type")?.startsWith("text/event-stream") ?? false;
  const decoder = new TextDecoder();
  let end = "";
  let size = PIECE.most;
  const pieces = new TransformStream<Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>>({
    async transform(received, controller) {
      end = (end + decoder.decode(received, { stream: true })).slice(-ENDING_LENGTH);
      for (let start = 0; start < received.length; ) {
        const [piece, began] = [received.subarray(start, start + size), performance.now()];
        controller.enqueue(piece);
        start += piece.length;
        await nextTask();
        const isSlow = performance.now() - began > PIECE_TIME;
        size = isSlow ? Math.max(PIECE.least, size / 2) : Math.min(PIECE.most, size * 2);
      }
    },
    flush(controller) {
      if (isStream && !ENDING.test(end)) controller.error(new TypeError("The stream has no ending."));
    },
  });
  const { status, statusText, headers } = response;
  return new Response(response.body.pipeThrough(pieces), { status, statusText, headers });
}

/** Wait for another task of the main thread. Unlike a timer, a message is not delayed in a tab that is hidden. */
function nextTask(): Promise<void> {
  return new Promise((done) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      done();
    };
    port2.postMessage(null);
  });
}

function addFrame(frames: Frame[], raw: string, time: number): void {
  const type = typeOf(raw);
  const before = frames.findLast((frame) => frame.number !== undefined)?.number ?? 0;
  const size = new TextEncoder().encode(raw).length + 2;
  frames.push({ index: frames.length, number: type === "comment" ? undefined : before + 1, time, type, size, raw });
}

function typeOf(raw: string): string {
  const data = dataOf(raw);
  if (data === undefined) return "comment";
  if (data === "[DONE]") return data;
  try {
    return String((JSON.parse(data) as { type?: unknown }).type ?? "?");
  } catch {
    return "not JSON";
  }
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** The payload of a frame: its data lines. */
export function dataOf(raw: string): string | undefined {
  const lines = raw.split(/\r?\n/).filter((line) => line.startsWith("data:"));
  return lines.length ? lines.map((line) => line.slice(5).replace(/^ /, "")).join("\n") : undefined;
}

/** The body of a response as it arrived. */
export function asEventStream({ frames, rest }: Exchange): string {
  return frames.map((frame) => `${frame.raw}\n\n`).join("") + rest;
}
