import type { UIMessage } from "ai";
import { isData, type Part } from "../parts";
import { asName, asTitle } from "../words";

export interface FlowNode {
  id: string;
  label: string;
  status: string;
  /** How often it ran. */
  runs: number;
  durationMs: number | undefined;
  layer: number;
  column: number;
}

export interface FlowEdge {
  from: string;
  to: string;
  /** How often it fired. */
  fired: number;
  loop: boolean;
}

export interface Flow {
  name: string;
  status: string;
  nodes: FlowNode[];
  edges: FlowEdge[];
}

interface NodeStatus {
  nodeId: string;
  status: string;
  durationMs?: number;
}

interface Graph {
  nodes: ({ id: string; label?: string; ui?: { label?: string } } | string)[];
  edges: { from: string; to: string }[];
}

/** What people call the nodes of a flow, by id: their labels, or their ids in words. */
export function nodeLabels(parts: Part[]): Map<string, string> {
  const graph = parts.findLast((part) => part.type === "data-flow-graph");
  const nodes = graph && isData(graph) ? ((graph.data as Partial<Graph> | null)?.nodes ?? []) : [];
  return new Map(
    nodes.map((node) => (typeof node === "string" ? [node, asTitle(node)] : [node.id, node.label || node.ui?.label || asTitle(node.id)])),
  );
}

/** Build the flow diagram from the data parts of the last message that has one; undefined if there is none. */
export function flowOf(messages: UIMessage[]): Flow | undefined {
  const message = messages.findLast((each) => each.parts.some((part) => part.type === "data-flow-graph"));
  if (!message) return undefined;
  const dataOf = (type: string) => message.parts.flatMap((part) => (isData(part) && part.type === type ? [part.data] : []));
  const graph = dataOf("data-flow-graph").at(-1) as Graph;
  const labels = nodeLabels(message.parts);
  const state = dataOf("data-flow-status").at(-1) as { status?: string; flowName?: string } | undefined;
  const invocations = dataOf("data-node-status") as NodeStatus[];
  const fired = dataOf("data-edge") as { from: string; to: string }[];
  const nodes = graph.nodes.map((node) => (typeof node === "string" ? { id: node } : node));
  const loops = backEdges(
    nodes.map((node) => node.id),
    graph.edges,
  );
  const layers = layersOf(
    nodes.map((node) => node.id),
    graph.edges.filter((_, index) => !loops.has(index)),
  );
  const columns = new Map<number, number>();
  return {
    name: asName(state?.flowName ?? "Flow"),
    status: state?.status ?? "running",
    nodes: nodes.map((node) => {
      const runs = invocations.filter((run) => run.nodeId === node.id);
      const layer = layers.get(node.id) ?? 0;
      const column = columns.get(layer) ?? 0;
      columns.set(layer, column + 1);
      return {
        id: node.id,
        label: labels.get(node.id) ?? node.id,
        status: runs.at(-1)?.status ?? "pending",
        runs: runs.length,
        durationMs: runs.at(-1)?.durationMs,
        layer,
        column,
      };
    }),
    edges: graph.edges.map((edge, index) => ({
      from: edge.from,
      to: edge.to,
      loop: loops.has(index),
      fired: fired.filter((each) => each.from === edge.from && each.to === edge.to).length,
    })),
  };
}

/** The edges that close a cycle, found by a depth-first search from each node in the file's order. */
function backEdges(ids: string[], edges: { from: string; to: string }[]): Set<number> {
  const found = new Set<number>();
  const done = new Set<string>();
  const open = new Set<string>();
  const visit = (id: string): void => {
    open.add(id);
    edges.forEach((edge, index) => {
      if (edge.from !== id) return;
      if (open.has(edge.to)) found.add(index);
      else if (!done.has(edge.to)) visit(edge.to);
    });
    open.delete(id);
    done.add(id);
  };
  for (const id of ids) if (!done.has(id)) visit(id);
  return found;
}

/** Put each node below all of its predecessors. */
function layersOf(ids: string[], edges: { from: string; to: string }[]): Map<string, number> {
  const layers = new Map(ids.map((id) => [id, 0]));
  for (let round = 0; round < ids.length; round += 1) {
    for (const { from, to } of edges) {
      layers.set(to, Math.max(layers.get(to) ?? 0, (layers.get(from) ?? 0) + 1));
    }
  }
  return layers;
}
