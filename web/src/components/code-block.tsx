import { memo, useEffect, useState, type CSSProperties } from "react";
import { CopyButton } from "./copy-button";
import { highlight, type Token } from "./highlighting";

/** A block of code; it is highlighted when it is complete. */
export const CodeBlock = memo(function CodeBlock({ code, language, complete }: {
  code: string;
  language: string;
  complete: boolean;
}) {
  const [tokens, setTokens] = useState<Token[][]>();
  useEffect(() => {
    let current = true;
    setTokens(undefined);
    if (complete) void highlight(code, language).then((found) => current && setTokens(found));
    return () => {
      current = false;
    };
  }, [code, language, complete]);
  const lines: Token[][] = tokens ?? code.split("\n").map((text) => [{ text, style: undefined }]);
  return (
    <div className="code-block overflow-hidden rounded-xl border border-line bg-surface" dir="ltr">
      <div className="screen-only flex h-9 items-center justify-between border-b border-line pr-1 pl-4 text-xs text-soft">
        <span>{language || "text"}</span>
        <CopyButton text={code} label="Copy code" />
      </div>
      <pre className="overflow-x-auto px-4 py-3 font-mono text-[0.8125rem] leading-6" tabIndex={0} aria-label={`Code: ${language || "text"}`}>
        <code>
          {lines.map((line, number) => (
            <span key={number} className="block min-h-6">
              {line.map((token, index) =>
                token.style ? (
                  <span key={index} className="token" style={token.style as CSSProperties}>
                    {token.text}
                  </span>
                ) : (
                  token.text
                ),
              )}
              {number < lines.length - 1 && "\n"}
            </span>
          ))}
        </code>
      </pre>
    </div>
  );
});
