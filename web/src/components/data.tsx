import { ChevronRight } from "lucide-react";
import type { UIMessage } from "ai";
import { Collapsible } from "radix-ui";
import { isData } from "../parts";
import { asTitle } from "../words";
import { Chart, chartOf } from "./chart";
import { isTable, TableValue, Value } from "./value";

/** The data parts of a flow are drawn as a diagram beside the chat, and the name of an agent above what it says. */
const DRAWN = new Set(["data-flow-status", "data-flow-graph", "data-edge", "data-node-status", "data-agent"]);

export function isDrawnElsewhere(type: string): boolean {
  return DRAWN.has(type);
}

/** The messages that an answer suggests to go on with. */
export function followUpsIn(message: UIMessage): string[] {
  return message.parts.flatMap((part) => (isData(part) ? (followUpsOf(part.type, part.data) ?? []) : []));
}

/** The messages in a data part that stands below its answer, as buttons; undefined for any other part. */
function followUpsOf(type: string, data: unknown): string[] | undefined {
  const are = type === "data-suggestions" && Array.isArray(data) && data.every((each) => typeof each === "string");
  return are ? (data as string[]) : undefined;
}

/** A data part of the application's own: a progress bar, a chart, a table, or a tree. */
export function DataPart({ type, data }: { type: string; data: unknown }) {
  if (isDrawnElsewhere(type) || followUpsOf(type, data)) return null;
  const name = titleIn(data) ?? asTitle(type.slice("data-".length));
  const progress = progressOf(data);
  if (progress) return <Progress name={name} {...progress} />;
  const chart = chartOf(data);
  if (chart) return <Chart name={name} chart={chart} />;
  if (isTable(data)) {
    return (
      <figure aria-label={name}>
        <figcaption className="mb-2 text-sm font-medium">{name}</figcaption>
        <TableValue rows={data} />
      </figure>
    );
  }
  return (
    <Collapsible.Root className="data rounded-xl border border-line">
      <Collapsible.Trigger className="group flex min-h-10 w-full items-center gap-2 px-3 text-sm text-soft hover:text-ink">
        <ChevronRight aria-hidden="true" className="icon size-4 transition-transform group-data-[state=open]:rotate-90" />
        {name}
      </Collapsible.Trigger>
      <Collapsible.Content>
        <div className="max-h-80 overflow-auto border-t border-line px-3 py-2" tabIndex={0} role="group" aria-label={name}>
          <Value value={data} />
        </div>
      </Collapsible.Content>
    </Collapsible.Root>
  );
}

/** The title that the data has of its own. */
function titleIn(data: unknown): string | undefined {
  const title = typeof data === "object" && data !== null && "title" in data ? data.title : undefined;
  return typeof title === "string" ? title : undefined;
}

/** How far something is: `{percent}`, `{progress}` (a part of 1) or `{value, max}`, with a text if there is one. */
function progressOf(data: unknown): { percent: number; text: string | undefined } | undefined {
  if (typeof data !== "object" || data === null) return undefined;
  const { percent, progress, value, max, label, text, message } = data as Record<string, unknown>;
  const words = [label, text, message].find((each) => typeof each === "string") as string | undefined;
  if (typeof percent === "number") return { percent, text: words };
  if (typeof progress === "number") return { percent: progress <= 1 ? progress * 100 : progress, text: words };
  if (typeof value === "number" && typeof max === "number" && max > 0) return { percent: (value / max) * 100, text: words };
  return undefined;
}

function Progress({ name, percent, text }: { name: string; percent: number; text: string | undefined }) {
  const shown = Math.round(Math.min(Math.max(percent, 0), 100));
  return (
    <div className="space-y-2 rounded-xl border border-line px-4 py-3">
      <div className="flex justify-between gap-4 text-sm">
        <span dir="auto">{text ?? name}</span>
        <span className="text-soft tabular-nums">{shown} %</span>
      </div>
      <div
        role="progressbar"
        aria-label={text ?? name}
        aria-valuenow={shown}
        aria-valuemin={0}
        aria-valuemax={100}
        className="h-2 overflow-hidden rounded-full bg-muted"
      >
        <div className="h-full rounded-full bg-accent transition-[width] duration-300" style={{ width: `${shown}%` }} />
      </div>
    </div>
  );
}
