import { memo, useEffect, useState } from "react";
import { CodeBlock } from "./code-block";
import { drawableSource } from "./mermaid-source";

/** The design tokens of both themes: an image does not see the style sheet of the page. */
const LIGHT = { bg: "#ffffff", fg: "#1a1a1e", line: "#5a5a65", muted: "#5a5a65", surface: "#f8f8f9", border: "#c9c9cf" };
const DARK = { bg: "#131316", fg: "#ededf0", line: "#a8a8b3", muted: "#a8a8b3", surface: "#26262b", border: "#55555e" };
/** Larger diagrams stay code: the layout runs on the main thread. */
const MAXIMUM_LENGTH = 5_000;

/** A diagram in mermaid's language, as an image. It stays code while it streams, and if it cannot be drawn. */
export const Diagram = memo(function Diagram({ code, complete }: { code: string; complete: boolean }) {
  const [addresses, setAddresses] = useState<Addresses>();
  useEffect(() => {
    let current = true;
    setAddresses(undefined);
    if (complete && code.length <= MAXIMUM_LENGTH) {
      draw(code).then(
        (drawn) => current && setAddresses(drawn),
        () => undefined,
      );
    }
    return () => {
      current = false;
    };
  }, [code, complete]);
  if (!addresses) return <CodeBlock code={code} language="mermaid" complete={complete} />;
  return (
    <figure tabIndex={0} className="diagram overflow-x-auto rounded-xl border border-line p-4">
      <img src={addresses.light} alt={`Diagram: ${code}`} className="mx-auto max-w-none dark:hidden" />
      <img src={addresses.dark} alt={`Diagram: ${code}`} className="mx-auto hidden max-w-none dark:block" />
    </figure>
  );
});

/** The addresses of a diagram's image in both themes. */
interface Addresses {
  light: string;
  dark: string;
}

/** Draw with a library that needs no document: mermaid's own would need inline styles, which the policy forbids. */
async function draw(code: string): Promise<Addresses> {
  const source = drawableSource(code);
  if (source === undefined) throw new SyntaxError("It cannot be drawn faithfully.");
  const { renderMermaidSVG } = await import("beautiful-mermaid");
  const drawn = renderMermaidSVG(source, { ...LIGHT, transparent: true, font: "system-ui", padding: 16 });
  const svg = drawn.replace(/@import url\('[^']*'\);/g, ""); // it would name a font of another host
  return { light: addressOf(svg), dark: addressOf(svg.replace(styleOf(LIGHT), styleOf(DARK))) };
}

function styleOf(colors: typeof LIGHT): string {
  return Object.entries(colors)
    .map(([name, value]) => `--${name}:${value}`)
    .join(";");
}

function addressOf(svg: string): string {
  return `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
}
