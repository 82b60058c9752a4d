"""Runs over Redis: what other workers see of them, and what happens when something breaks."""

import asyncio
import itertools
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import msgspec
import pytest
import redis

from tests.redis_server import PATIENCE, SERVERS, RedisServer, redis_server
from usechat.requests import ChatRequest
from usechat.runs.keeper import Keeper
from usechat.runs.redis import TOO_LARGE, RedisRuns
from usechat.runs.run import RunInfo, RunState, Timeouts
from usechat.runs.store import LOST, RunLost, StoreUnreachable
from usechat.transport import as_source
from usechat.turn import Turn

LEASE = 30
"""Longer than any test: the owner never loses it because the machine is slow."""

SHORT = 1
"""For tests that wait until a lease is over."""

_prefixes = (f"test{number}" for number in itertools.count())

RUN = RunInfo("r1", "c1", "m1", "7", "u1", "someone")
FINISHED = msgspec.structs.replace(RUN, state=RunState.FINISHED)


class Heard:
    """What a store told its keeper."""

    def __init__(self, store: RedisRuns) -> None:
        self.stops: list[str] = []
        self.failures: list[tuple[str, str]] = []
        store.on_stop_ordered(self.stops.append)
        store.on_failure(lambda run_id, text: self.failures.append((run_id, text)))


class Workers:
    """Stores that share a server, and a plain client to look behind them."""

    def __init__(self, server: RedisServer) -> None:
        self.server = server
        self.prefix = next(_prefixes)
        self.client = redis.Redis.from_url(server.url, decode_responses=True)
        self.chat = f"{self.prefix}:{{c1}}"
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


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    with redis_server(request.param) as running:
        yield running


@pytest.fixture
async def workers(server: RedisServer) -> AsyncIterator[Workers]:
    made = Workers(server)
    yield made
    await made.close()


async def until(condition: Callable[[], object], what: str) -> None:
    for _ in range(int(PATIENCE / 0.02)):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"never happened: {what}")


async def read_all(store: RedisRuns, info: RunInfo = RUN) -> bytes:
    async with asyncio.timeout(PATIENCE):
        return b"".join([frames async for frames in store.read(info)])


async def rest_of(reading: AsyncIterator[bytes]) -> bytes:
    return b"".join([frames async for frames in reading])


# Reading


async def test_a_reader_gets_all_so_far_at_once_then_what_follows(workers: Workers) -> None:
    owner, other = workers.store(), workers.store()
    await owner.claim(RUN)
    owner.append("r1", b"one ")
    await until(lambda: workers.client.xlen(workers.log) == 2, "the first words are written")
    reading = other.read(RUN)
    assert await anext(reading) == b"one "
    owner.append("r1", b"two ")
    assert await anext(reading) == b"two "
    owner.append("r1", b"three")
    await owner.end(FINISHED)
    assert [frames async for frames in reading] in ([b"three", b""], [b"three"])


async def test_a_run_that_said_nothing_yet_can_be_read(workers: Workers) -> None:
    owner, other = workers.store(), workers.store()
    await owner.claim(RUN)
    reading = other.read(RUN)
    assert await anext(reading) == b""
    await reading.aclose()


async def test_readers_of_one_worker_begin_at_different_times_and_read_the_same(workers: Workers) -> None:
    owner, other = workers.store(), workers.store()
    await owner.claim(RUN)
    readers = []
    for number in range(20):
        owner.append("r1", b"%d " % number)
        readers.append(asyncio.ensure_future(read_all(other)))
        await asyncio.sleep(0.01)
    await owner.end(FINISHED)
    assert set(await asyncio.gather(*readers)) == {b"".join(b"%d " % number for number in range(20))}


async def test_many_runs_are_read_at_once(workers: Workers) -> None:
    owner, other = workers.store(), workers.store()
    runs = [RunInfo(f"r{number}", f"c{number}", "m", "7") for number in range(50)]
    for run in runs:
        await owner.claim(run)
    readers = [asyncio.ensure_future(read_all(other, run)) for run in runs]
    for number in range(20):
        for run in runs:
            owner.append(run.run_id, b"%s:%d " % (run.run_id.encode(), number))
        await asyncio.sleep(0)
    await asyncio.gather(*[owner.end(msgspec.structs.replace(run, state=RunState.FINISHED)) for run in runs])
    expected = [b"".join(b"%s:%d " % (run.run_id.encode(), number) for number in range(20)) for run in runs]
    assert await asyncio.gather(*readers) == expected


async def test_what_is_said_while_redis_works_is_one_entry(workers: Workers) -> None:
    owner = workers.store()
    await owner.claim(RUN)
    for _ in range(1000):
        owner.append("r1", b"x")
    await owner.end(FINISHED)
    entries: Any = workers.client.xrange(workers.log)
    assert [fields for _, fields in entries] == [
        {"run": "r1"},
        {"frames": "x" * 1000},
        {"end": "finished", "last": "1"},
    ]


