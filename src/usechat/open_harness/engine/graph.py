"""The order of a flow's nodes: which of them are ready, and what the edges into them decide."""

from collections.abc import Mapping
from graphlib import TopologicalSorter
from typing import Literal, TypeAlias

from usechat.open_harness.flow.definition import Edge, FlowDefinition

__all__ = ["EdgeStatus", "Graph", "NodeStatus"]

NodeStatus: TypeAlias = Literal["pending", "running", "done", "failed"]
EdgeStatus: TypeAlias = Literal["pending", "fired", "skipped"]


class Graph:
    """The order of a flow's nodes.

    A node is ready when nothing before it is pending or running, loop edges aside. Within a loop this keeps a node
    from running on what its other predecessors said in the round before.
    """

    def __init__(self, flow: FlowDefinition) -> None:
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
