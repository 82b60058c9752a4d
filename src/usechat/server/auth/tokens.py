"""Files that are read again when they have changed."""

import hashlib
import hmac
import os
import re
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, TypeVar

from usechat.errors import InvalidSetting, UnusableFile
from usechat.turn import Identity

__all__ = [
    "ApiTokens",
    "WatchedFile",
    "new_api_token",
]


Content = TypeVar("Content")

_SETTLED: Final = 2_000_000_000
"""Nanoseconds after which a second change cannot bear the same time as the first, even where time is kept coarsely."""


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


# -- Opaque API tokens: the server keeps only their SHA-256, one ``name:sha256`` per line of a file.

_LINE: Final = re.compile(r"(?P<name>[^\s#:][^\r\n]*):(?P<digest>[0-9a-f]{64})")


class ApiTokens:
    """Knows the tokens of a file; the name before the digest is the identity's subject.

    A line that is taken out revokes its token at once. Two lines of one name are two tokens of one subject. Empty
    lines and lines that begin with ``#`` are skipped.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = WatchedFile(path, _parse)

    def identify(self, token: str) -> Identity | None:
        """Return whose token it is, if it is one of the file's."""
        digest = _digest(token)
        name: str | None = None
        for known, owner in self._file.read():  # to the end, so that time does not tell which line matched
            if hmac.compare_digest(digest, known):
                name = owner
        return None if name is None else Identity(name, token=token)


def new_api_token(name: str) -> tuple[str, str]:
    """Make a token: the first text is for its owner alone, the second is the line for the server's file."""
    token = f"usechat-{secrets.token_urlsafe(32)}"
    line = f"{name}:{_digest(token).decode()}"
    if _LINE.fullmatch(line) is None:
        raise InvalidSetting(f"{name!r} cannot be the name of a token")
    return token, line


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).hexdigest().encode()


def _parse(content: bytes) -> list[tuple[bytes, str]]:
    entries = []
    for number, line in enumerate(content.decode().split("\n"), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        entry = _LINE.fullmatch(line.strip())
        if entry is None:
            raise ValueError(f"line {number} is not name:sha256")  # not the line itself: it may hold a token
        entries.append((entry["digest"].encode(), entry["name"]))
    return entries
