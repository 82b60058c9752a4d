/** Characters after which a new piece may begin. */
const LEAST_LENGTH = 4000;

/** The beginning of a heading or of a paragraph: after a blank line it belongs to no list, quote or table above it. */
const BEGINNING = /^(?:#{1,6} |\p{L}|\*\*)/u;

/** Footnotes, and links whose address stands elsewhere: the text is one document. */
const REFERENCES = /\[\^|^ {0,3}\[[^\]]+\]:/m;

const FENCE = /^ {0,3}(`{3,}|~{3,})/;

/**
 * Split Markdown that grows into pieces that can be drawn one by one: while it streams, only the last piece is parsed
 * and drawn anew. `before` is what the last call returned. The pieces together are the text.
 */
export function piecesOf(text: string, before: string[]): string[] {
  if (REFERENCES.test(text)) return [text];
  const pieces = stillThere(text, before.slice(0, -1));
  let start = pieces.reduce((length, piece) => length + piece.length, 0);
  for (let end = endOfPiece(text, start); end !== undefined; end = endOfPiece(text, start)) {
    pieces.push(text.slice(start, end));
    start = end;
  }
  return [...pieces, text.slice(start)];
}

/** The pieces with which the text begins. */
function stillThere(text: string, pieces: string[]): string[] {
  let start = 0;
  const changed = pieces.findIndex((piece) => {
    start += piece.length;
    return !text.startsWith(piece, start - piece.length);
  });
  return changed < 0 ? pieces : pieces.slice(0, changed);
}

/** Where the next piece begins; undefined if there is no such place yet. Nothing is split within code, formulas or HTML. */
function endOfPiece(text: string, start: number): number | undefined {
  let fence: string | undefined;
  let formula = false;
  let blank = false;
  for (let at = start; at < text.length; ) {
    const next = text.indexOf("\n", at);
    const line = text.slice(at, next < 0 ? text.length : next);
    const [, mark] = FENCE.exec(line) ?? [];
    if (fence !== undefined) {
      if (mark?.startsWith(fence)) fence = undefined;
    } else if (mark) {
      fence = mark;
    } else if (/^ {0,3}</.test(line)) {
      return undefined;
    } else {
      if (blank && !formula && at - start >= LEAST_LENGTH && BEGINNING.test(line)) return at;
      if (line.split("$$").length % 2 === 0) formula = !formula;
      if (line.includes("\\[")) formula = !line.includes("\\]");
      else if (line.includes("\\]")) formula = false;
    }
    blank = line.trim() === "";
    if (next < 0) break;
    at = next + 1;
  }
  return undefined;
}
