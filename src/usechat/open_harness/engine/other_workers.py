"""Flow runs that turns of several workers show, one after another.

A chat's next message may reach another worker than the one that runs its flow. The run stays where it is. The turn of
that message reads the run's events from the run store and sends its commands through it (:class:`StoredRun`). The
worker that runs the flow reads the commands of all its runs (:func:`receiving`) and decides which turn shows the run
(:class:`Readers`). Its decisions are records in the log of the run, between the events:

- ``flow:released``: the turn that showed the run shows nothing that follows.
- ``flow:read``: the turn that ``reader`` names shows what follows the last ``flow:released``.
- ``flow:kept``: ``reader`` cannot show the run, because a turn of the worker that runs it is about to.
- ``flow:unread``: a node has ended without reading these ``commands``.

So every event is shown once. A turn that shows a run sends ``reading`` at intervals; if that stays away, the run is
stopped. Parts that the code of a node emits by itself are no events: a turn of another worker does not show them.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NoReturn, Protocol, runtime_checkable

from usechat.errors import PublicError
from usechat.ids import new_id
from usechat.open_harness.engine.processes import is_alive
from usechat.open_harness.engine.store import SharedRunStore
from usechat.open_harness.errors import NotResumable
from usechat.open_harness.events.event import EndsAt
from usechat.open_harness.flow.definition import FlowDefinition
from usechat.open_harness.runtime_protocol import Command, Event, Listener, Listeners, Snapshot
from usechat.open_harness.threads import in_thread

__all__ = ["UNREAD", "Readers", "Releasable", "ReleaseRun", "StoredRun", "receiving"]

_logger: Final = logging.getLogger("usechat.open_harness")

RELEASED: Final = "flow:released"
READ: Final = "flow:read"
KEPT: Final = "flow:kept"
UNREAD: Final = "flow:unread"
_RECORDS: Final = (RELEASED, READ, KEPT, UNREAD)
_ENDS: Final = ("flow:complete", "flow:paused", "flow:aborted")

BUSY: Final = "The flow is busy with an earlier message. Please try again later."

_POLL: Final = 0.1
"""Seconds between two looks into the store."""
_OPENING: Final = 10.0
"""How many seconds the worker that runs a flow has to say which turn shows it."""
_READING: Final = 5.0
"""Seconds between two signs of a turn that shows a run; also how often it sees whether the run's process lives."""
_UNREAD_SECONDS: Final = 30.0
"""How long a run continues without such a sign."""


class ReleaseRun(Protocol):
    """Ends the turn of this worker that shows a run; returns whether it could. With ``is_gone`` it has to."""

    def __call__(self, *, is_gone: bool = False) -> bool:
        """End the turn."""
        ...


@runtime_checkable
class Releasable(Protocol):
    """A runtime whose run turns of other workers may show."""

    def on_release(self, release: ReleaseRun) -> None:
        """Call ``release`` when a turn of another worker wants to show the run."""
        ...


class Readers:
    """Which turn shows a run, known to the worker that runs it; it executes the commands of other workers."""

    def __init__(
        self, *, record: Callable[[Event], None], dispatch: Callable[[Command], None], stop: Callable[[], None]
    ) -> None:
        self.release_here: ReleaseRun | None = None
        self._record = record
        self._dispatch = dispatch
        self._stop = stop
        self._is_shown_here = True
        self._reader: str | None = None
        self._unread: asyncio.TimerHandle | None = None

    def receive(self, command: Command) -> None:
        """Execute a command of another worker."""
        match command:
            case {"type": "release"}:
                self._release()
            case {"type": "read", "reader": reader}:
                self._read(reader)
            case {"type": "reading", "reader": reader}:
                if reader == self._reader:
                    self._expect_sign()
            case _:
                self._dispatch(command)

    def close(self) -> None:
        """Expect no more signs: the run has ended."""
        if self._unread is not None:
            self._unread.cancel()

    def _release(self) -> bool:
        if self._is_shown_here and (self.release_here is None or not self.release_here()):
            return False
        if self._is_shown_here or self._reader is not None:
            self._is_shown_here, self._reader = False, None
            self._record({"type": RELEASED})
            self._expect_sign()
        return True

    def _read(self, reader: str) -> None:
        if not self._release():
            self._record({"type": KEPT, "reader": reader})
            return
        self._reader = reader
        self._record({"type": READ, "reader": reader})
        self._expect_sign()

    def _expect_sign(self) -> None:
        self.close()
        self._unread = asyncio.get_running_loop().call_later(_UNREAD_SECONDS, self._stop)


class _CommandReader:
    """Reads the commands for the runs of one event loop, with one query for all of them."""

    def __init__(self, store: SharedRunStore, on_end: Callable[[], object]) -> None:
        self.runs: dict[str, Callable[[Command], None]] = {}
        self._store = store
        self._on_end = on_end
        self._task = asyncio.get_running_loop().create_task(self._poll(), name="usechat flow commands")

    async def _poll(self) -> None:
        try:
            while True:
                await asyncio.sleep(_POLL)
                if not self.runs:
                    return
                await self._read()
        finally:
            self._on_end()

    async def _read(self) -> None:
        try:
            commands = await in_thread(partial(self._store.take_commands, list(self.runs)))
        except Exception:  # a run does not fail because its store does
            _logger.exception("the run store failed to read commands")
            return
        for run_id, command in commands:
            if (receive := self.runs.get(run_id)) is not None:
                receive(command)


_readers: Final[dict[tuple[asyncio.AbstractEventLoop, SharedRunStore], _CommandReader]] = {}
"""Those that have runs."""


