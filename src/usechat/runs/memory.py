"""The run store of a single process, in memory."""

import asyncio
import contextvars
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

from usechat.pauses.states import MemoryStates
from usechat.runs.run import RunInfo, RunState

__all__ = ["MemoryRuns"]


class MemoryRuns(MemoryStates):
    """Keeps the last run of each chat in memory, for a service of one process. The default store.

    ``remember`` is how many seconds an ended run is known; after that a client's tool outputs and approvals are checked
    by their signatures alone. With more than one worker use :class:`~usechat.runs.redis.store.RedisRuns`: a worker
    knows nothing of the runs of another.

    >>> from usechat.server import ChatApp
    >>> chats = ChatApp(lambda turn: "Hello", runs=MemoryRuns(remember=60))
    """

    is_shared = False
    is_concurrent = False

    def __init__(self, *, remember: float = 600) -> None:
        super().__init__()
        self.remember = remember
        self._latest: dict[str, RunInfo] = {}
        self._ended: dict[str, asyncio.Event] = {}
        """Those of the runs whose end somebody waits for."""

    async def claim(
        self,
        info: RunInfo,
        *,
        continues: Mapping[str, Any] | None = None,  # noqa: ARG002
        after: str | None = None,
    ) -> RunInfo | None:
        """Make this the active run of its chat. Returns the last run instead, if it is running or is not ``after``.

        ``continues`` is for readers in other workers; there are none.
        """
        latest = self._latest.get(info.chat_id)
        if latest is not None and (latest.state is RunState.RUNNING or after not in (None, latest.run_id)):
            return latest
        self._latest[info.chat_id] = info
        return None

    def append(self, run_id: str, frames: bytes) -> None:
        """Do nothing: there are no other workers."""

    async def end(self, info: RunInfo) -> bool:
        """Record the end of a run."""
        if self._latest[info.chat_id].run_id == info.run_id:
            self._latest[info.chat_id] = info
            # In an empty context: that of the run would keep its objects alive until then.
            asyncio.get_running_loop().call_later(self.remember, self._forget, info, context=contextvars.Context())
        self._wake_waiters(info)
        return True

    async def latest(self, chat_id: str) -> RunInfo | None:
        """Return the chat's last run."""
        return self._latest.get(chat_id)

    async def continued(self, info: RunInfo) -> Mapping[str, Any] | None:  # noqa: ARG002
        """Return None: there are no other workers."""
        return None

    async def frames(self, info: RunInfo) -> bytes:  # noqa: ARG002
        """Return nothing: there are no other workers."""
        return b""

    async def read(self, info: RunInfo) -> AsyncGenerator[bytes, None]:  # noqa: ARG002
        """Yield nothing: there are no other workers."""
        nothing: tuple[bytes, ...] = ()
        for frames in nothing:
            yield frames

    async def is_read(self, info: RunInfo) -> bool:  # noqa: ARG002
        """Return False: there are no other workers."""
        return False

    async def request_stop(self, info: RunInfo, *, unless_read: bool = False) -> None:
        """Do nothing, also with ``unless_read``: there are no other workers."""

    async def wait_until_ended(self, info: RunInfo) -> None:
        """Wait until a run has ended; at once if it is not its chat's running run."""
        latest = self._latest.get(info.chat_id)
        if latest is not None and latest.run_id == info.run_id and latest.state is RunState.RUNNING:
            await self._ended.setdefault(info.run_id, asyncio.Event()).wait()

    def on_stop_requested(self, stop: Callable[[str, bool], None]) -> None:
        """Do nothing: no other worker can request a stop."""

    def on_failure(self, fail: Callable[[str, str], None]) -> None:
        """Do nothing: memory does not fail."""

    def on_lost(self, report: Callable[[RunInfo, float], None]) -> None:
        """Do nothing: a run and its store share one process."""

    async def check(self) -> None:
        """Do nothing: memory is always reachable."""

    async def close(self) -> None:
        """Do nothing: there are no connections."""

    def _wake_waiters(self, info: RunInfo) -> None:
        if ended := self._ended.pop(info.run_id, None):
            ended.set()

    def _forget(self, info: RunInfo) -> None:
        if self._latest.get(info.chat_id) is info:
            del self._latest[info.chat_id]
