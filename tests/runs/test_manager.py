"""The manager of runs: conflicts, late readers, readers that leave, stops, shutdown."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from usechat.agent_ops.app import ConcurrentRuns
from usechat.errors import ChatBusy, ChatNotFound, ShuttingDown, StreamFailed
from usechat.protocol.chunks import Chunk, StartChunk
from usechat.protocol.message import MessageBuilder
from usechat.protocol.parts import Text
from usechat.protocol.request import ChatRequest
from usechat.protocol.sse import ChunkDecoder
from usechat.runs.log import Wake
from usechat.runs.manager import Reading, RunCallbacks, RunManager
from usechat.runs.memory import MemoryRuns
from usechat.runs.run import PreparedRun, RunInfo, RunState
from usechat.runs.settings import Conflict, Disconnect, Settings, Timeouts, cancel_after
from usechat.sources import as_source
from usechat.turn import Turn, TurnContext, TurnInput

PATIENCE = 30.0
"""Seconds to wait for something that should happen at once; a loaded machine is slow."""


class Agent:
    """Yields a word each time it is released."""

    def __init__(self) -> None:
        self.waits = asyncio.Event()
        self.go_on = asyncio.Event()
        self.stopped = 0

    async def __call__(self, turn: Turn) -> AsyncIterator[str]:
        try:
            yield f"answer to {turn.text}: "
            yield "one "
            self.waits.set()
            await self.go_on.wait()
            yield "two"
        except asyncio.CancelledError:
            self.stopped += 1
            raise


class Chatterbox(Agent):
    """Never stops talking."""

    async def __call__(self, turn: Turn) -> AsyncIterator[str]:  # noqa: ARG002
        try:
            while True:
                yield "word "
                await asyncio.sleep(0.001)
        except asyncio.CancelledError:
            self.stopped += 1
            raise


class Sender(Agent):
    """Never stops talking, in a way that cannot be held back."""

    async def __call__(self, turn: Turn) -> AsyncIterator[str]:
        yield "first "
        try:
            while True:
                turn.send(Text("word "))
                await asyncio.sleep(0.001)
        except asyncio.CancelledError:
            self.stopped += 1
            raise


class Remote:
    """A chat transport that says a word and then nothing."""

    closed = False

    async def send_messages(self, _request: ChatRequest) -> AsyncIterator[Chunk]:
        return self._stream()

    async def _stream(self) -> AsyncIterator[Chunk]:
        try:
            yield StartChunk("m1")
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.01)
            self.closed = True

    async def reconnect_to_stream(self, _chat_id: str) -> AsyncIterator[Chunk] | None:
        return None


def manager(
    conflict: Conflict = "reject",
    unread_timeout: float | None = 15,
    *,
    store: MemoryRuns | None = None,
    keep_log: bool = True,
    callbacks: RunCallbacks | None = None,
    **settings: Any,
) -> RunManager:
    return RunManager(
        store or MemoryRuns(),
        settings_of(unread_timeout, conflict=conflict, **settings),
        keep_log=keep_log,
        callbacks=callbacks or RunCallbacks(),
    )


def settings_of(unread_timeout: float | None, **settings: Any) -> Settings:
    """Return settings with which a run continues for this time without a reader; ``None`` means to its end."""
    disconnect: Disconnect = "continue" if unread_timeout is None else cancel_after(unread_timeout)
    return Settings(disconnect=disconnect, timeouts=Timeouts(stop=PATIENCE), on_error=str, **settings)


def asked(text: str = "hi", user_id: str = "u1") -> ChatRequest:
    message = {"id": user_id, "role": "user", "parts": [{"type": "text", "text": text}]}
    return ChatRequest.parse({"id": "c1", "messages": [message]})


async def start(runs: RunManager, agent: Agent, run_id: str = "r1", user_id: str = "u1", **options: Any) -> Reading:
    async def answer(turn: Turn) -> AsyncIterator[str]:
        async for word in agent(turn):
            yield word

    info = RunInfo(run_id, "c1", f"m-{run_id}", "7", user_id, b"someone".decode())  # no constant: another object
    prepared = PreparedRun(info, TurnContext(TurnInput(asked(user_id=user_id))), options.get("continues"))
    return await runs.start(info, as_source(answer), prepared)


async def read_all(reading: Reading, builder: MessageBuilder | None = None) -> str:
    """Read to the end; return the text of the message."""
    builder = builder or MessageBuilder(sdk="7")
    decoder = ChunkDecoder()
    async with asyncio.timeout(PATIENCE):
        while isinstance(frames := await reading.read(), bytes):
            for chunk in decoder.receive(frames):
                builder.receive(chunk)
    assert frames is None
    message: Any = builder.message
    return "".join(part["text"] for part in message["parts"] if part["type"] == "text")


async def eventually(condition: Callable[[], object]) -> None:
    """Wait until this holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


