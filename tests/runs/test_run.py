"""One run: it drives its source in one task, and ends exactly once in the right state."""

import asyncio
import contextvars
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from usechat import parts
from usechat.errors import TaskExited
from usechat.protocol.chunks import ErrorChunk, ToolApprovalRequestChunk
from usechat.protocol.message import MessageBuilder
from usechat.protocol.request import ChatRequest
from usechat.protocol.sse import ChunkDecoder
from usechat.runs.containment import contain_exits
from usechat.runs.log import Log
from usechat.runs.open_calls import OpenCall, approval_signature, input_digest, secret_of_chat
from usechat.runs.run import (
    CANNOT_FOLLOW,
    SILENT,
    TOO_LONG,
    TOO_MUCH,
    PreparedRun,
    Run,
    RunInfo,
    RunState,
    log_native_approval,
)
from usechat.runs.settings import Settings, Timeouts
from usechat.sources import as_source
from usechat.turn import Turn, TurnContext, TurnInput, emit

ASKED = ChatRequest.parse(
    {"id": "c1", "messages": [{"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}]}
)


def make_run(
    timeouts: Timeouts | None = None,
    *,
    secret: str | None = None,
    log: Log | None = None,
    on_error: Callable[[Exception], str] | None = lambda error: f"redacted {type(error).__name__}",
    sdk: str = "7",
) -> tuple[Run, list[Run]]:
    ended: list[Run] = []
    run = Run(
        PreparedRun(RunInfo("r1", "c1", "m1", sdk), TurnContext(TurnInput(ASKED))),
        log or Log(),
        Settings(timeouts=timeouts or Timeouts(), on_error=on_error),
        on_end=ended.append,
        chat_secret=secret,
    )
    return run, ended


async def answered(agent: Callable[..., Any], timeouts: Timeouts | None = None) -> tuple[Run, list[str], Any]:
    """Run an agent to its end; return the run, the types of its chunks and the message."""
    run, ended = make_run(timeouts)
    run.start(as_source(agent))
    await run.wait(10)
    assert len(ended) == 1
    chunks = ChunkDecoder().receive(run.log.so_far())
    builder = MessageBuilder(sdk="7")
    for chunk in chunks:
        if type(chunk).__name__ == "ErrorChunk":
            break
        builder.receive(chunk)
    assert run.log.so_far().endswith(b"data: [DONE]\n\n")
    return run, [type(chunk).__name__.removesuffix("Chunk") for chunk in chunks], builder.message


def text_of(message: Any) -> str:
    return "".join(part["text"] for part in message["parts"] if part["type"] == "text")


async def words(turn: Turn) -> AsyncIterator[Any]:
    yield "You said "
    yield parts.Text(turn.text)


def words_of_a_thread(turn: Turn) -> Any:
    emit("thread", 1)
    yield "You said "
    yield turn.text


async def one_text(turn: Turn) -> str:
    return f"You said {turn.text}"


def one_text_of_a_thread(turn: Turn) -> parts.Text:
    return parts.Text(f"You said {turn.text}")


@pytest.mark.parametrize("agent", [words, words_of_a_thread, one_text, one_text_of_a_thread])
async def test_any_kind_of_function_answers(agent: Callable[..., Any]) -> None:
    run, _, message = await answered(agent)
    assert (run.info.state, text_of(message)) == (RunState.FINISHED, "You said hi")


async def test_a_failure_is_redacted_and_ends_the_stream() -> None:
    async def agent(_turn: Turn) -> AsyncIterator[str]:
        yield "a"
        raise RuntimeError("secret")

    run, kinds, _ = await answered(agent)
    assert run.info.state is RunState.FAILED
    assert kinds[-2:] == ["Error", "Finish"]
    assert b"redacted RuntimeError" in run.log.so_far()
    assert b"secret" not in run.log.so_far()


async def test_something_that_is_no_text_is_a_failure() -> None:
    async def agent(_turn: Turn) -> AsyncIterator[Any]:
        yield 5

    run, _, _ = await answered(agent)
    assert run.info.state is RunState.FAILED


async def test_a_source_may_end_its_turn_itself() -> None:
    async def agent(_turn: Turn) -> AsyncIterator[parts.Part]:
        yield parts.Error("Out of tokens.")

    run, kinds, _ = await answered(agent)
    assert (run.info.state, kinds) == (RunState.FAILED, ["Start", "Error", "Finish"])


async def test_a_call_left_open_is_waiting_and_remembered() -> None:
    async def agent(_turn: Turn) -> AsyncIterator[parts.Part]:
        yield parts.ToolCall("t1", "ask", {"b": 1, "a": 2})

    run, _, _ = await answered(agent)
    assert run.info.state is RunState.WAITING
    assert run.info.open_calls == (OpenCall("t1", "ask", input_digest({"a": 2, "b": 1})),)


async def test_approval_requests_are_signed_with_the_secret_of_their_chat() -> None:
    run, _ = make_run(secret=secret_of_chat("s3cret", "c1", ""))
    run.write(parts.ToolCall("t1", "rm", {"p": "/"}))
    run.write(parts.ApprovalRequest("a1", "t1"))
    run.write(parts.ApprovalRequest("a2", "unknown"))
    open_call = OpenCall("t1", "rm", input_digest({"p": "/"}), "a1")
    signature = approval_signature(secret_of_chat("s3cret", "c1", ""), open_call)
    assert f'"signature":"{signature}"'.encode() in run.log.so_far()


@pytest.mark.parametrize(("secret", "signature"), [(None, None), (None, "own"), ("s3cret", "own")])
async def test_a_request_is_signed_only_with_a_secret_and_unless_it_is_signed_already(
    secret: str | None, signature: str | None
) -> None:
    run, _ = make_run(secret=secret)
    run.write(parts.ToolCall("t1", "rm", {"p": "/"}))
    run.write(parts.ApprovalRequest("a1", "t1", signature=signature))
    [request] = [
        chunk for chunk in ChunkDecoder().receive(run.log.so_far()) if isinstance(chunk, ToolApprovalRequestChunk)
    ]
    assert request.signature == signature


async def test_a_run_that_is_stopped_before_its_first_step_ends_without_its_agent() -> None:
    turns: list[Turn] = []

    async def unasked(turn: Turn) -> AsyncIterator[str]:
        turns.append(turn)
        yield "late"

    run, ended = make_run(Timeouts(stop=60))
    run.start(as_source(unasked))
    run.stop()
    await run.wait(10)
    assert ([each.info.state for each in ended], turns) == ([RunState.STOPPED], [])


async def test_stop_cancels_the_agent_in_its_own_task_and_context() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    endings: list[Any] = []

    async def agent(turn: Turn) -> AsyncIterator[str]:
        token = variable.set("mine")
        task = asyncio.current_task()
        try:
            yield "a"
            await asyncio.sleep(60)
        finally:
            variable.reset(token)  # raises in another context
            endings.append((asyncio.current_task() is task, turn.stopped))

    run, ended = make_run()
    run.start(as_source(agent))
    await asyncio.sleep(0.01)
    run.stop("user")
    run.stop("again")
    await run.wait()
    assert (endings, run.info.state, len(ended)) == ([(True, True)], RunState.STOPPED, 1)
    assert b'"type":"abort","reason":"user"' in run.log.so_far()


async def test_an_agent_that_does_not_stop_is_left_behind_and_the_log_says_what_to_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    release = asyncio.Event()

    async def agent(_turn: Turn) -> AsyncIterator[str]:
        yield "a"
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        yield "late"

    run, ended = make_run(Timeouts(stop=0.05))
    run.start(as_source(agent))
    await asyncio.sleep(0.01)
    run.stop()
    await run.wait()
    assert (run.info.state, len(ended)) == (RunState.STOPPED, 1)
    release.set()
    await run.wait()
    assert (len(ended), b"late" in run.log.so_far()) == (1, False)
    assert caplog.messages == [
        f"run {run.info.run_id}: the agent did not stop within 0.05 s, so the stream ends without it; let the agent"
        " handle asyncio.CancelledError and look at turn.stopped in threads, or raise Timeouts.stop"
    ]


@pytest.mark.parametrize(
    ("timeouts", "text"),
    [
        pytest.param(Timeouts(first_event=0.05), SILENT, id="first-event"),
        pytest.param(Timeouts(total=0.05, first_event=None, idle=None), TOO_LONG, id="total"),
    ],
)
async def test_a_silent_agent_times_out(timeouts: Timeouts, text: str) -> None:
    async def agent(_turn: Turn) -> AsyncIterator[str]:
        await asyncio.sleep(60)
        yield "never"

    run, kinds, _ = await answered(agent, timeouts)
    assert (run.info.state, kinds) == (RunState.FAILED, ["Start", "Error", "Finish"])
    assert text.encode() in run.log.so_far()


LIMITS = Timeouts(first_event=10, idle=20, total=40)


@pytest.mark.parametrize(
    ("timeouts", "ticks", "text"),
    [
        pytest.param(LIMITS, [(9.5, False)], None, id="in time"),
        pytest.param(LIMITS, [(10, False)], SILENT, id="no first part"),
        pytest.param(LIMITS, [(10, True)], None, id="a first part"),
        pytest.param(LIMITS, [(5, True), (24.5, False)], None, id="silent, but not for too long"),
        pytest.param(LIMITS, [(5, True), (25, False)], SILENT, id="silent for too long"),
        pytest.param(LIMITS, [(5, True), (20, True), (39.5, True)], None, id="the end is near"),
        pytest.param(LIMITS, [(5, True), (20, True), (40, True)], TOO_LONG, id="too long in all"),
        pytest.param(Timeouts(first_event=None, idle=20), [(100, False)], None, id="a first part may take its time"),
        pytest.param(Timeouts(idle=None), [(5, True), (1000, False)], None, id="silence has no limit"),
        pytest.param(Timeouts(first_event=10, total=10), [(10, False)], TOO_LONG, id="the total counts first"),
    ],
)
async def test_a_time_limit_is_exceeded_when_its_last_moment_has_come(
    monkeypatch: pytest.MonkeyPatch, timeouts: Timeouts, ticks: list[tuple[float, bool]], text: str | None
) -> None:
    async def silent(_turn: Turn) -> str:
        return str(await asyncio.Event().wait())

    loop = asyncio.get_running_loop()
    now = float(int(loop.time()))
    with monkeypatch.context() as patched:
        patched.setattr(loop, "time", lambda: now)
        run, _ = make_run(timeouts)
    run.start(as_source(silent))
    await asyncio.sleep(0)
    for seconds, speaks in ticks:
        if speaks:
            run.write(parts.Text("word "))
        run.tick(now + seconds)
    run.stop()
    await run.wait(10)
    errors = [chunk.error_text for chunk in ChunkDecoder().receive(run.log.so_far()) if isinstance(chunk, ErrorChunk)]
    assert errors == ([] if text is None else [text])


async def test_an_agent_that_falls_silent_times_out_and_its_tools_are_settled() -> None:
    async def agent(_turn: Turn) -> AsyncIterator[parts.Part]:
        yield parts.ToolCall("t1", "slow", {})
        await asyncio.sleep(60)

    run, kinds, _ = await answered(agent, Timeouts(first_event=5, idle=0.05))
    assert run.info.state is RunState.FAILED
    assert kinds == ["Start", "StartStep", "ToolInputAvailable", "ToolOutputError", "Error", "Finish"]


async def test_an_agent_that_waits_for_its_reader_is_not_silent_unless_that_takes_nothing() -> None:
    async def agent(_turn: Turn) -> AsyncIterator[str]:
        while True:
            yield "x" * 5000

    frames = bytearray()
    log = Log(keep=False, on_flush=frames.extend)
    reader = log.reader(maximum_behind=200_000)
    run, _ = make_run(Timeouts(first_event=10, idle=20), log=log)
    run.start(as_source(agent))
    now = asyncio.get_running_loop().time()
    for seconds in (5, 24, 43, 62, 82):
        while not log.is_full:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert run.info.state is RunState.RUNNING
        run.tick(now + seconds)
        if seconds < 62:
            assert isinstance(await reader.read(), bytes)
            assert isinstance(await reader.read(), bytes)
    await run.wait(10)
    assert (run.info.state, CANNOT_FOLLOW.encode() in frames) == (RunState.FAILED, True)


async def test_an_agent_that_sends_in_time_does_not_time_out() -> None:
    async def agent(_turn: Turn) -> AsyncIterator[str]:
        for _ in range(6):
            await asyncio.sleep(0.05)
            yield "a"

    run, _, message = await answered(agent, Timeouts(first_event=10, idle=10))
    assert (run.info.state, text_of(message)) == (RunState.FINISHED, "aaaaaa")


async def test_an_agent_without_a_pause_does_not_starve_others() -> None:
    turns = 0

    async def agent(_turn: Turn) -> AsyncIterator[str]:
        for _ in range(2000):
            yield "a"

    async def other() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    neighbour = asyncio.ensure_future(other())
    _, _, message = await answered(agent)
    neighbour.cancel()
    assert len(text_of(message)) == 2000
    assert turns >= 20


async def test_a_run_can_be_failed_at_once() -> None:
    async def agent(_turn: Turn) -> AsyncIterator[str]:
        yield "a"
        await asyncio.sleep(60)

    run, ended = make_run()
    run.start(as_source(agent))
    await asyncio.sleep(0.01)
    assert b'"errorText":"Too slow."' in run.fail("Too slow.")
    assert (run.info.state, len(ended)) == (RunState.FAILED, 1)
    await run.wait()


async def test_parts_are_flushed_together_when_the_agent_pauses() -> None:
    flushed: list[tuple[int, bytes]] = []
    pauses = 0

    async def agent(_turn: Turn) -> AsyncIterator[str]:
        nonlocal pauses
        for word in ("a", "b", "", "c", "d"):
            if word:
                yield word
            else:
                pauses += 1
                await asyncio.sleep(0.01)

    run, _ = make_run(log=Log(on_flush=lambda frames: flushed.append((pauses, frames))))
    run.start(as_source(agent))
    await run.wait(10)
    assert [(when, frames.count(b"text-delta")) for when, frames in flushed] == [(1, 2), (1, 2)]
    assert flushed[-1][1].endswith(b"data: [DONE]\n\n")


async def test_parts_sent_from_other_tasks_are_flushed_too() -> None:
    arrival = asyncio.Event()

    async def agent(turn: Turn) -> AsyncIterator[str]:
        yield "a"
        asyncio.get_running_loop().call_soon(turn.emit, "news", 1)
        await arrival.wait()

    run, _ = make_run()
    reader = run.log.reader()
    run.start(as_source(agent))
    frames = b""
    async with asyncio.timeout(10):
        while b"data-news" not in frames:
            new = await reader.read()
            assert isinstance(new, bytes)
            frames += new
    arrival.set()
    await run.wait(10)
    assert run.info.state is RunState.FINISHED


async def test_a_log_that_fails_fails_the_run_and_closes_the_agent() -> None:
    closed: list[bool] = []

    def fail(_frames: bytes) -> None:
        if not closed:
            raise OSError("disk full")

    async def agent(_turn: Turn) -> AsyncIterator[str]:
        try:
            yield "a"
            await asyncio.sleep(60)
        finally:
            closed.append(True)

    run, ended = make_run(log=Log(on_flush=fail))
    run.start(as_source(agent))
    await run.wait(10)
    assert (closed, run.info.state, len(ended)) == ([True], RunState.FAILED, 1)


async def test_coalesced_frames_are_sent_together_and_followed_by_others() -> None:
    flushed: list[bytes] = []

    async def agent(_turn: Turn) -> AsyncIterator[str]:
        for word in ("a", "b", "c"):
            yield word
            await asyncio.sleep(0)
        while not flushed:  # noqa: ASYNC110 (the log has its own clock)
            await asyncio.sleep(0.001)
        yield "d"

    run, _ = make_run(log=Log(coalesce=1, on_flush=flushed.append))
    run.start(as_source(agent))
    await run.wait(10)
    assert [frames.count(b"text-delta") for frames in flushed] == [3, 1]


async def test_the_end_does_not_wait_for_frames_that_could_be_coalesced() -> None:
    flushed: list[bytes] = []

    async def agent(_turn: Turn) -> AsyncIterator[str]:
        for word in ("a", "b"):
            yield word
            await asyncio.sleep(0)

    run, _ = make_run(log=Log(coalesce=3600, on_flush=flushed.append))
    run.start(as_source(agent))
    await run.wait(10)
    assert [(frames.count(b"text-delta"), frames.endswith(b"data: [DONE]\n\n")) for frames in flushed] == [(2, True)]


async def test_coalesced_frames_of_an_agent_without_a_pause_do_not_pile_up() -> None:
    flushed: list[bytes] = []

    async def agent(_turn: Turn) -> AsyncIterator[str]:
        for _ in range(1000):
            yield "word "

    run, _ = make_run(log=Log(coalesce=60, on_flush=flushed.append))
    run.start(as_source(agent))
    await run.wait(10)
    assert run.info.state is RunState.FINISHED
    assert 5 < len(flushed) < 50


async def test_an_answer_that_grows_too_long_is_stopped() -> None:
    async def agent(_turn: Turn) -> AsyncIterator[str]:
        while True:
            yield "word "

    log, ended = Log(), list[Run]()
    run = Run(
        PreparedRun(RunInfo("r1", "c1", "m1", "7"), TurnContext(TurnInput(ASKED))),
        log,
        Settings(maximum_run_bytes=10_000),
        on_end=ended.append,
    )
    run.start(as_source(agent))
    await run.wait(10)
    assert (run.info.state, len(ended), log.size < 20_000) == (RunState.FAILED, 1, True)
    assert log.so_far().count(TOO_MUCH.encode()) == 1


async def test_a_run_that_is_stopped_before_its_first_step_ends_at_once() -> None:
    async def agent(_turn: Turn) -> AsyncIterator[str]:
        yield "never said"

    run, ended = make_run()
    run.start(as_source(agent))
    run.stop("user")
    await run.wait(1)
    assert (run.info.state, len(ended)) == (RunState.STOPPED, 1)
    assert b"never said" not in run.log.so_far()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="there are no eager tasks before Python 3.12")
async def test_a_run_may_end_as_soon_as_it_is_started() -> None:
    async def agent(_turn: Turn) -> AsyncIterator[str]:
        yield "said"

    loop = asyncio.get_running_loop()
    loop.set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined,unused-ignore]
    try:
        run, ended = make_run()
        run.start(as_source(agent))
    finally:
        loop.set_task_factory(None)
    assert (run.info.state, len(ended)) == (RunState.FINISHED, 1)


async def test_parts_sent_after_the_end_are_dropped() -> None:
    turns: list[Turn] = []

    async def agent(turn: Turn) -> AsyncIterator[str]:
        turns.append(turn)
        yield "said"

    run, _ = make_run()
    run.start(as_source(agent))
    await run.wait(10)
    turns[0].emit("news", 1)
    assert b"news" not in run.log.so_far()


class Panic(BaseException):
    """Such as extensions in Rust raise."""


@pytest.mark.parametrize("kind", ["async generator", "coroutine", "thread", "iterator in a thread"])
@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, Panic, StopIteration])
async def test_whatever_an_agent_raises_is_a_failed_run(
    kind: str, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    async def generator(_turn: Turn) -> AsyncIterator[str]:
        yield "a"
        raise error("secret")

    async def coroutine(_turn: Turn) -> str:
        await asyncio.sleep(0)
        raise error("secret")

    def function(_turn: Turn) -> str:
        raise error("secret")

    def iterator(_turn: Turn) -> Iterator[str]:
        yield "a"
        raise error("secret")

    agents = (generator, coroutine, function, iterator)
    agent = dict(zip(["async generator", "coroutine", "thread", "iterator in a thread"], agents, strict=True))[kind]
    run, ended = make_run(on_error=None)
    run.start(as_source(agent))
    await run.wait(10)
    assert (run.info.state, len(ended)) == (RunState.FAILED, 1)
    (record,) = caplog.records
    reference = record.__dict__["reference"]
    assert f"An error occurred. Reference: {reference}".encode() in run.log.so_far()
    assert b"secret" not in run.log.so_far()
    assert error.__name__ in str(record.exc_text or traceback.format_exception(record.exc_info[1]))  # type: ignore[index]


async def _exits() -> str:
    await asyncio.sleep(0)
    raise SystemExit("secret")


async def _gathers(_turn: Turn) -> AsyncIterator[str]:
    yield "a"
    await asyncio.gather(_exits(), asyncio.sleep(0))


async def _groups(_turn: Turn) -> str:
    async with asyncio.TaskGroup() as group:
        group.create_task(_exits())
    return "never"


async def _waits(_turn: Turn) -> str:
    return await asyncio.wait_for(_exits(), 10)


async def _starts_in_another_context(_turn: Turn) -> str:
    return await asyncio.create_task(_exits(), context=contextvars.copy_context())


@pytest.mark.parametrize("agent", [_gathers, _groups, _waits, _starts_in_another_context])
async def test_a_task_that_an_agent_starts_cannot_end_the_event_loop(
    agent: Callable[[Turn], Any], caplog: pytest.LogCaptureFixture
) -> None:
    contain_exits(asyncio.get_running_loop())
    run, ended = make_run(on_error=None)
    run.start(as_source(agent))
    await run.wait(10)
    assert (run.info.state, len(ended)) == (RunState.FAILED, 1)
    assert b"secret" not in run.log.so_far()
    assert "SystemExit" in caplog.text


async def test_a_task_that_an_agent_left_behind_cannot_end_the_event_loop() -> None:
    contain_exits(asyncio.get_running_loop())
    left: list[asyncio.Task[str]] = []

    async def agent(_turn: Turn) -> str:
        left.append(asyncio.create_task(_exits()))
        return "said"

    run, _ = make_run()
    run.start(as_source(agent))
    await run.wait(10)
    with pytest.raises(TaskExited, match=r"a task of the agent raised SystemExit\('secret'\)"):
        await left[0]
    assert run.info.state is RunState.FINISHED


async def _exits_when_cancelled() -> None:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        raise SystemExit(3) from None


async def test_a_task_that_exits_when_it_is_cancelled_cannot_end_the_event_loop() -> None:
    contain_exits(asyncio.get_running_loop())

    async def agent(_turn: Turn) -> str:
        task = asyncio.create_task(_exits_when_cancelled())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(TaskExited):
            await task
        return "said"

    run, _ = make_run()
    run.start(as_source(agent))
    await run.wait(10)
    assert run.info.state is RunState.FINISHED


async def test_a_task_of_an_agent_shows_its_own_coroutine() -> None:
    contain_exits(asyncio.get_running_loop())

    async def agent(_turn: Turn) -> str:
        task = asyncio.create_task(asyncio.sleep(60))
        coroutine: Any = task.get_coro()
        description = f"{coroutine.cr_code.co_name} {'coro=<sleep()' in repr(task)}"
        task.cancel()
        return description

    run, _ = make_run()
    run.start(as_source(agent))
    await run.wait(10)
    assert b'"delta":"sleep True"' in run.log.so_far()


async def test_tasks_of_others_are_made_as_before() -> None:
    loop = asyncio.get_running_loop()
    coroutines: list[object] = []

    def factory(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        coroutines.append(coroutine)
        return asyncio.Task(coroutine, loop=loop, **options)

    loop.set_task_factory(factory)
    contain_exits(loop)
    contain_exits(loop)
    run, _ = make_run()
    run.start(as_source(words))
    for context in (None, contextvars.Context()):
        own = asyncio.sleep(0)
        await asyncio.create_task(own, context=context)
        assert coroutines[-1] is own
    await run.wait(10)
    assert run.info.state is RunState.FINISHED


async def test_a_run_leaves_the_loop_of_its_host_alone() -> None:
    run, _ = make_run()
    run.start(as_source(words))
    await run.wait(10)
    assert asyncio.get_running_loop().get_task_factory() is None


async def test_a_thread_is_not_far_ahead_of_the_loop() -> None:
    count = 0

    def agent(_turn: Turn) -> Iterator[str]:
        nonlocal count
        for _ in range(1000):
            count += 1
            yield "word "

    run, _ = make_run()
    run.start(as_source(agent))
    await asyncio.sleep(0)
    deadline = time.monotonic() + 30
    while count < 64:  # nobody takes what is said meanwhile
        assert time.monotonic() < deadline
        time.sleep(0.01)  # noqa: ASYNC251
    time.sleep(0.2)  # noqa: ASYNC251
    assert count <= 65
    await run.wait(30)
    assert (count, run.info.state) == (1000, RunState.FINISHED)


async def test_a_thread_that_waits_for_the_loop_can_be_stopped() -> None:
    first_word, closed = threading.Event(), threading.Event()

    def agent(_turn: Turn) -> Iterator[str]:
        try:
            while True:
                yield "word "
                first_word.set()
        finally:
            closed.set()

    run, _ = make_run()
    run.start(as_source(agent))
    assert await asyncio.to_thread(first_word.wait, 30)
    run.stop("user")
    assert await asyncio.to_thread(closed.wait, 30)
    await run.wait(10)
    assert run.info.state is RunState.STOPPED


async def test_the_first_native_approval_for_any_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    log_native_approval.cache_clear()
    caplog.set_level("INFO", "usechat.runs")
    for sdk in ("7", "any", "any"):
        run, _ = make_run(sdk=sdk)
        run.write(parts.ApprovalRequest("a1", "c1"))
        run.write(parts.Finish())
    assert [record.getMessage() for record in caplog.records] == [
        "an approval request is sent as AI SDK 6 and 7 know it; AI SDK 5 rejects it: serve such pages with --sdk 5"
    ]


@pytest.mark.parametrize("sdk", ["6", "7", "7.0.160"])
async def test_an_approval_for_a_release_that_knows_it_is_not_logged(
    sdk: str, caplog: pytest.LogCaptureFixture
) -> None:
    log_native_approval.cache_clear()
    caplog.set_level("INFO", "usechat.runs")
    run, _ = make_run(sdk=sdk)
    for part in (parts.ToolCall("c1", "rm", {}), parts.ApprovalRequest("a1", "c1"), parts.Finish()):
        run.write(part)
    assert caplog.records == []


async def test_the_seconds_of_a_run_are_counted_from_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    now = float(int(loop.time()))
    with monkeypatch.context() as patched:
        patched.setattr(loop, "time", lambda: now)
        run, _ = make_run()
        patched.setattr(loop, "time", lambda: now + 7)
        assert run.seconds == 7


async def test_a_part_without_a_frame_is_no_reason_to_yield_to_the_event_loop() -> None:
    run, _ = make_run()
    assert [run.write(parts.BlockEnd()), run.write(parts.Text("x" * 5000))] == [False, True]


async def test_an_approval_that_is_not_sent_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    log_native_approval.cache_clear()
    caplog.set_level("INFO", "usechat.runs")
    run, _ = make_run(sdk="any")
    for part in (parts.ApprovalRequest("a1", "c1"), parts.ToolResult("c1", "done"), parts.Finish()):
        run.write(part)
    assert caplog.records == []


def test_ids_are_compared_by_what_they_say() -> None:
    first, same, other = (RunInfo("r1", "c1", "m1", "7", "".join(["u", digit])) for digit in "112")
    assert (first.answers_same_id(same), first.answers_same_id(other)) == (True, False)
    assert not other.answers_same_id(first)
    nameless = RunInfo("r1", "c1", "m1", "7", "")
    assert not nameless.answers_same_id(nameless)


def test_digests_and_turns_are_compared_by_what_they_say() -> None:
    first, same, other = (
        RunInfo("".join(["r", digit]), "c1", "m1", "7", "u1", user_message_digest="".join(["d", digit]))
        for digit in "112"
    )
    for compare in (RunInfo.answers_same_message, RunInfo.is_same_turn):
        assert [compare(first, same), compare(first, other), compare(other, first)] == [True, False, False]


async def test_a_task_that_something_else_cancelled_fails_the_agent_that_awaits_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def agent(_turn: Turn) -> AsyncIterator[str]:
        yield "half an "
        task = asyncio.create_task(asyncio.Event().wait())
        asyncio.get_running_loop().call_soon(task.cancel)
        await task

    run, _ = make_run()
    run.start(as_source(agent))
    await run.wait(10)
    (record,) = caplog.records
    assert (run.info.state, record.exc_info and record.exc_info[0]) == (RunState.FAILED, asyncio.CancelledError)
    assert f"Reference: {record.__dict__['reference']}".encode() in run.log.so_far()


async def test_a_run_whose_own_task_was_cancelled_is_stopped() -> None:
    tasks: list[asyncio.Task[Any] | None] = []

    async def agent(_turn: Turn) -> AsyncIterator[str]:
        tasks.append(asyncio.current_task())
        yield "half"
        await asyncio.Event().wait()

    run, _ = make_run()
    run.start(as_source(agent))
    await asyncio.sleep(0.01)
    [task] = tasks
    assert task is not None
    task.cancel()
    await run.wait(10)
    assert run.info.state is RunState.STOPPED
