"""What every run store does: the same tests for memory and every kind of Redis, with one worker and with two."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any, TypeAlias

import msgspec
import pytest

from tests.redis_deployments import Deployment, redis_cluster, redis_sentinel
from tests.redis_server import PATIENCE, SERVERS, redis_server
from tests.runs.test_manager import settings_of
from usechat.errors import ChatBusy
from usechat.protocol.chunks import FinishChunk
from usechat.protocol.message import MessageBuilder
from usechat.protocol.request import ChatRequest
from usechat.protocol.sse import ChunkDecoder
from usechat.runs.manager import Reading, RunManager
from usechat.runs.memory import MemoryRuns
from usechat.runs.redis.store import RedisRuns
from usechat.runs.run import PreparedRun, RunInfo, RunState
from usechat.runs.settings import Conflict
from usechat.runs.store import RunStore
from usechat.sources import as_source
from usechat.turn import Turn, TurnContext, TurnInput

_prefixes = (f"test{number}" for number in itertools.count())

Stores: TypeAlias = tuple[RunStore, RunStore]
"""Those of two workers; in memory there is one worker, and both are the same."""


@pytest.fixture(scope="module", params=["memory", *SERVERS, "cluster", "sentinel"])
def server(request: pytest.FixtureRequest) -> Iterator[Deployment | None]:
    match request.param:
        case "memory":
            yield None
        case "cluster":
            with redis_cluster() as cluster:
                yield cluster
        case "sentinel":
            with redis_sentinel() as watched:
                yield watched
        case kind:
            with redis_server(kind) as running:
                yield running


@pytest.fixture
async def make(server: Deployment | None) -> AsyncIterator[Callable[..., Stores]]:
    stores: list[RunStore] = []

    def make(remember: float = 600) -> Stores:
        if server is None:
            alone = MemoryRuns(remember=remember)
            return alone, alone
        prefix = next(_prefixes)
        pair = tuple(RedisRuns(server.url, lease=30, remember=remember, prefix=prefix) for _ in range(2))
        stores.extend(pair)
        return pair[0], pair[1]

    yield make
    for store in stores:
        await store.close()


@pytest.fixture
def stores(make: Callable[..., Stores]) -> Stores:
    return make()


@pytest.fixture
def store(stores: Stores) -> RunStore:
    return stores[0]


def run(run_id: str = "r1", chat_id: str = "c1") -> RunInfo:
    return RunInfo(run_id, chat_id, f"m-{run_id}", "7", "u1", "someone")


def ended(info: RunInfo, state: RunState = RunState.FINISHED) -> RunInfo:
    return msgspec.structs.replace(info, state=state)


async def eventually(condition: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_a_chat_without_a_run_can_be_claimed(store: RunStore) -> None:
    assert await store.latest("c1") is None
    assert await store.claim(run()) is None
    assert await store.latest("c1") == run()


async def test_the_state_of_a_paused_agent_is_taken_once_by_any_worker(stores: Stores) -> None:
    here, there = stores
    for state in (b"old", b"new"):
        await here.keep_state("h1", state)
    states = await asyncio.gather(*(store.take_state("h1") for store in (here, there, here)))
    assert sorted(filter(None, states)) == [b"new"]
    assert await there.take_state("h1") is None


async def test_a_chat_has_one_active_run(stores: Stores) -> None:
    here, there = stores
    await here.claim(run("r1"))
    assert await there.claim(run("r2")) == run("r1")
    assert await there.latest("c1") == run("r1")


async def test_of_many_claims_at_once_one_wins(stores: Stores) -> None:
    claims = [stores[number % 2].claim(run(f"r{number}")) for number in range(20)]
    answers = await asyncio.gather(*claims)
    winner = await stores[0].latest("c1")
    assert answers.count(None) == 1
    assert set(answers) == {None, winner}


async def test_a_claim_comes_after_the_run_that_is_known_as_the_last(stores: Stores) -> None:
    here, there = stores
    assert await here.claim(run("r1"), after="") is None
    await here.end(ended(run("r1")))
    for unknown in ("", "r0"):
        assert await there.claim(run("r2"), after=unknown) == ended(run("r1"))
    assert await there.claim(run("r2"), after="r1") is None
    assert await here.claim(run("r3"), after="r2") == run("r2"), "it goes on"
    await there.end(ended(run("r2")))
    assert await here.claim(run("r3"), after="r1") == ended(run("r2"))
    assert await here.claim(run("r3"), after="r2") is None
    assert await there.latest("c1") == run("r3")


async def test_chats_do_not_know_each_other(store: RunStore) -> None:
    await store.claim(run("r1", "c1"))
    assert await store.claim(run("r2", "c2")) is None
    assert (await store.latest("c1"), await store.latest("c2")) == (run("r1", "c1"), run("r2", "c2"))


@pytest.mark.parametrize("state", [RunState.FINISHED, RunState.FAILED, RunState.STOPPED, RunState.WAITING])
async def test_the_end_is_known_everywhere_and_frees_the_chat(stores: Stores, state: RunState) -> None:
    here, there = stores
    await here.claim(run("r1"))
    await here.end(ended(run("r1"), state))
    assert await there.latest("c1") == ended(run("r1"), state)
    assert await there.claim(run("r2")) is None
    assert await here.latest("c1") == run("r2")


async def test_the_end_of_an_earlier_run_does_not_end_the_next(store: RunStore) -> None:
    await store.claim(run("r1"))
    await store.end(ended(run("r1")))
    await store.claim(run("r2"))
    await store.end(ended(run("r1"), RunState.FAILED))
    assert await store.latest("c1") == run("r2")


async def test_an_ended_run_is_forgotten(make: Callable[..., Stores]) -> None:
    here, there = make(remember=0.2)
    await here.claim(run())
    await here.end(ended(run()))

    async def is_forgotten() -> bool:
        return await there.latest("c1") is None

    await eventually(is_forgotten)


async def test_a_run_that_goes_on_is_not_forgotten(make: Callable[..., Stores]) -> None:
    here, there = make(remember=0.1)
    await here.claim(run())
    await asyncio.sleep(0.4)
    assert await there.latest("c1") == run()


async def test_the_end_of_a_run_wakes_those_who_wait_for_it(stores: Stores) -> None:
    here, there = stores
    await here.claim(run("r1"))
    waiting = [asyncio.ensure_future(store.wait_until_ended(run("r1"))) for store in (here, there, there)]
    await asyncio.sleep(0.3)
    assert not any(task.done() for task in waiting)
    await here.end(ended(run("r1")))
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*waiting)
        await there.wait_until_ended(run("r1"))
        await there.wait_until_ended(run("r0"))  # nobody knows it


async def test_who_waits_for_the_end_is_no_reader(stores: Stores) -> None:
    here, there = stores
    await here.claim(run("r1"))
    waiting = asyncio.ensure_future(there.wait_until_ended(run("r1")))
    await asyncio.sleep(0.3)
    assert not await here.is_read(run("r1"))
    waiting.cancel()


async def test_a_store_can_be_checked(store: RunStore) -> None:
    await store.check()


# Two workers with a manager each


class Agent:
    """Yields a word each time it is released."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.stopped = asyncio.Event()

    async def answer(self, turn: Turn) -> AsyncIterator[str]:
        try:
            yield f"answer to {turn.text}: "
            yield "one "
            await self.go_on.wait()
            yield "two"
        except asyncio.CancelledError:
            self.stopped.set()
            raise