WHOLE = "answer to hi: one two"


async def test_a_run_is_read_to_its_end() -> None:
    runs, agent = manager(), Agent()
    reading = await start(runs, agent)
    assert runs.running == 1
    agent.go_on.set()
    assert await read_all(reading) == WHOLE
    await asyncio.sleep(0)
    latest = await runs.latest("c1")
    assert latest is not None
    assert (latest.state, runs.running) == (RunState.FINISHED, 0)


async def test_a_second_request_is_refused_while_the_chat_is_answered() -> None:
    runs, agent = manager(), Agent()
    await start(runs, agent)
    with pytest.raises(ChatBusy, match="being answered"):
        await start(runs, agent, "r2", "u2")
    await runs.shut_down(drain=0)


async def test_a_store_that_allows_it_has_several_runs_of_one_chat_at_once() -> None:
    runs, agent = manager(store=ConcurrentRuns()), Agent()
    first = await start(runs, agent)
    await agent.waits.wait()
    second = await start(runs, agent, "r2", "u2")
    assert runs.running == 2
    agent.go_on.set()
    assert [await read_all(first), await read_all(second)] == [WHOLE, WHOLE]


async def test_the_same_message_again_attaches_instead_of_running_twice() -> None:
    runs, agent = manager(), Agent()
    first = await start(runs, agent)
    await agent.waits.wait()
    again = await start(runs, agent, "r2")
    agent.go_on.set()
    assert [await read_all(first), await read_all(again)] == [WHOLE, WHOLE]


@pytest.mark.parametrize("conflict", ["reject", "attach", "queue", "interrupt"])
@pytest.mark.parametrize("user_id", ["u1", "u2"])
@pytest.mark.parametrize("subject", ["someone else", "nobody", ""])
async def test_two_who_claim_a_chat_at_once_do_not_see_each_other(
    conflict: Conflict, user_id: str, subject: str
) -> None:
    runs, agent = manager(conflict), Agent()
    reading = await start(runs, agent)
    stranger = RunInfo("r2", "c1", "m-r2", "7", user_id, subject)
    with pytest.raises(ChatNotFound, match="No such chat"):
        await runs.start(
            stranger, as_source(agent), PreparedRun(stranger, TurnContext(TurnInput(asked(user_id=user_id))))
        )
    agent.go_on.set()
    assert (await read_all(reading), agent.stopped) == (WHOLE, 0)


async def test_a_continuation_that_is_sent_twice_may_attach() -> None:
    runs, agent = manager("attach"), Agent()
    infos = [RunInfo(f"r{number}", "c1", "m1", "7", user_message_digest="outputs") for number in (1, 2)]
    source = as_source(agent.__call__)
    readings = [await runs.start(info, source, PreparedRun(info, TurnContext(TurnInput(asked())))) for info in infos]
    agent.go_on.set()
    assert [await read_all(reading) for reading in readings] == [WHOLE, WHOLE]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(RunInfo("r2", "c1", "m1", "7", user_message_digest="others"), id="other outputs"),
        pytest.param(RunInfo("r2", "c1", "m2", "7"), id="regenerated"),
        pytest.param(RunInfo("r2", "c1", "m2", "7", "u2", user_message_digest="outputs"), id="another message"),
    ],
)
async def test_a_request_that_asks_for_something_else_does_not_attach(other: RunInfo) -> None:
    runs, agent = manager("attach"), Agent()
    info = RunInfo("r1", "c1", "m1", "7", user_message_digest="outputs")
    source = as_source(agent.__call__)
    first = await runs.start(info, source, PreparedRun(info, TurnContext(TurnInput(asked()))))
    second = asyncio.ensure_future(runs.start(other, source, PreparedRun(other, TurnContext(TurnInput(asked())))))
    await asyncio.sleep(0.02)
    assert not second.done()
    agent.go_on.set()
    assert [await read_all(first), await read_all(await second)] == [WHOLE, WHOLE]


