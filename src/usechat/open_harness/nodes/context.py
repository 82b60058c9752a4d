"""What a node is given besides its input."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from usechat.open_harness.engine.agent_sessions import AgentSessions, Inbox
from usechat.open_harness.engine.run_state import SharedState
from usechat.open_harness.runtime_protocol import Event

__all__ = [
    "NodeContext",
    "StopReason",
    "text_of",
]

if TYPE_CHECKING:
    from usechat.open_harness.models.recording import Recorder


StopReason: TypeAlias = Literal["pause", "abort", "timeout"]


class NodeContext:
    """One attempt of one invocation of a node: what it may say, what it is told, and whether it should stop."""

    def __init__(
        self,
        node_id: str,
        run_id: str,
        *,
        flow_input: Mapping[str, Any],
        emit: Callable[[Event], None],
        inbox: Inbox,
        state: SharedState,
        sessions: AgentSessions,
        pause: Callable[[], None],
        session_name: str,
        invocation: int,
        recorder: "Recorder | None",
        resume_message: str | None = None,
    ) -> None:
        self.node_id = node_id
        self.run_id = run_id
        self.flow_input = flow_input
        self.inbox = inbox
        self.state = state
        self.sessions = sessions
        self.session_name = session_name
        self.invocation = invocation
        self.recorder = recorder
        self.resume_message = resume_message
        self.stop_reason: StopReason | None = None
        self._emit = emit
        self._pause = pause
        self._stopped = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    @property
    def stopped(self) -> bool:
        """Whether this attempt should end; code in threads looks at it now and then."""
        return self._stopped.is_set()

    def emit(self, event: Event) -> None:
        """Say an event, from any thread; ``nodeId`` and ``runId`` are filled in. A stopped node is not heard."""
        full = {"type": event["type"], "nodeId": self.node_id, "runId": self.run_id, **event}
        if threading.get_ident() == self._thread:
            self._say(full)
        else:
            self._loop.call_soon_threadsafe(self._say, full)

    def pause(self) -> None:
        """Pause the flow, from any thread; the node runs anew when it goes on, with ``resume_message``."""
        self._loop.call_soon_threadsafe(self._pause)

    def stop(self, reason: StopReason) -> None:
        """Raise the flag that the node looks at."""
        self.stop_reason = self.stop_reason or reason
        self._stopped.set()

    def _say(self, event: Event) -> None:
        # What was told to stop may still say that it did: agent:paused, agent:aborted.
        if not self.stopped or event["type"] in ("agent:paused", "agent:aborted"):
            self._emit(event)


# -- How agents and their tools fail.


def text_of(error: BaseException) -> str:
    """Return what an error says, or at least what it is."""
    return str(error) or type(error).__name__
