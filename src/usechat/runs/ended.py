"""Ended runs: what they said stays readable for a while, for clients whose connection was cut just before the end.

It is kept in the compact form (:mod:`usechat.runs.replay`), of all runs of a process together at most a fixed number of
bytes: the oldest go first. Where a store shares runs among workers it keeps them, and nothing is kept here.
"""

import asyncio
import contextvars
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from usechat.runs.replay import Replay
from usechat.runs.run import RunInfo

__all__ = ["LONGEST", "EndedRun", "EndedRuns"]

LONGEST: Final = 60.0
"""Seconds that an ended run is kept."""
_BYTES: Final = 64 * 1024 * 1024
_OBJECTS: Final = 2048
"""Bytes that a run takes besides its frames."""


class EndedRun(NamedTuple):
    """A run that has ended: its frames, and the message that it continued."""

    info: RunInfo
    replay: Replay
    continued: Mapping[str, Any] | None


class EndedRuns:
    """Keeps ended runs for ``seconds``, of at most ``maximum_bytes`` together."""

    def __init__(self, *, seconds: float = LONGEST, maximum_bytes: int = _BYTES) -> None:
        self._seconds = seconds
        self._maximum_bytes = maximum_bytes
        self._size = 0
        self._runs: dict[str, EndedRun] = {}

    def add(self, run: EndedRun) -> None:
        """Keep a run, and drop the oldest ones that there is no room for."""
        run_id = run.info.run_id
        self._runs[run_id] = run
        self._size += _OBJECTS + run.replay.size
        while self._size > self._maximum_bytes:
            self._drop(next(iter(self._runs)))
        # In an empty context: that of the run would keep its objects alive until then.
        asyncio.get_running_loop().call_later(self._seconds, self._drop, run_id, context=contextvars.Context())

    def find(self, run_id: str, chat_id: str) -> EndedRun | None:
        """Return a run of this chat."""
        run = self._runs.get(run_id)
        return run if run is not None and run.info.chat_id == chat_id else None

    def forget(self, chat_id: str) -> None:
        """Drop the runs of a chat."""
        for run_id in [run_id for run_id, run in self._runs.items() if run.info.chat_id == chat_id]:
            self._drop(run_id)

    def _drop(self, run_id: str) -> None:
        if (run := self._runs.pop(run_id, None)) is not None:
            self._size -= _OBJECTS + run.replay.size
