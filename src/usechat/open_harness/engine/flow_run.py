"""One run of one flow: what its parts share."""

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from usechat.open_harness.engine.agent_sessions import AgentSessions, Inbox
from usechat.open_harness.engine.run_state import Graph, RunState, SharedState
from usechat.open_harness.engine.store import RunStore
from usechat.open_harness.flow.expressions import Scope
from usechat.open_harness.flow.flow import Flow
from usechat.open_harness.models.recording import Recorder
from usechat.open_harness.nodes.registry import NodeRegistry
from usechat.open_harness.runtime_protocol import Event, Listener, Listeners

__all__ = ["FlowRun"]

_logger: Final = logging.getLogger("usechat.open_harness")


class FlowRun:
    """Statuses, shared state, inboxes and sessions of a run; and its voice."""

    def __init__(
        self,
        flow: Flow,
        registry: NodeRegistry,
        store: RunStore,
        state: RunState,
        *,
        recorder: Recorder | None,
        pause: Callable[[], None],
    ) -> None:
        self.flow = flow
        self.graph = Graph(flow)
        self.registry = registry
        self.state = state
        self.shared = SharedState(state.state, self._tell_patch)
        self.pause = pause
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.get_ident()
        self._store = store
        self.recorder = recorder
        self._invocations: Counter[str] = Counter()
        self._listeners = Listeners()
        self._inboxes: dict[str, Inbox] = {}
        self._sessions: AgentSessions | None = None
        for command in state.inbox:
            self.inbox(str(command.get("runId"))).put(command)

    @property
    def sessions(self) -> AgentSessions:
        """What the agents remember; known when the flow's input is."""
        if self._sessions is None:
            self._sessions = AgentSessions(
                self._store,
                flow_name=self.flow.name,
                owner=self.state.owner,
                flow_input=self.state.input,
                ids=self.state.agent_sessions,
            )
        return self._sessions

    def begin(self) -> None:
        """Take the running loop's thread for the one in which events are told."""
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call the listener with every event from now on; return what ends that."""
        return self._listeners.add(listener)

    def emit(self, event: Event) -> None:
        """Tell an event to all listeners and keep it."""
        stamped = {**event, "timestamp": int(time.time() * 1000)}
        self._listeners.tell(stamped)
        self._keep(lambda: self._store.append_event(self.state.run_id, stamped))

    def save(self) -> None:
        """Keep how the run stands."""
        snapshot = self.snapshot()
        self._keep(lambda: self._store.save_snapshot(self.state.run_id, snapshot))

    def flush(self) -> None:
        """Return when all is kept; called in a thread."""
        self._keep(self._store.flush)

    def snapshot(self) -> dict[str, Any]:
        """Return how the run stands."""
        waiting = [command for inbox in self._inboxes.values() for command in inbox.waiting()]
        return self.state.snapshot(self.shared.snapshot(), waiting)

    def count_invocation(self, node_id: str) -> int:
        """Return the number of a node's next invocation, from one."""
        self._invocations[node_id] += 1
        return self._invocations[node_id]

    def inbox(self, run_id: str) -> Inbox:
        """Return the inbox of one invocation of a node."""
        return self._inboxes.setdefault(run_id, Inbox())

    def take_waiting(self) -> list[Any]:
        """Take all commands that wait for invocations which are over."""
        waiting = [command for inbox in self._inboxes.values() for command in inbox.waiting()]
        self._inboxes.clear()
        return waiting

    def close_inbox(self, run_id: str) -> None:
        """Forget the inbox of an invocation that has ended, if nothing waits in it."""
        if not self.inbox(run_id):
            del self._inboxes[run_id]

    def scope(self, extra: Mapping[str, Any] | None = None, variables: Mapping[str, Any] | None = None) -> Scope:
        """Return what expressions see now."""
        values = {"flow": {"input": self.state.input}, "state": self.shared.get(), **self.state.outputs}
        return Scope({**values, **(extra or {})}, variables)

    def _tell_patch(self, patch: dict[str, Any]) -> None:
        event = {"type": "state:patch", "patch": patch}
        if self._loop is None or threading.get_ident() == self._thread:
            self.emit(event)
        else:
            self._loop.call_soon_threadsafe(self.emit, event)

    def _keep(self, write: Callable[[], None]) -> None:
        try:
            write()
        except Exception:  # a run does not fail because its store does
            _logger.exception("the store of runs failed at run %s", self.state.run_id)
