"""API tokens in a file of digests, which is read again when it has changed."""

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
"""Nanoseconds after which a second change has another timestamp than the first, even with coarse timestamps."""


class WatchedFile(Generic[Content]):
    """The content of a file, read again when it has changed. ``parse`` raises ``ValueError`` for bad content.

    Raises :class:`~usechat.errors.UnusableFile` if the file cannot be read, or is bad from the start.

    >>> from pathlib import Path
    >>> _ = Path("limit.txt").write_text("30")
    >>> WatchedFile("limit.txt", int).read()
    30
    """

    def __init__(self, path: str | os.PathLike[str], parse: Callable[[bytes], Content]) -> None:
        self._path = Path(path)
        self._parse = parse
        self._stamp: tuple[int, ...] | None = None
        self._read: bytes | None = None
        self.read()

    def read(self) -> Content:
        """Return the current content. Raises ``UnusableFile`` if it is broken: earlier content is not used then."""
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
        """Return a stamp that differs between two states of the file, and when it was changed."""
        stat = self._path.stat()
        return (stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns), max(stat.st_mtime_ns, stat.st_ctime_ns)


_LINE: Final = re.compile(r"(?P<name>[^\s#:][^\r\n]*):(?P<digest>[0-9a-f]{64})")


class ApiTokens:
    """Recognises the tokens of a file that holds only their SHA-256, one ``name:sha256`` per line.

    The name is the identity's subject. Removing a line revokes its token at once. Two lines of one name are two
    tokens of one subject. Empty lines and lines that begin with ``#`` are skipped. Make lines with
    :func:`new_api_token`.

    Raises :class:`~usechat.errors.UnusableFile` if the file cannot be read. If it breaks later, requests get 503.

    >>> from pathlib import Path
    >>> token, line = new_api_token("nightly")
    >>> _ = Path("tokens.txt").write_text(line)
    >>> ApiTokens("tokens.txt").identify(token)
    Identity('nightly')
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = WatchedFile(path, _parse)

    def identify(self, token: str) -> Identity | None:
        """Return whose token it is; ``None`` if it is not in the file."""
        digest = _digest(token)
        name: str | None = None
        for line_digest, owner in self._file.read():  # to the end, so that the time it takes reveals nothing
            if hmac.compare_digest(digest, line_digest):
                name = owner
        return None if name is None else Identity(name, token=token)


def new_api_token(name: str) -> tuple[str, str]:
    """Return a new token, which is for its owner alone, and the line for the file of :class:`ApiTokens`.

    Raises :class:`~usechat.errors.InvalidSetting` if the name cannot be in the file.

    >>> token, line = new_api_token("nightly")
    >>> line.startswith("nightly:"), token in line
    (True, False)
    """
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
