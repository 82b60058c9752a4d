"""How a run stands."""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from usechat.open_harness.flow import Flow
from usechat.open_harness.interface import Snapshot
from usechat.open_harness.scheduler import EdgeStatus, NodeStatus

__all__ = ["RunState", "RunStatus"]

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
