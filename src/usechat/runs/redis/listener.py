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
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from redis.exceptions import RedisError

from usechat.runs.redis.scripts import FOLLOW, Keys
from usechat.runs.run import RunInfo, RunState

if TYPE_CHECKING:
    from usechat.runs.redis.client import RedisClient
    from usechat.runs.redis.health import RedisHealth

__all__ = ["GIVE_UP", "FollowedRun", "Listener", "Member", "Notices", "longest_block"]

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


class Member(NamedTuple):
    """A worker as the others know it."""

    worker: str
    inbox: str
    """The stream of requests; any entry ends the current XREAD."""
    lease: float
    remember: float


class Notices(NamedTuple):
    """What a listener reports to its store."""

    on_stop_requested: Callable[[str, bool], None]
    on_message: Callable[[str, bytes], None]
    on_lost: Callable[[RunInfo, float], None]


class Listener:
    """Blocks on many streams at once, and checks the leases of the runs it follows."""

    def __init__(
        self,
        client: "RedisClient",
        blocked: "RedisClient",
        health: "RedisHealth",
        keys: Keys,
        member: Member,
        notices: Notices,
    ) -> None:
        self.inbox = member.inbox
        self._client = client
        self._blocked = blocked
        self._health = health
        self._keys = keys
        self._worker = member.worker
        self._lease = member.lease
        self._remember = member.remember
        self._notices = notices
        self._runs: dict[str, list[FollowedRun]] = {}
        self._last_request = "0"
        self._reached = 0.0
        self._fails = False

    def follow(self, info: RunInfo, *, frames: bool = True) -> FollowedRun:
        """Read a run from its start, beginning with the next XREAD; without ``frames`` wait for its end only."""
        run = FollowedRun(info, self._keys.log(info), frames=frames)
        self._runs.setdefault(run.log, []).append(run)
        return run

    def unfollow(self, run: FollowedRun) -> bool:
        """Stop reading a run. Returns whether it was read, and has no other reader in this worker."""
        others = [other for other in self._runs.pop(run.log, ()) if other is not run]
        if others:
            self._runs[run.log] = others
        return run.frames and not any(other.frames for other in others)

    async def work(self) -> None:
        """Listen until cancelled."""
        self._reached = _now()
        while True:
            try:
                await self._check_leases()
                await self._receive()
                self._reached = _now()
                self._fails = False
            except Exception as error:  # of any kind: otherwise readers would never be woken
                self._fails = True
                if isinstance(error, RedisError | OSError):
                    self._health.failed(error)
                else:
                    _logger.exception("a reply of Redis could not be read; the listener tries again")
                self._handle_outage()
                await asyncio.sleep(min(_RETRY_DELAY, self._lease / 20))

    def _all(self) -> list[FollowedRun]:
        return [run for group in self._runs.values() for run in group]

    def _handle_outage(self) -> None:
        now = _now()
        for run in self._all():
            if now - self._reached > GIVE_UP * self._lease:
                self._lose(run)
            # Owners could not reach Redis either: they may renew their leases first.
            run.check_at = now + self._lease / 4

    def _handle_new_connection(self) -> None:
        """Check soon whether the logs are still there: a server that restarts quickly may have lost its data."""
        for run in self._all():
            run.check_at = min(run.check_at, _now() + self._lease / 4)

    @property
    def _patience(self) -> float:
        """How many seconds a reply may take, so that an outage is noticed within a lease."""
        left = self._reached + GIVE_UP * self._lease - _now()
        return max(min(left, self._lease / 4), self._lease / 20)

    async def _check_leases(self) -> None:
        now = _now()
        due = [run for run in self._all() if run.check_at <= now]
        for begin in range(0, len(due), _CHECKED_TOGETHER):
            together = due[begin : begin + _CHECKED_TOGETHER]
            replies = await self._client.pipeline(list(map(self._check, together)), within=self._patience)
            for run, reply in zip(together, replies, strict=True):
                if isinstance(reply, Exception):
                    raise reply
                self._take_lease(run, *reply)

    def _check(self, run: FollowedRun) -> tuple[object, ...]:
        """Return the command that registers as a reader again, and tells how long the owner's lease lasts."""
        info = run.info
        keys = (self._keys.chat(info.chat_id), self._keys.log(info), self._keys.readers(info))
        reader = self._worker if run.frames else ""
        arguments = (info.run_id, reader, int(self._lease * 1000), int(self._remember * 1000))
        return ("EVAL", FOLLOW, len(keys), *keys, *arguments)

    def _take_lease(self, run: FollowedRun, left: int, lost_after: int | None) -> None:
        run.check_at = _now() + max(left, 1) / 1000
        if lost_after is not None:
            self._notices.on_lost(run.info, lost_after / 1000)
        if left < 0:
            self._lose(run)

    def _lose(self, run: FollowedRun) -> None:
        self.unfollow(run)
        run.end(RunState.LOST)

    async def _receive(self) -> None:
        positions = {log: min(run.position for run in group) for log, group in self._runs.items()}
        longest = self._lease / 20 if self._fails else longest_block(self._lease)
        until = min((run.check_at for run in self._all()), default=_now() + longest)
        block = max(0.001, min(until - _now(), longest))
        names = (self.inbox, *positions)
        after = (self._last_request, *map(_after, positions.values()))
        command = ("XREAD", "BLOCK", int(block * 1000) or 1, "STREAMS", *names, *after)
        connects = self._blocked.connects
        streams = await self._blocked.execute(*command, within=block + self._patience)
        if self._blocked.connects != connects:
            self._handle_new_connection()
        for name, entries in streams or ():
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
                self._notices.on_message(fields[b"to"].decode(), fields[b"message"])
            for request, unless_read in ((b"stop", False), (b"stop-unread", True)):
                if request in fields:
                    self._notices.on_stop_requested(fields[request].decode(), unless_read)
        if messages:  # they may be large; requests are small, and trimmed by their number
            await self._client.execute("XDEL", self.inbox, *messages, within=self._patience)

    def _deliver(self, log: str, position: int, entries: list[Entry]) -> None:
        for run in list(self._runs.get(log, ())):
            if run.position < position:
                continue  # it was added during this XREAD and needs earlier entries first
            if not run.receive(entries):
                self.unfollow(run)


def _after(position: int) -> str:
    # The first entry of a log is 0-1, the others are 1-0, 2-0 and so on, the seal is the highest.
    if position == _BEFORE_SEAL:
        return f"{_BEFORE_SEAL}-0"
    return "0" if position < 0 else f"{position}-1"


def _now() -> float:
    return asyncio.get_running_loop().time()
