"""One run of one flow: its state, its snapshot, and what the scheduler and the nodes share."""

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from usechat.open_harness.engine.agent_sessions import AgentSessions
from usechat.open_harness.engine.graph import EdgeStatus, Graph, NodeStatus
from usechat.open_harness.engine.other_workers import UNREAD
from usechat.open_harness.engine.store import FlowRunStore
from usechat.open_harness.flow.definition import FlowDefinition
from usechat.open_harness.flow.evaluators import Requester
from usechat.open_harness.flow.expressions import Scope
from usechat.open_harness.inbox import Inbox
from usechat.open_harness.models.recording import Recorder
from usechat.open_harness.nodes.context import SharedState, Surroundings
from usechat.open_harness.nodes.registry import NodeRegistry
from usechat.open_harness.runtime_protocol import Event, Listener, Listeners, Snapshot

__all__ = ["FlowRun", "FlowRunState", "FlowRunStatus"]

_logger: Final = logging.getLogger("usechat.open_harness")


FlowRunStatus: TypeAlias = Literal["idle", "running", "paused", "aborted", "complete"]


class FlowRunState(msgspec.Struct, rename="camel"):
    """A run's statuses and outputs, its input and its owner: what a snapshot holds.

    ``state`` and ``inbox`` are those of the last snapshot. ``started_at`` orders the runs of a chat; ``process`` names
    the process in which the run runs.
    """

    run_id: str
    status: FlowRunStatus = "idle"
    outputs: dict[str, Any] = {}
    state: dict[str, Any] = {}
    node_status: dict[str, NodeStatus] = {}
    edge_status: dict[str, EdgeStatus] = {}
    loop_counters: dict[str, int] = {}
    inbox: list[dict[str, Any]] = []
    agent_sessions: dict[str, str] = {}
    input: dict[str, Any] = {}
    owner: str = ""
    started_at: int = 0
    process: str = ""

    @classmethod
    def new(cls, flow: FlowDefinition, run_id: str) -> "FlowRunState":
        """Return the state of a run that has not started."""
        return cls(
            run_id,
            state=dict(flow.state.initial),
            node_status={node.id: "pending" for node in flow.nodes},
            edge_status={edge.key: "pending" for edge in flow.edges},
            loop_counters={edge.key: 0 for edge in flow.edges},
        )

    @classmethod
    def from_snapshot(cls, flow: FlowDefinition, snapshot: Snapshot, run_id: str | None) -> "FlowRunState":
        """Return the state that a snapshot holds. Nodes that were running become pending when the run is resumed."""
        state: FlowRunState = msgspec.convert({"runId": run_id, **_without_none(snapshot)}, cls)
        # The flow may have changed since then: nodes and edges that it no longer has are dropped.
        state.node_status = {node.id: state.node_status.get(node.id, "pending") for node in flow.nodes}
        state.edge_status = {edge.key: state.edge_status.get(edge.key, "pending") for edge in flow.edges}
        state.loop_counters = {edge.key: state.loop_counters.get(edge.key, 0) for edge in flow.edges}
        return state

    def snapshot(self, state: Mapping[str, Any], inbox: list[Any]) -> dict[str, Any]:
        """Return a copy with the keys of the wire format."""
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
            "startedAt": self.started_at,
            "process": self.process,
        }


def _without_none(snapshot: Snapshot) -> dict[str, Any]:
    return {key: value for key, value in snapshot.items() if value is not None}


def _stamped(event: Event) -> Event:
    return {**event, "timestamp": int(time.time() * 1000)}


