"""A runtime in another process, behind the WebSocket protocol of Open Harness.

The server sends events and takes commands; it never says what the state of the run is. :class:`RunView` derives the
state from the events that were seen, so it knows nothing before the first one.

There are two kinds of servers. Ours (``remote/server.py``) announces the command ``run`` and has a run per connection:
the connection is kept while the run is paused, and closing it stops the run. Open Harness's own has one run for all
clients and cannot start it: a turn resumes the paused run or sends its message to the running node, turns at one URL
wait for each other, and a stop only pauses, because nothing could start the run again.

That server says nothing when a client connects, so a run that paused and a node that waits silently look the same. The
first message is tried as ``resume``, which a running node ignores. If a node then goes on that was running before, the
message is sent to it, under the run id that its event names. If nothing comes, the page is told what is known, and the
connection is kept: it will tell the state to the next message.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, Literal, TypeAlias
from weakref import WeakKeyDictionary

from usechat.errors import LocalProtocolError, PublicError
from usechat.open_harness.engine.agent_sessions import id_of_current_message
from usechat.open_harness.errors import Unreachable
from usechat.open_harness.events.event import EndsAt
from usechat.open_harness.remote.link import Link, require_scheme
from usechat.open_harness.runtime_protocol import Command, Event, Listener, Listeners, Snapshot
from usechat.transports import current_context

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
    """The state of a run, derived from its events. It is unknown before the first event."""

    def __init__(self) -> None:
        self.status: Status = "unknown"
        self._invocations: dict[str, str] = {}
        self._outputs: dict[str, Any] = {}
        self._node_status: dict[str, str] = {}

    @property
    def invocation(self) -> str | None:
        """The run id of the open node invocation that started last: the one that gets messages."""
        return next(reversed(self._invocations), None)

    @property
    def has_ended(self) -> bool:
        """Whether the run emits no more events unless it is resumed."""
        return self.status in ("paused", "aborted", "complete")

    def receive(self, event: Event) -> None:
        """Update the state with the next event."""
        kind = str(event.get("type"))
        if kind in _FLOW_STATUS:
            self.status = _FLOW_STATUS[kind]
            self._invocations.clear()
        elif kind.startswith("node:"):
            self._receive_node(kind, event)
        elif kind.startswith("agent:") and not self.has_ended:  # an agent's own ending follows that of its flow
            self._begin(event)

    def snapshot(self) -> Snapshot:
        """Return what is known, with the keys of a snapshot."""
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


LOST: Final = "The connection to the flow was lost before the answer was complete."
LOST_WHILE_PAUSED: Final = "The connection to the flow was lost while it waited. Please start again."
NO_TEXT: Final = "The flow needs text, but the message has none."
NOT_WAITING: Final = "The flow cannot accept a message now: it is not running, and its server cannot start it."
SILENT: Final = (
    "The flow did not react to the message. It has ended, or a step is running that its server has not named since this"
    " chat connected; such a step can be reached after its next event."
)

_KEPT_SECONDS: Final = 3600.0
"""How many seconds the connection of a paused or complete run is kept. The chat may be forgotten by then."""
_ECHOES: Final = ("command:received", "flow:resumed")
"""Events that a server sends for any command, even one without effect."""
_RESUMPTIONS: Final = ("flow:start", "node:start")
"""The first event of a run that was really resumed; a node that was running goes on with another one.

One of them is ``agent:start``: an agent starts after its node, and again when the agent is retried.
"""


class _SharedRun:
    """The run that all clients of one URL share.

    After a turn that saw its end, or to which nothing reacted, the connection is kept: while it lasts, what the run
    does is known, and a host that starts it again is noticed. When it is lost, the server may come back with another
    run, so nothing is known.
    """

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self._link: Link | None = None
        self._view = RunView()
        self._headers: Mapping[str, str] = {}
        self._expiry: asyncio.TimerHandle | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the run is known to be complete."""
        return self._link is not None and not self._link.lost and self._view.status == "complete"

    async def keep(self, link: Link, view: RunView, headers: Mapping[str, str]) -> None:
        """Keep the connection of a turn, to see what its run does."""
        await self.close()
        loop = asyncio.get_running_loop()
        self._link, self._view, self._headers = link, view, headers
        self._expiry = loop.call_later(_KEPT_SECONDS, lambda: loop.create_task(self.close()))
        link.listen(view.receive, lambda: None)

    def take(self, headers: Mapping[str, str]) -> tuple[Link, RunView] | None:
        """Return the kept connection and what it has seen, if there is one for a turn with these headers."""
        link = self._link
        if link is None or link.lost or headers != self._headers:
            return None
        self._link = None
        self._cancel_expiry()
        return link, self._view

    async def close(self) -> None:
        """Close the kept connection."""
        self._cancel_expiry()
        if self._link is not None:
            link, self._link = self._link, None
            await link.close()

    def _cancel_expiry(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None


_shared_runs: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _SharedRun]]] = WeakKeyDictionary()


