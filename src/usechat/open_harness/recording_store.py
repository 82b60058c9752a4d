"""Where recordings are kept: as files, to be looked at and committed, or in SQLite."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import quote

__all__ = ["FileRecordings", "RecordingStore", "SqliteRecordings"]

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS recordings(id TEXT PRIMARY KEY, recording TEXT NOT NULL, created_at INTEGER NOT NULL)
"""


class RecordingStore(Protocol):
    """Keeps the JSON texts of recordings by id. Both may wait for a disk; they are called in threads."""

    def save(self, recording_id: str, text: str) -> None:
        """Keep a recording instead of the one before."""
        ...

    def load(self, recording_id: str) -> str | None:
        """Return a recording, or nothing."""
        ...


class FileRecordings:
    """A JSON file per recording, in one folder."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)

    def save(self, recording_id: str, text: str) -> None:
        """Write the file of a recording."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._path(recording_id).write_text(text + "\n", encoding="utf-8")

    def load(self, recording_id: str) -> str | None:
        """Read the file of a recording."""
        path = self._path(recording_id)
        return path.read_text(encoding="utf-8") if path.exists() else None

    def _path(self, recording_id: str) -> Path:
        # The id begins with that of a node, which may be any text.
        return self._folder / f"{quote(recording_id, safe=' ')}.json"


class SqliteRecordings:
    """Recordings in an SQLite file, which may be that of the runs."""

    def __init__(self, path: str | Path) -> None:
        self._path = path
        with closing(self._open()) as connection, connection:
            connection.execute(_SCHEMA)

    def save(self, recording_id: str, text: str) -> None:
        """Write a recording."""
        row = (recording_id, text, int(time.time() * 1000))
        with closing(self._open()) as connection, connection:
            connection.execute("INSERT OR REPLACE INTO recordings VALUES (?, ?, ?)", row)

    def load(self, recording_id: str) -> str | None:
        """Read a recording."""
        with closing(self._open()) as connection:
            found = connection.execute("SELECT recording FROM recordings WHERE id = ?", (recording_id,)).fetchone()
        return None if found is None else str(found[0])

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=10)
