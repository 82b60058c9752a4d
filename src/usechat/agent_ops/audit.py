"""The audit log: who prompted, approved, granted and revoked, as one JSON object per line.

Each line is appended by one write, so that all workers and ``usechat sessions`` can use one file, and the file is
opened again for each line, so that it can be rotated. What people say is not in it.
"""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from usechat.errors import UnusableFile

__all__ = ["AuditLog"]

_MODE: Final = 0o600


class AuditLog:
    """Appends entries to a file. Raises :class:`~usechat.errors.UnusableFile` if that is not possible.

    An entry has ``time`` (ISO 8601, UTC), ``event``, ``subject`` (who did it) and what the event is about.

    >>> from pathlib import Path
    >>> import msgspec
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     log = AuditLog(Path(directory, "audit.jsonl"))
    ...     log.append("prompt", "alice", session="s1")
    ...     entry = msgspec.json.decode(Path(directory, "audit.jsonl").read_bytes())
    >>> entry["event"], entry["subject"], entry["session"]
    ('prompt', 'alice', 's1')
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._write(b"")

    def append(self, event: str, subject: str, **about: Any) -> None:
        """Append one entry; keys without a value are left out."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        details = {key: value for key, value in about.items() if value is not None}
        self._write(msgspec.json.encode({"time": now, "event": event, "subject": subject, **details}) + b"\n")

    def _write(self, line: bytes) -> None:
        try:
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, _MODE)
            try:
                size = os.write(file, line)
            finally:
                os.close(file)
        except OSError as error:
            raise UnusableFile(f"the audit log {self._path} cannot be written: {error.strerror}") from None
        if size != len(line):
            raise UnusableFile(f"the audit log {self._path} cannot be written: the disk is full")
