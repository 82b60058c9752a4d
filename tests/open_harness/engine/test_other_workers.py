"""A run that one worker runs and turns of others show: two transports, each with a store of its own over one file.

Real processes, Redis and PostgreSQL: tests/conformance/test_open_harness_workers.py.
"""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.open_harness.flow_runs import constant, edge, flow
from usechat.errors import PublicError
from usechat.open_harness import FlowRuntimes, OpenHarnessChatTransport, SqliteRunStore
from usechat.open_harness.engine import other_workers
from usechat.open_harness.engine.other_workers import Readers, StoredRun
from usechat.open_harness.engine.processes import this_process
from usechat.open_harness.errors import NotResumable
from usechat.open_harness.flow.reading import load_flow
from usechat.protocol.chunks import Chunk, ErrorChunk, TextDeltaChunk
from usechat.protocol.request import ChatRequest
from usechat.turn import Turn, TurnContext, TurnInput

PATIENCE = 60


def node(node_id: str, function: str) -> dict[str, Any]:
    return {"id": node_id, "type": "python", "input": {"function": f"tests.open_harness.flow_of_workers:{function}"}}


TALK = flow(node("talk", "talks"))


def asked(text: str, number: int, **fields: Any) -> ChatRequest:
    message = {"id": f"u{number}", "role": "user", "parts": [{"type": "text", "text": text}]}
    return ChatRequest.parse({"id": "chat", "messages": [message], **fields})


def text_of(chunks: list[Chunk]) -> str:
    return "".join(chunk.delta for chunk in chunks if isinstance(chunk, TextDeltaChunk))


class Answer:
    """An answer that is read by a task of its own."""

    def __init__(self, transport: OpenHarnessChatTransport, request: ChatRequest) -> None:
        self.chunks: list[Chunk] = []
        self.task = asyncio.ensure_future(self._read(transport, request))

    async def _read(self, transport: OpenHarnessChatTransport, request: ChatRequest) -> None:
        async for chunk in await transport.send_messages(request):
            self.chunks.append(chunk)

    @property
    def text(self) -> str:
        return text_of(self.chunks)

    async def until(self, text: str) -> None:
        await eventually(lambda: self.text == text)

    async def leave(self) -> None:
        """Close the answer, as a page does that is closed."""
        self.task.cancel()
        await asyncio.wait([self.task])

    async def ended(self) -> str:
        await asyncio.wait_for(self.task, PATIENCE)
        return self.text


async def begun(worker: OpenHarnessChatTransport, stores: list[SqliteRunStore], text: str) -> Answer:
    """Return an answer that has said this, when the other worker can know of its run."""
    answer = Answer(worker, asked("hello", 1))
    await answer.until(text)
    await eventually(lambda: stores[1].running_run("chat"))
    return answer


