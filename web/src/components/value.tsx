import { ChevronRight } from "lucide-react";
import { Collapsible } from "radix-ui";
import { useState } from "react";
import { classes } from "../ui/classes";
import { asText, asTitle } from "../words";
import { Markdown } from "./markdown";

type Row = Record<string, unknown>;

const MOST_ROWS = 50;

/** Any JSON value as a person reads it: text, an image, a table or a tree. */
export function Value({ value }: { value: unknown }) {
  if (typeof value === "string") return <TextValue text={value} />;
  if (isTable(value)) return <TableValue rows={value} />;
  if (isBranch(value)) return <Tree value={value} />;
  return (
    <div className="text-sm">
      <Leaf value={value} />
    </div>
  );
}

function TextValue({ text }: { text: string }) {
  if (/^data:image\/(png|jpeg|gif|webp);base64,/.test(text)) {
    return <img src={text} alt="Result" className="max-h-64 rounded-lg" />;
  }
  if (/^(#{1,4} |\|.+\|$|[-*] |```)/m.test(text)) return <Markdown text={text} streaming={false} />;
  return <p className="text-sm break-words whitespace-pre-wrap" dir="auto">{text}</p>;
}

function isBranch(value: unknown): value is object {
  return typeof value === "object" && value !== null && Object.keys(value).length > 0;
}

/** Whether a value is a list of flat objects with the same few keys. */
export function isTable(value: unknown): value is Row[] {
  if (!Array.isArray(value) || value.length < 1) return false;
  const keys = JSON.stringify(keysOf(value[0]));
  return keys !== "[]" && value.every((row) => JSON.stringify(keysOf(row)) === keys && Object.values(row as Row).every((cell) => !isBranch(cell)));
}

function keysOf(row: unknown): string[] {
  return typeof row === "object" && row !== null && !Array.isArray(row) ? Object.keys(row) : [];
}

export function TableValue({ rows }: { rows: Row[] }) {
  const columns = keysOf(rows[0]);
  const numeric = new Set(columns.filter((name) => rows.every((row) => typeof row[name] === "number")));
  return (
    <div className="overflow-x-auto rounded-lg border border-line" role="group" aria-label="Table" tabIndex={0}>
      <table className="w-full text-left text-sm">
        <thead className="bg-surface">
          <tr>
            {columns.map((name) => (
              <th key={name} className={classes("px-3 py-1.5 font-medium whitespace-nowrap", numeric.has(name) && "text-right")}>
                {asTitle(name)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.slice(0, MOST_ROWS).map((row, index) => (
            <tr key={index} className="border-t border-line">
              {columns.map((name) => (
                <td key={name} className={classes("px-3 py-1.5", numeric.has(name) && "text-right tabular-nums")}>
                  {asCell(row[name])}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {rows.length > MOST_ROWS && <p className="px-3 py-1.5 text-xs text-soft">and {rows.length - MOST_ROWS} more rows</p>}
    </div>
  );
}

/** A cell of a table. The thousands of a large number are apart; one of four digits may be a year. */
function asCell(value: unknown): string {
  if (value === null || value === undefined) return "";
  if (typeof value !== "number" || Math.abs(value) < 10_000) return asText(value);
  return value.toLocaleString("en", { maximumFractionDigits: 20 });
}

function Tree({ value }: { value: object }) {
  const entries = Object.entries(value);
  const folds = entries.some(([, inner]) => isBranch(inner));
  return (
    <ul className="space-y-1 text-sm">
      {entries.map(([key, inner]) => (
        <li key={key} className="min-w-0">
          {isBranch(inner) ? <Branch name={key} value={inner} /> : <Entry name={key} value={inner} beside={folds} />}
        </li>
      ))}
    </ul>
  );
}

function Branch({ name, value }: { name: string; value: object }) {
  const [open, setOpen] = useState(Object.keys(value).length <= 8);
  const size = Object.keys(value).length;
  return (
    <Collapsible.Root open={open} onOpenChange={setOpen}>
      <Collapsible.Trigger className="-ml-1 flex items-center gap-1 rounded px-1 hover:bg-muted pointer-coarse:min-h-10">
        <ChevronRight aria-hidden="true" className={classes("size-3.5 text-soft transition-transform", open && "rotate-90")} />
        <span className="text-soft">{labelOf(name)}</span>
        <span className="text-xs text-soft">{size === 1 ? "1 value" : `${size} values`}</span>
      </Collapsible.Trigger>
      <Collapsible.Content className="ml-1.5 border-l border-line pl-3">
        <Tree value={value} />
      </Collapsible.Content>
    </Collapsible.Root>
  );
}

/** A key and its value. `beside`: whether other keys fold, so that their arrows need room on the left. */
function Entry({ name, value, beside }: { name: string; value: unknown; beside: boolean }) {
  return (
    <div className={classes("flex gap-2", beside && "pl-[0.875rem]")}>
      <span className="max-w-[40%] shrink-0 text-soft">{labelOf(name)}</span>
      <Leaf value={value} />
    </div>
  );
}

function Leaf({ value }: { value: unknown }) {
  if (typeof value === "string" && value.startsWith("data:image/")) return <TextValue text={value} />;
  return (
    <span className={classes("min-w-0 break-words whitespace-pre-wrap", typeof value !== "string" && "tabular-nums")} dir="auto">
      {asText(value)}
    </span>
  );
}

/** The key of a value in words. The places of a list are counted from 1. */
function labelOf(key: string): string {
  return /^\d+$/.test(key) ? `${Number(key) + 1}.` : asTitle(key);
}
