/**
 * Flowcharts in the form that the drawing library reads. It takes what it understands of a line and drops the rest, so that
 * `A-->B` becomes a node "A--" and a broken line a node alone. Here each statement is read to its end, and written again
 * with a space between its parts. What cannot be read so is not drawn: its source is shown.
 */

const HEADER = /^(graph|flowchart)(?:\s+(TD|TB|LR|BT|RL))?$/i;
const DIRECTIVE = /^(?:end|(?:subgraph|classDef|class|style|linkStyle)\s.+|subgraph|direction\s+(?:TD|TB|LR|BT|RL))$/i;
/** A name, which may have single hyphens inside, its shape with a label, and a class. */
const NODE =
  /^\w+(?:-\w+)*(?:\(\(\(.+?\)\)\)|\(\[.+?\]\)|\(\(.+?\)\)|\[\[.+?\]\]|\[\(.+?\)\]|\[\/[^\]]+?\\\]|\[\\[^\]]+?\/\]|>[^\]]+\]|\{\{.+?\}\}|\[[^\]/\\][^\]]*\]|\([^)]+\)|\{[^}]+\})?(?::::\w[\w-]*)?/;
const LINK = /^<?(?:(?:-->|-\.->|==>|---|-\.-|===)(?:\|[^|]*\|)?|(?:--|-\.|==)\s+.+?\s+(?:-->|---|\.->|-\.-|==>|===))/;

/** Return the source of a diagram that is drawn faithfully, or undefined. Only flowcharts are read. */
export function drawableSource(code: string): string | undefined {
  const [first = "", ...statements] = statementsOf(code);
  if (!/^(?:graph|flowchart)\b/i.test(first)) return code;
  const header = HEADER.exec(first);
  const lines = statements.map((statement) => (DIRECTIVE.test(statement) ? statement : chainOf(statement)));
  if (!header || lines.length === 0 || lines.includes(undefined)) return undefined;
  return [`${header[1]} ${header[2] ?? "TD"}`, ...lines].join("\n");
}

/** The statements of a flowchart: they end with a line or a semicolon that is in no label. Comments are left out. */
function statementsOf(code: string): string[] {
  const lines = code.split("\n").filter((line) => !line.trim().startsWith("%%"));
  const pieces = lines.flatMap((line) => line.match(/(?:"[^"]*"|\[[^\]]*\]|\([^)]*\)|\{[^}]*\}|\|[^|]*\||[^;])+/g) ?? []);
  return pieces.map((piece) => piece.trim()).filter(Boolean);
}

/** Nodes and the links between them, with spaces; undefined if there is anything else. */
function chainOf(statement: string): string | undefined {
  const parts: string[] = [];
  let rest = statement;
  for (let wanted = NODE; ; wanted = wanted === NODE ? LINK : NODE) {
    const part = (wanted === LINK && /^&/.exec(rest)) || wanted.exec(rest);
    if (!part) return undefined;
    parts.push(part[0]);
    rest = rest.slice(part[0].length).trimStart();
    if (rest === "") return wanted === NODE ? parts.join(" ") : undefined;
  }
}
