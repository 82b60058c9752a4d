"""Run stores that write many records at a time, in a background thread."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Collection
from types import TracebackType
from typing import Any, Final, Literal, NamedTuple, Self, TypeAlias

from usechat.open_harness.engine.store import Session, is_running, is_unfinished
from usechat.open_harness.errors import StoreClosed
from usechat.open_harness.runtime_protocol import Command, Event, Snapshot
from usechat.values import decode_json, encode_json, json_value

__all__ = ["BatchedRunStore", "Kind", "Record"]

Kind: TypeAlias = Literal["event", "snapshot", "session", "command"]

_GATHER: Final = 0.02
"""How many seconds to gather writes, so that a stream of events takes few transactions."""


class Record(NamedTuple):
    """What one write stores: ``name`` is the id of the run or of the session, ``text`` is JSON."""

    kind: Kind
    name: str
    text: str


class BatchedRunStore(ABC):
    """A run store in a database. A thread writes many records at a time; ``close`` writes the rest and ends it.

    The methods may be called from any thread. Writing after ``close`` raises
    :class:`~usechat.open_harness.errors.StoreClosed`. Subclasses write a batch, and read.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[Record] = []
        self._added_count = 0
        self._written_count = 0
        self._is_urgent = False
        self._is_closed = False
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._write, name="usechat-runs", daemon=True)
        self._thread.start()

    @abstractmethod
    def _write_batch(self, batch: list[Record]) -> None:
        """Write records in one transaction, in their order."""

    @abstractmethod
    def _read_snapshot(self, run_id: str) -> str | None:
        """Return the latest snapshot of a run as JSON."""

    @abstractmethod
    def _read_latest(self, chat_id: str, owner: str) -> tuple[str, str] | None:
        """Return the id and the latest snapshot of the run of a chat that started last."""

    @abstractmethod
    def _read_events(self, run_id: str, after: int) -> list[tuple[int, str]]:
        """Return the events of a run that follow a number, each with its number."""

    @abstractmethod
    def _read_session(self, session_id: str) -> str | None:
        """Return an agent's session as JSON."""

    @abstractmethod
    def _take_commands(self, run_ids: list[str]) -> list[tuple[str, str]]:
        """Remove and return the commands for these runs, each with the id of its run."""

    @abstractmethod
    def _disconnect(self) -> None:
        """Close the database; everything is written."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def append_event(self, run_id: str, event: Event) -> None:
        """Append an event; it is written soon."""
        self._add("event", run_id, event)

    def save_snapshot(self, run_id: str, snapshot: Snapshot) -> None:
        """Store a snapshot; it is written soon."""
        self._add("snapshot", run_id, snapshot)

    def save_session(self, session_id: str, session: Session) -> None:
        """Store a session; it is written soon."""
        self._add("session", session_id, session)

    def load_snapshot(self, run_id: str) -> Snapshot | None:
        """Return the latest snapshot."""
        self.flush()
        text = self._read_snapshot(run_id)
        return None if text is None else decode_json(text.encode())

    def load_events(self, run_id: str, after: int = 0) -> list[tuple[int, Event]]:
        """Return the events of a run whose number is greater than ``after``."""
        self.flush()
        return [(number, decode_json(text.encode())) for number, text in self._read_events(run_id, after)]

    def unfinished_run(self, chat_id: str, owner: str = "") -> str | None:
        """Return the latest run of a chat if it can be resumed."""
        self.flush()
        latest = self._read_latest(chat_id, owner)
        return latest[0] if latest is not None and is_unfinished(decode_json(latest[1].encode())) else None

    def running_run(self, chat_id: str, owner: str = "") -> str | None:
        """Return the latest run of a chat if a process is running it."""
        self.flush()
        latest = self._read_latest(chat_id, owner)
        return latest[0] if latest is not None and is_running(decode_json(latest[1].encode())) else None

    def send_command(self, run_id: str, command: Command) -> None:
        """Store a command; it is written soon."""
        self._add("command", run_id, command)

    def take_commands(self, run_ids: Collection[str]) -> list[tuple[str, Command]]:
        """Remove and return the commands for these runs."""
        return [(run_id, decode_json(text.encode())) for run_id, text in self._take_commands(list(run_ids))]

    def load_session(self, session_id: str) -> Session | None:
        """Return a session."""
        self.flush()
        text = self._read_session(session_id)
        return None if text is None else decode_json(text.encode())

    def flush(self) -> None:
        """Wait until everything written so far is stored; raise the error of a write that failed."""
        with self._changed:
            # Do not wait for writes that other threads add from now on.
            so_far = self._added_count
            self._is_urgent = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._written_count >= so_far)
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure

    def close(self) -> None:
        """Write what is left and close the database."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join()
        self._disconnect()

    def _add(self, kind: Kind, name: str, value: Any) -> None:
        # Encoded now: the caller may change the value before the thread writes it.
        text = encode_json(json_value(value)).decode()
        with self._changed:
            if self._is_closed:
                raise StoreClosed("the run store is closed")
            self._waiting.append(Record(kind, name, text))
            self._added_count += 1
            self._changed.notify_all()

    def _write(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_closed)
                if not self._waiting:
                    return
                self._changed.wait_for(lambda: self._is_urgent or self._is_closed, timeout=_GATHER)
                batch, self._waiting = self._waiting, []
                self._is_urgent = False
            failure: Exception | None = None
            try:
                self._write_batch(batch)
            except Exception as error:  # the thread must live on: flush() waits for it
                failure = error
            with self._changed:
                self._written_count += len(batch)
                self._failure = failure or self._failure
                self._changed.notify_all()