async def test_all_keys_expire(workers: Workers) -> None:
    owner, other = workers.store(remember=60), workers.store(remember=60)
    await owner.claim(RUN, continues={"id": "m1"})
    reading = other.read(RUN)
    await anext(reading)
    await other.order_stop(RUN)

    def lives() -> list[int]:
        return [int(workers.client.pttl(key)) for key in workers.client.scan_iter(f"{workers.prefix}:*")]

    assert len(lives()) == 5  # the chat, the log, its readers and two inboxes
    assert all(0 < life <= 60_000 + 3000 * LEASE for life in lives())
    await reading.aclose()
    await owner.end(FINISHED)
    assert all(0 < life <= 60_000 + 3000 * LEASE for life in lives())


async def test_the_message_that_a_run_goes_on_with_is_known(workers: Workers) -> None:
    owner, other = workers.store(), workers.store()
    message = {"id": "m1", "role": "assistant", "parts": [{"type": "text", "text": "ü"}]}
    await owner.claim(RUN, continues=message)
    assert await other.continued(RUN) == message
    assert await other.continued(msgspec.structs.replace(RUN, run_id="r0")) is None


async def test_the_owner_knows_whether_others_read(workers: Workers) -> None:
    owner, other = workers.store(), workers.store()
    await owner.claim(RUN)
    assert not await owner.is_read(RUN)
    reading = other.read(RUN)
    await anext(reading)
    assert await owner.is_read(RUN)
    await reading.aclose()
    assert not await owner.is_read(RUN)


# Orders


async def test_an_order_to_stop_reaches_the_owner(workers: Workers) -> None:
    owner, other = workers.store(), workers.store()
    heard = Heard(owner)
    await owner.claim(RUN)
    await other.order_stop(RUN)
    await until(lambda: heard.stops == ["r1"], "the order arrives")


async def test_an_order_that_got_lost_is_found_by_the_heartbeat(workers: Workers) -> None:
    owner = workers.store(lease=SHORT)
    heard = Heard(owner)
    await owner.claim(RUN)
    workers.client.hset(workers.chat, "stop", "stop")
    await until(lambda: "r1" in heard.stops, "the mark is found")


async def test_a_run_that_is_over_is_not_stopped(workers: Workers) -> None:
    owner, other = workers.store(), workers.store()
    heard = Heard(owner)
    await owner.claim(RUN)
    await owner.end(FINISHED)
    await other.order_stop(RUN)
    assert await other.latest("c1") == FINISHED
    assert heard.stops == []


async def test_a_run_that_becomes_too_large_must_end(workers: Workers) -> None:
    owner, other = workers.store(maximum_bytes=10), workers.store()
    heard = Heard(owner)
    await owner.claim(RUN)
    for _ in range(12):
        owner.append("r1", b"x")
    await until(lambda: heard.failures, "the keeper is told")
    owner.append("r1", b" the end")
    await owner.end(msgspec.structs.replace(RUN, state=RunState.FAILED))
    assert heard.failures == [("r1", TOO_LARGE)]
    assert await read_all(other) == b"x" * 12 + b" the end"


async def test_people_see_why_a_run_that_became_too_large_has_ended(workers: Workers) -> None:
    async def answer(_turn: Turn) -> AsyncIterator[str]:
        while True:
            yield "more and more "
            await asyncio.sleep(0)

    keeper = Keeper(
        workers.store(maximum_bytes=10_000),
        timeouts=Timeouts(),
        linger=15,
        conflict="reject",
        describe=lambda error, _info: str(error),
    )
    message = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
    asked = ChatRequest.parse({"id": "c1", "messages": [message]})
    reading = await keeper.start(RUN, as_source(answer), Turn(asked), continues=None)
    seen = b""
    async with asyncio.timeout(PATIENCE):
        while isinstance(frames := await reading.read(), bytes):
            seen += frames
    assert TOO_LARGE.encode() in seen
    assert seen.endswith(b"data: [DONE]\n\n")
    assert 10_000 < len(seen) < 20_000
    other = workers.store()
    assert await read_all(other) == seen
    assert await other.latest("c1") == msgspec.structs.replace(RUN, state=RunState.FAILED)
    await keeper.shut_down(drain=0)


# Leases


def let_the_lease_run_out(workers: Workers) -> None:
    """Do as if the owner had not been heard of for long."""
    workers.client.hset(workers.chat, "lease", "1")


async def test_a_run_without_its_owner_is_lost_for_everyone_who_looks(workers: Workers) -> None:
    dead, other = workers.store(lease=SHORT), workers.store(lease=SHORT)
    await dead.claim(RUN)
    dead.append("r1", b"one ")
    await until(lambda: workers.client.xlen(workers.log) == 2, "the first words are written")
    reading = other.read(RUN)
    assert await anext(reading) == b"one "
    await dead.close()
    with pytest.raises(RunLost, match=LOST):
        async with asyncio.timeout(PATIENCE):
            await rest_of(reading)
    assert await other.latest("c1") == msgspec.structs.replace(RUN, state=RunState.LOST)
    assert await other.claim(msgspec.structs.replace(RUN, run_id="r2")) is None


