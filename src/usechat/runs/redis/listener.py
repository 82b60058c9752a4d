"""The one connection on which a worker waits: for orders to it, and for the runs of others that are read here."""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from redis.exceptions import RedisError

from usechat.runs.redis.scripts import LOOK, Keys
from usechat.runs.run import RunInfo, RunState

if TYPE_CHECKING:
    from redis.asyncio import Redis

__all__ = ["Followed", "Listener"]

Entry: TypeAlias = tuple[bytes, dict[bytes, bytes]]

_logger: Final = logging.getLogger("usechat.runs")
_RETRY_DELAY: Final = 0.1
_PATIENCE: Final = 3
"""How many lease times Redis may be away before what is read from it counts as lost."""


class Followed:
    """A run of another worker that is read here."""

    def __init__(self, info: RunInfo, log: str) -> None:
        self.info = info
        self.log = log
        self.position = -1
        """The number of the entry that was read last."""
        self.look_at = 0.0
        """When to ask whether its owner is alive; at once in the beginning."""
        self.news: asyncio.Queue[bytes | RunState] = asyncio.Queue()
        """Frames, and at last the state in which the run ended."""

    def receive(self, entries: list[Entry]) -> bool:
        """Take what was read from the log; some of it may be known. Returns whether there is more to come.

        A server that fails may forget what it confirmed: a log with a gap is a lost one.
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
            self.news.put_nowait(b"".join(pieces))
        if state is not None:
            self.end(state)
        return state is None

    def end(self, state: RunState) -> None:
        """Nothing more can be read."""
        self.news.put_nowait(state)


class Listener:
    """Blocks on many streams at once. Whatever gets lost, it looks again when a lease should have been renewed."""

    def __init__(
        self,
        client: "Redis",
        keys: Keys,
        *,
        worker: str,
        lease: float,
        remember: float,
        on_stop_ordered: Callable[[str, bool], None],
        on_lost: Callable[[RunInfo, float], None],
    ) -> None:
        self._client = client
        self._keys = keys
        self._worker = worker
        self._lease = lease
        self._remember = remember
        self._on_stop_ordered = on_stop_ordered
        self._on_lost = on_lost
        self._followed: dict[str, list[Followed]] = {}
        self._inbox = keys.inbox(worker)
        self._last_order = "0"
        self._reached = 0.0

    def follow(self, info: RunInfo) -> Followed:
        """Begin to read a run, from its start, the next time the listener looks up; an entry in the inbox makes it."""
        followed = Followed(info, self._keys.log(info))
        self._followed.setdefault(followed.log, []).append(followed)
        return followed

    def leave(self, followed: Followed) -> bool:
        """Read a run no further. Returns whether it is read by nobody else here."""
        others = [other for other in self._followed.pop(followed.log, ()) if other is not followed]
        if others:
            self._followed[followed.log] = others
        return not others

    async def work(self) -> None:
        """Listen for ever."""
        self._reached = _now()
        while True:
            try:
                await self._look_after_owners()
                await self._receive()
                self._reached = _now()
            except Exception as error:  # whatever it is: those who wait must not wait for ever
                if not isinstance(error, RedisError | OSError):  # an absence is told by those who hold the leases
                    _logger.exception("what Redis said was not understood")
                self._bear_absence()
                await asyncio.sleep(_RETRY_DELAY)

    def _all(self) -> list[Followed]:
        return [followed for group in self._followed.values() for followed in group]

    def _bear_absence(self) -> None:
        for followed in self._all():
            if _now() - self._reached > _PATIENCE * self._lease:
                self._lose(followed)
            # Owners were cut off, too: they get the time to renew their leases first.
            followed.look_at = _now() + self._lease / 3

    async def _look_after_owners(self) -> None:
        for followed in self._all():
            if followed.look_at <= _now():
                left = await self._look(followed.info)
                followed.look_at = _now() + max(left, 1) / 1000
                if left < 0:
                    self._lose(followed)

    def _lose(self, followed: Followed) -> None:
        self.leave(followed)
        followed.end(RunState.LOST)

    async def _look(self, info: RunInfo) -> int:
        """Return how many milliseconds a run's lease lasts, below 0 when there is nothing left of it."""
        keys = (self._keys.chat(info.chat_id), self._keys.log(info), self._keys.readers(info))
        arguments = (info.run_id, self._worker, int(self._lease * 1000), int(self._remember * 1000))
        left, lost_after = await self._client.execute_command("EVAL", LOOK, len(keys), *keys, *arguments)
        if lost_after is not None:
            self._on_lost(info, lost_after / 1000)
        return int(left)

    async def _receive(self) -> None:
        positions = {log: min(followed.position for followed in group) for log, group in self._followed.items()}
        until = min((followed.look_at for followed in self._all()), default=_now() + self._lease)
        block = max(1, int(min(until - _now(), self._lease) * 1000))
        names = (self._inbox, *positions)
        after = (self._last_order, *map(_after, positions.values()))
        found = await self._client.execute_command("XREAD", "BLOCK", block, "STREAMS", *names, *after)
        for name, entries in found or ():
            log = name.decode()
            if log == self._inbox:
                self._obey(entries)
            else:
                self._pass_on(log, positions[log], entries)

    def _obey(self, entries: list[Entry]) -> None:
        self._last_order = entries[-1][0].decode()
        for _, fields in entries:
            for order, unless_read in ((b"stop", False), (b"stop-unread", True)):
                if order in fields:
                    self._on_stop_ordered(fields[order].decode(), unless_read)

    def _pass_on(self, log: str, position: int, entries: list[Entry]) -> None:
        for followed in list(self._followed.get(log, ())):
            if followed.position < position:
                continue  # it began while these were under way, and needs earlier ones first
            if not followed.receive(entries):
                self.leave(followed)


def _after(position: int) -> str:
    # The first entry of a log is 0-1, the others are 1-0, 2-0 and so on.
    return "0" if position < 0 else f"{position}-1"


def _now() -> float:
    return asyncio.get_running_loop().time()