async def test_a_run_that_nobody_reads_gives_way_to_the_next_question() -> None:
    runs, agent = manager(), Agent()
    (await start(runs, agent)).close()
    await agent.waits.wait()
    second = await start(runs, agent, "r2", "u2")
    agent.go_on.set()
    assert (await read_all(second), agent.stopped) == (WHOLE, 1)


async def test_a_run_that_is_to_go_on_without_readers_does_not_give_way() -> None:
    runs, agent = manager(unread_timeout=None), Agent()
    (await start(runs, agent)).close()
    await agent.waits.wait()
    with pytest.raises(ChatBusy):
        await start(runs, agent, "r2", "u2")
    agent.go_on.set()
    await eventually(lambda: not runs.running)
    latest = await runs.latest("c1")
    assert latest is not None
    assert (latest.state, agent.stopped) == (RunState.FINISHED, 0)


async def test_no_run_begins_while_the_server_goes_down() -> None:
    runs, agent = manager(), Agent()
    await runs.shut_down(drain=0)
    with pytest.raises(ShuttingDown, match="try again"):
        await start(runs, agent)


async def test_an_answer_without_end_is_stopped() -> None:
    runs, agent = manager(maximum_run_bytes=100), Agent()
    reading = await start(runs, agent)
    with pytest.raises(StreamFailed, match="grew too long"):
        await read_all(reading)


async def test_a_request_may_wait_for_its_turn() -> None:
    runs, agent = manager("queue"), Agent()
    await start(runs, agent)
    queued = asyncio.ensure_future(start(runs, agent, "r2", "u2"))
    await asyncio.sleep(0.02)
    assert not queued.done()
    agent.go_on.set()
    assert await read_all(await queued) == WHOLE


async def test_a_request_may_interrupt() -> None:
    runs, agent = manager("interrupt"), Agent()
    first = await start(runs, agent)
    await agent.waits.wait()
    second = await start(runs, agent, "r2", "u2")
    agent.go_on.set()
    assert (await read_all(first), agent.stopped) == ("answer to hi: one ", 1)
    assert await read_all(second) == WHOLE


@pytest.mark.parametrize("sdk", ["7", "5", "any"])
async def test_a_late_reader_gets_everything(sdk: str) -> None:
    runs, agent = manager(), Agent()
    await start(runs, agent)
    await agent.waits.wait()
    info = await runs.latest("c1")
    assert info is not None
    late = await runs.attach(info, sdk=sdk)
    assert late is not None
    first = await late.read()
    assert isinstance(first, bytes)
    assert first.count(b"text-delta") == 1
    agent.go_on.set()
    builder = MessageBuilder(sdk="5" if sdk == "any" else sdk)
    for chunk in ChunkDecoder().receive(first):
        builder.receive(chunk)
    assert await read_all(late, builder) == WHOLE


async def test_a_continuation_is_replayed_with_what_was_there_before() -> None:
    runs, agent = manager(), Agent()
    earlier = {"id": "m-r1", "role": "assistant", "parts": [{"type": "text", "text": "Earlier. "}]}
    await start(runs, agent, continues=earlier)
    info = await runs.latest("c1")
    assert info is not None
    late = await runs.attach(info, sdk="7")
    agent.go_on.set()
    assert late is not None
    assert await read_all(late) == f"Earlier. {WHOLE}"


async def test_a_run_that_ended_cannot_be_attached() -> None:
    runs, agent = manager(), Agent()
    agent.go_on.set()
    reading = await start(runs, agent)
    await read_all(reading)
    await asyncio.sleep(0)
    info = await runs.latest("c1")
    assert info is not None
    assert await runs.attach(info, sdk="7") is None


async def test_the_last_reader_that_leaves_stops_the_run_at_once() -> None:
    runs, agent = manager(unread_timeout=0), Agent()
    first = await start(runs, agent)
    info = await runs.latest("c1")
    assert info is not None
    second = await runs.attach(info, sdk="7")
    assert second is not None
    await agent.waits.wait()
    first.close()
    await asyncio.sleep(0.01)
    assert (runs.running, agent.stopped) == (1, 0)
    second.close()
    await eventually(lambda: not runs.running)
    assert agent.stopped == 1