@pytest.mark.parametrize("look", ["latest", "claim", "read"])
async def test_an_owner_that_lost_its_lease_writes_no_more(workers: Workers, look: str) -> None:
    owner, other = workers.store(), workers.store()
    heard = Heard(owner)
    await owner.claim(RUN)
    let_the_lease_run_out(workers)
    next_run = msgspec.structs.replace(RUN, run_id="r2")
    if look == "latest":
        assert await other.latest("c1") == msgspec.structs.replace(RUN, state=RunState.LOST)
    elif look == "claim":
        assert await other.claim(next_run) is None
    else:
        with pytest.raises(RunLost):
            await read_all(other)
    length = workers.client.xlen(workers.log)
    owner.append("r1", b"too late")
    await until(lambda: heard.failures == [("r1", LOST)], "the owner is told")
    owner.append("r1", b"later still")
    await owner.end(FINISHED)
    assert workers.client.xlen(workers.log) == length
    latest = await other.latest("c1")
    assert latest == (next_run if look == "claim" else msgspec.structs.replace(RUN, state=RunState.LOST))


async def test_a_silent_owner_learns_from_its_heartbeat_that_its_run_was_lost(workers: Workers) -> None:
    owner, other = workers.store(lease=SHORT), workers.store(lease=SHORT)
    heard = Heard(owner)
    await owner.claim(RUN)
    while (await other.latest("c1")) == RUN:
        let_the_lease_run_out(workers)
    await until(lambda: heard.failures == [("r1", LOST)], "the owner is told")


async def test_leases_of_owners_and_readers_are_renewed_for_as_long_as_they_live(workers: Workers) -> None:
    owner, other = workers.store(lease=2), workers.store(lease=2)
    await owner.claim(RUN)
    reading = other.read(RUN)
    await anext(reading)
    await asyncio.sleep(5)
    assert await other.latest("c1") == RUN
    assert await owner.is_read(RUN)
    await reading.aclose()


@pytest.mark.parametrize("forgotten", ["1-0", "2-0", "3-0"])
async def test_a_log_with_a_gap_is_lost(workers: Workers, forgotten: str) -> None:
    owner, other = workers.store(), workers.store()
    await owner.claim(RUN)
    for number in range(3):
        owner.append("r1", b"%d " % number)
        await until(lambda: workers.client.xlen(workers.log) == number + 2, "it is written")  # noqa: B023
    await owner.end(FINISHED)
    workers.client.xdel(workers.log, forgotten)  # as a server does that fails before it writes to disk
    with pytest.raises(RunLost):
        await read_all(other)


# A server that goes away


@pytest.fixture(params=SERVERS)
def own_server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    with redis_server(request.param) as running:
        yield running


@pytest.fixture
async def restarted(own_server: RedisServer) -> AsyncIterator[Workers]:
    made = Workers(own_server)
    yield made
    await made.close()


async def test_a_run_goes_on_after_a_restart_of_redis(restarted: Workers) -> None:
    owner, other = restarted.store(), restarted.store()
    heard = Heard(owner)
    await owner.claim(RUN)
    reader = asyncio.ensure_future(read_all(other))
    for number in range(60):
        owner.append("r1", b"%d " % number)
        if number == 20:
            await asyncio.to_thread(restarted.server.stop)
        if number == 40:
            await asyncio.to_thread(restarted.server.start)
        await asyncio.sleep(0.01)
    await owner.end(FINISHED)
    assert await reader == b"".join(b"%d " % number for number in range(60))
    assert await other.latest("c1") == FINISHED
    assert heard.failures == []


async def test_a_run_whose_data_is_gone_ends_for_owner_and_readers(restarted: Workers) -> None:
    owner, other = restarted.store(lease=SHORT), restarted.store(lease=SHORT)
    heard = Heard(owner)
    await owner.claim(RUN)
    reading = other.read(RUN)
    assert await anext(reading) == b""
    restarted.server.stop()
    restarted.server.lose_everything()
    restarted.server.start()
    with pytest.raises(RunLost):
        async with asyncio.timeout(PATIENCE):
            await anext(reading)
    await until(lambda: heard.failures == [("r1", LOST)], "the owner is told")
    assert await other.latest("c1") is None


async def test_nobody_waits_for_ever_when_redis_stays_away(restarted: Workers) -> None:
    owner, other = restarted.store(lease=SHORT), restarted.store(lease=SHORT)
    heard = Heard(owner)
    await owner.claim(RUN)
    reading = other.read(RUN)
    await anext(reading)
    restarted.server.stop()
    owner.append("r1", b"nobody writes this")
    for asked in (owner.check(), owner.latest("c1"), owner.claim(RUN), owner.order_stop(RUN)):
        with pytest.raises(StoreUnreachable):
            await asked
    with pytest.raises(RunLost):
        async with asyncio.timeout(PATIENCE):
            await anext(reading)
    await until(lambda: heard.failures == [("r1", LOST)], "the owner gives up when its lease is over")
    async with asyncio.timeout(PATIENCE):
        await owner.end(FINISHED)


def test_without_the_package_an_error_says_what_to_install() -> None:
    program = "import sys; sys.modules['redis'] = None; import usechat.runs.redis"
    failed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "MissingDependency: redis is not installed; run: pip install 'usechat[redis]'" in failed.stderr
