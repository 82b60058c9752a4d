import { memo, useEffect, useMemo, useState, type CSSProperties } from "react";
import { CopyButton } from "./copy-button";
import { highlight, type Token } from "./highlighting";
import { GROUP_LINES } from "./line-groups";
import { useTurn } from "./turns";

/** The tokens of each group of lines, before they are known. */
const NONE: Token[][][] = [];

/** A block of code; it is highlighted when it is complete. */
export const CodeBlock = memo(function CodeBlock({ code, language, complete }: {
  code: string;
  language: string;
  complete: boolean;
}) {
  const groups = useMemo(() => groupsOf(code), [code]);
  const [tokens, setTokens] = useState(NONE);
  useEffect(() => {
    setTokens(NONE);
    if (!complete) return undefined;
    return highlight(code, language, (group, lines) => setTokens((known) => Object.assign([...known], { [group]: lines })));
  }, [code, language, complete]);
  return (
    <div className="code-block overflow-hidden rounded-xl border border-line bg-surface" dir="ltr">
      <div className="screen-only flex h-9 items-center justify-between border-b border-line pr-1 pl-4 text-xs text-soft">
        <span>{language || "text"}</span>
        <CopyButton text={code} label="Copy code" />
      </div>
      <pre className="overflow-x-auto px-4 py-3 font-mono text-code leading-6" tabIndex={0} aria-label={`Code: ${language || "text"}`}>
        <code>
          {groups.map((text, index) => (
            <Lines key={index} text={text} tokens={tokens[index]} last={index === groups.length - 1} />
          ))}
        </code>
      </pre>
    </div>
  );
});

interface LinesProps {
  text: string;
  tokens: Token[][] | undefined;
  last: boolean;
}

/** Some lines of a block. While a long block arrives, only its last lines are drawn anew. */
const Lines = memo(function Lines({ text, tokens, last }: LinesProps) {
  const lines = useTurn(useMemo(() => <LinesNow text={text} tokens={tokens} last={last} />, [text, tokens, last]), false);
  return lines;
});

function LinesNow({ text, tokens, last }: LinesProps) {
  const lines: Token[][] = tokens ?? text.split("\n").map((line) => [{ text: line, style: undefined }]);
  return lines.map((line, number) => (
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
      {!(last && number === lines.length - 1) && "\n"}
    </span>
  ));
}

function groupsOf(code: string): string[] {
  const lines = code.split("\n");
  const groups: string[] = [];
  for (let start = 0; start < lines.length; start += GROUP_LINES) {
    groups.push(lines.slice(start, start + GROUP_LINES).join("\n"));
  }
  return groups;
}
