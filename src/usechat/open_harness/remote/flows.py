"""A runtime that lives in another process, behind the WebSocket contract of Open Harness."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, Literal, TypeAlias
from weakref import WeakKeyDictionary

from usechat.errors import LocalProtocolError, PublicError, Unreachable
from usechat.open_harness.events.event import EndsAt
from usechat.open_harness.remote.link import Link, require_scheme
from usechat.open_harness.runtime_protocol import Command, Event, Listener, Listeners, Snapshot
from usechat.turn import current_context

__all__ = [
    "RemoteRuntime",
    "RunView",
    "Status",
]


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


# -- A runtime that lives in another process, behind the WebSocket contract of Open Harness.

LOST: Final = "The connection to the flow was lost before the answer was complete."
LOST_WHILE_PAUSED: Final = "The connection to the flow was lost while it waited. Please start again."
NO_TEXT: Final = "The flow takes text, and the message has none."
NOT_WAITING: Final = "The flow takes no message now: it is neither paused nor running, and its server cannot start it."

_KEPT_WHILE_PAUSED: Final = 3600.0
"""Seconds after which nobody is expected to resume: the chat may be forgotten by then."""
_ECHOES: Final = ("command:received", "flow:resumed")
"""Events that a server sends for a command as such, whether or not anything comes of it."""

_turns: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, asyncio.Lock]]] = WeakKeyDictionary()


class RemoteRuntime:
    """A flow at ``ws://…``, one turn at a time; turns that should not wait for each other need one each.

    A server of ours starts a run for each connection. Others have one run for everybody and cannot start it: there a
    turn resumes the paused run, or is sent to the node that runs, one turn per URL; a stop pauses the run.
    ``connect_seconds`` is how long a connection is tried; ``silence`` is how long a resumed run may give no sign.
    """

    ends_at: EndsAt = "flow"

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        connect_seconds: float = 5.0,
        silence: float = 10.0,
    ) -> None:
        require_scheme(url, ("ws", "wss"))
        self._url = url
        self._headers = dict(headers or {})
        self._connect_seconds = connect_seconds
        self._silence = silence
        self._link: Link | None = None
        self._owns_run = False
        self._turn: asyncio.Task[None] | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._view = RunView()
        self._listeners = Listeners()
        self._telling = False
        self._signs = 0
        self._changed = asyncio.Event()

    async def run(self, input: Mapping[str, Any] | None = None) -> Snapshot:  # noqa: A002
        """Start a run with the input, or give its ``message`` to the run that is there; return when that ends."""
        return await self._owned(self._begin(dict(input or {})))

    async def resume(self, message: str | None = None) -> Snapshot:
        """Go on with the paused run."""
        return await self._owned(self._go_on(message))

    def pause(self) -> None:
        """Ask the run to pause."""
        self._command({"type": "abort", "resumable": True})
        self._command({"type": "pause"})  # the later dialect's word for it; each ignores the other's

    def stop(self) -> None:
        """Ask the run to stop; one that is everybody's, and could not be started again, to pause."""
        if self._turn is not None and not self._telling:  # it has not begun, and the run may be another's
            self._turn.cancel()
        elif self._link is not None and self._link.starts_runs:
            self._command({"type": "stop"})
        else:
            self.pause()

    def dispatch(self, command: Command) -> None:
        """Pass a command on."""
        if self._link is None:
            raise LocalProtocolError("the run has not begun")
        self._command(command)

    def on_event(self, listener: Listener) -> Callable[[], None]:
        """Call the listener with every event of this turn from now on; return what ends that."""
        return self._listeners.add(listener)

    def get_snapshot(self) -> Snapshot:
        """Return what events told about the run."""
        return self._view.snapshot()

    async def close(self) -> None:
        """Close the connection that is kept while a run of its own is paused."""
        if self._expiry is not None:
            self._expiry.cancel()
        if self._link is not None:
            link, self._link = self._link, None
            await link.close()

    async def _owned(self, work: Coroutine[Any, Any, None]) -> Snapshot:
        """Do a turn; the connection outlives it only if the run lives in it, and is paused."""
        if self._expiry is not None:
            self._expiry.cancel()
        turn = self._turn = asyncio.get_running_loop().create_task(work, name="usechat turn of a remote flow")
        try:
            await asyncio.wait([turn])
        except asyncio.CancelledError:
            self.stop()
            turn.cancel()
            await asyncio.gather(turn, return_exceptions=True)
            await self._leave()
            raise
        finally:
            self._turn, self._telling = None, False
        snapshot = {**self.get_snapshot(), "status": "aborted"} if turn.cancelled() else self.get_snapshot()
        if turn.cancelled() or turn.exception() is not None or snapshot["status"] != "paused":
            await self._leave()
        elif self._owns_run:
            loop = asyncio.get_running_loop()
            self._expiry = loop.call_later(_KEPT_WHILE_PAUSED, lambda: loop.create_task(self.close()))
        else:
            await self.close()
        if not turn.cancelled():
            turn.result()
        return snapshot

    async def _leave(self) -> None:
        """Be ready for another turn."""
        await self.close()
        self._owns_run = False
        self._view = RunView()

    async def _begin(self, given: dict[str, Any]) -> None:
        link = await self._connected()
        if link.starts_runs:
            self._owns_run = True
            await self._follow({"type": "run", "input": given})
        else:
            await self._join(str(given.get("message", "")))

    async def _go_on(self, message: str | None) -> None:
        if self._owns_run and (self._link is None or self._link.lost):  # it went with its connection
            raise PublicError(LOST_WHILE_PAUSED)
        link = await self._connected()
        if link.starts_runs:
            await self._follow({"type": "resume", "message": message})
        else:
            await self._join(message or "")

    async def _connected(self) -> Link:
        if self._link is None:
            try:
                self._link = await Link.open(
                    self._url,
                    headers=self._headers,
                    seconds=self._connect_seconds,
                    on_event=self._receive,
                    on_lost=self._changed.set,
                )
            except Unreachable:
                with suppress(LocalProtocolError):  # used without a chat
                    current_context().source_unreachable()
                raise
        return self._link

    async def _join(self, message: str) -> None:
        """Give the message to the run that everybody shares, when nobody else's turn goes on."""
        if not message:
            raise PublicError(NO_TEXT)
        locks = _turns.setdefault(asyncio.get_running_loop(), {})
        async with locks.setdefault(self._url, asyncio.Lock()):
            view = self._view
            if view.status == "unknown":  # nothing is said when one connects: a run that goes on shows itself soon
                await self._until(lambda: view.status != "unknown", self._silence / 10)
            if view.status == "running":  # perhaps between two nodes
                await self._until(lambda: view.invocation is not None or view.has_ended, self._silence)
            if view.invocation is not None:
                await self._follow({"type": "send", "message": message, "runId": view.invocation})
            elif view.status in ("paused", "unknown"):
                await self._follow({"type": "resume", "message": message}, silence=self._silence)
            else:
                raise PublicError(NOT_WAITING)

    async def _follow(self, command: Command, *, silence: float | None = None) -> None:
        """Send what begins the turn, and wait for its end."""
        self._view.status = "running"
        self._telling = True
        self._signs = 0
        self._command(command)
        with _counted():
            if silence is not None and not await self._until(lambda: self._signs > 0, silence):
                raise PublicError(NOT_WAITING)
            await self._until(lambda: self._view.has_ended, None)

    async def _until(self, condition: Callable[[], bool], seconds: float | None) -> bool:
        """Wait until this holds, and tell whether it does; raise if the link is lost before."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not condition():
                    if self._link is None or self._link.lost:
                        raise PublicError(LOST)
                    self._changed.clear()
                    await self._changed.wait()
        return condition()

    def _command(self, command: Command) -> None:
        if self._link is not None:
            self._link.command(command)

    def _receive(self, event: Event) -> None:
        self._view.receive(event)
        if self._telling:
            self._signs += event.get("type") not in _ECHOES
            self._listeners.tell(event)
            if self._view.has_ended:
                self._telling = False  # the run is everybody's; what follows belongs to the next turn
        self._changed.set()


@contextmanager
def _counted() -> Iterator[None]:
    """Count the connection for as long as a chat uses it."""
    try:
        context = current_context()
    except LocalProtocolError:  # used without a chat
        yield
        return
    with context.connected():
        yield
