"""Stores that share a Redis server, as the workers of a service do; and what the tests of them have in common."""

import asyncio
import itertools
from collections.abc import Callable
from time import monotonic
from typing import Any, Final

import msgspec
import redis

from tests.redis_server import PATIENCE, RedisServer
from usechat.runs.redis.scripts import Keys
from usechat.runs.redis.store import RedisRuns
from usechat.runs.run import RunInfo, RunState

LEASE: Final = 30
"""Longer than any test: the owner never loses it because the machine is slow."""

SHORT: Final = 2
"""For tests that wait until a lease is over; an owner that is kept from its processor for a second still holds it."""

RUN: Final = RunInfo("r1", "c1", "m1", "7", "u1", "someone")
FINISHED: Final = msgspec.structs.replace(RUN, state=RunState.FINISHED)
LOST_RUN: Final = msgspec.structs.replace(RUN, state=RunState.LOST)

_prefixes = (f"test{number}" for number in itertools.count())


class StoreEvents:
    """Records the callbacks that stores make to their managers."""

    def __init__(self, *stores: RedisRuns) -> None:
        self.stops: list[str] = []
        self.stops_unless_read: list[str] = []
        self.failures: list[tuple[str, str]] = []
        self.losses: list[RunInfo] = []
        self.seconds: list[float] = []
        for store in stores:
            store.on_stop_requested(self._stop)
            store.on_failure(lambda run_id, text: self.failures.append((run_id, text)))
            store.on_lost(self._lose)

    def _stop(self, run_id: str, unless_read: bool) -> None:
        (self.stops_unless_read if unless_read else self.stops).append(run_id)

    def _lose(self, info: RunInfo, seconds: float) -> None:
        self.losses.append(info)
        self.seconds.append(seconds)


class Workers:
    """Stores that share a server, and a plain client to inspect the keys."""

    def __init__(self, server: RedisServer) -> None:
        self.server = server
        self.prefix = next(_prefixes)
        self.client = redis.Redis.from_url(server.url, decode_responses=True)
        self.chat = Keys(self.prefix).chat("c1")
        self.log = f"{self.chat}:log:r1"
        self._stores: list[RedisRuns] = []

    def store(self, **options: Any) -> RedisRuns:
        store = RedisRuns(self.server.url, prefix=self.prefix, **{"lease": LEASE, **options})
        self._stores.append(store)
        return store

    async def close(self) -> None:
        self.client.close()
        for store in self._stores:
            await store.close()


async def until(condition: Callable[[], object], what: str) -> None:
    deadline = monotonic() + PATIENCE
    while not condition():
        assert monotonic() < deadline, f"never happened: {what}"
        await asyncio.sleep(0.02)


async def read_all(store: RedisRuns, info: RunInfo = RUN) -> bytes:
    async with asyncio.timeout(PATIENCE):
        return b"".join([frames async for frames in store.read(info)])


def let_the_lease_run_out(workers: Workers) -> None:
    """Do as if the owner had not renewed it for long."""
    workers.client.hset(workers.chat, "lease", "1")
