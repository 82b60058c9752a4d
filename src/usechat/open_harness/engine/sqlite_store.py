"""A run store in an SQLite file: a paused flow can be resumed after a restart."""

import sqlite3
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import msgspec

from usechat.errors import StoreClosed
from usechat.open_harness.engine.store import Session, is_unfinished
from usechat.open_harness.runtime_protocol import Event, Snapshot
from usechat.protocol.values import json_value

__all__ = ["SqliteRunStore"]

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS run_events(
    run_id TEXT NOT NULL, seq INTEGER NOT NULL, event TEXT NOT NULL, created_at INTEGER NOT NULL,
    PRIMARY KEY (run_id, seq)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS run_snapshots(
    run_id TEXT NOT NULL, seq INTEGER NOT NULL, snapshot TEXT NOT NULL, created_at INTEGER NOT NULL,
    PRIMARY KEY (run_id, seq)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS run_snapshots_by_chat
    ON run_snapshots(json_extract(snapshot, '$.input.chatId'), json_extract(snapshot, '$.owner'), created_at);
CREATE TABLE IF NOT EXISTS agent_sessions(
    session_id TEXT PRIMARY KEY, session TEXT NOT NULL, updated_at INTEGER NOT NULL
) WITHOUT ROWID;
"""
# Both tables number their rows per run, from one, as the run store of Open Harness does.
_APPEND: Final = """
INSERT INTO {table}(run_id, seq, {column}, created_at)
SELECT :name, COALESCE(MAX(seq), 0) + 1, :text, :now FROM {table} WHERE run_id = :name
"""
_ADD_EVENT: Final = _APPEND.format(table="run_events", column="event")
_ADD_SNAPSHOT: Final = _APPEND.format(table="run_snapshots", column="snapshot")
_PUT_SESSION: Final = "INSERT OR REPLACE INTO agent_sessions VALUES (:name, :text, :now)"
_GET_SNAPSHOT: Final = "SELECT snapshot FROM run_snapshots WHERE run_id = ? ORDER BY seq DESC LIMIT 1"
_GET_LATEST: Final = """
SELECT run_id, snapshot FROM run_snapshots
WHERE json_extract(snapshot, '$.input.chatId') = ? AND json_extract(snapshot, '$.owner') = ?
ORDER BY json_extract(snapshot, '$.startedAt') DESC, created_at DESC, seq DESC LIMIT 1
"""
_GET_EVENTS: Final = "SELECT seq, event FROM run_events WHERE run_id = ? AND seq > ? ORDER BY seq"
_GET_SESSION: Final = "SELECT session FROM agent_sessions WHERE session_id = ?"

_GATHER: Final = 0.02
"""How many seconds to gather writes, so that a stream of events takes few transactions."""


class SqliteRunStore:
    """Stores flow runs in an SQLite file. A thread writes many events at a time; ``close`` writes the rest and ends it.

    The methods may be called from any thread. Writing after ``close`` raises :class:`~usechat.errors.StoreClosed`.

    >>> with SqliteRunStore(":memory:") as store:
    ...     store.save_snapshot("run-1", {"status": "paused", "input": {"chatId": "c1"}, "owner": ""})
    ...     store.unfinished_run("c1")
    'run-1'
    """

    def __init__(self, path: str | Path) -> None:
        self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=NORMAL")
        self._connection.executescript(_SCHEMA)
        self._using = threading.Lock()
        self._changed = threading.Condition()
        self._waiting: list[tuple[str, str, Any]] = []
        self._added = 0
        self._written = 0
        self._is_urgent = False
        self._is_closed = False
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._write, name="usechat-runs", daemon=True)
        self._thread.start()

    def __enter__(self) -> "SqliteRunStore":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def append_event(self, run_id: str, event: Event) -> None:
        """Append an event; it is written soon."""
        self._add(_ADD_EVENT, run_id, event)

    def save_snapshot(self, run_id: str, snapshot: Snapshot) -> None:
        """Store a snapshot; it is written soon."""
        self._add(_ADD_SNAPSHOT, run_id, snapshot)

    def save_session(self, session_id: str, session: Session) -> None:
        """Store a session; it is written soon."""
        self._add(_PUT_SESSION, session_id, session)

    def load_snapshot(self, run_id: str) -> Snapshot | None:
        """Return the latest snapshot."""
        rows = self._read(_GET_SNAPSHOT, run_id)
        return msgspec.json.decode(rows[0][0]) if rows else None

    def load_events(self, run_id: str, after: int = 0) -> list[tuple[int, Event]]:
        """Return the events of a run."""
        return [(number, msgspec.json.decode(event)) for number, event in self._read(_GET_EVENTS, run_id, after)]

    def unfinished_run(self, chat_id: str, owner: str = "") -> str | None:
        """Return the latest run of a chat if it can be resumed."""
        rows = self._read(_GET_LATEST, chat_id, owner)
        return rows[0][0] if rows and is_unfinished(msgspec.json.decode(rows[0][1])) else None

    def load_session(self, session_id: str) -> Session | None:
        """Return a session."""
        rows = self._read(_GET_SESSION, session_id)
        return msgspec.json.decode(rows[0][0]) if rows else None

    def flush(self) -> None:
        """Wait until everything written so far is in the file; raise the error of a write that failed."""
        with self._changed:
            # Writes that other threads add from now on are not waited for.
            so_far = self._added
            self._is_urgent = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._written >= so_far)
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure

    def close(self) -> None:
        """Write what is left and close the file."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join()
        with self._using:
            self._connection.close()

    def _add(self, statement: str, name: str, value: Any) -> None:
        # Encoded now: the caller may change the value before the thread writes it.
        text = msgspec.json.encode(json_value(value)).decode()
        with self._changed:
            if self._is_closed:
                raise StoreClosed("the run store is closed")
            self._waiting.append((statement, name, text))
            self._added += 1
            self._changed.notify_all()

    def _read(self, statement: str, *arguments: Any) -> list[tuple[Any, ...]]:
        self.flush()
        with self._using:
            return self._connection.execute(statement, arguments).fetchall()

    def _write(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_closed)
                if not self._waiting:
                    return
                self._changed.wait_for(lambda: self._is_urgent or self._is_closed, timeout=_GATHER)
                batch, self._waiting = self._waiting, []
                self._is_urgent = False
            failure = self._write_batch(batch)
            with self._changed:
                self._written += len(batch)
                self._failure = failure or self._failure
                self._changed.notify_all()

    def _write_batch(self, batch: list[tuple[str, str, Any]]) -> Exception | None:
        now = int(time.time() * 1000)
        try:
            with self._using:
                self._connection.execute("BEGIN IMMEDIATE")
                for statement, name, text in batch:
                    self._connection.execute(statement, {"name": name, "text": text, "now": now})
                self._connection.execute("COMMIT")
        except Exception as error:  # the thread must live on: flush() waits for it
            with self._using:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
            return error
        return None