async def test_a_reader_that_comes_back_in_time_keeps_the_run_alive() -> None:
    runs, agent = manager(unread_timeout=0.1), Agent()
    reading = await start(runs, agent)
    await agent.waits.wait()
    reading.close()  # the loop has no turn before somebody is back, so that the time cannot be over
    info = await runs.latest("c1")
    assert info is not None
    back = await runs.attach(info, sdk="7")
    assert back is not None
    await asyncio.sleep(0.2)
    agent.go_on.set()
    assert await read_all(back) == WHOLE


async def test_a_run_is_stopped_when_no_reader_comes_back_in_time() -> None:
    runs, agent = manager(unread_timeout=0.02), Agent()
    (await start(runs, agent)).close()
    await eventually(lambda: not runs.running)
    assert agent.stopped == 1


async def test_a_run_may_go_on_without_readers() -> None:
    runs, agent = manager(unread_timeout=None), Agent()
    (await start(runs, agent)).close()
    await asyncio.sleep(0.05)
    assert (runs.running, agent.stopped) == (1, 0)
    await runs.shut_down(drain=0)


async def test_stop_ends_every_reading_well_formed() -> None:
    runs, agent = manager(), Agent()
    reading = await start(runs, agent)
    await agent.waits.wait()
    info = await runs.latest("c1")
    assert info is not None
    await runs.stop(info)
    stopped = await runs.latest("c1")
    assert stopped is not None
    assert (stopped.state, agent.stopped) == (RunState.STOPPED, 1)
    assert await read_all(reading) == "answer to hi: one "
    await runs.stop(info)


class Elsewhere(MemoryRuns):
    """A store that passes the request to stop a run on to another worker, which obeys."""

    async def request_stop(self, info: RunInfo, *, unless_read: bool = False) -> None:
        assert not unless_read
        await self.end(msgspec.structs.replace(info, state=RunState.STOPPED))


async def test_stop_reaches_the_run_of_another_worker() -> None:
    store = Elsewhere()
    info = RunInfo("r1", "c1", "m1", "7")
    assert await store.claim(info) is None
    await manager(store=store).stop(info)
    stopped = await store.latest("c1")
    assert stopped is not None
    assert stopped.state is RunState.STOPPED


class Shared(MemoryRuns):
    """A store that keeps what other workers could read."""

    is_shared = True

    def __init__(self) -> None:
        super().__init__()
        self.frames_by_run: dict[str, bytes] = {}

    def append(self, run_id: str, frames: bytes) -> None:
        self.frames_by_run[run_id] = self.frames_by_run.get(run_id, b"") + frames


class Recorder:
    """Records what a run says."""

    states = None
    memory = None
    steps = None

    def __init__(self) -> None:
        self.frames = b""
        self.ended: list[RunState] = []

    def start(self, fail: Callable[[str], object]) -> None:
        assert callable(fail)

    def receive(self, frames: bytes) -> None:
        self.frames += frames

    async def commit(self) -> None:
        """Nothing is stored before the end."""

    def interrupt(self) -> None:
        """Nobody continues the answer."""

    async def finish(self, info: RunInfo) -> None:
        self.ended.append(info.state)


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("shared", [False, True])
async def test_the_store_and_the_recorder_of_a_run_get_what_its_reader_gets(shared: bool, recorded: bool) -> None:
    store, recorder, agent = Shared() if shared else MemoryRuns(), Recorder(), Agent()
    runs = manager(store=store)
    agent.go_on.set()
    info = RunInfo("r1", "c1", "m1", "7")
    prepared = PreparedRun(info, TurnContext(TurnInput(asked())), recorder=recorder if recorded else None)
    reading = await runs.start(info, as_source(agent), prepared)
    read = b""
    async with asyncio.timeout(PATIENCE):
        while isinstance(frames := await reading.read(), bytes):
            read += frames
    assert read.endswith(b"data: [DONE]\n\n")
    assert (recorder.frames, recorder.ended) == ((read, [RunState.FINISHED]) if recorded else (b"", []))
    if isinstance(store, Shared):
        assert store.frames_by_run == {"r1": read}


async def test_stop_closes_the_iterator_of_a_transport_before_it_returns() -> None:
    remote = Remote()
    runs = manager()
    info = RunInfo("r1", "c1", "m1", "7")
    reading = await runs.start(info, as_source(remote), PreparedRun(info, TurnContext(TurnInput(asked()))))
    await reading.read()
    await runs.stop(info)
    assert remote.closed
    assert await read_all(reading) == ""


