import { useEffect, useId, useMemo, useRef, useState } from "react";
import { hasFormulas } from "./formulas";
import { drawingOf, type Drawing } from "./markdown-chunks";
import { nodesOf } from "./markdown-nodes";
import type { ReadDocument, ReadingRequest } from "./markdown-worker";
import { inNextFrame } from "./turns";

/** Characters of a text that is read where it is drawn. Longer ones are read in a worker: it may take any time. */
const SHORT = 2000;

const NOTHING: Drawing = { outline: [], chunks: [] };

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
  const drawing = useMemo(
    () => (atOnce ? drawingOf(nodesOf(text, { streaming, prefix, base: document.baseURI })) : undefined),
    [atOnce, text, streaming, prefix],
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
