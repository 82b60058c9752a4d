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

    A node is ready when no node before it is pending or running, loop edges aside. Within a loop this keeps a node
    from running with outputs that its other predecessors made in the previous iteration.
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
        """Return the pending nodes whose predecessors are all settled, in the order of the flow."""
        unsettled = {node for node, status in statuses.items() if status in ("pending", "running")}
        return [node for node in self.nodes if statuses[node] == "pending" and not self._before[node] & unsettled]

    def lets_run(self, node: str, statuses: Mapping[str, EdgeStatus]) -> bool:
        """Return whether the edges into a node let it run: all must have fired, or any with ``gate: any``."""
        fired = [statuses[edge.key] == "fired" for edge in self.forward(node)]
        if not fired:
            return True
        is_any = any(edge.gate == "any" for edge in self.incoming[node])
        return any(fired) if is_any else all(fired)

    def for_each(self, node: str, statuses: Mapping[str, EdgeStatus]) -> list[Edge]:
        """Return the ``forEach`` edges into a node that fired; more than one is an error of the flow."""
        return [edge for edge in self.incoming[node] if edge.for_each is not None and statuses[edge.key] == "fired"]

    def forward(self, node: str) -> list[Edge]:
        """Return the edges into a node that are not loops."""
        return [edge for edge in self.incoming[node] if not edge.is_loop]


def _ancestors(predecessors: Mapping[str, list[str]]) -> dict[str, frozenset[str]]:
    ancestors: dict[str, frozenset[str]] = {}
    for node in TopologicalSorter(predecessors).static_order():
        ancestors[node] = frozenset(predecessors[node]).union(*(ancestors[name] for name in predecessors[node]))
    return ancestors
