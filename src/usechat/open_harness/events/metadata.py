"""Data parts from which a page draws the flow: the run, its nodes and its edges, updated in place."""

import itertools
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, TypeGuard

import msgspec

from usechat.open_harness.events.event import moment
from usechat.open_harness.flow.definition import FlowDefinition
from usechat.open_harness.runtime_protocol import Event
from usechat.parts import Data

__all__ = ["FlowData", "FlowGraph", "Usage", "graph_of", "node_output", "structured_output"]

_SILENT_TYPES: Final = ("echo", "constant")
"""Types of nodes that emit no text: a flow that has no others shows the output of its last node."""


class FlowGraph:
    """The nodes and edges of a flow. A remote runtime may send any graph: what cannot be read is dropped."""

    def __init__(self) -> None:
        self.is_known = False
        self.name = ""
        self.nodes: list[Mapping[str, Any]] = []
        self.edges: list[Mapping[str, Any]] = []
        self._labels: dict[str, str] = {}

    def learn(self, graph: Any) -> None:
        """Take over a graph, ``{nodes, edges, name?}``, unless one is known."""
        if self.is_known or not isinstance(graph, Mapping):
            return
        nodes, edges = graph.get("nodes"), graph.get("edges")
        if not isinstance(nodes, list | tuple) or not isinstance(edges, list | tuple):
            return
        self.is_known = True
        self.name = str(graph.get("name", ""))
        self.nodes = [node for node in nodes if _has_texts(node, ("id",))]
        self.edges = [edge for edge in edges if _has_texts(edge, ("from", "to"))]
        self._labels = {node["id"]: label for node in self.nodes if (label := _label(node))}

    def label(self, node_id: str) -> dict[str, str]:
        """Return the label of a node as a field of its parts; empty if it has none."""
        label = self._labels.get(node_id)
        return {"label": label} if label else {}

    @property
    def is_silent(self) -> bool:
        """Whether all nodes are of types that say nothing."""
        return bool(self.nodes) and all(node.get("type") in _SILENT_TYPES for node in self.nodes)


def _has_texts(value: Any, keys: Iterable[str]) -> bool:
    return isinstance(value, Mapping) and all(isinstance(value.get(key), str) for key in keys)


def _label(node: Mapping[str, Any]) -> str | None:
    ui = node.get("ui")
    label = ui.get("label") if isinstance(ui, Mapping) else None
    return label if isinstance(label, str) else None


