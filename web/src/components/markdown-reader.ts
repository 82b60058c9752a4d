import { useEffect, useId, useMemo, useReducer, useRef, useState } from "react";
import { hasFormulas } from "./formulas";
import { drawingOf, type Drawing } from "./markdown-chunks";
import type { ReadDocument, ReadingRequest } from "./markdown-worker";
import { inNextFrame } from "./turns";

/** Characters of a text that is read where it is drawn. Longer ones are read in a worker: it may take any time. */
const SHORT = 2000;

const NOTHING: Drawing = { outline: [], chunks: [] };

/** What reads Markdown: a third of the page's code. It is loaded with the first text. */
let reader: Pick<typeof import("./markdown-nodes"), "nodesOf"> | undefined;
let loading: Promise<void> | undefined;

const shown = new Map<number, (read: ReadDocument | undefined) => void>();
let worker: Worker | undefined;
let broken = false;
let documents = 0;

/** What to draw of a text in Markdown; of a long one, what is known so far. `atOnce` says that it is not one of those. */
export function useDrawing(text: string, streaming: boolean, own: boolean): Drawing & { atOnce: boolean } {
  const id = useId();
  const prefix = own ? "" : `${id}-`;
  const [read, setRead] = useState<Drawing>();
  const [failed, setFailed] = useState(broken);
  const formulas = hasFormulas(text);
  const atOnce = own || failed || (text.length <= SHORT && !formulas);
  const nodesOf = useReader(atOnce);
  const drawing = useMemo(
    () => (atOnce && nodesOf ? drawingOf(nodesOf(text, { streaming, prefix, base: document.baseURI })) : undefined),
    [atOnce, nodesOf, text, streaming, prefix],
  );
  const last = useRef(NOTHING);
  last.current = drawing ?? read ?? last.current;

  const asked = useRef<number>(undefined);
  useEffect(() => {
    if (atOnce) return;
    asked.current ??= open((answer) => (answer ? setRead((before) => merged(answer, before)) : setFailed(true)));
    ask({ document: asked.current, text, streaming, prefix, base: document.baseURI });
  }, [atOnce, text, streaming, prefix]);
  useEffect(
    () => () => {
      close(asked.current);
      asked.current = undefined;
    },
    [],
  );
  useEffect(() => {
    if (formulas) void import("katex/dist/katex.min.css");
  }, [formulas]);
  return { ...last.current, atOnce };
}

/** Without its reader a text is shown as it is. */
const PLAIN = { nodesOf: (text: string) => [{ tag: "p", props: { className: "whitespace-pre-wrap" }, children: [text] }] };

/** Load what reads Markdown, so that it is there when the first text arrives. */
export function loadReader(): Promise<void> {
  loading ??= import("./markdown-nodes").then(
    (loaded) => void (reader = loaded),
    () => void (reader = PLAIN),
  );
  return loading;
}

/** What reads Markdown, as soon as it is loaded. */
function useReader(needed: boolean): typeof import("./markdown-nodes").nodesOf | undefined {
  const [, redraw] = useReducer((count: number) => count + 1, 0);
  const nodesOf = reader?.nodesOf;
  // It may arrive between the drawing and this effect: what counts is whether this drawing had it.
  useEffect(() => {
    if (needed && !nodesOf) void loadReader().then(redraw);
  }, [needed, nodesOf]);
  return nodesOf;
}

function merged({ outline, chunks }: ReadDocument, before: Drawing = NOTHING): Drawing {
  return { outline, chunks: chunks.map((chunk, index) => chunk ?? before.chunks[index]!) };
}

function open(show: (read: ReadDocument | undefined) => void): number {
  documents += 1;
  shown.set(documents, show);
  return documents;
}

function close(document: number | undefined): void {
  if (document === undefined) return;
  shown.delete(document);
  worker?.postMessage({ document, text: undefined });
}

function ask(request: ReadingRequest): void {
  worker ??= start();
  worker.postMessage(request);
}

function start(): Worker {
  const started = new Worker(new URL("./markdown-worker.ts", import.meta.url), { type: "module" });
  started.onmessage = ({ data }: MessageEvent<ReadDocument>) => inNextFrame(() => shown.get(data.document)?.(data));
  // It could not be loaded: texts are read here, whatever their length.
  started.onerror = () => {
    broken = true;
    shown.forEach((show) => show(undefined));
  };
  return started;
}