class RemoteRuntime:
    """A flow behind a WebSocket, ``ws://…`` or ``wss://…``. Make one per turn.

    :func:`serve_runtime` and :func:`runtime_app` start a run for each connection. Other Open Harness servers have one
    run for all clients and cannot start it: a turn resumes the paused run or sends its message to the running node,
    one turn per URL at a time, and a stop pauses the run.

    ``headers`` are sent with the handshake. ``connect_seconds`` is how long to retry the connection; ``silence`` is how
    many seconds a resumed run may take to its first event. Raises :class:`~usechat.errors.InvalidAddress` for another
    kind of URL.

    >>> from usechat.open_harness import OpenHarnessChatTransport
    >>> transport = OpenHarnessChatTransport(lambda: RemoteRuntime("ws://localhost:42069/ws"))
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
        self._is_reporting = False
        self._signs = 0
        self._attempt: _Attempt | None = None
        self._changed = asyncio.Event()

    @property
    def takes_message_ids(self) -> bool:
        """Whether ``send`` may have a ``messageId``: our own servers know what to do with it."""
        return self._link is not None and self._link.starts_runs

    async def run(self, input: Mapping[str, Any] | None = None) -> Snapshot:  # noqa: A002
        """Start a run with the input, or send its ``message`` to the shared run; return when the run ends or pauses."""
        return await self._owned(self._begin(dict(input or {})))

    async def resume(self, message: str | None = None) -> Snapshot:
        """Resume the paused run."""
        return await self._owned(self._go_on(message))

    def pause(self) -> None:
        """Pause the run."""
        self._command({"type": "abort", "resumable": True})
        self._command({"type": "pause"})  # newer servers; each generation ignores the command of the other

    def stop(self) -> None:
        """Stop the run. A run that all clients share is only paused: nothing could start it again."""
        if (
            self._turn is not None and not self._is_reporting
        ):  # the turn has not started, and the run may be another client's
            self._turn.cancel()
        elif self._link is not None and self._link.starts_runs:
            self._command({"type": "stop"})
        else:
            self.pause()

    def dispatch(self, command: Command) -> None:
        """Send a command; raise :class:`~usechat.errors.LocalProtocolError` if the run has not begun."""
        if self._link is None:
            raise LocalProtocolError("the run has not begun")
        self._command(command)

    def on_event(self, listener: Listener) -> Callable[[], None]:
        """Call the listener with every event of this turn from now on; return a function that removes it."""
        return self._listeners.add(listener)

    def get_snapshot(self) -> Snapshot:
        """Return what is known about the run."""
        return self._view.snapshot()

    async def close(self) -> None:
        """Close the connection that is kept while a run that this runtime started is paused."""
        if self._expiry is not None:
            self._expiry.cancel()
        if self._link is not None:
            link, self._link = self._link, None
            await link.close()

    async def _owned(self, work: Coroutine[Any, Any, None]) -> Snapshot:
        """Execute a turn. The connection is kept only for a paused run that belongs to it."""
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
            self._turn, self._is_reporting = None, False
        snapshot = {**self.get_snapshot(), "status": "aborted"} if turn.cancelled() else self.get_snapshot()
        if turn.cancelled() or turn.exception() is not None or snapshot["status"] != "paused":
            await self._leave()
        elif self._owns_run:
            loop = asyncio.get_running_loop()
            self._expiry = loop.call_later(_KEPT_SECONDS, lambda: loop.create_task(self.close()))
        else:
            await self.close()
        if not turn.cancelled():
            turn.result()
        return snapshot

    async def _leave(self) -> None:
        """Forget the run, and close the connection unless it will tell what a shared run does."""
        link, view = self._link, self._view
        is_known = view.status in ("complete", "unknown")
        if link is not None and not link.lost and not link.starts_runs and is_known:
            self._link = None
            await self._shared_run().keep(link, view, self._headers)
        await self.close()
        self._owns_run = False
        self._view = RunView()

    async def _begin(self, flow_input: dict[str, Any]) -> None:
        link = await self._connected()
        if link.starts_runs:
            self._owns_run = True
            await self._follow({"type": "run", "input": flow_input})
        else:
            await self._join(str(flow_input.get("message", "")))

    async def _go_on(self, message: str | None) -> None:
        if self._owns_run and (self._link is None or self._link.lost):  # the run ended with its connection
            raise PublicError(LOST_WHILE_PAUSED)
        link = await self._connected()
        if link.starts_runs:
            message_id = id_of_current_message()
            named = {} if message_id is None else {"messageId": message_id}
            await self._follow({"type": "resume", "message": message, **named})
        else:
            await self._join(message or "")

    async def _connected(self) -> Link:
        if self._link is None and (connection := self._shared_run().take(self._headers)) is not None:
            self._link, self._view = connection
            self._link.listen(self._receive, self._changed.set)
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
        """Send the message to the run that all clients share, once no other turn uses it."""
        if not message:
            raise PublicError(NO_TEXT)
        shared = self._shared_run()
        async with shared.lock:
            await self._send(message, shared)

    async def _send(self, message: str, shared: _SharedRun) -> None:
        view = self._view
        before = view.status
        if before in ("unknown", "complete"):  # servers send nothing on connecting; a running flow soon emits an event
            await self._until(lambda: view.status != before, self._silence / 10)
        if view.status == "running":  # perhaps between two nodes
            await self._until(lambda: view.invocation is not None or view.has_ended, self._silence)
        if view.invocation is not None:
            await self._follow({"type": "send", "message": message, "runId": view.invocation})
        elif view.status == "paused":
            await self._follow({"type": "resume", "message": message}, silence=self._silence)
        elif view.status == "unknown" and not shared.is_complete:
            self._attempt = _Attempt(message)
            await self._follow({"type": "resume", "message": message}, silence=self._silence)
        else:
            raise PublicError(NOT_WAITING)

    def _shared_run(self) -> _SharedRun:
        runs = _shared_runs.setdefault(asyncio.get_running_loop(), {})
        return runs.setdefault(self._url, _SharedRun())

    async def _follow(self, command: Command, *, silence: float | None = None) -> None:
        """Send the command that starts the turn, and wait for its end."""
        self._view.status = "running"
        self._is_reporting = True
        self._signs = 0
        self._command(command)
        with _counted():
            if silence is not None and not await self._until(lambda: self._signs > 0, silence):
                self._view.status, self._attempt = "unknown", None
                raise PublicError(SILENT)
            await self._until(lambda: self._view.has_ended, None)
        if self._attempt is not None:  # the run that was not paused ended before another node started
            self._attempt = None
            raise PublicError(NOT_WAITING)

    async def _until(self, condition: Callable[[], bool], seconds: float | None) -> bool:
        """Wait until a condition holds, and return whether it does; raise if the connection is lost."""
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
        if self._is_reporting:
            is_echo = event.get("type") in _ECHOES
            self._signs += not is_echo
            if self._attempt is not None:
                self._attempt.echoes += [event] if is_echo else []
                if not is_echo:
                    self._prove(self._attempt, event)
            if self._attempt is None or not is_echo:
                self._listeners.notify(event)
            if self._view.has_ended:
                self._is_reporting = False  # clients share the run; what follows belongs to the next turn
        self._changed.set()

    def _prove(self, attempt: "_Attempt", event: Event) -> None:
        """Learn from an event whether the run was resumed; if it was running before, send the message to its node."""
        if event.get("type") in _RESUMPTIONS and not attempt.was_running:
            self._attempt = None
            for echo in attempt.echoes:
                self._listeners.notify(echo)
            return
        attempt.was_running = True
        if self._view.invocation is not None:
            self._attempt = None
            self._command({"type": "send", "message": attempt.message, "runId": self._view.invocation})


class _Attempt:
    """A message that was sent as ``resume`` to a run of which nothing was known.

    ``echoes`` are events that say nothing about the run unless it was really resumed; they are held back until then.
    """

    def __init__(self, message: str) -> None:
        self.message = message
        self.echoes: list[Event] = []
        self.was_running = False


@contextmanager
def _counted() -> Iterator[None]:
    """Count the connection while a chat uses it."""
    try:
        context = current_context()
    except LocalProtocolError:  # used without a chat
        yield
        return
    with context.connected():
        yield
