"""Views of a run from an index on: every chunk as it was sent, an ending in any case, names that come back."""

import asyncio
from typing import Any

import msgspec
import pytest

from tests.runs.test_manager import Agent, asked, manager, start
from usechat.protocol import chunks
from usechat.protocol.sse import chunks_json, encode_frame
from usechat.runs.ended import EndedRun, EndedRuns
from usechat.runs.log import Log
from usechat.runs.manager import Reading
from usechat.runs.memory import MemoryRuns
from usechat.runs.replay import Replay
from usechat.runs.run import RunInfo
from usechat.runs.views import NOTHING_MORE, Tail, View, ViewName, failure

CONTINUED = {"id": "m-r1", "role": "assistant", "parts": [{"type": "step-start"}, {"type": "text", "text": "Before."}]}


async def all_of(reading: Reading) -> list[bytes]:
    """Read to the end; return the JSON of each chunk."""
    pieces = []
    async with asyncio.timeout(30):
        while isinstance(frames := await reading.read(), bytes):
            pieces.append(frames)
    reading.close()
    return chunks_json(b"".join(pieces))


async def latest(runs: Any) -> RunInfo:
    info: RunInfo | None = await runs.latest("c1")
    assert info is not None
    return info


async def tail_of(runs: Any, view: View | str, start_index: int) -> list[bytes]:
    found = await runs.tail(await latest(runs), view, start_index)
    assert found is not None
    return await all_of(found[0])


@pytest.mark.parametrize("chat_id", ["c1", "a/b", "Grüße 🙂", "run~x~~~y", "a~b%2F", "\n", "\ud800"])
@pytest.mark.parametrize("view", [View("r1"), View("r1", "6"), View("r1", "5", "shown"), View("r1", "7", "known")])
def test_the_name_of_a_view_is_a_header_and_comes_back(chat_id: str, view: View) -> None:
    name = str(ViewName(view, chat_id))
    assert name.isascii()
    assert name.isprintable()
    assert "/" not in name
    assert ViewName.parse(name) == ViewName(view, chat_id)


@pytest.mark.parametrize(
    "text", ["c1", "", "run", "run~", "run~r1~~~", "run~r1~6~other~c1", "run~~~~c1", "xrun~r1~~~c"]
)
def test_anything_else_is_the_id_of_a_chat(text: str) -> None:
    assert ViewName.parse(text) is None


async def test_from_every_index_on_there_are_exactly_the_chunks_that_the_first_reader_got() -> None:
    runs, agent = manager(), Agent()
    first = await start(runs, agent)
    await agent.waits.wait()
    view = first.view
    running = [await runs.tail(await latest(runs), view, index) for index in range(4)]
    agent.go_on.set()
    sent = await all_of(first)
    assert len(sent) == 9
    for index, found in enumerate(running):
        assert found is not None
        assert await all_of(found[0]) == sent[index:]
    for index in range(len(sent)):
        assert await tail_of(runs, view, index) == sent[index:]


@pytest.mark.parametrize("sdk", ["5", "6"])
@pytest.mark.parametrize("has_message", [True, False])
async def test_a_view_for_another_release_goes_on_exactly_too(sdk: str, has_message: bool) -> None:
    runs, agent = manager(), Agent()
    first = await start(runs, agent, continues=CONTINUED)
    await agent.waits.wait()
    other = await runs.attach(await latest(runs), sdk=sdk, has_message=has_message, exact=True)
    assert other is not None
    agent.go_on.set()
    sent = await all_of(other)
    assert b"Before." not in b"".join(await all_of(first))
    assert (b"Before." in b"".join(sent)) is not has_message
    for index in range(len(sent)):
        assert await tail_of(runs, other.view, index) == sent[index:]


async def test_a_negative_index_counts_from_the_last_chunk() -> None:
    runs, agent = manager(), Agent()
    agent.go_on.set()
    sent = await all_of(await start(runs, agent))
    found = await runs.tail(await latest(runs), View("r1"), -3)
    assert found is not None
    assert found[1] == len(sent)
    assert await all_of(found[0]) == sent[-3:]
    assert await tail_of(runs, View("r1"), -100) == sent


