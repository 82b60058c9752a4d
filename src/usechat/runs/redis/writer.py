"""The one task of a worker that writes frames to Redis, for all of its runs.

What all runs append within a few milliseconds is written together: one script call appends one entry per run, so that
the cost of a command, of its reply and of waking up is shared. Runs and their readers in this worker never wait for a
write. Entries are numbered by the owner, so that a write can be repeated after a failure: Redis refuses an entry that
has arrived. A refusal because the log is gone or sealed means that the run was lost.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from redis.exceptions import RedisError, ResponseError

from usechat.runs.redis.scripts import APPEND
from usechat.runs.run import RunInfo

if TYPE_CHECKING:
    from usechat.runs.redis.client import RedisClient
    from usechat.runs.redis.health import RedisHealth

__all__ = ["GATHER_BRIEFLY", "OwnedRun", "Writer"]

_GATHER: Final = 0.01
"""Seconds from the start of one write to the next: what is appended in between is written together."""
GATHER_BRIEFLY: Final = 0.003
"""The same of an agent process, whose readers are in other processes and wait for each write."""
_RETRY_DELAY: Final = 0.1
_ALREADY_WRITTEN: Final = "equal or smaller"
_SEALED: Final = "exhausted"

Command: TypeAlias = tuple[Any, ...]


class OwnedRun:
    """A run of this worker: its unwritten frames and its lease."""

    __slots__ = (
        "_number",
        "_pieces",
        "began",
        "completion",
        "info",
        "is_scheduled",
        "last",
        "lease",
        "log",
        "log_key",
        "renewed",
        "size",
        "tag",
    )

    def __init__(self, info: RunInfo, log: str, tag: str, renewed: float, *, lease: float) -> None:
        self.info = info
        self.log = log
        self.log_key = log.encode()
        self.lease = lease
        """Seconds after a renewal at which others declare the run lost."""
        self.tag = tag
        """The hash tag of its keys."""
        self.began = renewed
        self.renewed = renewed
        """When the lease was last renewed, by this process's clock."""
        self.size = 0
        self.completion: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """Whether the end was written; set when that is known."""
        self.last: Command | None = None
        """The command that ends the run, to be sent after all frames; the number of the last entry is added to it."""
        self.is_scheduled = False
        """Whether the next write includes it."""
        self._pieces: list[bytes] = []
        self._number = 0

    def add(self, frames: bytes) -> None:
        """Add frames to the next write."""
        self._pieces.append(frames)
        self.size += len(frames)

    def take(self) -> "Write":
        """Return what is unwritten: one entry with all frames, and the end."""
        self.is_scheduled = False
        number, frames = 0, b""
        if self._pieces:
            self._number = number = self._number + 1
            frames = b"".join(self._pieces)
            self._pieces.clear()
        return Write(self, number, frames, None if self.last is None else (*self.last, self._number))


class Write(msgspec.Struct, frozen=True):
    """What has to be written of one run: an entry, unless its number is 0, and the command that ends the run."""

    run: OwnedRun
    number: int
    frames: bytes
    end: Command | None


class Writer:
    """Writes for all runs of a worker, in order and each entry once. Only the end of a run waits for it."""

    def __init__(self, client: "RedisClient", health: "RedisHealth", *, on_lost: Callable[[OwnedRun], None]) -> None:
        self._client = client
        self._health = health
        self._on_lost = on_lost
        self.gather = _GATHER
        """Seconds from the start of one write to the next."""
        self._waiting: list[OwnedRun] = []
        self._filled = asyncio.Event()

    def schedule(self, run: OwnedRun) -> None:
        """Include a run in the next write."""
        if not run.is_scheduled:
            run.is_scheduled = True
            self._waiting.append(run)
            if len(self._waiting) == 1:
                self._filled.set()

    async def work(self) -> None:
        """Write until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await self._filled.wait()
            begin = loop.time()
            self._filled.clear()
            waiting, self._waiting = self._waiting, []
            writes = [run.take() for run in waiting if not run.completion.done()]
            while writes:
                again = await self._write(writes)
                await asyncio.sleep(_RETRY_DELAY if again else max(0, begin + self.gather - loop.time()))
                writes = [write for write in again if not write.run.completion.done()]

    async def _write(self, writes: list[Write]) -> list[Write]:
        """Write for several runs; return what has to be repeated."""
        groups = list(self._client.batches((write for write in writes if write.number), _tag))
        ends = [write for write in writes if write.end is not None]
        commands = [*map(_append, groups), *(write.end for write in ends if write.end is not None)]
        try:
            replies = await self._client.pipeline(commands)
        except (RedisError, OSError) as error:
            self._health.failed(error)
            return writes
        appended = zip(groups, replies[: len(groups)], strict=True)
        unwritten = {write.run.log: write for group, reply in appended for write in self._refused(group, reply)}
        again = [
            write if write.run.log in unwritten else Write(write.run, 0, b"", write.end)
            for write, reply in zip(ends, replies[len(groups) :], strict=True)
            if not self._has_ended(write.run, reply)
        ]
        ended = {write.run.log for write in ends}
        return [*(write for log, write in unwritten.items() if log not in ended), *again]

    def _refused(self, group: list[Write], reply: object) -> list[Write]:
        """Return the writes whose entries have to be written again."""
        if isinstance(reply, Exception):
            self._health.failed(reply)
            return group
        assert isinstance(reply, list)
        again = []
        for number, text in reply:
            write, error = group[number - 1], text.decode()
            if not error or _SEALED in error:
                self._on_lost(write.run)  # its log is gone, or another worker has ended it
            elif _ALREADY_WRITTEN not in error:
                self._health.failed(ResponseError(error))
                again.append(write)
        return again

    def _has_ended(self, run: OwnedRun, reply: object) -> bool:
        if isinstance(reply, Exception):
            self._health.failed(reply)
            return False
        if reply != b"ended":
            self._on_lost(run)
        elif not run.completion.done():
            run.completion.set_result(True)
        return True


def _append(group: list[Write]) -> Command:
    frames = b"".join([write.frames for write in group])
    numbers = " ".join([f"{write.number} {len(write.frames)}" for write in group])
    return ("EVAL", APPEND, len(group), *[write.run.log_key for write in group], frames, numbers)


def _tag(write: Write) -> str:
    return write.run.tag