@contextmanager
def receiving(store: SharedRunStore, run_id: str, receive: Callable[[Command], None]) -> Iterator[None]:
    """Call ``receive`` with each command that other workers have stored for a run."""
    key = (asyncio.get_running_loop(), store)
    if key not in _readers:
        _readers[key] = _CommandReader(store, lambda: _readers.pop(key))
    runs = _readers[key].runs
    runs[run_id] = receive
    try:
        yield
    finally:
        del runs[run_id]


class StoredRun:
    """A run that another turn has begun, mostly on another worker: a runtime over the run store.

    ``open`` must have returned true before ``follow`` is called.
    """

    ends_at: EndsAt = "flow"

    def __init__(self, flow: FlowDefinition, store: SharedRunStore, run_id: str) -> None:
        self.flow = flow
        self.run_id = run_id
        self.earlier_events: list[Event] = []
        """The events that earlier turns have shown."""
        self._store = store
        self._reader = new_id()
        self._status = "running"
        self._number = 0
        self._new: list[Event] = []
        self._inbox: list[Command] = []
        self._release: ReleaseRun | None = None
        self._listeners = Listeners()

    async def open(self) -> bool:
        """Ask for the run, and return whether the turn may show it; it may not if the run has ended.

        Raises :class:`~usechat.errors.PublicError` if a turn of the worker that runs it is about to show it.
        """
        self.dispatch({"type": "read", "reader": self._reader})
        deadline = _now() + _OPENING
        while _now() < deadline:
            log = await in_thread(partial(self._store.load_events, self.run_id))
            events = [event for _, event in log]
            if {"type": KEPT, "reader": self._reader} in events:
                raise PublicError(BUSY)
            if {"type": READ, "reader": self._reader} in events:
                begin = events.index({"type": READ, "reader": self._reader})
                begin -= events[begin::-1].index({"type": RELEASED})
                self.earlier_events = [event for event in events[:begin] if event["type"] not in _RECORDS]
                self._new, self._number = events[begin + 1 :], log[-1][0]
                return True
            if _has_ended(events):
                return False
            await asyncio.sleep(_POLL)
        _logger.warning("run %s is stored as running, but no worker runs it", self.run_id)
        return False

    async def follow(self) -> Snapshot:
        """Pass events to the listeners until the run ends, its process ends, or another turn shows the run."""
        signed = 0.0
        while self._take_new():
            if _now() - signed > _READING:
                signed = _now()
                self.dispatch({"type": "reading", "reader": self._reader})
                if not await self._is_alive():
                    break
            rows = await in_thread(partial(self._store.load_events, self.run_id, self._number))
            self._number = rows[-1][0] if rows else self._number
            self._new = [event for _, event in rows]
            if not rows:
                await asyncio.sleep(_POLL)
        return self.get_snapshot()

    def _take_new(self) -> bool:
        """Pass new events to the listeners; return whether more may follow."""
        for event in self._new:
            match event:
                case {"type": "flow:released"}:
                    if self._release is not None:
                        self._release(is_gone=True)
                    return False
                case {"type": "flow:unread", "commands": commands}:
                    self._inbox += commands
                case {"type": "flow:read" | "flow:kept"}:
                    pass
                case _:
                    self._take_event(event)
        return self._status == "running"

    def _take_event(self, event: Event) -> None:
        if event["type"] in _ENDS:
            self._status = event["type"].removeprefix("flow:")
        elif event["type"] == "command:received" and event["command"] in self._inbox:
            self._inbox.remove(event["command"])  # its node reads it, or ends and says flow:unread
        self._listeners.notify(event)

    async def _is_alive(self) -> bool:
        snapshot = await in_thread(partial(self._store.load_snapshot, self.run_id)) or {}
        return snapshot.get("status") != "running" or is_alive(str(snapshot.get("process", "")))

    async def run(self, input: Any = None) -> NoReturn:  # noqa: A002, ARG002
        """Raise ``NotResumable``: the run has begun."""
        raise NotResumable(f"Run {self.run_id} is not resumable")

    async def resume(self, message: str | None = None) -> NoReturn:  # noqa: ARG002
        """Raise ``NotResumable``: the run is not paused."""
        raise NotResumable(f"Run {self.run_id} is not resumable")

    takes_message_ids = True
    """Whether ``send`` may have a ``messageId``."""

    def pause(self) -> None:
        """Ask the worker that runs the flow to pause it."""
        self.dispatch({"type": "pause"})

    def stop(self) -> None:
        """Ask the worker that runs the flow to stop it."""
        self.dispatch({"type": "stop"})

    def dispatch(self, command: Command) -> None:
        """Send a command to the worker that runs the flow."""
        if command["type"] == "send":
            self._inbox.append(command)
        self._store.send_command(self.run_id, command)

    def on_event(self, listener: Listener) -> Callable[[], None]:
        """Call the listener with every event from now on; return a function that removes it."""
        return self._listeners.add(listener)

    def on_release(self, release: ReleaseRun) -> None:
        """Call ``release`` when another turn shows the run."""
        self._release = release

    def get_snapshot(self) -> Snapshot:
        """Return what is known of the run here: its status, and the commands that no node has read."""
        return {"runId": self.run_id, "status": self._status, "inbox": list(self._inbox)}


def _has_ended(events: list[Event]) -> bool:
    kinds = [event["type"] for event in events if event["type"] in (*_ENDS, "flow:resumed")]
    return bool(kinds) and kinds[-1] != "flow:resumed"


def _now() -> float:
    return asyncio.get_running_loop().time()