class Worker:
    """A manager, and what it is asked."""

    def __init__(self, store: RunStore, conflict: Conflict, unread_timeout: float | None) -> None:
        self.manager = RunManager(store, settings_of(unread_timeout, conflict=conflict))

    async def start(
        self, agent: Agent, run_id: str = "r1", user_id: str = "u1", continues: Mapping[str, Any] | None = None
    ) -> Reading:
        message = {"id": user_id, "role": "user", "parts": [{"type": "text", "text": "hi"}]}
        request = ChatRequest.parse({"id": "c1", "messages": [message]})
        message_id = continues["id"] if continues else f"m-{run_id}"
        info = RunInfo(run_id, "c1", message_id, "7", user_id, "someone")
        return await self.manager.start(
            info, as_source(agent.answer), PreparedRun(info, TurnContext(TurnInput(request)), continues)
        )

    async def attach(self, sdk: str = "7") -> Reading:
        info = await self.manager.latest("c1")
        assert info is not None
        reading = await self.manager.attach(info, sdk=sdk)
        assert reading is not None
        return reading

    async def state(self) -> RunState | None:
        info = await self.manager.latest("c1")
        return None if info is None else info.state


@pytest.fixture
async def workers(stores: Stores, request: pytest.FixtureRequest) -> AsyncIterator[tuple[Worker, Worker]]:
    policy: tuple[Conflict, float | None] = getattr(request, "param", ("reject", 15))
    here, there = stores
    first = Worker(here, *policy)
    second = first if here is there else Worker(there, *policy)
    yield first, second
    for worker in {first, second}:
        await worker.manager.shut_down(drain=0)


