"""Ended runs: what they said stays readable for a while, for clients whose connection was cut just before the end.

It is kept in the compact form (:mod:`usechat.runs.replay`), of all runs of a process together at most a fixed number of
bytes: the oldest go first. Where a store shares runs among workers it keeps them, and nothing is kept here.
"""

import asyncio
import contextvars
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from usechat.protocol.values import json_text
from usechat.runs.replay import Replay

__all__ = ["LONGEST", "EndedRun", "EndedRuns"]

LONGEST: Final = 60.0
"""Seconds that an ended run is kept."""
_BYTES: Final = 64 * 1024 * 1024
_OBJECTS: Final = 2048
"""Bytes that a run takes besides its frames."""


class EndedRun(NamedTuple):
    """A run that has ended: the name of its log and its chat, its frames, and the message that it continued."""

    log: str
    chat_id: str
    replay: Replay
    continued: Mapping[str, Any] | None

    @property
    def size(self) -> int:
        """How many bytes it takes, nearly."""
        return _OBJECTS + self.replay.size + (0 if self.continued is None else len(json_text(self.continued)))


class EndedRuns:
    """Keeps ended runs for ``seconds``, of at most ``maximum_bytes`` together."""

    def __init__(self, *, seconds: float = LONGEST, maximum_bytes: int = _BYTES) -> None:
        self._seconds = seconds
        self._maximum_bytes = maximum_bytes
        self._size = 0
        self._runs: dict[str, tuple[EndedRun, int]] = {}

    def add(self, run: EndedRun) -> None:
        """Keep a run, and drop the oldest ones that there is no room for."""
        self._drop(run.log)
        size = run.size
        self._runs[run.log] = run, size
        self._size += size
        while self._size > self._maximum_bytes:
            self._drop(next(iter(self._runs)))
        # In an empty context: that of the run would keep its objects alive until then.
        asyncio.get_running_loop().call_later(self._seconds, self._drop, run.log, context=contextvars.Context())

    def find(self, log: str, chat_id: str) -> EndedRun | None:
        """Return a run of this chat."""
        run, _ = self._runs.get(log, (None, 0))
        return run if run is not None and run.chat_id == chat_id else None

    def forget(self, chat_id: str) -> None:
        """Drop the runs of a chat."""
        for log in [log for log, (run, _) in self._runs.items() if run.chat_id == chat_id]:
            self._drop(log)

    def _drop(self, log: str) -> None:
        _, size = self._runs.pop(log, (None, 0))
        self._size -= size
