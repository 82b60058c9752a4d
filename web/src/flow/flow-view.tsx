import { useEffect, useRef } from "react";
import { inWords } from "../components/duration";
import { classes } from "../ui/classes";
import { Panel } from "../ui/panel";
import { useScrollBehavior } from "../use-media";
import type { Flow, FlowEdge, FlowNode } from "./graph";

const WIDTH = 168;
const HEIGHT = 48;
const GAP_X = 24;
const GAP_Y = 44;
const MARGIN = 28;
/** Of the panel. */
const BORDER = 1;
/** How far the diagram shrinks before it scrolls. */
const SMALLEST = 0.8;

/** The diagram of a flow while it runs; it scrolls to the node that is running. */
export function FlowView({ flow, close }: { flow: Flow; close: () => void }) {
  const columns = Math.max(...flow.nodes.map((node) => node.column)) + 1;
  const layers = Math.max(...flow.nodes.map((node) => node.layer)) + 1;
  const width = columns * (WIDTH + GAP_X) - GAP_X + 2 * MARGIN;
  const height = layers * (HEIGHT + GAP_Y) - GAP_Y + 2 * MARGIN;
  const places = placesOf(flow, columns);
  const box = useRef<HTMLDivElement>(null);
  const behavior = useScrollBehavior();
  const active = flow.nodes.findLast((node) => node.status === "running" || node.status === "paused")?.id;
  useEffect(() => {
    const place = active === undefined ? undefined : places.get(active);
    if (!place || !box.current) return;
    const { clientWidth, clientHeight, firstElementChild } = box.current;
    const scale = (firstElementChild?.clientWidth ?? width) / width;
    box.current.scrollTo({
      left: scale * (place.x + WIDTH / 2) - clientWidth / 2,
      top: scale * (place.y + HEIGHT / 2) - clientHeight / 2,
      behavior,
    });
  }, [active]);
  const title = (
    <h2 className="truncate font-semibold">
      {flow.name} <span className={classes("text-sm font-normal", COLOURS[flow.status] ?? "text-soft")}>{flow.status}</span>
    </h2>
  );
  return (
    <Panel name="Flow" width={Math.max(340, Math.min(width + BORDER, innerWidth / 3))} title={title} close={close}>
      <div ref={box} className="min-h-0 flex-1 overflow-auto" tabIndex={0} role="group" aria-label="Diagram">
        <svg
          style={{ maxWidth: width, minWidth: SMALLEST * width }}
          viewBox={`0 0 ${width} ${height}`}
          role="img"
          aria-label={describe(flow)}
          className="mx-auto h-auto w-full"
        >
          <defs>
            <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
              <path d="M0 0 8 4 0 8z" className="arrow" />
            </marker>
          </defs>
          {flow.edges.map((edge, index) => (
            <Edge key={index} edge={edge} places={places} />
          ))}
          {flow.nodes.map((node) => (
            <Node key={node.id} node={node} place={places.get(node.id) as Place} />
          ))}
        </svg>
      </div>
    </Panel>
  );
}

const COLOURS: Record<string, string> = {
  running: "text-busy",
  paused: "text-busy",
  complete: "text-good",
  done: "text-good",
  failed: "text-bad",
  aborted: "text-bad",
};

interface Place {
  x: number;
  y: number;
}

/** Each layer stands in the middle. */
function placesOf({ nodes }: Flow, columns: number): Map<string, Place> {
  return new Map(
    nodes.map(({ id, layer, column }) => {
      const free = columns - nodes.filter((other) => other.layer === layer).length;
      return [id, { x: MARGIN + (column + free / 2) * (WIDTH + GAP_X), y: MARGIN + layer * (HEIGHT + GAP_Y) }];
    }),
  );
}

function Node({ node, place: { x, y } }: { node: FlowNode; place: Place }) {
  const detail = [node.status, node.runs > 1 && `×${node.runs}`, node.durationMs !== undefined && inWords(node.durationMs)].filter(Boolean).join(" · ");
  return (
    <g className={`node ${node.status}`} data-node={node.id}>
      <title>{node.label}</title>
      <rect x={x} y={y} width={WIDTH} height={HEIGHT} rx="10" />
      <text x={x + 12} y={y + 20} className="node-label">
        {node.label.length > 18 ? `${node.label.slice(0, 17)}…` : node.label}
      </text>
      <text x={x + 12} y={y + 37} className="node-detail">
        {detail}
      </text>
    </g>
  );
}

function Edge({ edge, places }: { edge: FlowEdge; places: Map<string, Place> }) {
  const from = places.get(edge.from);
  const to = places.get(edge.to);
  if (!from || !to) return null;
  const className = `edge${edge.fired ? " fired" : ""}${edge.loop ? " loop" : ""}`;
  if (edge.loop) {
    const right = Math.max(from.x, to.x) + WIDTH;
    const [start, end] = [from.y + HEIGHT / 2, to.y + HEIGHT / 2];
    const path = `M${from.x + WIDTH} ${start} C${right + 26} ${start} ${right + 26} ${end} ${to.x + WIDTH + 2} ${end}`;
    return <path className={className} d={path} markerEnd="url(#arrow)" />;
  }
  const between = [...places.values()].some(({ x, y }) => x === from.x && y > from.y && y < to.y);
  if (to.x === from.x && between) {
    // Draw the edge around the nodes in between, on the left.
    const [start, end] = [from.y + HEIGHT / 2, to.y + HEIGHT / 2];
    const path = `M${from.x} ${start} C${from.x - 26} ${start} ${to.x - 26} ${end} ${to.x - 2} ${end}`;
    return <path className={className} d={path} markerEnd="url(#arrow)" />;
  }
  const [x1, y1, x2, y2] = [from.x + WIDTH / 2, from.y + HEIGHT, to.x + WIDTH / 2, to.y - 2];
  const middle = (y1 + y2) / 2;
  return <path className={className} d={`M${x1} ${y1} C${x1} ${middle} ${x2} ${middle} ${x2} ${y2}`} markerEnd="url(#arrow)" />;
}

function describe(flow: Flow): string {
  return `${flow.name}: ${flow.nodes.map((node) => `${node.label} ${node.status}`).join(", ")}`;
}