async def eventually(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
def stores(place: Path) -> Iterator[list[SqliteRunStore]]:
    with ExitStack() as stack:
        yield [stack.enter_context(SqliteRunStore(place)) for _ in range(2)]


@pytest.fixture
async def settled() -> AsyncIterator[None]:
    """End the tasks that read commands before the stores are closed."""
    yield
    await eventually(lambda: "usechat flow commands" not in [task.get_name() for task in asyncio.all_tasks()])


pytestmark = pytest.mark.usefixtures("settled")


def workers(stores: list[SqliteRunStore], described: Any = TALK) -> list[OpenHarnessChatTransport]:
    return [OpenHarnessChatTransport(FlowRuntimes(described, store=store)) for store in stores]


async def test_every_turn_shows_what_follows_the_one_before_it(stores: list[SqliteRunStore]) -> None:
    here, there = workers(stores)
    first = await begun(here, stores, "Hello. ")
    second = Answer(there, asked("one", 2))
    await second.until("You said one. ")
    third = Answer(there, asked("two", 3))  # handed over within this worker
    await third.until("You said two. ")
    fourth = Answer(here, asked("bye", 4))  # the worker that runs the flow does not show it any more
    texts = [await answer.ended() for answer in (first, second, third, fourth)]
    assert texts == ["Hello. ", "You said one. ", "You said two. ", "You said bye. "]
    assert stores[0].running_run("chat") is None
    assert not [chunk for answer in (first, second, third, fourth) for chunk in answer.chunks if is_error(chunk)]


def is_error(chunk: Chunk) -> bool:
    return isinstance(chunk, ErrorChunk)


async def test_a_node_that_does_not_read_the_message_leaves_it_to_the_next(stores: list[SqliteRunStore]) -> None:
    here, there = workers(stores, flow(node("deaf", "deaf"), node("talk", "talks"), edges=(edge("deaf->talk"),)))
    first = await begun(here, stores, "Not listening. ")
    second = Answer(there, asked("bye", 2))
    assert [await second.ended(), await first.ended()] == ["Hello. You said bye. ", "Not listening. "]


async def test_a_message_that_no_node_reads_is_answered_by_a_new_run(stores: list[SqliteRunStore]) -> None:
    here, there = workers(stores, flow(node("deaf", "deaf")))
    first = await begun(here, stores, "Not listening. ")
    second = Answer(there, asked("again", 2))
    await second.until("Not listening. ")  # of another run
    assert await first.ended() == "Not listening. "
    await second.leave()


async def test_a_turn_that_is_left_stops_the_flow_of_the_other_worker(stores: list[SqliteRunStore]) -> None:
    here, there = workers(stores)
    first = await begun(here, stores, "Hello. ")
    run_id = stores[1].running_run("chat")
    second = Answer(there, asked("one", 2))
    await second.until("You said one. ")
    await second.leave()
    await first.ended()
    assert run_id is not None
    await eventually(lambda: (stores[1].load_snapshot(run_id) or {})["status"] == "aborted")


async def test_regenerating_on_another_worker_stops_the_flow(stores: list[SqliteRunStore]) -> None:
    here, there = workers(stores)
    first = await begun(here, stores, "Hello. ")
    run_id = stores[1].running_run("chat")
    there.hand_over(turn_of(asked("hello", 1, trigger="regenerate-message")))
    await first.ended()
    assert run_id is not None
    assert (stores[1].load_snapshot(run_id) or {})["status"] == "aborted"


def turn_of(request: ChatRequest) -> Turn:
    return TurnContext(TurnInput(request)).turn


async def test_a_run_without_a_sign_of_the_turn_that_shows_it_is_stopped(
    stores: list[SqliteRunStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(other_workers, "_UNREAD_SECONDS", 0.3)
    here, there = workers(stores)
    first = await begun(here, stores, "Hello. ")
    there.hand_over(turn_of(asked("one", 2)))  # and the request goes away
    assert await first.ended() == "Hello. "
    await eventually(lambda: stores[0].running_run("chat") is None)


async def test_a_run_that_is_stored_as_running_but_is_not_is_left(
    stores: list[SqliteRunStore], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(other_workers, "_OPENING", 0.3)
    stale = {"status": "running", "owner": "", "input": {"chatId": "chat"}, "process": this_process()}
    stores[0].save_snapshot("stale", stale)
    stores[0].flush()
    answer = Answer(workers(stores)[1], asked("bye", 1))
    await answer.until("Hello. ")
    await answer.leave()
    assert "run stale is stored as running, but no worker runs it" in caplog.text


async def test_a_worker_that_dies_is_an_error_of_the_turn_that_shows_its_run(
    place: Path, stores: list[SqliteRunStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(other_workers, "_READING", 0.2)
    program = (
        "import asyncio, sys; from tests.open_harness.engine import test_other_workers as t;"
        "asyncio.run(t.answer_alone(sys.argv[1]))"
    )
    command = [sys.executable, "-c", program, str(place)]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[3])  # noqa: ASYNC220
    try:
        await eventually(lambda: stores[0].running_run("chat") is not None)
        answer = Answer(workers(stores)[0], asked("one", 2))
        await answer.until("You said one. ")
    finally:
        process.kill()
        process.wait()
    await answer.ended()
    assert [chunk for chunk in answer.chunks if is_error(chunk)]


async def answer_alone(place: str) -> None:
    """Answer one message, in a process of its own."""
    with SqliteRunStore(place) as store:
        await Answer(workers([store])[0], asked("hello", 1)).task
        await asyncio.Event().wait()


async def test_a_run_that_waits_for_a_turn_of_its_own_worker_is_kept(stores: list[SqliteRunStore]) -> None:
    recorded: list[Any] = []
    readers = Readers(record=recorded.append, dispatch=recorded.append, stop=lambda: None)
    readers.release_here = lambda *, is_gone=False: is_gone
    readers.receive({"type": "release"})
    assert recorded == []
    readers.receive({"type": "read", "reader": "r"})
    readers.receive({"type": "pause"})
    assert recorded == [{"type": "flow:kept", "reader": "r"}, {"type": "pause"}]
    run = StoredRun(load_flow(TALK), stores[0], "run")
    opening = asyncio.ensure_future(run.open())
    async with asyncio.timeout(PATIENCE):
        while not (commands := stores[1].take_commands(["run"])):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    stores[1].append_event("run", {"type": "flow:kept", "reader": commands[0][1]["reader"]})
    with pytest.raises(PublicError, match="busy with an earlier message"):
        await opening


async def test_only_a_turn_that_shows_the_run_keeps_it_running(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_workers, "_UNREAD_SECONDS", 0.2)
    recorded: list[Any] = []
    stopped = asyncio.Event()
    readers = Readers(record=recorded.append, dispatch=recorded.append, stop=stopped.set)
    readers.release_here = lambda *, is_gone=False: True  # noqa: ARG005
    for command in ("release", "release", "read", "reading"):
        readers.receive({"type": command, "reader": "a"})
    readers.receive({"type": "read", "reader": "b"})
    kinds = [(each["type"], each.get("reader")) for each in recorded]
    assert kinds == [("flow:released", None), ("flow:read", "a"), ("flow:released", None), ("flow:read", "b")]
    async with asyncio.timeout(PATIENCE):
        while not stopped.is_set():
            readers.receive({"type": "reading", "reader": "a"})  # late: it shows the run no longer
            await asyncio.sleep(0.05)


async def test_a_run_that_has_ended_is_not_shown(stores: list[SqliteRunStore]) -> None:
    for kind in ("flow:start", "flow:paused", "flow:resumed", "flow:complete"):
        stores[0].append_event("run", {"type": kind})
    stores[0].flush()
    run = StoredRun(load_flow(flow(constant("a"))), stores[1], "run")
    assert await run.open() is False
    for begin in (run.run, run.resume):
        with pytest.raises(NotResumable):
            await begin()
