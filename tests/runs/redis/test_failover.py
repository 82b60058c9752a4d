"""A failover in the middle of a run: readers go on, or see that the run is lost; nothing is doubled, nobody hangs."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager

import msgspec
import pytest

from tests.redis_deployments import RedisCluster, WatchedRedis, redis_cluster, redis_sentinel
from tests.redis_server import PATIENCE
from tests.runs.redis_stores import LEASE, SHORT, StoreEvents, until
from usechat.errors import RunLost, StoreUnreachable
from usechat.runs.redis.listener import GIVE_UP
from usechat.runs.redis.scripts import Keys
from usechat.runs.redis.store import RedisRuns
from usechat.runs.run import RunInfo, RunState

PREFIX = "failover"


@pytest.fixture(params=[redis_cluster, redis_sentinel])
def deployment(request: pytest.FixtureRequest) -> Iterator[RedisCluster | WatchedRedis]:
    start: AbstractContextManager[RedisCluster | WatchedRedis] = request.param()
    with start as running:
        yield running


@pytest.fixture
def run(deployment: RedisCluster | WatchedRedis) -> RunInfo:
    """A run whose keys are on the primary that fails."""
    chats = (f"c{number}" for number in range(100))
    if isinstance(deployment, RedisCluster):
        chats = (chat for chat in chats if deployment.has_slot_of(Keys(PREFIX).chat(chat)))
    return RunInfo("r1", next(iter(chats)), "m1", "7", "u1", "someone")


class Pair:
    """The stores of two workers."""

    def __init__(self, url: str, lease: float) -> None:
        self.owner, self.other = (RedisRuns(url, prefix=PREFIX, lease=lease) for _ in range(2))

    async def close(self) -> None:
        await self.owner.close()
        await self.other.close()


@pytest.fixture
async def pair(deployment: RedisCluster | WatchedRedis, request: pytest.FixtureRequest) -> AsyncIterator[Pair]:
    stores = Pair(deployment.url, getattr(request, "param", LEASE))
    yield stores
    await stores.close()


async def read(store: RedisRuns, run: RunInfo, pieces: list[bytes]) -> bool:
    """Collect what a reader gets; return whether it is complete."""
    try:
        async for frames in store.read(run):
            pieces.append(frames)  # noqa: PERF401 (what came before the loss counts)
    except RunLost:
        return False
    return True


async def test_after_a_failover_readers_go_on_or_see_that_the_run_is_lost(
    deployment: RedisCluster | WatchedRedis, pair: Pair, run: RunInfo
) -> None:
    await pair.owner.claim(run)
    pieces: list[bytes] = []
    reader = asyncio.ensure_future(read(pair.other, run, pieces))
    words = [b"%d " % number for number in range(200)]
    time = asyncio.get_running_loop().time
    ends: list[float] = []
    reader.add_done_callback(lambda _: ends.append(time()))
    failing, failed = None, 0.0
    for number, word in enumerate(words):
        if number == 50:
            await until(lambda: pieces, "the reader reads")
            failing, failed = asyncio.ensure_future(asyncio.to_thread(deployment.fail_over)), time()
        pair.owner.append("r1", word)
        await asyncio.sleep(0.02)
    assert failing is not None
    await failing
    async with asyncio.timeout(PATIENCE):
        recorded = await pair.owner.end(msgspec.structs.replace(run, state=RunState.FINISHED))
        complete = await reader
        text = b"".join(pieces)
        assert text == b"".join(words) if complete else b"".join(words).startswith(text)
        late: list[bytes] = []
        if await read(pair.other, run, late):
            assert b"".join(late) == b"".join(words), "who comes later reads the same, or that it is lost"
        latest = await pair.other.latest(run.chat_id)
    if recorded:
        whole = await pair.other.frames(run) == b"".join(words)
        was_patient = ends[0] - failed > 0.9 * GIVE_UP * LEASE  # a busy machine takes its time for a failover
        assert complete or not whole or was_patient, "only what the promoted replica lacks makes a reader lose a run"
        assert latest == msgspec.structs.replace(run, state=RunState.FINISHED)
    next_run = msgspec.structs.replace(run, run_id="r2")
    assert await pair.other.claim(next_run) is None


@pytest.mark.parametrize("pair", [3 * SHORT], indirect=True)
async def test_where_no_replica_takes_over_readers_and_owner_end_within_the_lease(
    deployment: RedisCluster | WatchedRedis, pair: Pair, run: RunInfo
) -> None:
    events = StoreEvents(pair.owner)
    await pair.owner.claim(run)
    pieces: list[bytes] = []
    reader = asyncio.ensure_future(read(pair.other, run, pieces))
    await until(lambda: pieces, "the reader reads")
    begin = asyncio.get_running_loop().time()
    deployment.replica.kill()
    deployment.primary.kill()
    async with asyncio.timeout(PATIENCE):
        assert not await reader
    await until(lambda: events.failures, "the owner gives up")
    assert asyncio.get_running_loop().time() - begin < 4 * SHORT  # the lease, and time for a busy machine
    with pytest.raises(StoreUnreachable):
        await pair.other.check()
