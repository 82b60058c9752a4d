import type { Formulas } from "./markdown-nodes";

const CODE = /(```[\s\S]*?(?:```|$)|~~~[\s\S]*?(?:~~~|$)|`[^`\n]*`)/;

let loading: Promise<Formulas> | undefined;

/**
 * Write `\(a\)`, `\[a\]`, which Markdown would take for escaped brackets, and `$a$` as `$$a$$`; code stays as it is. `$$a$$` alone
 * on a line is a display, as models mean it.
 */
export function withDollars(text: string): string {
  if (!hasFormulas(text)) return text;
  return `\n${text}\n` // so that the first and the last line look like the others
    .split(CODE)
    .map((piece, index) =>
      index % 2 === 1
        ? piece
        : piece
            .replace(/\n( {0,3})\$\$([^$\n]+)\$\$[ \t]*(?=\n)/g, "\n$1$$$$\n$1$2\n$1$$$$")
            .replace(/\$\$([^$\n]+)\$\$/g, (piece, text: string) => (isShell(text) ? piece.replaceAll("$", "\\$") : piece))
            .replace(/\\\[([\s\S]+?)\\\]/g, (_, formula: string) => `\n$$$$\n${formula.trim()}\n$$$$\n`)
            .replace(DOLLARS, (piece) => (isFormula(piece.slice(1, -1)) ? `$$${piece}$$` : piece))
            .replace(/\\\(([^\n]+?)\\\)/g, (_, formula: string) => `$$$$${formula.trim()}$$$$`),
    )
    .join("")
    .slice(1, -1);
}

/** Whether a text may have formulas. */
export function hasFormulas(text: string): boolean {
  return /\$\$|\\\(|\\\[/.test(text) || (text.match(DOLLARS) ?? []).some((piece) => isFormula(piece.slice(1, -1)));
}

/** Text between two dollars that touch it, as no two prices in a sentence do: "$5 and $6" has a space before its second. */
const DOLLARS = /(?<![\w$\\])\$(?=[^\s$])[^$\n`]*(?<=[^\s\\])\$(?![\w$])/g;

/**
 * Whether it can be nothing but a formula: a letter, or something with a command, an index, a power or a relation, without
 * words. What stands in braces or after a backslash is no word.
 */
function isFormula(text: string): boolean {
  if (/^[A-Za-z]$/.test(text)) return true;
  const isPrice = /^[\d.,+\s]+$/.test(text);
  const bare = text.replace(/(?<=\S)\{[^{}]*\}/g, " ").replace(/\\[A-Za-z]+/g, " ");
  const hasName = /[A-Za-z]{2,}_|_[A-Za-z]{2,}|[A-Za-z]{4,}|^\{/.test(bare) && !/\\/.test(text);
  const isSentence = /\b[A-Za-z]{2,}\s+[A-Za-z]{2,}/.test(bare) || (/^\d/.test(text) && /\b[A-Za-z]{2,}\b/.test(bare));
  return /[\\^_=<>+]/.test(text) && !isPrice && !hasName && !isSentence;
}

/** Whether the dollars around a text are two process ids: "kill $$ and echo $$". */
function isShell(text: string): boolean {
  return /^\s|\s$/.test(text) && !isFormula(text.trim());
}

/** What draws formulas, with KaTeX. A single dollar begins none. */
export function loadFormulas(): Promise<Formulas> {
  loading ??= Promise.all([import("remark-math"), import("rehype-katex")]).then(([math, katex]) => ({
    remark: [[math.default, { singleDollarTextMath: false }]],
    rehype: [[katex.default, { errorColor: "var(--soft)" }]],
  }));
  return loading;
}
