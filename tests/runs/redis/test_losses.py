"""The loss of a run is reported once, by the worker that finds it first."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from tests.runs.redis_stores import (
    FINISHED,
    LOST_RUN,
    RUN,
    SHORT,
    StoreEvents,
    Workers,
    let_the_lease_run_out,
    read_all,
    until,
)
from usechat.errors import RunLost
from usechat.runs.redis import scripts
from usechat.runs.redis.store import RedisRuns
from usechat.runs.run import RunInfo
from usechat.runs.store import LOST

NEXT = msgspec.structs.replace(RUN, run_id="r2")


async def ask_for_the_state(store: RedisRuns) -> None:
    await store.latest("c1")


async def claim(store: RedisRuns) -> None:
    await store.claim(NEXT)


async def read(store: RedisRuns) -> None:
    with pytest.raises(RunLost):
        await read_all(store)


Question = Callable[[RedisRuns], Awaitable[None]]


@pytest.mark.parametrize("first", [ask_for_the_state, claim, read])
async def test_the_worker_that_finds_a_loss_first_reports_it(workers: Workers, first: Question) -> None:
    owner, one, another = workers.store(), workers.store(), workers.store()
    events = StoreEvents(one, another)
    await owner.claim(RUN)
    await asyncio.sleep(0.1)
    let_the_lease_run_out(workers)
    await first(one)
    for again in (
        (ask_for_the_state, read, ask_for_the_state) if first is not claim else (ask_for_the_state, ask_for_the_state)
    ):
        await again(another)
        await again(one)
    await until(lambda: events.losses, "the loss is reported")
    assert events.losses == [LOST_RUN]
    assert 0.05 <= events.seconds[0] < 60


async def test_many_workers_find_a_loss_at_once_and_one_reports_it(workers: Workers) -> None:
    owner, *others = [workers.store() for _ in range(5)]
    events = StoreEvents(*others)
    await owner.claim(RUN)
    let_the_lease_run_out(workers)
    await asyncio.gather(*[work(other) for other in others for work in (ask_for_the_state, read, ask_for_the_state)])
    assert events.losses == [LOST_RUN]


async def test_a_reader_reports_the_loss_of_a_run_whose_chat_is_forgotten(workers: Workers) -> None:
    owner, other = workers.store(), workers.store()
    events = StoreEvents(other)
    await owner.claim(RUN)
    workers.client.delete(workers.chat)
    await read(other)
    await ask_for_the_state(other)
    assert events.losses == [LOST_RUN]


@pytest.mark.parametrize("state", [FINISHED, LOST_RUN])
async def test_the_owner_does_not_report_what_another_worker_has_reported(workers: Workers, state: RunInfo) -> None:
    owner, other = workers.store(lease=SHORT), workers.store(lease=SHORT)
    owner_events, events = StoreEvents(owner), StoreEvents(other)
    await owner.claim(RUN)
    while not events.losses:  # the owner may renew its lease in between
        let_the_lease_run_out(workers)
        await ask_for_the_state(other)
        await asyncio.sleep(0)
    assert not await owner.end(state)
    await until(lambda: owner_events.failures, "the owner is told")
    await asyncio.sleep(2 * SHORT)  # it would report with its next renewals
    assert (events.losses, owner_events.losses) == ([LOST_RUN], [])


async def test_an_end_that_is_recorded_is_no_loss(workers: Workers) -> None:
    owner, other = workers.store(), workers.store()
    events = StoreEvents(owner, other)
    await owner.claim(RUN)
    owner.append("r1", b"one ")
    assert await owner.end(FINISHED)
    let_the_lease_run_out(workers)
    assert await read_all(other) == b"one "
    assert await other.latest("c1") == FINISHED
    await claim(other)
    assert events.losses == []


async def test_an_end_that_is_written_again_counts_as_written(workers: Workers) -> None:
    owner = workers.store()
    await owner.claim(RUN)
    assert await owner.end(FINISHED)
    arguments = ("r1", "owner", msgspec.json.encode(FINISHED), "finished", 60_000, 0)
    assert workers.client.eval(scripts.END, 2, workers.chat, workers.log, *arguments) == "ended"


async def test_an_owner_that_gave_up_reports_the_loss_when_redis_is_back(restarted: Workers) -> None:
    owner, other = restarted.store(lease=SHORT), restarted.store(lease=SHORT)
    events = StoreEvents(owner, other)
    await owner.claim(RUN)
    await asyncio.to_thread(restarted.server.stop)
    await until(lambda: events.failures == [("r1", LOST)], "the owner gives up")
    assert not await owner.end(FINISHED)
    assert events.losses == []
    await asyncio.to_thread(restarted.server.start)
    await until(lambda: events.losses, "the loss is reported")
    assert await other.latest("c1") == LOST_RUN
    assert events.losses == [LOST_RUN]


async def test_an_end_that_reaches_redis_late_is_reported_as_redis_has_it(restarted: Workers) -> None:
    owner, other = restarted.store(lease=SHORT), restarted.store(lease=SHORT)
    events = StoreEvents(owner, other)
    await owner.claim(RUN)
    await asyncio.to_thread(restarted.server.stop)
    assert not await owner.end(FINISHED)
    await asyncio.to_thread(restarted.server.start)
    await until(lambda: events.losses, "the loss is reported")
    latest = await other.latest("c1")
    assert latest in (LOST_RUN, FINISHED)  # it may have come through at the last moment
    assert events.losses == [latest]


async def test_an_end_that_is_written_after_its_owner_gave_up_is_reported(workers: Workers) -> None:
    owner, other = workers.store(lease=SHORT), workers.store()
    events = StoreEvents(owner, other)
    await owner.claim(RUN)
    name = str(workers.client.hget(workers.chat, "owner"))
    arguments = ("r1", name, msgspec.json.encode(FINISHED), "finished", 60_000, 0)
    assert workers.client.eval(scripts.END, 2, workers.chat, workers.log, *arguments) == "ended"  # and nobody events it
    await until(lambda: events.losses, "the owner finds out")
    assert events.losses == [FINISHED] == [await other.latest("c1")]


async def test_an_owner_reports_the_loss_of_a_run_whose_keys_are_gone(workers: Workers) -> None:
    owner = workers.store(lease=SHORT)
    events = StoreEvents(owner)
    await owner.claim(RUN)
    workers.client.delete(workers.chat, workers.log)
    await until(lambda: events.losses, "the owner reports it")
    assert events.losses == [LOST_RUN]
    assert events.failures == [("r1", LOST)]


async def test_a_reader_sees_early_that_redis_restarted_and_lost_its_data(workers: Workers) -> None:
    """Redis may be back before a repeated command fails: then the broken connection is the only sign."""
    owner, other = workers.store(), workers.store(lease=12)
    await owner.claim(RUN)
    reading = asyncio.create_task(read(other))
    await until(lambda: workers.client.zcard(f"{workers.chat}:readers:r1"), "the reader is registered")
    workers.client.delete(workers.log)
    workers.client.client_kill_filter(_type="normal", skipme=True)
    async with asyncio.timeout(10):  # less than the lease of the reader, or of the owner
        await reading
