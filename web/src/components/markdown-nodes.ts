import { toJsxRuntime } from "hast-util-to-jsx-runtime";
import type { Root } from "hast";
import type { Code, Nodes, Root as Document } from "mdast";
import { harden } from "rehype-harden";
import rehypeRaw from "rehype-raw";
import rehypeSanitize, { defaultSchema } from "rehype-sanitize";
import remarkGfm from "remark-gfm";
import remarkParse from "remark-parse";
import remarkRehype from "remark-rehype";
import remend from "remend";
import { unified, type PluggableList } from "unified";
import { withoutPrefix } from "../words";

/** What is drawn: a text, or an element with the properties that React knows. It can be sent as JSON. */
export type Node = string | Element;

export interface Element {
  tag: string;
  props: Record<string, unknown>;
  children: Node[];
}

export interface Reading {
  /** Whether the text may end in the middle of a word or a table. */
  streaming: boolean;
  /** What the ids of its elements begin with, so that they are not those of other elements of the page. */
  prefix: string;
  /** The address of the page, to which links may be relative. */
  base: string;
}

/** What reads and draws formulas. */
export interface Formulas {
  remark: PluggableList;
  rehype: PluggableList;
}

/** A single tilde means "about". */
const SYNTAX: PluggableList = [remarkParse, [remarkGfm, { singleTilde: false }]];

const FENCE = /^[\s>]*(?:`{3,}|~{3,})/;
const CLOSED_FENCE = /\n[\s>]*(?:`{3,}|~{3,})\s*$/;

const LETTER = /\p{L}/u;
const FROM_RIGHT_TO_LEFT = /[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}]/u;

/** The blocks of a text in Markdown. A text that no parser can read, because it is nested too deeply, is shown as it is. */
export function nodesOf(text: string, reading: Reading, formulas?: Formulas): Node[] {
  try {
    return read(reading.streaming ? remend(text, { linkMode: "text-only" }) : text, reading, formulas);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return [{ tag: "p", props: { className: "whitespace-pre-wrap" }, children: [text] }];
  }
}

function read(text: string, { streaming, prefix, base }: Reading, formulas: Formulas = { remark: [], rehype: [] }): Node[] {
  const document = unified().use(SYNTAX).use(formulas.remark).parse(text) as Document;
  if (streaming) markOpenFence(document, text);
  const tree = unified()
    .use(remarkRehype, { allowDangerousHtml: true, clobberPrefix: "" })
    .use(text.includes("<") ? [rehypeRaw] : [])
    .use(safe(prefix, base))
    .use(formulas.rehype)
    .runSync(document) as Root;
  return inReact(tree)
    .filter((node) => typeof node !== "string" || node.trim() !== "")
    .map((node) => withDirection(withPrefix(node, prefix)));
}

/** Links may be relative to the page. Only inline images are shown: the page makes no requests to other hosts. */
function safe(prefix: string, base: string): PluggableList {
  const attributes = { ...defaultSchema.attributes, code: [...(defaultSchema.attributes?.["code"] ?? []), "dataOpen"] };
  const { href = [], src = [] } = defaultSchema.protocols ?? {};
  const protocols = { ...defaultSchema.protocols, href: [...(href ?? []), "tel"], src: [...(src ?? []), "data"] };
  return [
    [rehypeSanitize, { ...defaultSchema, attributes, protocols, clobberPrefix: prefix }],
    [linkPictures, base],
    [harden, { defaultOrigin: base, allowedLinkPrefixes: ["*"], allowDataImages: true }],
  ];
}

/** Make a link of a picture of another host: the page does not ask that host for it unless the user does. */
function linkPictures(base: string) {
  const change = (node: Root | Root["children"][number]): void => {
    if (node.type === "element" && node.tagName === "img") {
      const { src, alt } = node.properties;
      if (typeof src !== "string" || !URL.canParse(src, base)) return;
      const { protocol, host } = new URL(src, base);
      if (!/^https?:$/.test(protocol)) return;
      const text = `Image on ${withoutPrefix(host)} ↗`;
      const title = typeof alt === "string" && alt !== "" ? alt : undefined;
      Object.assign(node, { tagName: "a", properties: { href: src, title }, children: [{ type: "text", value: text }] });
    } else if ("children" in node) node.children.forEach((child) => change(child as Root["children"][number]));
  };
  return change;
}

/** Mark the block of code in whose middle the text ends. */
function markOpenFence(document: Document, text: string): void {
  let last: Nodes | undefined = document;
  while (last && "children" in last) last = last.children.at(-1);
  if (last?.type !== "code") return;
  const source = text.slice(last.position?.start.offset, last.position?.end.offset);
  if (FENCE.test(source) && !CLOSED_FENCE.test(source)) (last as Code).data = { hProperties: { dataOpen: true } };
}

function inReact(tree: Root): Node[] {
  const element = (type: unknown, { children, ...props }: Record<string, unknown>): unknown => {
    const inside = children === undefined ? [] : ([children].flat(2) as Node[]);
    return typeof type === "string" ? { tag: type, props, children: inside } : inside;
  };
  const options = { Fragment: Symbol("fragment"), jsx: element, jsxs: element, ignoreInvalidStyle: true, passKeys: false };
  return [toJsxRuntime(tree, options as Parameters<typeof toJsxRuntime>[1]) as unknown].flat() as Node[];
}

/** Links to elements of the text, such as its footnotes, lead there. */
function withPrefix(node: Node, prefix: string): Node {
  if (typeof node === "string") return node;
  const { href } = node.props;
  if (typeof href === "string" && href.startsWith("#")) node.props["href"] = `#${prefix}${href.slice(1)}`;
  node.children.forEach((child) => withPrefix(child, prefix));
  return node;
}

function withDirection(node: Node): Node {
  if (typeof node !== "string" && FROM_RIGHT_TO_LEFT.test(firstLetter(node))) node.props["dir"] ??= "rtl";
  return node;
}

function firstLetter(node: Node): string {
  if (typeof node === "string") return LETTER.exec(node)?.[0] ?? "";
  if (node.tag === "code" || node.tag === "pre") return "";
  for (const child of node.children) {
    const letter = firstLetter(child);
    if (letter) return letter;
  }
  return "";
}
