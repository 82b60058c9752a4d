"""What the events of a run that lives elsewhere tell about it."""

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from usechat.open_harness.interface import Event, Snapshot

__all__ = ["RunView", "Status"]

Status: TypeAlias = Literal["unknown", "running", "paused", "aborted", "complete"]

_FLOW_STATUS: Final[Mapping[Any, Status]] = {
    "flow:start": "running",
    "flow:resumed": "running",
    "flow:complete": "complete",
    "flow:paused": "paused",
    "flow:aborted": "aborted",
}
_NODE_ENDS: Final = {"node:complete": "done", "node:error": "failed"}


class RunView:
    """The state of a run, as far as events told it. Whoever comes late knows nothing until the next event."""

    def __init__(self) -> None:
        self.status: Status = "unknown"
        self._invocations: dict[str, str] = {}
        self._outputs: dict[str, Any] = {}
        self._node_status: dict[str, str] = {}

    @property
    def invocation(self) -> str | None:
        """The id of the node invocation that began last and goes on: the one that takes messages."""
        return next(reversed(self._invocations), None)

    @property
    def has_ended(self) -> bool:
        """Whether nothing more comes of the run unless it is resumed."""
        return self.status in ("paused", "aborted", "complete")

    def receive(self, event: Event) -> None:
        """Take the next event."""
        kind = str(event.get("type"))
        if kind in _FLOW_STATUS:
            self.status = _FLOW_STATUS[kind]
            self._invocations.clear()
        elif kind.startswith("node:"):
            self._receive_node(kind, event)
        elif kind.startswith("agent:") and not self.has_ended:  # an agent's own ending follows that of its flow
            self._begin(event)

    def snapshot(self) -> Snapshot:
        """Return what is known, with the keys of a RunSnapshot."""
        status = "idle" if self.status == "unknown" else self.status
        return {"status": status, "outputs": dict(self._outputs), "nodeStatus": dict(self._node_status)}

    def _receive_node(self, kind: str, event: Event) -> None:
        node = str(event.get("nodeId"))
        if kind == "node:start":
            self._begin(event)
        elif kind in _NODE_ENDS:
            self._invocations.pop(str(event.get("runId")), None)
            self._node_status[node] = _NODE_ENDS[kind]
            self._outputs[node] = event.get("output") if kind == "node:complete" else {"error": event.get("error")}
        elif kind == "node:skipped":
            self._node_status[node] = "done"
            self._outputs[node] = {"skipped": True, "reason": event.get("reason")}

    def _begin(self, event: Event) -> None:
        self.status = "running"
        run_id, node = event.get("runId"), event.get("nodeId")
        if isinstance(run_id, str) and isinstance(node, str):
            self._invocations.setdefault(run_id, node)
            self._node_status[node] = "running"
