/** Characters after which a new piece may begin. */
const LEAST_LENGTH = 4000;

/** The beginning of a heading or of a paragraph: after a blank line it belongs to no list, quote or table above it. */
const BEGINNING = /^(?:#{1,6} |\p{L}|\*\*)/u;

/** Footnotes, and links whose address stands elsewhere: the text is one document. */
const REFERENCES = /\[\^|^ {0,3}\[[^\]]+\]:/m;

const FENCE = /^ {0,3}(`{3,}|~{3,})(.*)$/;
const TAG = /<(\/?)([a-z][\w-]*)(?=[\s/>])[^>]*>/gi;
const EMPTY_TAGS = new Set(["br", "hr", "img", "input", "source", "wbr"]);

/**
 * Split Markdown that grows into pieces that can be read one by one: only the last one is read anew. The pieces together
 * are the text. Where it cannot be told without reading it whether a block goes on, it does.
 */
export function piecesOf(text: string): string[] {
  if (REFERENCES.test(text)) return [text];
  const pieces: string[] = [];
  let reader = new LineReader();
  let start = 0;
  for (let at = 0; at < text.length; ) {
    const next = text.indexOf("\n", at) + 1 || text.length;
    const line = text.slice(at, next).trimEnd();
    if (at - start >= LEAST_LENGTH && reader.isBetweenBlocks && BEGINNING.test(line)) {
      pieces.push(text.slice(start, at));
      reader = new LineReader();
      start = at;
    }
    reader.read(line);
    at = next;
  }
  return [...pieces, text.slice(start)];
}

/** Reads a piece line by line and knows where another one may begin: not within code, formulas or HTML. */
class LineReader {
  private fence: string | undefined;
  private formula = false;
  /** How many elements of HTML are open. */
  private open = 0;
  private blank = true;

  get isBetweenBlocks(): boolean {
    return this.blank && this.fence === undefined && !this.formula && this.open === 0;
  }

  read(line: string): void {
    const [, mark, rest] = FENCE.exec(line) ?? [];
    if (this.fence !== undefined) {
      if (mark?.startsWith(this.fence) && !rest) this.fence = undefined;
    } else if (mark) {
      this.fence = mark;
    } else {
      this.readTags(line);
      if (line.split("$$").length % 2 === 0) this.formula = !this.formula;
    }
    this.blank = line === "";
  }

  private readTags(line: string): void {
    if (this.open === 0 && !/^ {0,3}</.test(line)) return;
    if (line.lastIndexOf("<") > line.lastIndexOf(">")) this.open = Infinity; // it ends on another line
    for (const [, closing, name = ""] of line.matchAll(TAG)) {
      if (!EMPTY_TAGS.has(name.toLowerCase())) this.open = Math.max(0, this.open + (closing ? -1 : 1));
    }
  }
}
