"""The one blocking connection of a worker: it waits for requests to the worker, and for frames of the runs it follows.

One XREAD blocks on the worker's inbox and on the logs of all followed runs. It never blocks longer than until the next
lease should have been renewed; then the listener checks the leases of the owners. So nothing depends on being notified:
a lost reply or a broken connection only delays, and reading continues from the last position.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from redis.exceptions import RedisError

from usechat.runs.redis.scripts import FOLLOW, Keys
from usechat.runs.run import RunInfo, RunState

if TYPE_CHECKING:
    from usechat.runs.redis.client import RedisClient

__all__ = ["FollowedRun", "Listener"]

Entry: TypeAlias = tuple[bytes, dict[bytes, bytes]]

_logger: Final = logging.getLogger("usechat.runs")
_RETRY_DELAY: Final = 0.1
_OUTAGE_LEASES: Final = 3
"""After an outage of so many lease times, the runs that are followed count as lost."""


class FollowedRun:
    """A run of another worker that is read here."""

    def __init__(self, info: RunInfo, log: str) -> None:
        self.info = info
        self.log = log
        self.position = -1
        """The number of the entry that was read last."""
        self.check_at = 0.0
        """When to check the owner's lease; at once in the beginning."""
        self.received: asyncio.Queue[bytes | RunState] = asyncio.Queue()
        """Frames, and finally the state in which the run ended."""

    def receive(self, entries: list[Entry]) -> bool:
        """Take entries of the log; those that are known are skipped. Returns whether more may follow.

        A Redis server that fails over may forget confirmed writes: a log with a gap is a lost run.
        """
        pieces = []
        state = None
        for entry_id, fields in entries:
            number = int(entry_id.partition(b"-")[0])
            if b"end" in fields:
                complete = int(fields.get(b"last", self.position)) == self.position
                state = RunState(fields[b"end"].decode()) if complete else RunState.LOST
            elif number > self.position + 1:
                state = RunState.LOST
            elif number == self.position + 1:
                self.position = number
                pieces.append(fields.get(b"frames", b""))
        if pieces:
            self.received.put_nowait(b"".join(pieces))
        if state is not None:
            self.end(state)
        return state is None

    def end(self, state: RunState) -> None:
        """Let the reader end with ``state``, after all frames that were received."""
        self.received.put_nowait(state)


class Listener:
    """Blocks on many streams at once, and checks the leases of the runs it follows."""

    def __init__(
        self,
        client: "RedisClient",
        keys: Keys,
        *,
        worker: str,
        lease: float,
        remember: float,
        on_stop_requested: Callable[[str, bool], None],
        on_lost: Callable[[RunInfo, float], None],
    ) -> None:
        self._client = client
        self._keys = keys
        self._worker = worker
        self._lease = lease
        self._remember = remember
        self._on_stop_requested = on_stop_requested
        self._on_lost = on_lost
        self._followed: dict[str, list[FollowedRun]] = {}
        self._inbox = keys.inbox(worker)
        self._last_request = "0"
        self._reached = 0.0

    def follow(self, info: RunInfo) -> FollowedRun:
        """Read a run from its start, beginning with the next XREAD; an entry in the inbox ends the current one."""
        followed = FollowedRun(info, self._keys.log(info))
        self._followed.setdefault(followed.log, []).append(followed)
        return followed

    def unfollow(self, followed: FollowedRun) -> bool:
        """Stop reading a run. Returns whether it has no other reader in this worker."""
        others = [other for other in self._followed.pop(followed.log, ()) if other is not followed]
        if others:
            self._followed[followed.log] = others
        return not others

    async def work(self) -> None:
        """Listen until cancelled."""
        self._reached = _now()
        while True:
            try:
                await self._check_leases()
                await self._receive()
                self._reached = _now()
            except Exception as error:  # of any kind: readers must not wait for ever
                if not isinstance(error, RedisError | OSError):  # an outage is logged when leases cannot be renewed
                    _logger.exception("a reply of Redis could not be read; the listener tries again")
                self._handle_outage()
                await asyncio.sleep(_RETRY_DELAY)

    def _all(self) -> list[FollowedRun]:
        return [followed for group in self._followed.values() for followed in group]

    def _handle_outage(self) -> None:
        for followed in self._all():
            if _now() - self._reached > _OUTAGE_LEASES * self._lease:
                self._lose(followed)
            # Owners could not reach Redis either: they may renew their leases first.
            followed.check_at = _now() + self._lease / 3

    async def _check_leases(self) -> None:
        for followed in self._all():
            if followed.check_at <= _now():
                left = await self._renew_reading(followed.info)
                followed.check_at = _now() + max(left, 1) / 1000
                if left < 0:
                    self._lose(followed)

    def _lose(self, followed: FollowedRun) -> None:
        self.unfollow(followed)
        followed.end(RunState.LOST)

    async def _renew_reading(self, info: RunInfo) -> int:
        """Register as a reader again; return the milliseconds that the owner's lease lasts, -1 if the log is gone."""
        keys = (self._keys.chat(info.chat_id), self._keys.log(info), self._keys.readers(info))
        arguments = (info.run_id, self._worker, int(self._lease * 1000), int(self._remember * 1000))
        left, lost_after = await self._client.execute("EVAL", FOLLOW, len(keys), *keys, *arguments)
        if lost_after is not None:
            self._on_lost(info, lost_after / 1000)
        return int(left)

    async def _receive(self) -> None:
        positions = {log: min(followed.position for followed in group) for log, group in self._followed.items()}
        until = min((followed.check_at for followed in self._all()), default=_now() + self._lease)
        block = max(1, int(min(until - _now(), self._lease) * 1000))
        names = (self._inbox, *positions)
        after = (self._last_request, *map(_after, positions.values()))
        found = await self._client.execute("XREAD", "BLOCK", block, "STREAMS", *names, *after)
        for name, entries in found or ():
            log = name.decode()
            if log == self._inbox:
                self._handle_requests(entries)
            else:
                self._deliver(log, positions[log], entries)

    def _handle_requests(self, entries: list[Entry]) -> None:
        self._last_request = entries[-1][0].decode()
        for _, fields in entries:
            for request, unless_read in ((b"stop", False), (b"stop-unread", True)):
                if request in fields:
                    self._on_stop_requested(fields[request].decode(), unless_read)

    def _deliver(self, log: str, position: int, entries: list[Entry]) -> None:
        for followed in list(self._followed.get(log, ())):
            if followed.position < position:
                continue  # it was added during this XREAD and needs earlier entries first
            if not followed.receive(entries):
                self.unfollow(followed)


def _after(position: int) -> str:
    # The first entry of a log is 0-1, the others are 1-0, 2-0 and so on.
    return "0" if position < 0 else f"{position}-1"


def _now() -> float:
    return asyncio.get_running_loop().time()
