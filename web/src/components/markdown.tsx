import { createElement, Fragment, isValidElement, memo, useMemo, useRef, type ComponentProps, type CSSProperties, type ElementType, type ReactNode } from "react";
import { classes } from "../ui/classes";
import { CodeBlock } from "./code-block";
import { CopyButton } from "./copy-button";
import { Diagram } from "./diagram";
import type { Column, Outline } from "./markdown-chunks";
import type { Node } from "./markdown-nodes";
import { useDrawing } from "./markdown-reader";
import { useTurn } from "./turns";

type Components = Record<string, ElementType>;

const components: Components = { pre: Code, table: Table, input: TaskBox, code: InlineCode, a: Link };

/** The same for a text that is read on its own: links lead to its headings, and stay in the tab. */
const withAnchors: Components = {
  ...components,
  a: SameTabLink,
  ...Object.fromEntries((["h1", "h2", "h3", "h4"] as const).map((level) => [level, anchored(level)])),
};

interface Props {
  text: string;
  streaming: boolean;
  /** Whether headings have an id, as code hosts make it from their words. */
  anchors?: boolean;
}

/** Blocks of a text that is so long that those out of sight are left alone. */
const MANY = 8;

/** Markdown that may end in the middle of a word or a table, as it does while it streams. */
export const Markdown = memo(function Markdown({ text, streaming, anchors = false }: Props) {
  const { outline, chunks, atOnce } = useDrawing(text, streaming, anchors);
  const own = anchors ? withAnchors : components;
  const draw = (all: Outline, wrap: (chunk: ReactNode, key: string) => ReactNode): ReactNode[] => {
    let count = 0;
    return all.map((part, index) => {
      if (typeof part !== "number") {
        const [key, { tag, props, children }] = [`element ${index - count}`, part];
        const hasRows = tag === "tbody" && children.every((child) => typeof child === "number");
        if (hasRows) return <Fragment key={key}>{draw(children, inGroups)}</Fragment>;
        const drawn = draw(children, asItIs);
        return createElement(own[tag] ?? tag, { ...props, key }, tag === "p" ? inLines(drawn) : drawn);
      }
      const key = `chunk ${count++}`;
      return wrap(<Chunk key={key} nodes={chunks[part] ?? "[]"} components={own} atOnce={atOnce} />, key);
    });
  };
  return <div className={classes("markdown", outline.length > MANY && "many")}>{draw(outline, inBlocks)}</div>;
});

const asItIs = (chunk: ReactNode) => chunk;

const inBlocks = (chunk: ReactNode, key: string) => (
  <div key={key} className="blocks">
    {chunk}
  </div>
);

/** Chunks of a paragraph that are laid out as one: some fifty lines. */
const MOST_OF_A_PARAGRAPH = 4;

/** Cut a paragraph that goes on for pages: the browser lays out, and paints, all lines of one whenever it grows. */
function inLines(chunks: ReactNode[]): ReactNode[] {
  if (chunks.length <= MOST_OF_A_PARAGRAPH) return chunks;
  const starts = chunks.map((_, index) => index).filter((index) => index % MOST_OF_A_PARAGRAPH === 0);
  return starts.map((start) => (
    <span key={start} className="lines">
      {chunks.slice(start, start + MOST_OF_A_PARAGRAPH)}
    </span>
  ));
}

const inGroups = (rows: ReactNode, key: string) => <tbody key={key}>{rows}</tbody>;

/** A part of a text that is drawn at once. While a long text arrives, only the last one is drawn anew. */
const Chunk = memo(function Chunk({ nodes, components: own, atOnce }: {
  nodes: string;
  components: Components;
  atOnce: boolean;
}) {
  const drawn = useTurn(nodes, atOnce);
  return useMemo(() => drawn && (JSON.parse(drawn) as Node[]).map((node, key) => elementOf(node, key, own)), [drawn, own]);
});