async def read_until(reading: Reading, word: bytes) -> bytes:
    data = b""
    async with asyncio.timeout(PATIENCE):
        while word not in data:
            frames = await reading.read()
            assert isinstance(frames, bytes), (data, frames)
            data += frames
    return data


async def read_all(reading: Reading) -> bytes:
    blocks = []
    async with asyncio.timeout(PATIENCE):
        while isinstance(frames := await reading.read(), bytes):
            blocks.append(frames)
    reading.close()
    assert frames is None
    return b"".join(blocks)


def message_of(frames: bytes, sdk: str = "7") -> Any:
    builder = MessageBuilder(sdk=sdk)
    for chunk in ChunkDecoder().receive(frames):
        builder.receive(chunk)
    return builder.message


def text_of(frames: bytes, sdk: str = "7") -> str:
    return "".join(part["text"] for part in message_of(frames, sdk)["parts"] if part["type"] == "text")


async def test_a_run_is_read_from_its_start_by_another_worker(workers: tuple[Worker, Worker]) -> None:
    here, there = workers
    agent = Agent()
    first = await here.start(agent)
    await read_until(first, b"one ")
    second = await there.attach()
    so_far = await read_until(second, b"one ")
    assert so_far.count(b"text-delta") == 1  # compacted
    agent.go_on.set()
    live, replayed = await asyncio.gather(read_all(first), read_all(second))
    assert text_of(so_far + replayed) == "answer to hi: one two"
    assert replayed == live
    assert await there.state() is RunState.FINISHED


async def test_many_readers_of_another_worker_read_the_same(workers: tuple[Worker, Worker]) -> None:
    here, there = workers
    agent = Agent()
    await here.start(agent)
    readings = await asyncio.gather(*[there.attach() for _ in range(10)])
    agent.go_on.set()
    texts = {text_of(frames) for frames in await asyncio.gather(*map(read_all, readings))}
    assert texts == {"answer to hi: one two"}


async def test_a_reader_with_another_release_gets_a_stream_for_it(workers: tuple[Worker, Worker]) -> None:
    here, there = workers
    agent = Agent()
    await here.start(agent)
    reading = await there.attach(sdk="5.0.0")
    agent.go_on.set()
    frames = await read_all(reading)
    assert text_of(frames, sdk="5.0.0") == "answer to hi: one two"
    assert ChunkDecoder().receive(frames)[-1] == FinishChunk(None, {"finishReason": "stop"})


async def test_a_continuation_is_read_with_all_that_stood_before(workers: tuple[Worker, Worker]) -> None:
    here, there = workers
    earlier = {
        "id": "m0",
        "role": "assistant",
        "parts": [{"type": "step-start"}, {"type": "text", "text": "before", "state": "done"}],
    }
    agent = Agent()
    first = await here.start(agent, continues=earlier)
    reading = await there.attach()
    agent.go_on.set()
    live, replayed = await asyncio.gather(read_all(first), read_all(reading))
    assert b"before" not in live
    assert message_of(replayed)["id"] == "m0"
    assert text_of(replayed) == "beforeanswer to hi: one two"