class FlowData:
    """The data parts of one run."""

    def __init__(self, graph: FlowGraph) -> None:
        self._graph = graph
        self._flow_name = graph.name
        self._status = ""
        self._nodes: dict[str, dict[str, Any]] = {}  # the invocations that continue, by run id
        self._edge: dict[str, Any] | None = None
        self._edge_id: str | None = None
        self._edges = itertools.count(1)
        self._skipped = itertools.count(1)

    def again(self) -> list[Data]:
        """Return all current states, for a message that begins in the middle of the run."""
        status = [self.status(self._status)] if self._status else []
        return [*self.graph(), *status, *(self._node(data) for data in self._nodes.values())]

    def graph(self) -> list[Data]:
        """Return the graph, if it is known."""
        if not self._graph.is_known:
            return []
        return [Data("flow-graph", {"nodes": self._graph.nodes, "edges": self._graph.edges}, "flow-graph")]

    def status(self, status: str, flow_name: Any = None) -> Data:
        """Return the status of the flow. Most events do not name the flow, so its name is remembered."""
        if isinstance(flow_name, str):
            self._flow_name = flow_name
        self._status = status
        return Data("flow-status", {"status": status, "flowName": self._flow_name}, "flow-status")

    def node_started(self, event: Event) -> Data:
        """Return the state of a new invocation."""
        data = {
            "nodeId": event["nodeId"],
            **self._graph.label(event["nodeId"]),
            "runId": event["runId"],
            "status": "running",
        }
        data |= {"startedAt": moment(event), "durationMs": None}
        self._nodes[event["runId"]] = data
        return self._node(data)

    def node_ended(self, event: Event, status: str) -> list[Data]:
        """Return the last state of an invocation; empty if it has ended already."""
        return self._ended(event["runId"], status, event)

    def all_ended(self, event: Event, status: str, *, failed: Collection[str] = ()) -> list[Data]:
        """Return the last states of all open invocations, because the flow has ended; ``failed`` have failed."""
        return [
            data
            for run_id in list(self._nodes)
            for data in self._ended(run_id, "failed" if run_id in failed else status, event)
        ]

    def waiting(self) -> list[Data]:
        """Return everything as paused while a person is asked. The next message begins with :meth:`again`."""
        paused = [self._node({**data, "status": "paused"}) for data in self._nodes.values()]
        return [*paused, Data("flow-status", {"status": "paused", "flowName": self._flow_name}, "flow-status")]

    def node_skipped(self, event: Event) -> Data:
        """Return the state of a node that was skipped."""
        data = {"nodeId": event["nodeId"], **self._graph.label(event["nodeId"]), "runId": None, "status": "skipped"}
        data |= {"startedAt": moment(event), "durationMs": 0}
        return Data("node-status", data, f"skipped-{next(self._skipped)}")

    def edge_fired(self, event: Event) -> Data:
        """Return an edge that was taken."""
        self._edge = {"from": event["from"], "to": event["to"]}
        self._edge_id = f"edge-{next(self._edges)}"
        return Data("edge", self._edge, self._edge_id)

    def iterated(self, event: Event) -> list[Data]:
        """Return the last edge again, with its iteration: a loop reports it right after the edge."""
        if self._edge is None:
            return []
        return [Data("edge", {**self._edge, "iteration": event.get("iteration")}, self._edge_id)]

    def _ended(self, run_id: str, status: str, event: Event) -> list[Data]:
        data = self._nodes.pop(run_id, None)
        if data is None:
            return []
        started, ended = data["startedAt"], moment(event)
        duration = None if started is None or ended is None else ended - started
        return [self._node({**data, "status": status, "durationMs": duration})]

    def _node(self, data: Mapping[str, Any]) -> Data:
        return Data("node-status", data, f"node-{data['runId']}")


def graph_of(flow: object) -> Mapping[str, Any] | None:
    """Return what a page needs to draw a flow: nodes with their positions, and edges. Inputs are left out."""
    if not isinstance(flow, FlowDefinition):
        return None
    nodes = [{"id": node.id, "type": node.type, **({"ui": node.ui} if node.ui else {})} for node in flow.nodes]
    return {"name": flow.name, "nodes": nodes, "edges": msgspec.to_builtins(flow.edges)}


def node_output(names: Mapping[str, str], output: Any) -> Data:
    """Return the output of a node's invocation."""
    return Data("node-output", {**names, "output": output}, f"output-{names['runId']}")


def structured_output(names: Mapping[str, str], value: Any) -> Data:
    """Return the structured output of an agent."""
    return Data("structured-output", {**names, "value": value}, f"structured-{names['runId']}")


class Usage:
    """The token usage and cost of a message, summed over its agents."""

    def __init__(self) -> None:
        self._tokens: dict[str, float] = {}
        self._cost: float | None = None

    def add(self, event: Event) -> Mapping[str, Any]:
        """Add the usage of one agent and return the message metadata; empty if nothing is known."""
        usage = event.get("usage")
        for key, value in usage.items() if isinstance(usage, Mapping) else ():
            if _is_number(value):
                self._tokens[key] = self._tokens.get(key, 0) + value
        if _is_number(cost := event.get("totalCostUsd")):
            self._cost = (self._cost or 0) + cost
        usage_so_far = {"usage": dict(self._tokens)} if self._tokens else {}
        return usage_so_far | ({} if self._cost is None else {"totalCostUsd": self._cost})


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
