"""Stores of flow runs: events, snapshots and agent sessions."""

from collections import OrderedDict
from collections.abc import Collection, Mapping
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

from usechat.open_harness.engine.processes import is_alive
from usechat.open_harness.runtime_protocol import Command, Event, Snapshot

__all__ = ["FlowRunStore", "MemoryRunStore", "Session", "SharedRunStore", "is_running", "is_unfinished"]

Session: TypeAlias = Mapping[str, Any]
"""The messages that an agent remembers, as plain JSON values."""

_SESSIONS: Final = 10_000


class FlowRunStore(Protocol):
    """Stores flow runs. Writing must not block; loading and ``flush`` may, and are called in threads.

    :class:`MemoryRunStore`, :class:`SqliteRunStore` and :class:`PostgresRunStore` are such stores.

    >>> from usechat.open_harness import MemoryRunStore
    >>> store: FlowRunStore = MemoryRunStore()
    >>> store.append_event("run-1", {"type": "flow:start"})
    >>> store.load_events("run-1", after=1)
    []
    """

    def append_event(self, run_id: str, event: Event) -> None:
        """Append an event to those of its run. Events are numbered from one."""
        ...

    def save_snapshot(self, run_id: str, snapshot: Snapshot) -> None:
        """Store a snapshot of a run."""
        ...

    def load_snapshot(self, run_id: str) -> Snapshot | None:
        """Return the latest snapshot of a run, or ``None``."""
        ...

    def load_events(self, run_id: str, after: int = 0) -> list[tuple[int, Event]]:
        """Return the events of a run that follow number ``after``, each with its number."""
        ...

    def unfinished_run(self, chat_id: str, owner: str = "") -> str | None:
        """Return the id of a chat's latest run if the next message can resume it: see :func:`is_unfinished`."""
        ...

    def save_session(self, session_id: str, session: Session) -> None:
        """Store an agent's session."""
        ...

    def load_session(self, session_id: str) -> Session | None:
        """Return an agent's session, or ``None``."""
        ...

    def flush(self) -> None:
        """Wait until everything written so far is stored."""
        ...


@runtime_checkable
class SharedRunStore(FlowRunStore, Protocol):
    """A store that several processes use: it also passes commands to the process that runs a flow."""

    def running_run(self, chat_id: str, owner: str = "") -> str | None:
        """Return the id of a chat's latest run if a process is running it: see :func:`is_running`."""
        ...

    def send_command(self, run_id: str, command: Command) -> None:
        """Store a command for the process that runs a flow. Must not block."""
        ...

    def take_commands(self, run_ids: Collection[str]) -> list[tuple[str, Command]]:
        """Remove and return the commands for these runs in their order, each with the id of its run."""
        ...


class MemoryRunStore:
    """Keeps the latest runs and agent sessions in memory; the least recently used are dropped.

    ``maximum_runs`` and ``maximum_sessions`` are how many are kept. Everything is lost when the process ends.

    >>> store = MemoryRunStore(maximum_runs=10)
    >>> store.append_event("run-1", {"type": "flow:start"})
    >>> store.load_events("run-1")
    [(1, {'type': 'flow:start'})]
    """

    def __init__(self, *, maximum_runs: int = 100, maximum_sessions: int = _SESSIONS) -> None:
        self._maximum_runs = maximum_runs
        self._maximum_sessions = maximum_sessions
        self._events: OrderedDict[str, list[Event]] = OrderedDict()
        self._snapshots: OrderedDict[str, Snapshot] = OrderedDict()
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def append_event(self, run_id: str, event: Event) -> None:
        """Append an event."""
        if self._maximum_runs:
            self._events.setdefault(run_id, []).append(event)
            _make_room(self._events, run_id, self._maximum_runs)

    def save_snapshot(self, run_id: str, snapshot: Snapshot) -> None:
        """Replace the snapshot of a run."""
        self._snapshots[run_id] = snapshot
        _make_room(self._snapshots, run_id, self._maximum_runs)

    def load_snapshot(self, run_id: str) -> Snapshot | None:
        """Return the latest snapshot."""
        return self._snapshots.get(run_id)

    def load_events(self, run_id: str, after: int = 0) -> list[tuple[int, Event]]:
        """Return the events of a run whose number is greater than ``after``."""
        return list(enumerate(self._events.get(run_id, ()), start=1))[after:]

    def unfinished_run(self, chat_id: str, owner: str = "") -> str | None:
        """Return the latest run of a chat if it can be resumed."""
        of_chat = [
            (snapshot.get("startedAt", 0), run_id)
            for run_id, snapshot in self._snapshots.items()
            if (snapshot.get("input", {}).get("chatId"), snapshot.get("owner")) == (chat_id, owner)
        ]
        latest = max(of_chat, default=(0, ""))[1]
        return latest if latest and is_unfinished(self._snapshots[latest]) else None

    def save_session(self, session_id: str, session: Session) -> None:
        """Store a session."""
        self._sessions[session_id] = session
        _make_room(self._sessions, session_id, self._maximum_sessions)

    def load_session(self, session_id: str) -> Session | None:
        """Return a session."""
        return self._sessions.get(session_id)

    def flush(self) -> None:
        """Return at once: memory needs no flush."""


def is_running(snapshot: Snapshot) -> bool:
    """Return whether a process is running a run: it has not ended, and its process lives."""
    return snapshot.get("status") == "running" and is_alive(str(snapshot.get("process", "")))


def is_unfinished(snapshot: Snapshot) -> bool:
    """Return whether a run can be resumed: it is paused, or its process ended before it did."""
    status = snapshot.get("status")
    return status == "paused" or (status == "running" and not is_running(snapshot))


def _make_room(entries: OrderedDict[str, Any], latest: str, maximum: int) -> None:
    entries.move_to_end(latest)
    while len(entries) > maximum:
        entries.popitem(last=False)
