"""How a run stands."""

import copy
from collections.abc import Callable, Mapping
from graphlib import TopologicalSorter
from typing import Any, Literal, TypeAlias

import msgspec

from usechat.open_harness.flow.flow import Edge, Flow
from usechat.open_harness.runtime_protocol import Snapshot
from usechat.protocol.values import json_value

__all__ = [
    "EdgeStatus",
    "Graph",
    "NodeStatus",
    "RunState",
    "RunStatus",
    "SharedState",
]


NodeStatus: TypeAlias = Literal["pending", "running", "done", "failed"]
EdgeStatus: TypeAlias = Literal["pending", "fired", "skipped"]


class Graph:
    """The order of a flow's nodes.

    A node is ready when nothing before it is pending or running, loop edges aside. Within a loop this keeps a node
    from running on what its other predecessors said in the round before.
    """

    def __init__(self, flow: Flow) -> None:
        self.nodes = {node.id: node for node in flow.nodes}
        self.outgoing: dict[str, list[Edge]] = {node.id: [] for node in flow.nodes}
        self.incoming: dict[str, list[Edge]] = {node.id: [] for node in flow.nodes}
        for edge in flow.edges:
            self.outgoing[edge.from_].append(edge)
            self.incoming[edge.to].append(edge)
        self._before = _ancestors({node: [edge.from_ for edge in self.forward(node)] for node in self.nodes})

    def ready(self, statuses: Mapping[str, NodeStatus]) -> list[str]:
        """Return the nodes that can be decided on now, in the order of the flow."""
        unsettled = {node for node, status in statuses.items() if status in ("pending", "running")}
        return [node for node in self.nodes if statuses[node] == "pending" and not self._before[node] & unsettled]

    def lets_run(self, node: str, statuses: Mapping[str, EdgeStatus]) -> bool:
        """Return whether the edges into a node let it run: all of them, or any if one says so."""
        fired = [statuses[edge.key] == "fired" for edge in self.forward(node)]
        if not fired:
            return True
        is_any = any(edge.gate == "any" for edge in self.incoming[node])
        return any(fired) if is_any else all(fired)

    def for_each(self, node: str, statuses: Mapping[str, EdgeStatus]) -> list[Edge]:
        """Return the edges that fired and make a node run once for each item of a list; more than one is a fault."""
        return [edge for edge in self.incoming[node] if edge.for_each is not None and statuses[edge.key] == "fired"]

    def forward(self, node: str) -> list[Edge]:
        """Return the edges into a node that are no loops."""
        return [edge for edge in self.incoming[node] if not edge.is_loop]


def _ancestors(predecessors: Mapping[str, list[str]]) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for node in TopologicalSorter(predecessors).static_order():
        found[node] = frozenset(predecessors[node]).union(*(found[name] for name in predecessors[node]))
    return found


# -- How a run stands.

RunStatus: TypeAlias = Literal["idle", "running", "paused", "aborted", "complete"]


class RunState(msgspec.Struct, rename="camel"):
    """A run's statuses and outputs, what it was given, and whose it is.

    ``state`` and ``inbox`` are what they were when it was last kept.
    """

    run_id: str
    status: RunStatus = "idle"
    outputs: dict[str, Any] = {}
    state: dict[str, Any] = {}
    node_status: dict[str, NodeStatus] = {}
    edge_status: dict[str, EdgeStatus] = {}
    loop_counters: dict[str, int] = {}
    inbox: list[dict[str, Any]] = []
    agent_sessions: dict[str, str] = {}
    input: dict[str, Any] = {}
    owner: str = ""

    @classmethod
    def new(cls, flow: Flow, run_id: str) -> "RunState":
        """Return the state of a run that has not begun."""
        return cls(
            run_id,
            state=dict(flow.state.initial),
            node_status={node.id: "pending" for node in flow.nodes},
            edge_status={edge.key: "pending" for edge in flow.edges},
            loop_counters={edge.key: 0 for edge in flow.edges},
        )

    @classmethod
    def kept(cls, flow: Flow, snapshot: Snapshot, run_id: str | None) -> "RunState":
        """Return the state that a snapshot holds; nodes that ran then are pending again when it goes on."""
        found: RunState = msgspec.convert({"runId": run_id, **_without_none(snapshot)}, cls)
        # The flow may have changed since: only what it still has counts.
        found.node_status = {node.id: found.node_status.get(node.id, "pending") for node in flow.nodes}
        found.edge_status = {edge.key: found.edge_status.get(edge.key, "pending") for edge in flow.edges}
        found.loop_counters = {edge.key: found.loop_counters.get(edge.key, 0) for edge in flow.edges}
        return found

    def snapshot(self, state: Mapping[str, Any], inbox: list[Any]) -> dict[str, Any]:
        """Return a copy with the keys of the wire."""
        return {
            "runId": self.run_id,
            "status": self.status,
            "outputs": dict(self.outputs),
            "state": dict(state),
            "nodeStatus": dict(self.node_status),
            "edgeStatus": dict(self.edge_status),
            "loopCounters": dict(self.loop_counters),
            "inbox": [dict(command) for command in inbox],
            "agentSessions": dict(self.agent_sessions),
            "input": dict(self.input),
            "owner": self.owner,
        }


def _without_none(snapshot: Snapshot) -> dict[str, Any]:
    return {key: value for key, value in snapshot.items() if value is not None}


# -- The state that the nodes of a flow share, by dotted path.


class SharedState:
    """Plain JSON values by path, such as ``review.score``. Every change is told as a ``state:patch`` event."""

    def __init__(self, values: Mapping[str, Any], tell: Callable[[dict[str, Any]], None]) -> None:
        self._values: dict[str, Any] = json_value(values)
        self._tell = tell

    def get(self, path: str = "") -> Any:
        """Return the value at a path, or ``None``; all values for the empty path."""
        value: Any = self._values
        for step in _steps(path):
            if not isinstance(value, dict) or step not in value:
                return None
            value = value[step]
        return value

    def set(self, path: str, value: Any) -> None:
        """Put a value at a path; what is missing on the way becomes an object."""
        value = json_value(value)
        self._put(path, value)
        self._tell({"op": "set", "path": path, "value": value})

    def merge(self, path: str, value: Mapping[str, Any]) -> None:
        """Add the keys of an object to the one at a path."""
        added, found = json_value(value), self.get(path)
        self._put(path, {**(found if isinstance(found, dict) else {}), **added})
        self._tell({"op": "merge", "path": path, "value": added})

    def snapshot(self) -> dict[str, Any]:
        """Return a copy of all values."""
        return copy.deepcopy(self._values)

    def _put(self, path: str, value: Any) -> None:
        *way, last = _steps(path) or [""]
        if not last:
            raise ValueError("a value of the state needs a path")
        owner = self._values
        for step in way:
            below = owner.get(step)
            if not isinstance(below, dict):
                below = owner[step] = {}
            owner = below
        owner[last] = value


def _steps(path: str) -> list[str]:
    return [step for step in path.split(".") if step]
