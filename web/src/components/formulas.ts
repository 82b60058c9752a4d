import type { Formulas } from "./markdown-nodes";

const CODE = /(```[\s\S]*?(?:```|$)|~~~[\s\S]*?(?:~~~|$)|`[^`\n]*`)/;

let loading: Promise<Formulas> | undefined;

/** Write `\(a\)` and `\[a\]`, which Markdown would take for escaped brackets, as `$$a$$`; code stays as it is. */
export function withDollars(text: string): string {
  if (!text.includes("\\(") && !text.includes("\\[")) return text;
  return text
    .split(CODE)
    .map((piece, index) =>
      index % 2 === 1
        ? piece
        : piece
            .replace(/\\\[([\s\S]+?)\\\]/g, (_, formula: string) => `\n$$$$\n${formula.trim()}\n$$$$\n`)
            .replace(/\\\(([^\n]+?)\\\)/g, (_, formula: string) => `$$$$${formula.trim()}$$$$`),
    )
    .join("");
}

/** Whether a text may have formulas. */
export function hasFormulas(text: string): boolean {
  return /\$\$|\\\(|\\\[/.test(text);
}

/** What draws formulas, with KaTeX. A single dollar begins none. */
export function loadFormulas(): Promise<Formulas> {
  loading ??= Promise.all([import("remark-math"), import("rehype-katex")]).then(([math, katex]) => ({
    remark: [[math.default, { singleDollarTextMath: false }]],
    rehype: [[katex.default, { errorColor: "var(--soft)" }]],
  }));
  return loading;
}