class FlowRun:
    """A run's state, inboxes, agent sessions and listeners."""

    def __init__(
        self,
        flow: FlowDefinition,
        registry: NodeRegistry,
        store: FlowRunStore,
        state: FlowRunState,
        *,
        recorder: Recorder | None,
        pause: Callable[[], None],
    ) -> None:
        self.flow = flow
        self.graph = Graph(flow)
        self.registry = registry
        self.state = state
        self.shared = SharedState(state.state, self._emit_patch)
        self.pause = pause
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.get_ident()
        self.store = store
        self.recorder = recorder
        self._invocations: Counter[str] = Counter()
        self.resumed_by: str | None = None
        """The id of the user's message that resumed the run."""
        self.on_question: Callable[[], None] = lambda: None
        """Called when a node has asked a person."""
        self.growing: set[str] = set()
        """The nodes that run for each item of a list: items are being added to their outputs."""
        self._flow = {"input": state.input}
        self._listeners = Listeners()
        self._inboxes: dict[str, Inbox] = {}
        self._sessions: AgentSessions | None = None
        for command in state.inbox:
            self.inbox(str(command.get("runId"))).put(command)

    @property
    def sessions(self) -> AgentSessions:
        """The agents' sessions. They depend on the flow's input, so they are opened on first use."""
        if self._sessions is None:
            self._sessions = AgentSessions(
                self.store,
                flow_name=self.flow.name,
                owner=self.state.owner,
                flow_input=self.state.input,
                ids=self.state.agent_sessions,
            )
        return self._sessions

    @property
    def surroundings(self) -> Surroundings:
        """What the contexts of the nodes share."""
        return Surroundings(
            input=self.state.input,
            state=self.shared,
            sessions=self.sessions,
            recorder=self.recorder,
            emit=self.emit,
            pause=self.pause,
            on_question=self.on_question,
        )

    def begin(self) -> None:
        """Emit events in the thread of the running loop from now on."""
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call the listener with every event from now on; return a function that removes it."""
        return self._listeners.add(listener)

    def emit(self, event: Event) -> None:
        """Pass an event to all listeners, and store it."""
        stamped = _stamped(event)
        self._listeners.notify(stamped)
        self.record(stamped)

    def record(self, event: Event) -> None:
        """Store an event, or a record for other workers, without passing it to listeners."""
        self._store_safely(self.store.append_event, self.state.run_id, event)

    def save(self) -> None:
        """Store a snapshot."""
        self._store_safely(self.store.save_snapshot, self.state.run_id, self.snapshot())

    def abandon(self) -> None:
        """Store that the run has failed. As in Open Harness, its status stays as it is here, and no event says so.

        The next turn of the chat would show, or continue, a stored run that seems to run.
        """
        self.record(_stamped({"type": "flow:complete", "flowName": self.flow.name, "status": "failed"}))
        self._store_safely(self.store.save_snapshot, self.state.run_id, {**self.snapshot(), "status": "complete"})

    def flush(self) -> None:
        """Wait until everything is stored. Called in a thread."""
        self._store_safely(self.store.flush)

    def snapshot(self) -> dict[str, Any]:
        """Return a snapshot."""
        waiting = [command for inbox in self._inboxes.values() for command in inbox.waiting()]
        return self.state.snapshot(self.shared.snapshot(), waiting)

    def count_invocation(self, node_id: str) -> int:
        """Return the number of a node's next invocation, from one."""
        self._invocations[node_id] += 1
        return self._invocations[node_id]

    def inbox(self, run_id: str) -> Inbox:
        """Return the inbox of one invocation of a node."""
        inbox = self._inboxes.get(run_id)
        if inbox is None:
            inbox = self._inboxes[run_id] = Inbox()
        return inbox

    def take_waiting(self) -> list[Any]:
        """Remove and return the unread commands of all inboxes."""
        waiting = [command for inbox in self._inboxes.values() for command in inbox.waiting()]
        self._inboxes.clear()
        return waiting

    def close_inbox(self, run_id: str) -> None:
        """Remove the inbox of an invocation that has ended, unless it holds unread commands."""
        if unread := self.inbox(run_id).waiting():
            self.record({"type": UNREAD, "commands": unread})
        else:
            del self._inboxes[run_id]

    def scope(self, item: Scope | None = None) -> Scope:
        """Return the values that expressions see now, with those of an item of a list."""
        if self._flow["input"] is not self.state.input:
            self._flow = {"input": self.state.input}
        values = {"flow": self._flow, "state": self.shared.values, **self.state.outputs}
        requester = Requester(self.state.owner or self.state.run_id, self.state.run_id, self.growing)
        if item is None:
            return Scope(values, requester=requester)
        return Scope(values, item.variables, own=item.own, requester=requester)

    def _emit_patch(self, patch: dict[str, Any]) -> None:
        event = {"type": "state:patch", "patch": patch}
        if self._loop is None or threading.get_ident() == self._thread:
            self.emit(event)
        else:
            self._loop.call_soon_threadsafe(self.emit, event)

    def _store_safely(self, write: Callable[..., None], *values: Any) -> None:
        try:
            write(*values)
        except Exception:  # a run does not fail because its store does
            _logger.exception("the run store failed for run %s", self.state.run_id)
