"""The blocking connection of a worker: it waits for requests to the worker, and for frames of the runs it follows.

One XREAD blocks on an inbox of the worker and on the logs of all followed runs. It never blocks for long; in between
the listener checks the leases of the owners. So nothing depends on being notified: a lost reply or a broken connection
only delays, and reading continues from the last position. In a cluster, where XREAD takes keys of one slot only, there
is one listener per hash tag.

A listener that cannot reach Redis for three quarters of a lease time lets its readers end: the owners give up their
runs at the same time.
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
    from usechat.runs.redis.health import RedisHealth

__all__ = ["GIVE_UP", "FollowedRun", "Listener", "longest_block"]

Entry: TypeAlias = tuple[bytes, dict[bytes, bytes]]

_logger: Final = logging.getLogger("usechat.runs")
_RETRY_DELAY: Final = 0.1
_LONGEST_BLOCK: Final = 2.0
_CHECKED_TOGETHER: Final = 200
_BEFORE_SEAL: Final = 2**64 - 1
"""The position of a reader that waits for the end only: behind every entry but the seal."""
GIVE_UP: Final = 0.75
"""The share of a lease time without Redis after which runs and their readers end; the rest is for noticing it."""


def longest_block(lease: float) -> float:
    """Return how many seconds XREAD may block: a server that is silent for longer must be noticed within a lease."""
    return min(lease / 4, _LONGEST_BLOCK)


class FollowedRun:
    """A run that is read here; without ``frames`` only its end is waited for."""

    def __init__(self, info: RunInfo, log: str, *, frames: bool) -> None:
        self.info = info
        self.log = log
        self.frames = frames
        self.position = -1 if frames else _BEFORE_SEAL
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
                complete = not self.frames or int(fields.get(b"last", self.position)) == self.position
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
        blocked: "RedisClient",
        health: "RedisHealth",
        keys: Keys,
        *,
        inbox: str,
        worker: str,
        lease: float,
        remember: float,
        on_stop_requested: Callable[[str, bool], None],
        on_message: Callable[[str, bytes], None],
        on_lost: Callable[[RunInfo, float], None],
    ) -> None:
        self.inbox = inbox
        """The stream of requests; any entry ends the current XREAD."""
        self._client = client
        self._blocked = blocked
        self._health = health
        self._keys = keys
        self._worker = worker
        self._lease = lease
        self._remember = remember
        self._on_stop_requested = on_stop_requested
        self._on_message = on_message
        self._on_lost = on_lost
        self._followed: dict[str, list[FollowedRun]] = {}
        self._last_request = "0"
        self._reached = 0.0
        self._fails = False

    def follow(self, info: RunInfo, *, frames: bool = True) -> FollowedRun:
        """Read a run from its start, beginning with the next XREAD; without ``frames`` wait for its end only."""
        followed = FollowedRun(info, self._keys.log(info), frames=frames)
        self._followed.setdefault(followed.log, []).append(followed)
        return followed

    def unfollow(self, followed: FollowedRun) -> bool:
        """Stop reading a run. Returns whether it was read, and has no other reader in this worker."""
        others = [other for other in self._followed.pop(followed.log, ()) if other is not followed]
        if others:
            self._followed[followed.log] = others
        return followed.frames and not any(other.frames for other in others)

    async def work(self) -> None:
        """Listen until cancelled."""
        self._reached = _now()
        while True:
            try:
                await self._check_leases()
                await self._receive()
                self._reached = _now()
                self._fails = False
            except Exception as error:  # of any kind: readers must not wait for ever
                self._fails = True
                if isinstance(error, RedisError | OSError):
                    self._health.failed(error)
                else:
                    _logger.exception("a reply of Redis could not be read; the listener tries again")
                self._handle_outage()
                await asyncio.sleep(min(_RETRY_DELAY, self._lease / 20))

    def _all(self) -> list[FollowedRun]:
        return [followed for group in self._followed.values() for followed in group]

    def _handle_outage(self) -> None:
        now = _now()
        for followed in self._all():
            if now - self._reached > GIVE_UP * self._lease:
                self._lose(followed)
            # Owners could not reach Redis either: they may renew their leases first.
            followed.check_at = now + self._lease / 4

    def _handle_new_connection(self) -> None:
        """Check soon whether the logs are still there: a server that restarts quickly may have lost its data."""
        for followed in self._all():
            followed.check_at = min(followed.check_at, _now() + self._lease / 4)

    @property
    def _patience(self) -> float:
        """How many seconds a reply may take, so that an outage is noticed within a lease."""
        left = self._reached + GIVE_UP * self._lease - _now()
        return max(min(left, self._lease / 4), self._lease / 20)

    async def _check_leases(self) -> None:
        now = _now()
        due = [followed for followed in self._all() if followed.check_at <= now]
        for begin in range(0, len(due), _CHECKED_TOGETHER):
            together = due[begin : begin + _CHECKED_TOGETHER]
            replies = await self._client.pipeline(list(map(self._check, together)), within=self._patience)
            for followed, reply in zip(together, replies, strict=True):
                if isinstance(reply, Exception):
                    raise reply
                self._take_lease(followed, *reply)

    def _check(self, followed: FollowedRun) -> tuple[object, ...]:
        """Return the command that registers as a reader again, and tells how long the owner's lease lasts."""
        info = followed.info
        keys = (self._keys.chat(info.chat_id), self._keys.log(info), self._keys.readers(info))
        reader = self._worker if followed.frames else ""
        arguments = (info.run_id, reader, int(self._lease * 1000), int(self._remember * 1000))
        return ("EVAL", FOLLOW, len(keys), *keys, *arguments)

    def _take_lease(self, followed: FollowedRun, left: int, lost_after: int | None) -> None:
        followed.check_at = _now() + max(left, 1) / 1000
        if lost_after is not None:
            self._on_lost(followed.info, lost_after / 1000)
        if left < 0:
            self._lose(followed)

    def _lose(self, followed: FollowedRun) -> None:
        self.unfollow(followed)
        followed.end(RunState.LOST)

    async def _receive(self) -> None:
        positions = {log: min(followed.position for followed in group) for log, group in self._followed.items()}
        longest = self._lease / 20 if self._fails else longest_block(self._lease)
        until = min((followed.check_at for followed in self._all()), default=_now() + longest)
        block = max(0.001, min(until - _now(), longest))
        names = (self.inbox, *positions)
        after = (self._last_request, *map(_after, positions.values()))
        command = ("XREAD", "BLOCK", int(block * 1000) or 1, "STREAMS", *names, *after)
        connects = self._blocked.connects
        found = await self._blocked.execute(*command, within=block + self._patience)
        if self._blocked.connects != connects:
            self._handle_new_connection()
        for name, entries in found or ():
            log = name.decode()
            if log == self.inbox:
                await self._handle_requests(entries)
            else:
                self._deliver(log, positions[log], entries)

    async def _handle_requests(self, entries: list[Entry]) -> None:
        self._last_request = entries[-1][0].decode()
        messages = [entry_id for entry_id, fields in entries if b"message" in fields]
        for _, fields in entries:
            if b"message" in fields:
                self._on_message(fields[b"to"].decode(), fields[b"message"])
            for request, unless_read in ((b"stop", False), (b"stop-unread", True)):
                if request in fields:
                    self._on_stop_requested(fields[request].decode(), unless_read)
        if messages:  # they may be large; requests are small, and trimmed by their number
            await self._client.execute("XDEL", self.inbox, *messages, within=self._patience)

    def _deliver(self, log: str, position: int, entries: list[Entry]) -> None:
        for followed in list(self._followed.get(log, ())):
            if followed.position < position:
                continue  # it was added during this XREAD and needs earlier entries first
            if not followed.receive(entries):
                self.unfollow(followed)


def _after(position: int) -> str:
    # The first entry of a log is 0-1, the others are 1-0, 2-0 and so on, the seal is the highest.
    if position == _BEFORE_SEAL:
        return f"{_BEFORE_SEAL}-0"
    return "0" if position < 0 else f"{position}-1"


def _now() -> float:
    return asyncio.get_running_loop().time()
