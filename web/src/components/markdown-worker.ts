import { hasFormulas, loadFormulas, withDollars } from "./formulas";
import { drawingOf, type Outline } from "./markdown-chunks";
import { nodesOf, type Formulas, type Node, type Reading } from "./markdown-nodes";
import { piecesOf } from "./markdown-pieces";

export interface ReadingRequest extends Reading {
  document: number;
  /** The text as it is now; undefined if it is no longer shown. */
  text: string | undefined;
}

export interface ReadDocument {
  document: number;
  outline: Outline;
  /** The chunks; null if one is the same as the chunk at its place before. */
  chunks: (string | null)[];
}

interface State {
  /** What was read of each finished piece. */
  pieces: Map<string, Node[]>;
  chunks: string[];
}

const states = new Map<number, State>();
const waiting = new Map<number, ReadingRequest>();
let running = false;

/** Read each text as it is when its turn comes: what it was before is never read. */
addEventListener("message", ({ data }: MessageEvent<ReadingRequest>) => {
  waiting.delete(data.document);
  if (data.text === undefined) states.delete(data.document);
  else waiting.set(data.document, data);
  if (!running) void run();
});

async function run(): Promise<void> {
  running = true;
  // Messages that have arrived in the meantime are taken first.
  for (await nextTask(); waiting.size > 0; await nextTask()) {
    const request = [...waiting.values()].at(-1)!; // the last of a chat is the one in sight
    waiting.delete(request.document);
    const formulas = hasFormulas(request.text!) ? await loadFormulas() : undefined;
    postMessage(answerTo(request, formulas));
  }
  running = false;
}

function answerTo(request: ReadingRequest, formulas: Formulas | undefined): ReadDocument {
  const { document } = request;
  const before = states.get(document) ?? { pieces: new Map(), chunks: [] };
  const text = formulas ? withDollars(request.text!) : request.text!;
  const pieces = new Map<string, Node[]>();
  const nodes = request.streaming ? readPieces() : nodesOf(text, request, formulas);
  const { outline, chunks } = drawingOf(nodes);
  states.set(document, { pieces, chunks });
  return { document, outline, chunks: chunks.map((chunk, index) => (chunk === before.chunks[index] ? null : chunk)) };

  /** While it streams, only the end is read again. When it is complete, it is read in one go. */
  function readPieces(): Node[] {
    const all = piecesOf(text);
    const last = all.pop() ?? "";
    const finished = all.flatMap((piece) => {
      const read = before.pieces.get(piece) ?? nodesOf(piece, { ...request, streaming: false }, formulas);
      pieces.set(piece, read);
      return read;
    });
    return [...finished, ...nodesOf(last, request, formulas)];
  }
}

function nextTask(): Promise<void> {
  return new Promise((done) => setTimeout(done));
}
