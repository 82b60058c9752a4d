/**
 * Diagrams in the form that the drawing library reads. It takes what it understands of a line and drops the rest, so that
 * `A-->B` becomes a node "A--" and a broken line a node alone; a line that it does not understand it drops whole. Here each
 * statement of a flowchart is read to its end, and written again with a space between its parts, and each line of another
 * diagram must be one that the library draws in whole. What cannot be read so is not drawn: its source is shown.
 */

const HEADER = /^(graph|flowchart)(?:\s+(TD|TB|LR|BT|RL))?$/i;
const DIRECTIVE = /^(?:end|(?:subgraph|classDef|class|style|linkStyle)\s.+|subgraph|direction\s+(?:TD|TB|LR|BT|RL))$/i;
/** A name, which may have single hyphens inside, its shape with a label, and a class. */
const NODE =
  /^\w+(?:-\w+)*(?:\(\(\(.+?\)\)\)|\(\[.+?\]\)|\(\(.+?\)\)|\[\[.+?\]\]|\[\(.+?\)\]|\[\/[^\]]+?\\\]|\[\\[^\]]+?\/\]|>[^\]]+\]|\{\{.+?\}\}|\[[^\]/\\][^\]]*\]|\([^)]+\)|\{[^}]+\})?(?::::\w[\w-]*)?/;
const LINK = /^<?(?:(?:-->|-\.->|==>|---|-\.-|===)(?:\|[^|]*\|)?|(?:--|-\.|==)\s+.+?\s+(?:-->|---|\.->|-\.-|==>|===))/;

/** Return the source of a diagram that is drawn faithfully, or undefined. */
export function drawableSource(code: string): string | undefined {
  const lines = code
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line && !line.startsWith("%%"));
  const kind = KINDS.find(({ header }) => header.test(lines[0] ?? ""));
  return kind ? kind.read(lines)?.join("\n") : flowchartOf(code);
}

interface Kind {
  header: RegExp;
  /** Return the lines that the library draws in whole, or undefined. */
  read: (lines: string[]) => string[] | undefined;
}

const NAME = "[\\w\\p{L}]+";
const STATE = `(?:\\[\\*\\]|${NAME})`;
const NUMBERS = "\\[\\s*-?[\\d.]+(?:\\s*,\\s*-?[\\d.]+)*\\s*\\]";
const RANGE = "-?[\\d.]+\\s*-->\\s*-?[\\d.]+";

const OPENING = /^(?:loop|alt|opt|par|critical|break)\b|\{$/;
const CLOSING = /^(?:end|\})$/;
/** What gives a state its label, which the library takes only from the first line that names the state. */
const LABELLED = new RegExp(`^(?:state\\s+"[^"]+"\\s+as\\s+(${NAME})|(${NAME})\\s*:\\s*.+)$`, "u");

const KINDS: Kind[] = [
  {
    header: /^sequenceDiagram$/i,
    read: (lines) =>
      inWhole(lines, [
        `(?:participant|actor)\\s+${NAME}(?:\\s+as\\s+[^;]+)?`,
        `[Nn]ote\\s+(?:(?:left|right)\\s+of\\s+${NAME}|over\\s+${NAME}(?:\\s*,\\s*${NAME})?)\\s*:[^;]+`,
        "(?:loop|alt|opt|par|critical|break|else|and)(?:\\s[^;]*)?|end",
        `${NAME}\\s*(?:-->>|->>|-->|->|--\\)|-\\))\\s*[+-]?${NAME}\\s*:[^;]+`,
      ]),
  },
  {
    header: /^stateDiagram(?:-v2)?$/i,
    read: (lines) =>
      withLabels(
        inWhole(lines, [
          "direction\\s+(?:TD|TB|LR|BT|RL)|\\}",
          `state\\s+(?:"[^"]+"\\s+as\\s+)?${NAME}\\s*\\{`,
          LABELLED.source.slice(1, -1),
          `${STATE}\\s*-->\\s*${STATE}(?:\\s*:\\s*.+)?`,
        ]),
      ),
  },
  {
    header: /^classDiagram$/i,
    read: (lines) =>
      inWhole(lines, [
        `class\\s+${NAME}(?:~\\w+~)?(?:\\s*\\{)?|\\}|<<\\w+>>`,
        `(?:${NAME}\\s*:\\s*)?[+#~-]?\\s*[\\w\\p{L}[\\]<>]+(?:\\s+[\\w\\p{L}]+[$*]?)?`,
        `(?:${NAME}\\s*:\\s*)?[+#~-]?\\s*${NAME}\\([^():~]*\\)[$*]?(?:\\s*[\\w\\p{L}[\\]<>]+)?`,
        `${NAME}\\s+(?:"[^"]*"\\s+)?(?:<\\|--|<\\|\\.\\.|\\*--|o--|-->|--\\*|--o|--\\|>|\\.\\.>|\\.\\.\\|>|<--|<\\.\\.)\\s+(?:"[^"]*"\\s+)?${NAME}(?:\\s*:\\s*.+)?`,
      ]),
  },
  {
    header: /^erDiagram$/i,
    read: (lines) =>
      inWhole(
        lines.map((line) => line.replace(/\}o(?=--|\.\.)/, "o{")), // which is the same, and which it knows
        [
          `[\\w\\p{L}-]+\\s*\\{|\\}`,
          `[^\\s"]+\\s+[^\\s"]+(?:\\s+(?:PK|FK|UK))?`,
          `[\\w\\p{L}-]+\\s+(?:\\|\\||\\|o|o\\||\\}\\||o\\{)(?:--|\\.\\.)(?:\\|\\||o\\||\\|o|\\|\\{|o\\{)\\s+[\\w\\p{L}-]+\\s*:\\s*.+`,
        ],
      ),
  },
  {
    header: /^xychart(?:-beta)?(?:\s+horizontal)?$/i,
    read: (lines) =>
      inWhole(lines, [
        'title\\s+"[^"]+"',
        `x-axis\\s+(?:"[^"]*"\\s*)?(?:\\[[^\\]"]+\\]|${RANGE})`,
        `y-axis\\s+(?:"[^"]*"|(?:"[^"]*"\\s+)?${RANGE})`,
        `(?:bar|line)\\s+${NUMBERS}`,
      ]),
  },
];

/** Return the lines of a diagram if each is one of these, and each block has its end. */
function inWhole([header = "", ...lines]: string[], forms: string[]): string[] | undefined {
  const form = new RegExp(`^(?:${forms.join("|")})$`, "u");
  const depths = lines.map((line) => Number(OPENING.test(line)) - Number(CLOSING.test(line)));
  const isClosed = depths.reduce((depth, change) => (depth < 0 ? depth : depth + change), 0) === 0;
  return isClosed && lines.length > 0 && lines.every((line) => form.test(line)) ? [header, ...lines] : undefined;
}

/** Return the lines of a state diagram unless one labels a state that an earlier line names: the library ignores it. */
function withLabels(lines: string[] | undefined): string[] | undefined {
  const isLate = (line: string, index: number) => {
    const name = LABELLED.exec(line)?.slice(1).find(Boolean);
    return name !== undefined && lines!.slice(1, index).some((before) => namesIn(before).includes(name));
  };
  return lines?.some(isLate) ? undefined : lines;
}

function namesIn(line: string): string[] {
  return line.match(new RegExp(NAME, "gu")) ?? [];
}

function flowchartOf(code: string): string | undefined {
  const [first = "", ...statements] = statementsOf(code);
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
