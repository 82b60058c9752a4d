"""Managers that share a store: runs that another worker drives, reads, stops or loses."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from typing import Any

import msgspec
import pytest

from tests.runs.test_manager import PATIENCE, WHOLE, Agent, asked, eventually, read_all, settings_of
from usechat.errors import ChatBusy, StoreUnreachable, TooManyWaiting
from usechat.runs.log import Wake
from usechat.runs.manager import Reading, RunCallbacks, RunManager
from usechat.runs.memory import MemoryRuns
from usechat.runs.quotas import Quotas
from usechat.runs.run import PreparedRun, RunInfo, RunState
from usechat.runs.settings import Conflict
from usechat.runs.turns import Dispatcher, QueuedTurn, TurnStatistics
from usechat.sources import as_source
from usechat.turn import Turn, TurnContext, TurnInput

INFO = RunInfo("r1", "c1", "m1", "7", "u1")
STOPPED_EARLY = "answer to hi: one "


class SharedRuns(MemoryRuns):
    """The store of several workers that are in one process."""

    is_shared = True

    def __init__(self) -> None:
        super().__init__()
        self.logs: dict[str, bytes] = {}
        self.readers: Counter[str] = Counter()
        self.continues: dict[str, Mapping[str, Any] | None] = {}
        self.lost: list[Callable[[RunInfo, float], None]] = []
        self.failing: list[Callable[[str, str], None]] = []
        self._stopping: list[Callable[[str, bool], None]] = []
        self._news = asyncio.Event()

    async def claim(
        self, info: RunInfo, *, continues: Mapping[str, Any] | None = None, after: str | None = None
    ) -> RunInfo | None:
        self.continues[info.run_id] = continues
        return await super().claim(info, continues=continues, after=after)

    def append(self, run_id: str, frames: bytes) -> None:
        self.logs[run_id] = self.logs.get(run_id, b"") + frames
        self._tell()

    async def end(self, info: RunInfo) -> bool:
        ended = await super().end(info)
        self._tell()
        return ended

    async def continued(self, info: RunInfo) -> Mapping[str, Any] | None:
        return self.continues.get(info.run_id)

    async def frames(self, info: RunInfo) -> bytes:
        return self.logs.get(info.run_id, b"")

    async def read(self, info: RunInfo) -> AsyncGenerator[bytes, None]:
        self.readers[info.run_id] += 1
        place = 0
        try:
            while True:
                news, new = self._news, self.logs.get(info.run_id, b"")[place:]
                latest = await self.latest(info.chat_id)
                yield new
                place += len(new)
                if latest is None or latest.run_id != info.run_id or latest.state is not RunState.RUNNING:
                    return
                await news.wait()
        finally:
            self.readers[info.run_id] -= 1

    async def is_read(self, info: RunInfo) -> bool:
        return self.readers[info.run_id] > 0

    async def request_stop(self, info: RunInfo, *, unless_read: bool = False) -> None:
        for stop in self._stopping:
            stop(info.run_id, unless_read)

    def on_stop_requested(self, stop: Callable[[str, bool], None]) -> None:
        self._stopping.append(stop)

    def on_failure(self, fail: Callable[[str, str], None]) -> None:
        self.failing.append(fail)

    def on_lost(self, report: Callable[[RunInfo, float], None]) -> None:
        self.lost.append(report)

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


class Queue:
    """Turns that wait for an agent process."""

    forwarded_headers: tuple[str, ...] = ()
    patience = 120.0

    def __init__(self, store: SharedRuns) -> None:
        self.waiting: dict[str, QueuedTurn] = {}
        self.full = False
        self.offers = asyncio.Event()
        self.offers.set()
        self._store = store

    async def admit(self) -> None:
        if self.full:
            raise TooManyWaiting(retry_after=1)

    async def offer(self, turn: QueuedTurn, *, after: str) -> RunInfo | None:
        await self.offers.wait()
        active = await self._store.claim(turn.info, continues=turn.input.request.continues, after=after)
        if active is None:
            self.waiting[turn.info.run_id] = turn
        return active

    async def withdraw(self, info: RunInfo) -> bool:
        return self.waiting.pop(info.run_id, None) is not None

    async def statistics(self) -> TurnStatistics:
        return TurnStatistics(len(self.waiting))


class Recorder:
    """Records what a run says; may fail at its end."""

    states = None
    memory = None
    steps = None

    def __init__(self, error: Exception | None = None) -> None:
        self.frames = b""
        self.ended: list[RunState] = []
        self._error = error

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
        if self._error is not None:
            raise self._error


def worker(
    store: MemoryRuns,
    *,
    unread_timeout: float | None = 15,
    conflict: Conflict = "reject",
    dispatcher: Dispatcher | None = None,
    **callbacks: Any,
) -> RunManager:
    return RunManager(
        store,
        settings_of(unread_timeout, conflict=conflict),
        dispatcher=dispatcher,
        callbacks=RunCallbacks(**callbacks),
    )


def dispatcher_to(queue: Queue) -> Dispatcher:
    return Dispatcher(queue, approval_secret="s3cret", quotas=Quotas())


async def start(manager: RunManager, agent: Agent, info: RunInfo = INFO, **options: Any) -> Reading:
    return await manager.start(info, as_source(agent), PreparedRun(info, TurnContext(TurnInput(asked())), **options))


async def queue_turn(manager: RunManager, info: RunInfo = INFO) -> Reading:
    return await manager.start(info, None, PreparedRun(info, TurnContext(TurnInput(asked()))))


def adopt(manager: RunManager, queue: Queue, agent: Agent, **options: Any) -> None:
    turn = queue.waiting.pop("r1")
    prepared = PreparedRun(turn.info, TurnContext(turn.input))
    manager.adopt(prepared, as_source(agent), chat_secret=turn.secret, **options)


async def state_of(store: MemoryRuns, chat_id: str = "c1") -> RunState | None:
    latest = await store.latest(chat_id)
    return None if latest is None else latest.state


async def until_stopped(store: MemoryRuns) -> None:
    async with asyncio.timeout(PATIENCE):
        while await state_of(store) is not RunState.STOPPED:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


# Runs of another worker


async def test_a_run_of_another_worker_is_read_from_its_start() -> None:
    store, agent = SharedRuns(), Agent()
    here, there = worker(store), worker(store)
    first = await start(there, agent)
    await agent.waits.wait()
    late = await here.attach(INFO, sdk="7")
    assert late is not None
    assert (here.has("r1"), here.running, there.running) == (True, 0, 1)
    agent.go_on.set()
    assert [await read_all(late), await read_all(first)] == [WHOLE, WHOLE]


async def test_a_run_of_another_worker_that_ended_unread_cannot_be_attached() -> None:
    store = SharedRuns()
    here = worker(store)
    assert await here.attach(INFO, sdk="7") is None
    assert not here.has("r1")


async def test_a_continued_message_comes_with_the_run_of_another_worker_unless_the_client_has_it() -> None:
    store, agent = SharedRuns(), Agent()
    here, there = worker(store), worker(store)
    earlier = {"id": "m1", "role": "assistant", "parts": [{"type": "text", "text": "Earlier. "}]}
    await start(there, agent, continues=earlier)
    agent.go_on.set()
    readings = [await here.attach(INFO, sdk="7", has_message=has_message) for has_message in (False, True)]
    texts = [await read_all(reading) for reading in readings if reading is not None]
    assert texts == [f"Earlier. {WHOLE}", WHOLE]


class Pushed:
    """Takes frames."""

    def __init__(self) -> None:
        self.frames = b""

    def push(self, frames: bytes) -> None:
        self.frames += frames


@pytest.mark.parametrize(("sdk", "pushed"), [(b"7.0.160".decode(), True), ("7.0.0", False)])
async def test_live_frames_are_pushed_to_a_late_reader_of_the_same_release(sdk: str, pushed: bool) -> None:
    here, agent = worker(MemoryRuns()), Agent()
    info = msgspec.structs.replace(INFO, sdk="7.0.160")
    await start(here, agent, info)
    await agent.waits.wait()
    late = await here.attach(info, sdk=sdk)
    assert late is not None
    pusher = Pushed()
    late.push_to(pusher)
    replay = await late.read()
    agent.go_on.set()
    rest = b""
    async with asyncio.timeout(PATIENCE):
        while isinstance(frames := await late.read(), bytes):
            rest += frames
    assert isinstance(replay, bytes)
    assert (b"two" in pusher.frames, b"two" in rest) == (pushed, not pushed)


async def test_a_run_of_another_worker_is_stopped_by_its_worker() -> None:
    store, agent = SharedRuns(), Agent()
    here, there = worker(store), worker(store)
    reading = await start(there, agent)
    await agent.waits.wait()
    await here.stop(INFO)
    assert (await read_all(reading), agent.stopped, await state_of(store)) == (STOPPED_EARLY, 1, RunState.STOPPED)


@pytest.mark.parametrize("unread_timeout", [15, None])
@pytest.mark.parametrize("read_by", ["nobody", "its worker", "another worker"])
async def test_a_run_of_another_worker_gives_way_to_the_next_question_if_nobody_reads_it(
    read_by: str, unread_timeout: float | None
) -> None:
    store, agent = SharedRuns(), Agent()
    here, there = (worker(store, unread_timeout=unread_timeout) for _ in range(2))
    reading = await start(there, agent)
    await agent.waits.wait()
    if read_by == "another worker":
        assert await worker(store).attach(INFO, sdk="7") is not None
    if read_by != "its worker":
        reading.close()
    following = msgspec.structs.replace(INFO, run_id="r2", user_message_id="u2")
    agent.go_on.clear()
    if read_by == "nobody" and unread_timeout is not None:
        second = await start(here, agent, following)
        agent.go_on.set()
        assert (await read_all(second), agent.stopped) == (WHOLE, 1)
    else:
        with pytest.raises(ChatBusy):
            await start(here, agent, following)
        assert (agent.stopped, await state_of(store)) == (0, RunState.RUNNING)
        await there.shut_down(drain=0)


async def test_a_run_goes_on_for_as_long_as_another_worker_reads_it() -> None:
    store, agent = SharedRuns(), Agent()
    here, there = worker(store), worker(store, unread_timeout=0.02)
    reading = await start(there, agent)
    late = await here.attach(INFO, sdk="7")
    assert late is not None
    await eventually(lambda: store.readers["r1"])
    reading.close()
    await asyncio.sleep(0.1)
    assert (agent.stopped, there.running) == (0, 1)
    late.close()
    await until_stopped(store)
    assert agent.stopped == 1


class Unreachable(SharedRuns):
    """A store that does not say who reads."""

    async def is_read(self, info: RunInfo) -> bool:  # noqa: ARG002
        raise StoreUnreachable


async def test_a_run_goes_on_while_the_store_does_not_say_who_reads_it() -> None:
    store, agent = Unreachable(), Agent()
    here = worker(store, unread_timeout=0.02)
    (await start(here, agent)).close()
    await asyncio.sleep(0.1)
    assert (agent.stopped, here.running) == (0, 1)
    await here.shut_down(drain=0)


async def test_a_store_may_fail_a_run_of_this_worker() -> None:
    store, agent = SharedRuns(), Agent()
    here = worker(store)
    reading = await start(here, agent)
    await agent.waits.wait()
    for run_id in ("unknown", "r1"):
        store.failing[0](run_id, "The log is too large.")
    frames = b""
    async with asyncio.timeout(PATIENCE):
        while isinstance(new := await reading.read(), bytes):
            frames += new
    assert (b"The log is too large." in frames, await state_of(store)) == (True, RunState.FAILED)


# How a run ends


class Ending(SharedRuns):
    """A store that does something else at the end of a run."""

    def __init__(self, ends: bool | Exception) -> None:
        super().__init__()
        self._ends = ends

    async def end(self, info: RunInfo) -> bool:
        await super().end(info)
        if isinstance(self._ends, Exception):
            raise self._ends
        return self._ends


@pytest.mark.parametrize(
    ("ends", "reported", "lost"),
    [(True, [RunState.FINISHED], []), (OSError("gone"), [RunState.FINISHED], []), (False, [], [RunState.LOST])],
)
async def test_an_end_is_reported_once_as_what_the_store_makes_of_it(
    ends: bool | Exception, reported: list[RunState], lost: list[RunState]
) -> None:
    ended: list[RunState] = []
    losses: list[RunState] = []
    done: list[tuple[str, int]] = []

    async def on_done(info: RunInfo, size: int) -> None:
        done.append((info.run_id, size))
        raise StoreUnreachable

    store, agent = Ending(ends), Agent()
    here = worker(
        store,
        on_end=lambda info, _seconds: ended.append(info.state),
        on_loss=lambda info: losses.append(info.state),
        on_done=on_done,
    )
    agent.go_on.set()
    assert await read_all(await start(here, agent)) == WHOLE
    await eventually(lambda: done)
    assert (ended, losses, here.running) == (reported, lost, 0)
    assert done == [("r1", len(store.logs["r1"]))]


async def test_a_recorder_that_fails_at_the_end_of_a_run_is_logged_and_readers_see_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    recorder, agent = Recorder(OSError("disk full")), Agent()
    agent.go_on.set()
    with caplog.at_level(logging.ERROR):
        assert await read_all(await start(worker(SharedRuns()), agent, recorder=recorder)) == WHOLE
    assert recorder.ended == [RunState.FINISHED]
    assert [record.message for record in caplog.records] == ["run r1: its end was not recorded"]


RESTART = msgspec.structs.replace(INFO, run_id="r2", origin="r1")


@pytest.mark.parametrize(
    ("state", "latest", "answers"),
    [
        pytest.param(RunState.LOST, None, ["r1"], id="lost"),
        pytest.param(RunState.LOST, INFO, ["r1"], id="the last run of its chat"),
        pytest.param(RunState.LOST, RESTART, [], id="restarted"),
        pytest.param(
            RunState.LOST, msgspec.structs.replace(RESTART, run_id="r0"), [], id="restarted, ids in any order"
        ),
        pytest.param(RunState.LOST, msgspec.structs.replace(RESTART, origin=""), ["r1"], id="another turn came"),
        pytest.param(RunState.FAILED, None, [], id="ended"),
    ],
)
async def test_a_lost_run_is_reported_with_its_answer_unless_it_was_restarted(
    state: RunState, latest: RunInfo | None, answers: list[str]
) -> None:
    store = SharedRuns()
    ended: list[tuple[str, float]] = []
    lost: list[str] = []

    async def report(info: RunInfo) -> None:
        lost.append(info.run_id)

    here = worker(store, on_end=lambda info, seconds: ended.append((info.run_id, seconds)), on_lost_answer=report)
    if latest is not None:
        await store.claim(latest)
    store.lost[0](msgspec.structs.replace(INFO, state=state), 3.0)
    await here.finish_runs(0)
    assert (ended, lost) == ([("r1", 3.0)], answers)


async def test_what_a_lost_run_said_and_continued_is_in_the_store() -> None:
    store = SharedRuns()
    await store.claim(INFO, continues={"id": "m1"})
    store.append("r1", b"data: 1\n\n")
    assert await worker(store).lost_answer(INFO) == (b"data: 1\n\n", {"id": "m1"})


# Turns that are queued for agent processes


async def test_a_queued_turn_is_answered_by_the_process_that_takes_it() -> None:
    store, agent = SharedRuns(), Agent()
    queue = Queue(store)
    web, agents = worker(store, dispatcher=dispatcher_to(queue)), worker(store)
    reading = await queue_turn(web)
    assert (list(queue.waiting), web.running, web.has("r1")) == (["r1"], 0, True)
    adopt(agents, queue, agent)
    agent.go_on.set()
    assert await read_all(reading) == WHOLE
    assert await state_of(store) is RunState.FINISHED


async def test_live_frames_of_a_queued_turn_are_pushed() -> None:
    store, agent = SharedRuns(), Agent()
    queue, pusher = Queue(store), Pushed()
    web, agents = worker(store, dispatcher=dispatcher_to(queue)), worker(store)
    reading = await queue_turn(web)
    reading.push_to(pusher)
    adopt(agents, queue, agent)
    await agent.waits.wait()
    agent.go_on.set()
    async with asyncio.timeout(PATIENCE):
        while isinstance(await reading.read(), bytes):
            pass
    assert b"two" in pusher.frames


async def test_a_turn_is_not_prepared_while_too_many_wait() -> None:
    store = SharedRuns()
    queue = Queue(store)
    queue.full = True
    with pytest.raises(TooManyWaiting):
        await queue_turn(worker(store, dispatcher=dispatcher_to(queue)))
    assert await store.latest("c1") is None


async def test_a_turn_that_still_waits_is_stopped_by_the_web_process_and_recorded() -> None:
    store = SharedRuns()
    queue, recorder = Queue(store), Recorder()
    recordings: list[tuple[str, Any]] = []

    async def make_recorder(info: RunInfo, _context: TurnContext, continues: Any) -> Recorder:
        recordings.append((info.run_id, continues))
        return recorder

    web = worker(store, dispatcher=dispatcher_to(queue), make_recorder=make_recorder)
    reading = await queue_turn(web)
    await web.stop(INFO)
    assert (await read_all(reading), await state_of(store), queue.waiting) == ("", RunState.STOPPED, {})
    assert (recordings, recorder.ended) == ([("r1", None)], [RunState.STOPPED])


async def test_a_turn_that_an_agent_process_has_taken_is_stopped_there() -> None:
    store, agent = SharedRuns(), Agent()
    queue = Queue(store)
    web, agents = worker(store, dispatcher=dispatcher_to(queue)), worker(store)
    reading = await queue_turn(web)
    adopt(agents, queue, agent)
    await agent.waits.wait()
    await web.stop(INFO)
    assert (await read_all(reading), agent.stopped) == (STOPPED_EARLY, 1)


async def test_a_run_may_be_stopped_as_it_is_taken() -> None:
    store, agent = SharedRuns(), Agent()
    queue = Queue(store)
    web, agents = worker(store, dispatcher=dispatcher_to(queue)), worker(store)
    reading = await queue_turn(web)
    adopt(agents, queue, agent, stop=True)
    assert (await read_all(reading), await state_of(store)) == ("", RunState.STOPPED)


@pytest.mark.parametrize("is_taken", [False, True])
async def test_a_queued_turn_that_nobody_reads_any_more_is_stopped(is_taken: bool) -> None:
    store, agent = SharedRuns(), Agent()
    queue = Queue(store)
    web = worker(store, unread_timeout=0, dispatcher=dispatcher_to(queue))
    agents = worker(store)
    reading = await queue_turn(web)
    if is_taken:
        adopt(agents, queue, agent)
        await agent.waits.wait()
    reading.close()
    await until_stopped(store)
    assert (agent.stopped, queue.waiting) == (int(is_taken), {})


@pytest.mark.parametrize("unread_timeout", [0, None])
async def test_a_queued_turn_goes_on_while_it_is_read_or_if_it_may(unread_timeout: float | None) -> None:
    store = SharedRuns()
    queue = Queue(store)
    web = worker(store, unread_timeout=unread_timeout, dispatcher=dispatcher_to(queue))
    reading = await queue_turn(web)
    other = await web.attach(INFO, sdk="7")
    assert other is not None
    reading.close()
    if unread_timeout is None:
        other.close()
    await asyncio.sleep(0.05)
    assert (list(queue.waiting), await state_of(store)) == (["r1"], RunState.RUNNING)


async def test_the_next_question_takes_the_place_of_a_queued_turn_that_nobody_reads() -> None:
    store = SharedRuns()
    queue = Queue(store)
    web = worker(store, dispatcher=dispatcher_to(queue))
    reading = await queue_turn(web)
    following = msgspec.structs.replace(INFO, run_id="r2", user_message_id="u2")
    await eventually(lambda: store.readers["r1"])
    with pytest.raises(ChatBusy):
        await queue_turn(web, following)
    reading.close()
    await eventually(lambda: not store.readers["r1"])
    await queue_turn(web, following)
    assert list(queue.waiting) == ["r2"]


async def test_a_turn_that_is_queued_after_its_request_was_cancelled_is_stopped() -> None:
    store = SharedRuns()
    queue = Queue(store)
    web = worker(store, dispatcher=dispatcher_to(queue))
    queue.offers.clear()
    request = asyncio.ensure_future(queue_turn(web))
    await asyncio.sleep(0.01)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    queue.offers.set()
    await until_stopped(store)
    assert queue.waiting == {}


async def test_two_requests_that_queue_a_turn_at_once_are_answered_by_one_run() -> None:
    store, agent = SharedRuns(), Agent()
    queue = Queue(store)
    web, agents = worker(store, dispatcher=dispatcher_to(queue)), worker(store)
    queue.offers.clear()
    requests = [asyncio.ensure_future(queue_turn(web, msgspec.structs.replace(INFO, run_id=name))) for name in "ab"]
    await asyncio.sleep(0.01)
    queue.offers.set()
    readings = await asyncio.gather(*requests)
    [turn] = queue.waiting.values()
    agents.adopt(PreparedRun(turn.info, TurnContext(turn.input)), as_source(agent), chat_secret=None)
    agent.go_on.set()
    assert [await read_all(reading) for reading in readings] == [WHOLE, WHOLE]


async def test_an_adopted_run_that_no_web_process_reads_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("usechat.runs.manager._FIRST_READER", 0.02)
    store, agent = SharedRuns(), Agent()
    await store.claim(INFO)
    agents = worker(store, unread_timeout=0)
    agents.adopt(PreparedRun(INFO, TurnContext(TurnInput(asked()))), as_source(agent), chat_secret=None)
    await until_stopped(store)
    assert agent.stopped == 1


async def test_shutdown_breaks_off_the_readers_of_other_workers_runs() -> None:
    store, agent = SharedRuns(), Agent()
    here, there = worker(store), worker(store)
    await start(there, agent)
    late = await here.attach(INFO, sdk="7")
    assert late is not None
    assert isinstance(await late.read(), bytes)
    await here.shut_down(drain=0)
    assert await late.read() is Wake.SHUTDOWN
    late.close()
    await eventually(lambda: not store.readers["r1"])
    assert agent.stopped == 0
    await there.shut_down(drain=0)


class Slow(Agent):
    """Takes a moment to stop."""

    async def __call__(self, turn: Turn) -> AsyncIterator[str]:
        try:
            async for word in super().__call__(turn):
                yield word
        except asyncio.CancelledError:
            await asyncio.sleep(0.1)
            self.stopped += 1
            raise


@pytest.mark.parametrize("unread_timeout", [0, 15])
async def test_a_server_may_wait_for_runs_that_are_stopped_because_nobody_reads_them(unread_timeout: float) -> None:
    here, agent, other = worker(MemoryRuns(), unread_timeout=unread_timeout), Slow(), Agent()
    await start(here, other, RunInfo("r2", "c2", "m2", "7"))
    reading = await start(here, agent)
    await agent.waits.wait()
    reading.close()
    async with asyncio.timeout(PATIENCE / 2):
        await here.finish_unread()
    assert (agent.stopped > 0, other.stopped) == (unread_timeout == 0, 0)
    await here.shut_down(drain=0)


async def test_nobody_is_asked_to_stop_a_turn_that_was_waiting() -> None:
    store = SharedRuns()
    asked_to_stop: list[str] = []
    store.on_stop_requested(lambda run_id, _unless_read: asked_to_stop.append(run_id))
    manager = worker(store, dispatcher=dispatcher_to(Queue(store)))
    await queue_turn(manager)
    await manager.stop(INFO)
    assert (await state_of(store), asked_to_stop) == (RunState.STOPPED, [])
