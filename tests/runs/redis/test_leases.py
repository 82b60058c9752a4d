"""Leases over Redis: who owns a run, who may declare it lost, and what happens when Redis itself goes away."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from tests.redis_server import PATIENCE
from tests.runs.redis_stores import (
    FINISHED,
    RUN,
    SHORT,
    StoreEvents,
    Workers,
    let_the_lease_run_out,
    read_all,
    until,
)
from usechat.errors import RunLost, StoreUnreachable
from usechat.runs.redis.store import RedisRuns
from usechat.runs.run import RunState
from usechat.runs.store import LOST


async def rest_of(reading: AsyncIterator[bytes]) -> bytes:
    return b"".join([frames async for frames in reading])


async def test_a_run_whose_owner_is_gone_is_lost_for_every_worker(workers: Workers) -> None:
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


@pytest.mark.parametrize("finder", ["latest", "claim", "read"])
async def test_an_owner_that_lost_its_lease_writes_no_more(workers: Workers, finder: str) -> None:
    owner, other = workers.store(), workers.store()
    events = StoreEvents(owner)
    await owner.claim(RUN)
    let_the_lease_run_out(workers)
    next_run = msgspec.structs.replace(RUN, run_id="r2")
    if finder == "latest":
        assert await other.latest("c1") == msgspec.structs.replace(RUN, state=RunState.LOST)
    elif finder == "claim":
        assert await other.claim(next_run) is None
    else:
        with pytest.raises(RunLost):
            await read_all(other)
    length = workers.client.xlen(workers.log)
    owner.append("r1", b"too late")
    await until(lambda: events.failures == [("r1", LOST)], "the owner is notified")
    owner.append("r1", b"later still")
    await owner.end(FINISHED)
    assert workers.client.xlen(workers.log) == length
    latest = await other.latest("c1")
    assert latest == (next_run if finder == "claim" else msgspec.structs.replace(RUN, state=RunState.LOST))


async def test_an_owner_that_writes_nothing_learns_from_its_renewal_that_its_run_was_lost(workers: Workers) -> None:
    owner, other = workers.store(lease=SHORT), workers.store(lease=SHORT)
    events = StoreEvents(owner)
    await owner.claim(RUN)
    while (await other.latest("c1")) == RUN:
        let_the_lease_run_out(workers)
    await until(lambda: events.failures == [("r1", LOST)], "the owner is notified")


async def test_leases_of_owners_and_readers_are_renewed_for_as_long_as_they_live(workers: Workers) -> None:
    owner, other = workers.store(lease=5), workers.store(lease=5)
    await owner.claim(RUN)
    reading = other.read(RUN)
    await anext(reading)
    await asyncio.sleep(7)
    assert await other.latest("c1") == RUN
    assert await owner.is_read(RUN)
    await reading.aclose()


@pytest.mark.parametrize("entry_id", ["1-0", "2-0", "3-0"])
async def test_a_log_with_a_gap_is_lost(workers: Workers, entry_id: str) -> None:
    owner, other = workers.store(), workers.store()
    await owner.claim(RUN)
    for number in range(3):
        owner.append("r1", b"%d " % number)
        await until(lambda: workers.client.xlen(workers.log) == number + 2, "it is written")  # noqa: B023
    await owner.end(FINISHED)
    workers.client.xdel(workers.log, entry_id)  # as a server does that fails before it writes to disk
    with pytest.raises(RunLost):
        await read_all(other)


# A server that goes away


async def test_a_run_goes_on_after_a_restart_of_redis(restarted: Workers) -> None:
    owner, other = restarted.store(), restarted.store()
    events = StoreEvents(owner)
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
    assert events.failures == []


async def test_a_run_whose_data_is_gone_ends_for_owner_and_readers(restarted: Workers) -> None:
    owner, other = restarted.store(lease=SHORT), restarted.store(lease=SHORT)
    events = StoreEvents(owner)
    await owner.claim(RUN)
    reading = other.read(RUN)
    assert await anext(reading) == b""
    restarted.server.stop()
    restarted.server.lose_everything()
    restarted.server.start()
    with pytest.raises(RunLost):
        async with asyncio.timeout(PATIENCE):
            await anext(reading)
    await until(lambda: events.failures == [("r1", LOST)], "the owner is notified")
    assert await other.latest("c1") is None


async def test_readers_and_owners_give_up_when_redis_stays_away_and_the_log_says_why(
    restarted: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    owner, other = restarted.store(lease=SHORT), restarted.store(lease=SHORT)
    events = StoreEvents(owner)
    await owner.claim(RUN)
    reading = other.read(RUN)
    await anext(reading)
    restarted.server.stop()
    owner.append("r1", b"nobody writes this")
    for request in (owner.check(), owner.latest("c1"), owner.claim(RUN), owner.request_stop(RUN)):
        with pytest.raises(StoreUnreachable):
            await request
    with pytest.raises(RunLost):
        async with asyncio.timeout(PATIENCE):
            await anext(reading)
    await until(lambda: events.failures == [("r1", LOST)], "the owner gives up when its lease is over")
    async with asyncio.timeout(PATIENCE):
        await owner.end(FINISHED)
    outage = f"Redis at {restarted.server.url} cannot be used: it cannot be reached; see whether it runs, and check "
    assert caplog.text.count(outage) == caplog.text.count("cannot be used") == 2, "one line per worker"
    assert "run r1 was lost: its lease expired or its log is gone; Redis was unreachable, " in caplog.text


class Forgetful(RedisRuns):
    """A store whose words to workers, its own included, get lost."""

    async def _write_to(self, inbox: str, request: str, run_id: str) -> None:
        """Lose them."""


async def test_a_reader_whose_notification_got_lost_reads_within_a_lease_time(workers: Workers) -> None:
    owner = workers.store()
    other = Forgetful(workers.server.url, prefix=workers.prefix, lease=SHORT)
    try:
        await owner.claim(RUN)
        await other.claim(msgspec.structs.replace(RUN, run_id="r9", chat_id="c9"))  # its listener waits for orders now
        owner.append("r1", b"one ")
        reader = asyncio.ensure_future(read_all(other))
        await asyncio.sleep(0.1)
        await owner.end(FINISHED)
        assert await reader == b"one "
    finally:
        await other.close()
