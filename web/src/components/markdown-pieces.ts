/** Characters after which a new piece may begin. */
const LEAST_LENGTH = 4000;

/** Characters after which it may begin within a list, a table or a paragraph, too. */
const LEAST_LENGTH_OF_BLOCK = 8000;

/** The beginning of a heading or of a paragraph: after a blank line it belongs to no list, quote or table above it. */
const BEGINNING = /^(?:#{1,6} |\p{L}|\*\*)/u;

/** Footnotes, and links whose address stands elsewhere: the text is one document. */
const REFERENCES = /\[\^|^ {0,3}\[[^\]]+\]:/m;

const FENCE = /^ {0,3}(`{3,}|~{3,})/;
const ITEM = /^(?:[-*+]|(\d{1,9})[.)]) /;
const BELOW_TABLE_HEAD = /^\|[ :|-]*-[ :|-]*\|\s*$/;
/** Where a long line may be split: after a sentence, or, if none ends for long, after a word. */
const SPLIT = /(?<sentence>[。！？]|[.!?]\s+(?=\p{Lu}))|\s(?=\S)/gu;
const TAG = /<(\/?)([a-z][\w-]*)(?=[\s/>])[^>]*>/gi;
/** What opens or closes emphasis, code or a formula: two of each belong together. */
const MARKS = [/\*(?=\S)|(?<=\S)\*/g, /(?<!\w)_|_(?!\w)/g, /`/g, /~~/g, /\$/g];
const EMPTY_TAGS = new Set(["br", "hr", "img", "input", "source", "wbr"]);

/** How a piece begins. */
interface Beginning {
  /** Whether it goes on with the list or the paragraph of the piece above. */
  goesOn: boolean;
  /** The head of the table that it goes on with, which is drawn again. */
  head: string;
}

export interface Piece extends Beginning {
  text: string;
}

const OWN_BLOCK: Beginning = { goesOn: false, head: "" };
const SAME_BLOCK: Beginning = { goesOn: true, head: "" };

/**
 * Split Markdown that grows into pieces that can be drawn one by one: while it streams, only the last piece is parsed
 * and drawn anew. `before` is what the last call returned. The pieces together are the text.
 */
export function piecesOf(text: string, before: Piece[]): Piece[] {
  if (REFERENCES.test(text)) return [{ ...OWN_BLOCK, text }];
  const pieces = stillThere(text, before.slice(0, -1));
  let { goesOn, head } = before[pieces.length] ?? OWN_BLOCK;
  let start = pieces.reduce((length, piece) => length + piece.text.length, 0);
  for (let next = nextPiece(text, start, head); next; next = nextPiece(text, start, head)) {
    pieces.push({ text: text.slice(start, next.at), goesOn, head });
    ({ at: start, goesOn, head } = next);
  }
  return [...pieces, { text: text.slice(start), goesOn, head }];
}

/** The pieces, if the text still begins with them. */
function stillThere(text: string, pieces: Piece[]): Piece[] {
  let start = 0;
  const same = pieces.every((piece) => {
    start += piece.text.length;
    return text.startsWith(piece.text, start - piece.text.length);
  });
  return same ? pieces : [];
}

/** Where and how the next piece begins; undefined if there is no such place yet. */
function nextPiece(text: string, start: number, head: string): (Beginning & { at: number }) | undefined {
  const reader = new LineReader(head);
  for (let at = start; at < text.length; ) {
    const next = text.indexOf("\n", at);
    const line = text.slice(at, next < 0 ? text.length : next);
    const beginning = reader.beginningAt(line, at - start);
    if (beginning) return { at, ...beginning };
    reader.read(line);
    const split = reader.splitIn(line, LEAST_LENGTH_OF_BLOCK - (at - start));
    if (split !== undefined) return { at: at + split, ...SAME_BLOCK };
    if (next < 0) break;
    at = next + 1;
  }
  return undefined;
}

/** Reads a piece line by line and knows where another one may begin: not within code, formulas or HTML. */
class LineReader {
  private block: "list" | "table" | "paragraph" | "other" = "other";
  private fence: string | undefined;
  private formula = false;
  /** How many elements of HTML are open. */
  private open = 0;
  private blank = true;
  private paragraph = new Inline();
  private item = 0;
  private last = "";

  constructor(private head: string) {
    if (head) this.block = "table";
  }

  beginningAt(line: string, length: number): Beginning | undefined {
    if (this.fence !== undefined || this.formula || this.open > 0) return undefined;
    if (this.blank && length >= LEAST_LENGTH && BEGINNING.test(line)) return OWN_BLOCK;
    if (length < LEAST_LENGTH_OF_BLOCK) return undefined;
    if (this.block === "list") return this.isNextItem(line) ? SAME_BLOCK : undefined;
    if (this.block === "table") return line.startsWith("|") ? { goesOn: false, head: this.head } : undefined;
    const within = this.block === "paragraph" && !this.blank && /^[\p{L}\p{N}]/u.test(line);
    return within && this.paragraph.isClosed ? SAME_BLOCK : undefined;
  }

  /** Where to split a paragraph that is one long line, at or after a place. */
  splitIn(line: string, place: number): number | undefined {
    if (this.block !== "paragraph" || line.length <= place) return undefined;
    const inline = new Inline();
    let read = 0;
    for (const { index, groups, 0: end } of line.matchAll(SPLIT)) {
      inline.read(line.slice(read, index));
      read = index;
      const least = groups?.["sentence"] ? place : place + LEAST_LENGTH;
      if (index >= least && inline.isClosed) return index + end.length;
    }
    return undefined;
  }

  read(line: string): void {
    const [, mark] = FENCE.exec(line) ?? [];
    if (this.fence !== undefined) {
      if (mark?.startsWith(this.fence)) this.fence = undefined;
    } else if (mark) {
      this.fence = mark;
    } else {
      this.readTags(line);
      this.readFormula(line);
      this.readBlock(line);
    }
    this.blank = line.trim() === "";
    this.last = line;
  }

  private isNextItem(line: string): boolean {
    const [item, number] = ITEM.exec(line) ?? [];
    return item !== undefined && (number === undefined || Number(number) === this.item + 1);
  }

  private readTags(line: string): void {
    if (this.open === 0 && !/^ {0,3}</.test(line)) return;
    if (line.lastIndexOf("<") > line.lastIndexOf(">")) this.open = Infinity; // it ends on another line
    for (const [, closing, name = ""] of line.matchAll(TAG)) {
      if (!EMPTY_TAGS.has(name.toLowerCase())) this.open = Math.max(0, this.open + (closing ? -1 : 1));
    }
  }

  private readFormula(line: string): void {
    if (line.split("$$").length % 2 === 0) this.formula = !this.formula;
    if (line.includes("\\[")) this.formula = !line.includes("\\]");
    else if (line.includes("\\]")) this.formula = false;
  }

  private readBlock(line: string): void {
    const item = ITEM.exec(line);
    if (item) {
      this.block = "list";
      this.item = Number(item[1] ?? 0);
    } else if (BELOW_TABLE_HEAD.test(line) && this.last.startsWith("|")) {
      this.block = "table";
      this.head = `${this.last}\n${line}\n`;
    } else if (this.blank && /^\S/.test(line) && !(this.block === "table" && line.startsWith("|"))) {
      this.block = /^[\p{L}\p{N}]/u.test(line) ? "paragraph" : "other";
      this.paragraph = new Inline();
    }
    this.paragraph.read(line);
  }
}

/** Reads the text of a paragraph. */
class Inline {
  private readonly marks = MARKS.map(() => 0);
  private brackets = 0;

  /** Whether no emphasis, code, link or formula is open. */
  get isClosed(): boolean {
    return this.brackets === 0 && this.marks.every((count) => count % 2 === 0);
  }

  read(text: string): void {
    MARKS.forEach((mark, index) => (this.marks[index] = (this.marks[index] ?? 0) + [...text.matchAll(mark)].length));
    this.brackets += text.split("[").length - text.split("]").length;
  }
}
