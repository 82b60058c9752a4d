import { isValidElement, memo, useMemo, useRef, type ComponentProps, type ReactElement, type ReactNode } from "react";
import {
  defaultRehypePlugins,
  extractTableDataFromElement,
  Streamdown,
  tableDataToTSV,
  useIsCodeFenceIncomplete,
  type Components,
  type StreamdownProps,
} from "streamdown";
import { classes } from "../ui/classes";
import { CodeBlock } from "./code-block";
import { CopyButton } from "./copy-button";
import { Diagram } from "./diagram";
import { useFormulas, withDollars } from "./formulas";
import { piecesOf, type Piece as PieceOfText } from "./markdown-pieces";

const harden = (defaultRehypePlugins["harden"] as unknown as [unknown])[0];

/** Links may be relative to the page. Only inline images are shown: the page makes no requests to other hosts. */
const rehypePlugins = Object.values({
  ...defaultRehypePlugins,
  harden: [harden, { defaultOrigin: document.baseURI, allowedLinkPrefixes: ["*"], allowDataImages: true }],
}) as StreamdownProps["rehypePlugins"];

const components = { pre: Code, table: Table, input: TaskBox, inlineCode: InlineCode, a: Link } as Components;

/** The same for a text that is read on its own: links lead to its headings, and stay in the tab. */
const withAnchors = {
  ...components,
  a: SameTabLink,
  ...Object.fromEntries((["h1", "h2", "h3", "h4"] as const).map((level) => [level, anchored(level)])),
} as Components;

interface Props {
  text: string;
  streaming: boolean;
  /** Whether headings have an id, as code hosts make it from their words. */
  anchors?: boolean;
}

/** Markdown that may end in the middle of a word or a table, as it does while it streams. */
export const Markdown = memo(function Markdown({ text, streaming, anchors = false }: Props) {
  const pieces = useRef<PieceOfText[]>([]);
  pieces.current = piecesOf(text, pieces.current);
  return (
    <div className="flex min-w-0 flex-col gap-3.5">
      {pieces.current.map((piece, index) => (
        <Piece key={index} {...piece} streaming={streaming && index === pieces.current.length - 1} anchors={anchors} />
      ))}
    </div>
  );
});

/** Links open at once, in a tab of their own. A constant: another object would draw everything anew. */
const LINK_SAFETY = { enabled: false };

const Piece = memo(function Piece({ text, head, goesOn, streaming, anchors }: Required<Props> & PieceOfText) {
  const prepared = useMemo(() => withDollars(head + text), [head, text]);
  const math = useFormulas(prepared);
  const plugins = useMemo(() => math && { math }, [math]);
  return (
    <Streamdown
      className={classes("markdown", goesOn && "goes-on", head && "same-table")}
      components={anchors ? withAnchors : components}
      controls={false}
      dir="auto"
      linkSafety={LINK_SAFETY}
      isAnimating={streaming}
      plugins={plugins}
      rehypePlugins={rehypePlugins}
    >
      {prepared}
    </Streamdown>
  );
});

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
  const incomplete = useIsCodeFenceIncomplete();
  const { className = "", children: code } = (children as ReactElement<{ className?: string; children?: unknown }>).props;
  const language = /language-(\S+)/.exec(className)?.[1] ?? "";
  if (language === "mermaid") return <Diagram code={String(code ?? "").trim()} complete={!incomplete} />;
  return <CodeBlock code={String(code ?? "").replace(/\n$/, "")} language={language} complete={!incomplete} />;
}

function InlineCode({ children }: ComponentProps<"code">) {
  return <code className="inline-code">{children}</code>;
}

function Table({ children }: ComponentProps<"table">) {
  const table = useRef<HTMLTableElement>(null);
  return (
    <div className="group/table relative overflow-hidden rounded-xl border border-line">
      <div className="overflow-x-auto" role="region" aria-label="Table" tabIndex={0}>
        <table ref={table} className="w-full">
          {children}
        </table>
      </div>
      <div className="screen-only absolute top-1 right-1 rounded-lg bg-surface transition-opacity can-hover:opacity-0 group-hover/table:opacity-100 focus-within:opacity-100">
        <CopyButton
          label="Copy table"
          text={() => (table.current ? tablesOf(table.current).map(textOfTable).join("\n") : "")}
        />
      </div>
    </div>
  );
}

/** The parts of a table: if it is long, it is drawn in several pieces. */
function tablesOf(table: HTMLTableElement): HTMLTableElement[] {
  let piece = table.closest(".markdown");
  if (piece?.classList.contains("same-table") && table === piece.querySelector("table")) {
    while (piece?.classList.contains("same-table")) piece = piece.previousElementSibling;
  } else if (table !== [...(piece?.querySelectorAll("table") ?? [])].at(-1)) {
    return [table];
  }
  const parts = [...(piece?.querySelectorAll("table") ?? [])].slice(-1);
  for (let next = piece?.nextElementSibling; next?.classList.contains("same-table"); next = next.nextElementSibling) {
    parts.push(...[...next.querySelectorAll("table")].slice(0, 1));
  }
  return parts;
}

/** A part of a table as tab-separated values; only the first one has its head. */
function textOfTable(table: HTMLTableElement, part: number): string {
  const text = tableDataToTSV(extractTableDataFromElement(table.parentElement!));
  return part === 0 ? text : text.slice(text.indexOf("\n") + 1);
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

function Link({ href, children }: ComponentProps<"a">) {
  return (
    <a href={href} target="_blank" rel="noreferrer">
      {children}
    </a>
  );
}