async def test_a_run_is_stopped_by_another_worker(workers: tuple[Worker, Worker]) -> None:
    here, there = workers
    agent = Agent()
    first = await here.start(agent)
    await read_until(first, b"one ")
    second = await there.attach()
    info = await there.manager.latest("c1")
    assert info is not None
    await there.manager.stop(info)
    assert agent.stopped.is_set()
    assert await there.state() is RunState.STOPPED
    ends = await asyncio.gather(read_all(first), read_all(second))
    assert all(b'"type":"abort"' in frames and frames.endswith(b"data: [DONE]\n\n") for frames in ends)
    await there.manager.stop(info)  # once more does nothing


async def test_the_chat_is_busy_for_all_workers(workers: tuple[Worker, Worker]) -> None:
    here, there = workers
    agent = Agent()
    reading = await here.start(agent)
    with pytest.raises(ChatBusy):
        await there.start(Agent(), "r2", "u2")
    agent.go_on.set()
    await read_all(reading)
    free = Agent()
    free.go_on.set()
    assert text_of(await read_all(await there.start(free, "r3", "u3"))) == "answer to hi: one two"


@pytest.mark.parametrize("workers", [("reject", 15), ("queue", 15)], indirect=True)
async def test_a_run_that_nobody_reads_gives_way_to_a_question_asked_of_another_worker(
    workers: tuple[Worker, Worker],
) -> None:
    here, there = workers
    agent, other = Agent(), Agent()
    other.go_on.set()
    first = await here.start(agent)
    await read_until(first, b"one ")
    first.close()
    assert text_of(await read_all(await there.start(other, "r2", "u2"))) == "answer to hi: one two"
    assert agent.stopped.is_set()


async def test_a_run_whose_reader_leaves_a_moment_later_gives_way_too(workers: tuple[Worker, Worker]) -> None:
    here, there = workers
    agent, other = Agent(), Agent()
    other.go_on.set()
    first = await here.start(agent)
    await read_until(first, b"one ")
    second = asyncio.ensure_future(there.start(other, "r2", "u2"))
    await asyncio.sleep(0.4)
    first.close()
    assert text_of(await read_all(await second)) == "answer to hi: one two"
    assert agent.stopped.is_set()


@pytest.mark.parametrize("workers", [("reject", None)], indirect=True)
async def test_a_run_that_is_to_go_on_without_readers_gives_way_to_nobody(workers: tuple[Worker, Worker]) -> None:
    here, there = workers
    agent = Agent()
    (await here.start(agent)).close()
    with pytest.raises(ChatBusy):
        await there.start(Agent(), "r2", "u2")
    assert not agent.stopped.is_set()


async def test_a_run_that_is_read_by_a_third_gives_way_to_nobody(workers: tuple[Worker, Worker]) -> None:
    here, there = workers
    agent = Agent()
    first = await here.start(agent)
    second = await there.attach()
    first.close()
    for worker in workers:
        with pytest.raises(ChatBusy):
            await worker.start(Agent(), "r2", "u2")
    agent.go_on.set()
    assert text_of(await read_all(second)) == "answer to hi: one two"


async def test_the_same_question_asked_of_another_worker_attaches(workers: tuple[Worker, Worker]) -> None:
    here, there = workers
    agent = Agent()
    await here.start(agent)
    again = await there.start(Agent(), "r2", "u1")
    agent.go_on.set()
    assert message_of(await read_all(again))["id"] == "m-r1"


@pytest.mark.parametrize("workers", [("interrupt", 15)], indirect=True)
async def test_a_new_question_interrupts_the_run_of_another_worker(workers: tuple[Worker, Worker]) -> None:
    here, there = workers
    agent, other = Agent(), Agent()
    first = await here.start(agent)
    await read_until(first, b"one ")
    await there.start(other, "r2", "u2")
    assert agent.stopped.is_set()
    assert b'"type":"abort"' in await read_all(first)


@pytest.mark.parametrize("workers", [("reject", 0.2)], indirect=True)
async def test_a_run_goes_on_while_another_worker_reads_it(workers: tuple[Worker, Worker]) -> None:
    here, there = workers
    agent = Agent()
    first = await here.start(agent)
    second = await there.attach()
    first.close()
    await asyncio.sleep(0.6)
    assert await there.state() is RunState.RUNNING
    second.close()
    async with asyncio.timeout(PATIENCE):
        await agent.stopped.wait()
