import type { PluginConfig } from "streamdown";
import { useEffect, useState } from "react";

type MathPlugin = NonNullable<PluginConfig["math"]>;

const CODE = /(```[\s\S]*?(?:```|$)|~~~[\s\S]*?(?:~~~|$)|`[^`\n]*`)/;
let loaded: MathPlugin | undefined;

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

/** The plugin that draws formulas with KaTeX; it is loaded when a text has one. A single dollar begins no formula. */
export function useFormulas(text: string): MathPlugin | undefined {
  const [plugin, setPlugin] = useState(loaded);
  const needed = text.includes("$$");
  useEffect(() => {
    if (!needed || plugin) return;
    void Promise.all([import("@streamdown/math"), import("katex/dist/katex.min.css")]).then(([{ createMathPlugin }]) => {
      loaded ??= createMathPlugin({ singleDollarTextMath: false });
      setPlugin(loaded);
    });
  }, [needed, plugin]);
  return needed ? plugin : undefined;
}
