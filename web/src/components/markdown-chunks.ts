import type { Node } from "./markdown-nodes";

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
        outline.push({ tag: node.tag, props: node.props, children: outlineOf(node.children) });
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
