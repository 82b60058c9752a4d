"""Opaque API tokens: the server keeps only their SHA-256, one ``name:sha256`` per line of a file."""

import hashlib
import hmac
import os
import re
import secrets
from typing import Final

from usechat.server.watched import WatchedFile
from usechat.turn import Identity

__all__ = ["ApiTokens", "new_api_token"]

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
        raise ValueError(f"{name!r} cannot be the name of a token")
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
