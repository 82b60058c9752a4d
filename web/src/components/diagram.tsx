import { memo, useEffect, useState } from "react";
import { CodeBlock } from "./code-block";

/** Shades of one color: the dark theme inverts them. An image does not see the style sheet of the page. */
const COLORS = { bg: "#ffffff", fg: "#18181b", transparent: true, font: "system-ui" };
/** Larger diagrams stay code: the layout runs on the main thread. */
const MAXIMUM_LENGTH = 5_000;

/** A diagram in mermaid's language, as an image. It stays code while it streams, and if it cannot be drawn. */
export const Diagram = memo(function Diagram({ code, complete }: { code: string; complete: boolean }) {
  const [address, setAddress] = useState<string>();
  useEffect(() => {
    let current = true;
    setAddress(undefined);
    if (complete && code.length <= MAXIMUM_LENGTH) {
      draw(code).then(
        (drawn) => current && setAddress(drawn),
        () => undefined,
      );
    }
    return () => {
      current = false;
    };
  }, [code, complete]);
  if (!address) return <CodeBlock code={code} language="mermaid" complete={complete} />;
  return (
    <figure tabIndex={0} className="diagram overflow-x-auto rounded-xl border border-line p-4">
      <img src={address} alt={`Diagram: ${code}`} className="mx-auto max-w-none dark:invert" />
    </figure>
  );
});

/** Draw with a library that needs no document: mermaid's own would need inline styles, which the policy forbids. */
async function draw(code: string): Promise<string> {
  const { renderMermaidSVG } = await import("beautiful-mermaid");
  const svg = renderMermaidSVG(code, COLORS).replace(/@import url\('[^']*'\);/g, ""); // it would name a font of another host
  return `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
}