function elementOf(node: Node, key: number, own: Components): ReactNode {
  if (typeof node === "string") return node;
  const children = node.children.map((child, index) => elementOf(child, index, own));
  // An element without children must have none: `[]` is not allowed in `br`.
  return createElement(own[node.tag] ?? node.tag, { ...node.props, key }, children.length > 0 ? children : undefined);
}

function anchored(Level: "h1" | "h2" | "h3" | "h4") {
  return function Heading({ children }: ComponentProps<"h1">) {
    const id = textIn(children).toLowerCase().replace(/[^\p{L}\p{N}_ -]+/gu, "").replaceAll(" ", "-");
    return (
      <Level id={id} className="scroll-mt-4">
        {children}
      </Level>
    );
  };
}

function textIn(node: ReactNode): string {
  if (Array.isArray(node)) return node.map(textIn).join("");
  if (isValidElement<{ children?: ReactNode }>(node)) return textIn(node.props.children);
  return typeof node === "string" || typeof node === "number" ? String(node) : "";
}

function Code({ children }: ComponentProps<"pre">) {
  const code = [children].flat().find((child) => isValidElement<ComponentProps<"code">>(child));
  const { className = "", "data-open": open = false } = (code?.props ?? {}) as { className?: string; "data-open"?: boolean };
  const language = /language-(\S+)/.exec(className)?.[1] ?? "";
  const text = textIn(children);
  if (language === "mermaid") return <Diagram code={text.trim()} complete={!open} />;
  return <CodeBlock code={text.replace(/\n$/, "")} language={language} complete={!open} />;
}

function InlineCode({ children }: ComponentProps<"code">) {
  return <code className="inline-code">{children}</code>;
}

/** A table. The rows of a large one are in groups. Of a long one, the groups out of sight need no layout. */
function Table({ children, columns, dir }: ComponentProps<"table"> & { columns?: Column[] }) {
  const table = useRef<HTMLTableElement>(null);
  return (
    <div className="group/table relative overflow-hidden rounded-xl border border-line" dir={dir}>
      <div className="overflow-x-auto" role="group" aria-label="Table" tabIndex={0}>
        <table ref={table} dir={dir} className={classes("w-full", columns && "long")} style={columns && widthsOf(columns)}>
          {children}
        </table>
      </div>
      <div className="screen-only absolute top-1 end-1 rounded-lg bg-surface transition-opacity can-hover:opacity-0 group-hover/table:opacity-100 focus-within:opacity-100">
        <CopyButton label="Copy table" text={() => (table.current ? tabSeparated(table.current) : "")} />
      </div>
    </div>
  );
}

function widthsOf(columns: Column[]): CSSProperties {
  const padding = 1.5;
  const least = columns.reduce((sum, each) => sum + each.least, 0);
  const tracks = columns.map((each) => `minmax(calc(${each.least}ch + ${padding}rem), ${each.most}fr)`).join(" ");
  return { "--columns": tracks, minWidth: `calc(${least}ch + ${columns.length * padding}rem)` } as CSSProperties;
}

function tabSeparated(table: HTMLTableElement): string {
  const textOf = (cell: HTMLTableCellElement) => (cell.textContent ?? "").replace(/\s+/g, " ").trim();
  return [...table.rows].map((row) => [...row.cells].map(textOf).join("\t")).join("\n");
}

/** The box of a task list. */
function TaskBox({ checked }: ComponentProps<"input">) {
  return (
    <input
      type="checkbox"
      className="mr-2 size-4 align-[-0.125rem] accent-accent"
      checked={checked ?? false}
      disabled
      aria-label={checked ? "Done" : "To do"}
    />
  );
}

function SameTabLink({ href, children }: ComponentProps<"a">) {
  return <a href={href}>{children}</a>;
}

/** A link to another page opens in a tab of its own; one to a footnote, or back, leads there. */
function Link(props: ComponentProps<"a">) {
  const tab = props.href?.startsWith("#") ? { target: undefined, rel: undefined } : { target: "_blank", rel: "noreferrer" };
  return <a {...props} {...tab} />;
}
