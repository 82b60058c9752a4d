"""Runs of a single process, kept in memory."""

import asyncio
import contextvars
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

from usechat.runs.run import RunInfo, RunState

__all__ = ["MemoryRuns"]


class MemoryRuns:
    """Knows the last run of each chat. ``remember`` is how many seconds an ended run is known."""

    is_shared = False
    is_concurrent = False

    def __init__(self, *, remember: float = 600) -> None:
        self._remember = remember
        self._latest: dict[str, RunInfo] = {}

    async def claim(
        self,
        info: RunInfo,
        *,
        continues: Mapping[str, Any] | None = None,  # noqa: ARG002
        after: str | None = None,
    ) -> RunInfo | None:
        """Make this the active run of its chat. Returns the last run instead, if it goes on or is not ``after``."""
        latest = self._latest.get(info.chat_id)
        if latest is not None and (latest.state is RunState.RUNNING or after not in (None, latest.run_id)):
            return latest
        self._latest[info.chat_id] = info
        return None

    def append(self, run_id: str, frames: bytes) -> None:
        """Nothing: there are no other workers."""

    async def end(self, info: RunInfo) -> bool:
        """The run has ended as ``info.state`` says."""
        if self._latest[info.chat_id].run_id == info.run_id:
            self._latest[info.chat_id] = info
            # In a context of its own: that of the run would keep all of it for as long.
            asyncio.get_running_loop().call_later(self._remember, self._forget, info, context=contextvars.Context())
        return True

    async def latest(self, chat_id: str) -> RunInfo | None:
        """Return the chat's last run."""
        return self._latest.get(chat_id)

    async def continued(self, info: RunInfo) -> Mapping[str, Any] | None:  # noqa: ARG002
        """Nothing: there are no runs of other workers."""
        return None

    async def read(self, info: RunInfo) -> AsyncGenerator[bytes, None]:  # noqa: ARG002
        """Yield nothing: there are no runs of other workers."""
        nothing: tuple[bytes, ...] = ()
        for frames in nothing:
            yield frames

    async def is_read(self, info: RunInfo) -> bool:  # noqa: ARG002
        """Never: there are no other workers."""
        return False

    async def order_stop(self, info: RunInfo, *, unless_read: bool = False) -> None:
        """Nothing: a run that is not here is nowhere."""

    def on_stop_ordered(self, stop: Callable[[str, bool], None]) -> None:
        """Nothing: nobody else can order a stop."""

    def on_failure(self, fail: Callable[[str, str], None]) -> None:
        """Nothing: memory does not fail."""

    def on_lost(self, tell: Callable[[RunInfo, float], None]) -> None:
        """Nothing: a run and its owner share one process."""

    async def check(self) -> None:
        """Memory can always be reached."""

    async def close(self) -> None:
        """Nothing to let go of."""

    def _forget(self, info: RunInfo) -> None:
        if self._latest.get(info.chat_id) is info:
            del self._latest[info.chat_id]