async def test_an_earlier_run_of_the_chat_is_still_there_and_that_of_another_chat_is_not() -> None:
    runs, agent = manager(), Agent()
    agent.go_on.set()
    sent = await all_of(await start(runs, agent))
    await all_of(await start(runs, agent, "r2", "u2"))
    assert await tail_of(runs, View("r1"), 2) == sent[2:]
    elsewhere = msgspec.structs.replace(await latest(runs), chat_id="c2")
    assert await runs.tail(elsewhere, View("r1"), 2) is None
    assert await runs.tail(await latest(runs), View("r0"), 2) is None
    runs.forget("c1")
    assert await runs.tail(await latest(runs), View("r1"), 2) is None


async def test_without_a_log_nothing_is_kept() -> None:
    runs, agent = manager(keep_log=False), Agent()
    agent.go_on.set()
    await all_of(await start(runs, agent))
    assert await runs.tail(await latest(runs), View("r1"), 0) is None


async def test_a_new_process_does_not_know_the_runs_of_the_last_one() -> None:
    store, agent = MemoryRuns(), Agent()
    agent.go_on.set()
    await all_of(await start(manager(store=store), agent))
    assert await manager(store=store).tail(RunInfo("r1", "c1", "m1", "7"), View("r1"), 0) is None
    assert asked().chat_id == "c1"


def delta(text: str) -> bytes:
    return encode_frame(chunks.TextDeltaChunk("1", text))


def test_an_ending_is_there_in_any_case() -> None:
    finish = encode_frame(chunks.FinishChunk())
    has_it, lacks_it, is_lost = Tail(1), Tail(9), Tail(0)
    for tail in (has_it, lacks_it):
        tail.receive(delta("a") + finish)
    assert is_lost.receive(delta("a")) == delta("a")
    assert (has_it.end(), lacks_it.end(), is_lost.end()) == (b"", NOTHING_MORE, failure("The run was lost."))


def test_a_tail_begins_in_what_is_live_if_the_client_is_ahead() -> None:
    tail = Tail(3)
    assert tail.receive(delta("a") + delta("b")) == b""
    assert tail.receive(delta("c") + delta("d")) == delta("d")
    assert tail.receive(delta("e")) == delta("e")


def replay_of(size: int) -> Replay:
    replay = Replay()
    replay.add(encode_frame(chunks.DataChunk("data-x", "x" * size)))
    return replay


async def test_ended_runs_go_after_a_while_and_the_oldest_ones_when_there_are_too_many_bytes() -> None:
    runs = EndedRuns(seconds=0.05, maximum_bytes=5500)
    for number in range(3):
        runs.add(EndedRun(f"r{number}", "c1", replay_of(400), None))
    assert runs.find("r0", "c1") is None
    assert runs.find("r1", "c1") is not None
    assert runs.find("r1", "c2") is None
    runs.add(EndedRun("large", "c1", replay_of(5000), None))
    assert [runs.find(run_id, "c1") for run_id in ("r1", "r2", "large")] == [None, None, None]
    runs.add(EndedRun("r4", "c1", replay_of(10), None))
    await asyncio.sleep(0.1)
    assert runs.find("r4", "c1") is None


async def test_the_message_that_a_run_continued_counts_and_a_run_counts_once() -> None:
    runs = EndedRuns(maximum_bytes=20_000)
    for _ in range(100):
        runs.add(EndedRun("r1", "c1", replay_of(400), None))
    runs.add(EndedRun("r2", "c1", replay_of(10), {"text": "x" * 15_000}))
    assert [runs.find(log, "c1") is not None for log in ("r1", "r2")] == [True, True]
    runs.add(EndedRun("r3", "c1", replay_of(10), {"text": "x" * 5_000}))
    assert [runs.find(log, "c1") is not None for log in ("r1", "r2", "r3")] == [False, False, True]


async def test_an_exact_reader_gets_what_is_in_the_file_and_what_came_while_it_read() -> None:
    log = Log(in_memory=100)
    written = [delta(f"word{number} ") for number in range(500)]
    for frames in written[:300]:
        log.append(frames)
    reader = log.reader(from_start=True, exact=True)
    pieces = [reader.replay() or b""]
    for frames in written[300:]:
        log.append(frames)
        log.flush()
    while (piece := reader.replay()) is not None:
        pieces.append(piece)
    assert b"".join(pieces) == b"".join(written)
