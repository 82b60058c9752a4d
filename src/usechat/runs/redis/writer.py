"""The one task of a worker that writes frames to Redis, for all of its runs.

While one pipeline is on its way, frames collect; the next pipeline has one XADD per run. Runs never wait for a write.
Entries are numbered by the owner, so that a pipeline can be repeated after a failure: Redis refuses an entry that has
arrived. A refusal because the log is gone or sealed means that the run was lost.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from redis.exceptions import RedisError, ResponseError

from usechat.runs.run import RunInfo

if TYPE_CHECKING:
    from usechat.runs.redis.client import RedisClient

__all__ = ["OwnedRun", "Writer"]

_RETRY_DELAY: Final = 0.1
_ALREADY_WRITTEN: Final = "equal or smaller"
_SEALED: Final = "exhausted"

Command: TypeAlias = tuple[Any, ...]


class OwnedRun:
    """A run of this worker: its unwritten frames and its lease."""

    def __init__(self, info: RunInfo, log: str, renewed: float) -> None:
        self.info = info
        self.log = log
        self.began = renewed
        self.renewed = renewed
        """When the lease was last renewed, by this process's clock."""
        self.size = 0
        self.written: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """Whether the end was written; set when that is known."""
        self.last: Command | None = None
        """The command that ends the run, to be sent after all frames; the number of the last entry is added to it."""
        self._pieces: list[bytes] = []
        self._number = 0

    def add(self, frames: bytes) -> None:
        """Add frames to the next write."""
        self._pieces.append(frames)
        self.size += len(frames)

    def take(self) -> list[Command]:
        """Return the commands that write what is unwritten: one entry with all frames, and the end."""
        commands: list[Command] = []
        if self._pieces:
            self._number += 1
            frames = b"".join(self._pieces)
            self._pieces.clear()
            commands.append(("XADD", self.log, "NOMKSTREAM", f"{self._number}-0", "frames", frames))
        if self.last is not None:
            commands.append((*self.last, self._number))
        return commands


class Writer:
    """Writes for all runs of a worker, in order and each entry once. Only the end of a run waits for it."""

    def __init__(self, client: "RedisClient", *, on_lost: Callable[[OwnedRun], None]) -> None:
        self._client = client
        self._on_lost = on_lost
        self._waiting: dict[str, OwnedRun] = {}
        self._filled = asyncio.Event()

    def schedule(self, run: OwnedRun) -> None:
        """Include a run in the next write."""
        self._waiting[run.log] = run
        self._filled.set()

    async def work(self) -> None:
        """Write until cancelled."""
        while True:
            await self._filled.wait()
            self._filled.clear()
            waiting, self._waiting = self._waiting, {}
            runs = [run for run in waiting.values() if not run.written.done()]
            await self._write([(run, command) for run in runs for command in run.take()])

    async def _write(self, commands: list[tuple[OwnedRun, Command]]) -> None:
        while commands:
            try:
                replies = await self._client.pipeline([command for _, command in commands])
            except (RedisError, OSError):
                await self._pause()
            else:
                refused = [
                    command
                    for command, reply in zip(commands, replies, strict=True)
                    if not self._is_settled(*command, reply)
                ]
                if refused:
                    await self._pause()
                commands = refused
            commands = [(run, command) for run, command in commands if not run.written.done()]

    def _is_settled(self, run: OwnedRun, command: Command, reply: object) -> bool:
        if isinstance(reply, ResponseError) and _ALREADY_WRITTEN in str(reply):
            return True
        if reply is None or (isinstance(reply, ResponseError) and _SEALED in str(reply)):
            self._on_lost(run)  # its log is gone, or another worker has ended it
            return True
        if isinstance(reply, Exception):
            return False
        if command[0] == "EVAL" and reply != b"ended":
            self._on_lost(run)
        elif command[0] == "EVAL" and not run.written.done():
            run.written.set_result(True)
        return True

    async def _pause(self) -> None:
        await asyncio.sleep(_RETRY_DELAY)
