import type { Element, Node } from "./markdown-nodes";

/** How much is drawn at once: about a hundred elements, or some thousand characters. */
const LARGEST = 100;
const CHARACTERS = 50;

/** An element that is drawn in chunks, because it is large. */
export interface Shell {
  tag: string;
  props: Record<string, unknown>;
  children: Outline;
}

/** Chunks, by their place in the list of chunks, and the elements around them. */
export type Outline = (number | Shell)[];

/** A text that can be drawn chunk by chunk: a chunk is a list of nodes as JSON, which is equal if it looks the same. */
export interface Drawing {
  outline: Outline;
  chunks: string[];
}

/** Cut what is drawn into chunks. Those of a text that grows stay the same but the last ones. */
export function drawingOf(nodes: Node[]): Drawing {
  const chunks: string[] = [];
  const sizes = new Map<Node, number>();
  return { outline: outlineOf(nodes), chunks };

  function outlineOf(all: Node[]): Outline {
    const outline: Outline = [];
    let group: Node[] = [];
    let size = 0;
    const close = () => {
      if (group.length > 0) outline.push(chunks.push(JSON.stringify(group)) - 1);
      [group, size] = [[], 0];
    };
    for (const node of all) {
      const more = sizeOf(node);
      if (size + more > LARGEST) close();
      if (more > LARGEST && typeof node !== "string" && node.tag !== "pre") {
        const columns = node.tag === "table" && elementsIn(node, "tr").every((row) => sizeOf(row) <= LARGEST) && columnsOf(node);
        outline.push({ tag: node.tag, props: columns ? { ...node.props, columns } : node.props, children: outlineOf(node.children) });
      } else {
        group.push(node);
        size += more;
      }
    }
    close();
    return outline;
  }

  function sizeOf(node: Node): number {
    if (typeof node === "string") return node.length / CHARACTERS;
    const known = sizes.get(node) ?? node.children.reduce((size, child) => size + sizeOf(child), 1);
    sizes.set(node, known);
    return known;
  }
}

/** Rows of a table that the browser lays out as one: it looks at all of them when a column becomes wider. */
const MOST_ROWS = 100;

/** The width of a column of a long table, in characters: of what must not be broken, and of its longest text. */
export interface Column {
  least: number;
  most: number;
}

/** The columns of a long table; undefined if it is short, or if its rows differ. Rounded, so that they seldom change. */
function columnsOf(table: Element): Column[] | undefined {
  const rows = elementsIn(table, "tr").map((row) => elementsIn(row, "th", "td"));
  const head = rows[0] ?? [];
  const isOdd = (row: Element[], at: number) => row.some(isSpanning) || (row.length !== head.length && at < rows.length - 1);
  if (rows.length <= MOST_ROWS || rows.some(isOdd)) return undefined; // the last row may be incomplete
  return head.map((_, column) => {
    const texts = rows.map((row) => textOf(row[column] ?? "").trim());
    const longest = (words: string[]) => words.reduce((most, word) => Math.max(most, word.length), 1);
    const most = longest(texts);
    const least = Math.max(longest(texts.flatMap((text) => text.split(/\s+/))), Math.min(most, READABLE));
    return { least: roundUp(least, 4), most: roundUp(Math.min(most, WIDE), 8) };
  });
}

/** Characters of a column that can be read easily, and from which on more make it no wider. */
const READABLE = 24;
const WIDE = 64;

const roundUp = (length: number, step: number) => Math.ceil(length / step) * step;

const isSpanning = ({ props }: Element) => "colSpan" in props || "rowSpan" in props;

function elementsIn(node: Element, ...tags: string[]): Element[] {
  return node.children.flatMap((child) => {
    if (typeof child === "string") return [];
    return tags.includes(child.tag) ? [child] : elementsIn(child, ...tags);
  });
}

function textOf(node: Node): string {
  return typeof node === "string" ? node : node.children.map(textOf).join("");
}
