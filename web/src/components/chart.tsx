import { type RefObject, useLayoutEffect, useRef, useState } from "react";

/** Half as high as wide, within these bounds. */
const LEAST_HEIGHT = 160;
const MOST_HEIGHT = 240;
const LEFT = 48;
const BOTTOM = 28;
const TOP = 12;
/** The least width for a label below the chart. */
const LABEL = 72;
const COLOURS = [1, 2, 3, 4, 5, 6].map((number) => `var(--chart-${number})`);

export interface ChartData {
  series: { name: string; values: number[] }[];
  labels: string[];
  bars: boolean;
}

/** Read `{series: [{name, values}], labels, kind: "bar"}`, or `{series: {name: values}}`; undefined for anything else. */
export function chartOf(data: unknown): ChartData | undefined {
  if (typeof data !== "object" || data === null || !("series" in data)) return undefined;
  const { series: given, labels, kind } = data as { series: unknown; labels?: unknown; kind?: unknown };
  const listed = Array.isArray(given)
    ? given.map((each: { name?: unknown; values?: unknown; data?: unknown } | null) => [each?.name, each?.values ?? each?.data])
    : typeof given === "object" && given !== null
      ? Object.entries(given)
      : [];
  const series = listed.flatMap(([name, values], index) =>
    Array.isArray(values) && values.length > 0 && values.every((value) => typeof value === "number")
      ? [{ name: typeof name === "string" ? name : `Series ${index + 1}`, values: values as number[] }]
      : [],
  );
  if (series.length === 0 || series.length !== listed.length) return undefined;
  return { series, labels: Array.isArray(labels) ? labels.map(String) : [], bars: kind === "bar" };
}

/** Lines or bars, drawn as SVG as wide as there is room: scaled to a phone, its labels could not be read. */
export function Chart({ name, chart }: { name: string; chart: ChartData }) {
  const drawing = useRef<SVGSVGElement>(null);
  const width = useWidth(drawing);
  const all = chart.series.flatMap(({ values }) => values);
  const count = Math.max(...chart.series.map(({ values }) => values.length));
  const ticks = ticksFor(Math.min(0, ...all), Math.max(0, ...all));
  const [low, high] = [ticks[0] as number, ticks.at(-1) as number];
  const height = Math.min(MOST_HEIGHT, Math.max(LEAST_HEIGHT, Math.round(width / 2)));
  const y = (value: number) => TOP + ((high - value) / (high - low)) * (height - TOP - BOTTOM);
  const slot = (width - LEFT) / count;
  const x = (index: number) => LEFT + slot * (index + 0.5);
  const bar = (slot * 0.7) / chart.series.length;
  const every = Math.ceil(count / Math.max(1, Math.floor((width - LEFT) / LABEL)));
  return (
    <figure className="rounded-xl border border-line p-4">
      <figcaption className="mb-3 flex flex-wrap items-center gap-x-4 gap-y-1 text-xs text-soft">
        <span className="mr-auto text-sm font-medium text-ink">{name}</span>
        {chart.series.map((each, index) => (
          <span key={index} className="inline-flex items-center gap-1.5">
            <span aria-hidden="true" className="size-2.5 rounded-full" style={{ backgroundColor: COLOURS[index % COLOURS.length] }} />
            {each.name}
          </span>
        ))}
      </figcaption>
      <svg ref={drawing} height={height} role="img" aria-label={describe(name, chart)} className="icon w-full">
        {ticks.map((tick) => (
          <g key={tick}>
            <line x1={LEFT} x2={width} y1={y(tick)} y2={y(tick)} stroke="var(--line)" />
            <text x={LEFT - 8} y={y(tick) + 4} textAnchor="end" fontSize="12" fill="var(--soft)">
              {short(tick)}
            </text>
          </g>
        ))}
        {chart.labels.slice(0, count).map(
          (label, index) =>
            index % every === 0 && (
              <text key={index} x={x(index)} y={height - 8} textAnchor="middle" fontSize="12" fill="var(--soft)">
                {label}
              </text>
            ),
        )}
        {chart.series.map(({ values }, number) =>
          chart.bars ? (
            values.map((value, index) => (
              <rect
                key={`${number}-${index}`}
                x={x(index) - (bar * chart.series.length) / 2 + number * bar}
                y={Math.min(y(value), y(0))}
                width={Math.max(1, bar - 1)}
                height={Math.abs(y(value) - y(0))}
                rx="3"
                fill={COLOURS[number % COLOURS.length]}
              />
            ))
          ) : (
            <polyline
              key={number}
              points={values.map((value, index) => `${x(index)},${y(value)}`).join(" ")}
              fill="none"
              stroke={COLOURS[number % COLOURS.length]}
              strokeWidth="2.5"
              strokeLinejoin="round"
            />
          ),
        )}
      </svg>
    </figure>
  );
}

function useWidth(element: RefObject<Element | null>): number {
  const [width, setWidth] = useState(640);
  useLayoutEffect(() => {
    const measured = element.current;
    if (measured === null) return;
    const observer = new ResizeObserver(() => setWidth(Math.max(LEFT + LABEL, measured.getBoundingClientRect().width)));
    observer.observe(measured);
    return () => observer.disconnect();
  }, [element]);
  return width;
}

/** Round values around all that are drawn, zero among them: about four steps of 1, 2 or 5 times a power of ten. */
function ticksFor(low: number, high: number): number[] {
  const rough = (high - low || 1) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5].find((times) => times * power >= rough) ?? 10);
  const first = Math.floor(low / step);
  const count = Math.max(1, Math.ceil(high / step) - first);
  return Array.from({ length: count + 1 }, (_, index) => (first + index) * step);
}

function short(value: number): string {
  return Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 }).format(value);
}

function describe(name: string, { series }: ChartData): string {
  return `${name}: ${series.map((each) => `${each.name} ${each.values.join(", ")}`).join("; ")}`;
}
