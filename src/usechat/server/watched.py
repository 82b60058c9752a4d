"""Files that are read again when they have changed."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, TypeVar

from usechat.errors import UsechatError

__all__ = ["UnusableFile", "WatchedFile"]

Content = TypeVar("Content")

_SETTLED: Final = 2_000_000_000
"""Nanoseconds after which a second change cannot bear the same time as the first, even where time is kept coarsely."""


class UnusableFile(UsechatError):
    """A file cannot be read, or does not hold what it should; the text names it."""


class WatchedFile(Generic[Content]):
    """What a file holds. ``parse`` raises ``ValueError`` for what it cannot accept."""

    def __init__(self, path: str | os.PathLike[str], parse: Callable[[bytes], Content]) -> None:
        self._path = Path(path)
        self._parse = parse
        self._stamp: tuple[int, ...] | None = None
        self._read: bytes | None = None
        self.read()

    def read(self) -> Content:
        """Return what the file holds now. A broken file never leaves the former content in force."""
        try:
            stamp, changed = self._look()
            if stamp != self._stamp:
                self._take(self._path.read_bytes())
                self._stamp = stamp if time.time_ns() - changed > _SETTLED else None
        except OSError as error:
            raise UnusableFile(f"{self._path} cannot be read: {error.strerror or error}") from None
        except ValueError as error:
            raise UnusableFile(f"{self._path}: {error}") from None
        return self._content

    def _take(self, read: bytes) -> None:
        if read != self._read:
            self._content = self._parse(read)
            self._read = read

    def _look(self) -> tuple[tuple[int, ...], int]:
        """Return what tells two states of the file apart, and when it was changed."""
        stat = self._path.stat()
        return (stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns), max(stat.st_mtime_ns, stat.st_ctime_ns)
