"""Where runs are kept: their events, their snapshots, and what agents remember."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, Protocol, TypeAlias

from usechat.open_harness.runtime_protocol import Event, Snapshot

__all__ = ["FlowRunStore", "MemoryRunStore", "Session"]

Session: TypeAlias = Mapping[str, Any]
"""What an agent remembers, as plain JSON values."""

_SESSIONS: Final = 10_000


class FlowRunStore(Protocol):
    """Keeps runs. Writing returns at once; loading and ``flush`` may wait for a disk, so they are called in threads."""

    def append_event(self, run_id: str, event: Event) -> None:
        """Keep an event behind those of the same run; they are numbered from one."""
        ...

    def save_snapshot(self, run_id: str, snapshot: Snapshot) -> None:
        """Keep how a run stands."""
        ...

    def load_snapshot(self, run_id: str) -> Snapshot | None:
        """Return how a run stood when it was last kept."""
        ...

    def load_events(self, run_id: str, after: int = 0) -> list[tuple[int, Event]]:
        """Return the events of a run behind the one with the number ``after``, each with its number."""
        ...

    def paused_run(self, chat_id: str, owner: str = "") -> str | None:
        """Return the latest run of a chat if it is paused: that chat's next message may resume it."""
        ...

    def save_session(self, session_id: str, session: Session) -> None:
        """Keep what an agent remembers."""
        ...

    def load_session(self, session_id: str) -> Session | None:
        """Return what an agent remembers."""
        ...

    def flush(self) -> None:
        """Return when all that was written is kept."""
        ...


class MemoryRunStore:
    """Keeps the latest runs and sessions of this process; those used longest ago give way."""

    def __init__(self, *, maximum_runs: int = 100, maximum_sessions: int = _SESSIONS) -> None:
        self._maximum_runs = maximum_runs
        self._maximum_sessions = maximum_sessions
        self._events: OrderedDict[str, list[Event]] = OrderedDict()
        self._snapshots: OrderedDict[str, Snapshot] = OrderedDict()
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def append_event(self, run_id: str, event: Event) -> None:
        """Keep an event."""
        if self._maximum_runs:
            self._events.setdefault(run_id, []).append(event)
            _make_room(self._events, run_id, self._maximum_runs)

    def save_snapshot(self, run_id: str, snapshot: Snapshot) -> None:
        """Keep a snapshot instead of the one before."""
        self._snapshots[run_id] = snapshot
        _make_room(self._snapshots, run_id, self._maximum_runs)

    def load_snapshot(self, run_id: str) -> Snapshot | None:
        """Return the latest snapshot."""
        return self._snapshots.get(run_id)

    def load_events(self, run_id: str, after: int = 0) -> list[tuple[int, Event]]:
        """Return the events of a run."""
        return list(enumerate(self._events.get(run_id, ()), start=1))[after:]

    def paused_run(self, chat_id: str, owner: str = "") -> str | None:
        """Return the latest run of a chat if it is paused."""
        for run_id, snapshot in reversed(self._snapshots.items()):
            if (snapshot.get("input", {}).get("chatId"), snapshot.get("owner")) == (chat_id, owner):
                return run_id if snapshot.get("status") == "paused" else None
        return None

    def save_session(self, session_id: str, session: Session) -> None:
        """Keep a session."""
        self._sessions[session_id] = session
        _make_room(self._sessions, session_id, self._maximum_sessions)

    def load_session(self, session_id: str) -> Session | None:
        """Return a session."""
        return self._sessions.get(session_id)

    def flush(self) -> None:
        """Return: memory keeps at once."""


def _make_room(kept: OrderedDict[str, Any], latest: str, maximum: int) -> None:
    kept.move_to_end(latest)
    while len(kept) > maximum:
        kept.popitem(last=False)
