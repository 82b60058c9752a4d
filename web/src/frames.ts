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
  frames: Frame[];
  ended: boolean;
  error?: string;
}

/** Response headers that a recording keeps: none of them can hold a secret. */
const KEPT_HEADERS = ["cache-control", "content-type", "x-accel-buffering", "x-vercel-ai-ui-message-stream"];

/** Wraps `fetch`: records the frames of each response and passes them on unchanged. */
export class FrameTap {
  exchanges: Exchange[] = [];
  private readonly listeners = new Set<() => void>();
  private scheduled = false;

  readonly fetch: typeof fetch = async (input, init) => {
    const request = new Request(input, init);
    const exchange: Exchange = {
      number: (this.exchanges.at(-1)?.number ?? 0) + 1,
      method: request.method,
      url: new URL(request.url).pathname,
      release: request.headers.get("x-ai-sdk") ?? undefined,
      body: typeof init?.body === "string" ? jsonOf(init.body) : undefined,
      began: Date.now(),
      status: undefined,
      headers: {},
      frames: [],
      ended: false,
    };
    const began = performance.now();
    this.exchanges = [...this.exchanges.slice(-19), exchange];
    this.tell();
    try {
      const response = await fetch(input, init);
      exchange.status = response.status;
      exchange.headers = Object.fromEntries([...response.headers].filter(([name]) => KEPT_HEADERS.includes(name)));
      const body = response.status === 200 ? response.clone().body : null;
      if (body) void this.read(body, exchange, began);
      else this.finish(exchange);
      return response;
    } catch (error) {
      exchange.error = String(error);
      this.finish(exchange);
      throw error;
    }
  };

  /** Whether the last response says that the server is unavailable: from a proxy, or from a server that shuts down. */
  get isServerAway(): boolean {
    return [502, 503, 504].includes(this.exchanges.at(-1)?.status ?? 0);
  }

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  private async read(body: ReadableStream<Uint8Array>, exchange: Exchange, began: number): Promise<void> {
    const decoder = new TextDecoder();
    let waiting = "";
    try {
      for (const reader = body.getReader(); ; ) {
        const { done, value } = await reader.read();
        if (done) break;
        waiting += decoder.decode(value, { stream: true });
        const pieces = waiting.split(/\r?\n\r?\n/);
        waiting = pieces.pop() ?? "";
        for (const raw of pieces) addFrame(exchange.frames, raw, performance.now() - began);
        this.tell();
      }
    } catch (error) {
      exchange.error = String(error);
    }
    this.finish(exchange);
  }

  private finish(exchange: Exchange): void {
    exchange.ended = true;
    this.tell();
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

/** Add a frame to those before it. */
export function addFrame(frames: Frame[], raw: string, time: number): void {
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

export function asEventStream(frames: Frame[]): string {
  return frames.map((frame) => `${frame.raw}\n\n`).join("");
}
