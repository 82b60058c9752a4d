"""A run store in an SQLite file: a paused flow can be resumed after a restart."""

import sqlite3
import threading
import time
from pathlib import Path
from typing import Any, Final

from usechat.open_harness.engine.batched_store import BatchedRunStore, Kind, Record

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
CREATE TABLE IF NOT EXISTS run_commands(
    id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, command TEXT NOT NULL, created_at INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS run_commands_by_run ON run_commands(run_id);
"""
# Both tables number their rows per run, from one, as the run store of Open Harness does.
_APPEND: Final = """
INSERT INTO {table}(run_id, seq, {column}, created_at)
SELECT :name, COALESCE(MAX(seq), 0) + 1, :text, :now FROM {table} WHERE run_id = :name
"""
_WRITE: Final[dict[Kind, str]] = {
    "event": _APPEND.format(table="run_events", column="event"),
    "snapshot": _APPEND.format(table="run_snapshots", column="snapshot"),
    "session": "INSERT OR REPLACE INTO agent_sessions VALUES (:name, :text, :now)",
    "command": "INSERT INTO run_commands(run_id, command, created_at) VALUES (:name, :text, :now)",
}
_GET_SNAPSHOT: Final = "SELECT snapshot FROM run_snapshots WHERE run_id = ? ORDER BY seq DESC LIMIT 1"
_GET_LATEST: Final = """
SELECT run_id, snapshot FROM run_snapshots
WHERE json_extract(snapshot, '$.input.chatId') = ? AND json_extract(snapshot, '$.owner') = ?
ORDER BY json_extract(snapshot, '$.startedAt') DESC, created_at DESC, seq DESC LIMIT 1
"""
_GET_EVENTS: Final = "SELECT seq, event FROM run_events WHERE run_id = ? AND seq > ? ORDER BY seq"
_GET_COMMANDS: Final = "SELECT id, run_id, command FROM run_commands WHERE run_id IN ({}) ORDER BY id"
_GET_SESSION: Final = "SELECT session FROM agent_sessions WHERE session_id = ?"


class SqliteRunStore(BatchedRunStore):
    """Stores flow runs in an SQLite file.

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
        super().__init__()

    def _write_batch(self, batch: list[Record]) -> None:
        now = int(time.time() * 1000)
        with self._using:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                for kind, name, text in batch:
                    self._connection.execute(_WRITE[kind], {"name": name, "text": text, "now": now})
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def _read_snapshot(self, run_id: str) -> str | None:
        return next((row[0] for row in self._read(_GET_SNAPSHOT, run_id)), None)

    def _read_latest(self, chat_id: str, owner: str) -> tuple[str, str] | None:
        return next(((row[0], row[1]) for row in self._read(_GET_LATEST, chat_id, owner)), None)

    def _read_events(self, run_id: str, after: int) -> list[tuple[int, str]]:
        return [(row[0], row[1]) for row in self._read(_GET_EVENTS, run_id, after)]

    def _read_session(self, session_id: str) -> str | None:
        return next((row[0] for row in self._read(_GET_SESSION, session_id)), None)

    def _take_commands(self, run_ids: list[str]) -> list[tuple[str, str]]:
        rows = self._read(_GET_COMMANDS.format(", ".join("?" * len(run_ids))), *run_ids)
        if rows:  # only the process that runs a flow takes its commands
            with self._using:
                self._connection.executemany("DELETE FROM run_commands WHERE id = ?", [(row[0],) for row in rows])
        return [(row[1], row[2]) for row in rows]

    def _read(self, statement: str, *arguments: Any) -> list[tuple[Any, ...]]:
        with self._using:
            return self._connection.execute(statement, arguments).fetchall()

    def _disconnect(self) -> None:
        with self._using:
            self._connection.close()
