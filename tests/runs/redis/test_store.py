"""Runs over Redis: what other workers see of them, and how they are stopped."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from tests.redis_server import PATIENCE
from tests.runs.redis_stores import FINISHED, LEASE, RUN, SHORT, StoreEvents, Workers, read_all, until
from usechat.protocol.request import ChatRequest
from usechat.runs.manager import RunManager
from usechat.runs.redis.scripts import Keys
from usechat.runs.redis.store import TOO_LARGE
from usechat.runs.run import PreparedRun, RunInfo, RunState
from usechat.runs.settings import Settings
from usechat.sources import as_source
from usechat.turn import Turn, TurnContext, TurnInput


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
        {"run": "r1", "began": entries[0][1]["began"]},
        {"frames": "x" * 1000},
        {"end": "finished", "last": "1"},
    ]


async def test_all_keys_expire(workers: Workers) -> None:
    owner, other = workers.store(remember=60), workers.store(remember=60)
    await owner.claim(RUN, continues={"id": "m1"})
    reading = other.read(RUN)
    await anext(reading)
    await other.request_stop(RUN)

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
    events = StoreEvents(owner)
    await owner.claim(RUN)
    await other.request_stop(RUN)
    await until(lambda: events.stops == ["r1"], "the request arrives")


async def test_a_request_to_stop_an_unread_run_reaches_the_owner_and_leaves_no_mark(workers: Workers) -> None:
    owner, other = workers.store(), workers.store()
    events = StoreEvents(owner)
    await owner.claim(RUN)
    await other.request_stop(RUN, unless_read=True)
    await until(lambda: events.stops_unless_read == ["r1"], "the request arrives")
    assert (events.stops, workers.client.hget(workers.chat, "stop")) == ([], None)


async def test_a_stop_request_that_got_lost_is_found_by_the_next_renewal(workers: Workers) -> None:
    owner = workers.store(lease=SHORT)
    events = StoreEvents(owner)
    await owner.claim(RUN)
    workers.client.hset(workers.chat, "stop", "stop")
    await until(lambda: "r1" in events.stops, "the mark is found")


async def test_a_run_that_is_over_is_not_stopped(workers: Workers) -> None:
    owner, other = workers.store(), workers.store()
    events = StoreEvents(owner)
    await owner.claim(RUN)
    await owner.end(FINISHED)
    await other.request_stop(RUN)
    assert await other.latest("c1") == FINISHED
    assert events.stops == []


async def test_a_run_that_becomes_too_large_must_end(workers: Workers) -> None:
    owner, other = workers.store(maximum_bytes=10), workers.store()
    events = StoreEvents(owner)
    await owner.claim(RUN)
    for _ in range(12):
        owner.append("r1", b"x")
    await until(lambda: events.failures, "the manager is notified")
    owner.append("r1", b" the end")
    await owner.end(msgspec.structs.replace(RUN, state=RunState.FAILED))
    assert events.failures == [("r1", TOO_LARGE)]
    assert await read_all(other) == b"x" * 12 + b" the end"


async def test_people_see_why_a_run_that_became_too_large_has_ended(workers: Workers) -> None:
    async def agent(_turn: Turn) -> AsyncIterator[str]:
        while True:
            yield "more and more "
            await asyncio.sleep(0)

    manager = RunManager(workers.store(maximum_bytes=10_000), Settings())
    message = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
    request = ChatRequest.parse({"id": "c1", "messages": [message]})
    reading = await manager.start(RUN, as_source(agent), PreparedRun(RUN, TurnContext(TurnInput(request))))
    stream = b""
    async with asyncio.timeout(PATIENCE):
        while isinstance(frames := await reading.read(), bytes):
            stream += frames
    assert TOO_LARGE.encode() in stream
    assert stream.endswith(b"data: [DONE]\n\n")
    assert 10_000 < len(stream) < 20_000
    other = workers.store()
    assert await read_all(other) == stream
    assert await other.latest("c1") == msgspec.structs.replace(RUN, state=RunState.FAILED)
    await manager.shut_down(drain=0)


def test_without_the_package_an_error_says_what_to_install() -> None:
    program = "import sys; sys.modules['redis'] = None; import usechat.runs.redis.store"
    failed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "MissingDependency: redis is not installed; run: pip install 'usechat[redis]'" in failed.stderr


async def test_messages_reach_their_address_in_order_and_do_not_stay_in_the_inbox(workers: Workers) -> None:
    here, there = workers.store(), workers.store()
    received: list[bytes] = []
    there.receive("desk", received.append)
    for number in range(3):
        await here.post(there.worker, "desk", b"%d" % number)
        await here.post(there.worker, "nobody", b"lost")
    await until(lambda: received == [b"0", b"1", b"2"], "the messages arrive")
    inbox = Keys(workers.prefix).inbox(there.worker)
    await until(lambda: workers.client.xlen(inbox) == 0, "they are removed")