async def test_shutdown_breaks_readers_off_and_lets_runs_end() -> None:
    runs, agent = manager(), Agent()
    reading = await start(runs, agent)
    await reading.read()
    closing = asyncio.ensure_future(runs.shut_down(drain=PATIENCE))
    assert await reading.read() is Wake.SHUTDOWN
    agent.go_on.set()
    await closing
    latest = await runs.latest("c1")
    assert latest is not None
    assert (latest.state, agent.stopped) == (RunState.FINISHED, 0)


async def test_a_reader_that_cannot_follow_may_resume_from_a_log() -> None:
    runs, agent = manager(maximum_waiting_bytes=10), Chatterbox()
    reading = await start(runs, agent)
    interrupted = asyncio.Event()
    reading.on_cut(lambda _why: interrupted.set())
    await asyncio.wait_for(interrupted.wait(), PATIENCE)
    assert (reading.give_up(), runs.running) == (b"", 1)
    await runs.shut_down(drain=0)


async def test_without_a_log_the_run_fails_with_its_last_words() -> None:
    runs, agent = manager(maximum_waiting_bytes=10, keep_log=False), Sender()
    reading = await start(runs, agent)
    interrupted = asyncio.Event()
    reading.on_cut(lambda _why: interrupted.set())
    await asyncio.wait_for(interrupted.wait(), PATIENCE)
    last = reading.give_up()
    assert b'"type":"error"' in last
    assert last.endswith(b"data: [DONE]\n\n")
    await eventually(lambda: agent.stopped)
    assert agent.stopped == 1


async def test_an_ended_run_is_forgotten_after_a_while() -> None:
    store = MemoryRuns(remember=0.02)
    info = RunInfo("r1", "c1", "m1", "7")
    assert await store.claim(info) is None
    await store.end(RunInfo("r1", "c1", "m1", "7", state=RunState.FINISHED))
    assert (await store.latest("c1")) is not None
    async with asyncio.timeout(PATIENCE):
        while await store.latest("c1") is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_the_end_of_a_running_run_is_waited_for_by_its_id() -> None:
    store = MemoryRuns()
    await store.claim(RunInfo(b"r-one".decode(), "c1", "m1", "7"))
    waiting = asyncio.ensure_future(store.wait_until_ended(RunInfo(b"r-one".decode(), "c1", "m1", "7")))
    await asyncio.sleep(0)
    assert not waiting.done()
    await store.end(RunInfo("r-one", "c1", "m1", "7", state=RunState.FINISHED))
    async with asyncio.timeout(PATIENCE):
        await waiting


@pytest.mark.parametrize(("run_id", "state"), [("r1", "running"), (b"r-2".decode(), "finished"), ("s", "running")])
async def test_the_end_of_a_run_is_that_of_the_last_run_by_its_id(run_id: str, state: str) -> None:
    store = MemoryRuns()
    await store.claim(RunInfo("r-2", "c1", "m2", "7"))
    assert await store.end(RunInfo(run_id, "c1", "m1", "7", state=RunState.FINISHED))
    latest = await store.latest("c1")
    assert latest is not None
    assert latest.state.value == state


@pytest.mark.parametrize("run_id", ["r1", "r3"])
async def test_nobody_waits_for_a_run_that_is_not_the_running_one(run_id: str) -> None:
    store = MemoryRuns()
    await store.claim(RunInfo("r2", "c1", "m2", "7"))
    async with asyncio.timeout(PATIENCE):
        await store.wait_until_ended(RunInfo(run_id, "c1", "m1", "7"))


async def test_runs_are_reported() -> None:
    started: list[RunInfo] = []
    ended: list[tuple[RunInfo, float]] = []
    callbacks = RunCallbacks(
        on_start=lambda info, _headers: started.append(info), on_end=lambda info, seconds: ended.append((info, seconds))
    )
    runs = manager(callbacks=callbacks)
    agent = Agent()
    agent.go_on.set()
    await read_all(await start(runs, agent))
    assert [info.run_id for info in started] == ["r1"]
    assert [(info.state, seconds < PATIENCE) for info, seconds in ended] == [(RunState.FINISHED, True)]


async def test_a_reader_that_is_behind_an_ended_run_is_broken_off_by_a_shutdown() -> None:
    runs, agent = manager(), Agent()
    agent.go_on.set()
    reading = await start(runs, agent)
    await eventually(lambda: runs.running == 0)
    await runs.shut_down(drain=0)
    assert await reading.read() is Wake.SHUTDOWN
