"""What readers get when the run they read breaks off: an ending that every client takes."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.part_strategies import continued_messages, part_lists
from usechat import parts
from usechat.errors import RunLost, StoreUnreachable, StreamFailed
from usechat.parts import Part
from usechat.protocol.chunks import (
    ErrorChunk,
    FinishChunk,
    ReasoningEndChunk,
    ReasoningStartChunk,
    StartChunk,
    TextEndChunk,
    TextStartChunk,
)
from usechat.protocol.message import MessageBuilder
from usechat.protocol.sse import ChunkDecoder, FrameStream
from usechat.protocol.stream import MessageStream
from usechat.runs.log import Wake
from usechat.runs.memory import MemoryRuns
from usechat.runs.remote_runs import RemoteRuns, failure_after
from usechat.runs.run import RunInfo
from usechat.runs.store import LOST


def info(sdk: str = "7") -> RunInfo:
    return RunInfo("r1", "c1", "m1", sdk)


def cut_after(sent_parts: Sequence[Part], sdk: str = "7", continues: Any = None) -> bytes:
    frames = FrameStream(MessageStream(message_id="m1", sdk=sdk, continues=continues))
    return b"".join([frames.send(part) for part in sent_parts])


@pytest.mark.parametrize(
    "sent_parts",
    [
        pytest.param([], id="nothing-said-yet"),
        pytest.param([parts.Text("a")], id="text"),
        pytest.param([parts.Reasoning("a"), parts.Text("b", lane="x")], id="two-lanes"),
        pytest.param([parts.ToolInputStart("c1", "search"), parts.ToolInputDelta("c1", '{"q')], id="half-an-input"),
        pytest.param([parts.Text("a"), parts.ToolCall("c1", "search", {})], id="a-tool-at-work"),
        pytest.param([parts.ToolCall("c1", "search", {}), parts.ApprovalRequest("a1", "c1")], id="an-approval"),
    ],
)
@pytest.mark.parametrize("sdk", ["5.0.0", "6", "7", "any"])
def test_a_run_that_breaks_off_ends_as_its_owner_would_have_ended_it(sent_parts: list[Part], sdk: str) -> None:
    owner = FrameStream(MessageStream(message_id="m1", sdk=sdk))
    so_far = b"".join([owner.send(part) for part in sent_parts])
    assert failure_after(so_far, info(sdk), None, LOST) == owner.fail(LOST)


def test_a_run_that_had_ended_needs_no_ending() -> None:
    assert failure_after(cut_after([parts.Text("a"), parts.Finish()]), info(), None, LOST) == b""


@settings(max_examples=200)
@given(part_lists, st.sampled_from(["5.0.0", "6", "7"]), st.none() | continued_messages(approvals=False))
def test_whatever_was_said_the_ending_is_legal(sent_parts: list[Part], sdk: str, continues: Any) -> None:
    open_parts = [part for part in sent_parts if not isinstance(part, parts.Finish | parts.Error | parts.Abort)]
    so_far = cut_after(open_parts, sdk, continues)
    whole = ChunkDecoder().receive(so_far + failure_after(so_far, info(sdk), continues, LOST))
    builder = MessageBuilder(sdk=sdk, message=continues)
    for chunk in whole[:-2]:
        builder.receive(chunk)
    with pytest.raises(StreamFailed, match=LOST):
        builder.receive(whole[-2])
    assert isinstance(whole[0], StartChunk)
    assert [type(chunk) for chunk in whole[-2:]] == [ErrorChunk, FinishChunk]
    opened = [chunk.id for chunk in whole if isinstance(chunk, TextStartChunk | ReasoningStartChunk)]
    closed = [chunk.id for chunk in whole if isinstance(chunk, TextEndChunk | ReasoningEndChunk)]
    assert sorted(opened) == sorted(closed)


class Elsewhere(MemoryRuns):
    """A store that knows one run of another worker."""

    def __init__(self, end: Exception | None = None) -> None:
        super().__init__()
        self.reads = 0
        self.go_on = asyncio.Event()
        self._end = end

    async def continued(self, info: RunInfo) -> Mapping[str, Any] | None:
        return {"id": info.message_id}

    async def read(self, info: RunInfo) -> AsyncGenerator[bytes, None]:  # noqa: ARG002
        self.reads += 1
        try:
            yield cut_after([parts.Text("a")])
            await self.go_on.wait()
            if self._end is not None:
                raise self._end
        finally:
            self.reads -= 1


async def test_readers_share_a_mirror_which_goes_with_the_last_of_them() -> None:
    store = Elsewhere()
    remote_runs = RemoteRuns(store)
    first, second = await asyncio.gather(remote_runs.open(info()), remote_runs.open(info()))
    assert first is second
    assert (first.log.so_far(), first.continued) == (cut_after([parts.Text("a")]), {"id": "m1"})
    remote_runs.release(first)
    assert store.reads == 1
    remote_runs.release(second)
    await remote_runs.close()
    assert store.reads == 0


class Restarted(MemoryRuns):
    """A store with a run of another worker that is lost, and with the chat's latest run."""

    def __init__(self, frames: bytes, latest: RunInfo | None) -> None:
        super().__init__()
        self.go_on = asyncio.Event()
        self._frames = frames
        self._last = latest

    async def latest(self, chat_id: str) -> RunInfo | None:  # noqa: ARG002
        return self._last

    async def read(self, info: RunInfo) -> AsyncGenerator[bytes, None]:
        if info.run_id != "r1":
            yield cut_after([parts.Text("again"), parts.Finish()])
            return
        yield self._frames
        await self.go_on.wait()
        raise RunLost(LOST)


RESTART = RunInfo("r2", "c1", "m1", "7", origin="r1")


@pytest.mark.parametrize(
    ("latest", "text"),
    [
        pytest.param(RESTART, b"again", id="restarted"),
        pytest.param(RunInfo("r0", "c1", "m1", "7", origin="r1"), b"again", id="restarted, ids in any order"),
        pytest.param(None, LOST.encode(), id="forgotten"),
        pytest.param(RunInfo(b"r1".decode(), "c1", "m1", "7"), LOST.encode(), id="not restarted"),
        pytest.param(RunInfo("r2", "c1", "m2", "7"), LOST.encode(), id="another turn"),
    ],
)
async def test_a_lost_run_that_said_nothing_goes_on_as_the_run_that_restarts_it(
    latest: RunInfo | None, text: bytes
) -> None:
    store = Restarted(b"", latest)
    remote_runs = RemoteRuns(store)
    remote_run = await remote_runs.open(info())
    reader = remote_run.log.reader()
    store.go_on.set()
    frames = await reader.read()
    assert isinstance(frames, bytes)
    assert text in frames
    assert (LOST.encode() in frames) is (text == LOST.encode())
    assert await reader.read() is None
    remote_runs.release(remote_run)
    await remote_runs.close()


async def test_the_readers_of_a_lost_run_that_had_spoken_are_sent_to_the_run_that_restarts_it() -> None:
    frames = cut_after([parts.Text("a")])
    store = Restarted(frames, RESTART)
    remote_runs = RemoteRuns(store)
    remote_run = await remote_runs.open(info())
    reader = remote_run.log.reader()
    store.go_on.set()
    assert await reader.read() is Wake.SHUTDOWN
    assert remote_run.log.so_far() == frames
    remote_runs.release(remote_run)
    await remote_runs.close()


@pytest.mark.parametrize(
    "end", [RunLost(LOST), StoreUnreachable(), RuntimeError("secret")], ids=lambda end: type(end).__name__
)
async def test_the_mirror_of_a_lost_run_ends_with_an_error(end: Exception) -> None:
    store = Elsewhere(end)
    remote_runs = RemoteRuns(store)
    remote_run = await remote_runs.open(info())
    reader = remote_run.log.reader()
    store.go_on.set()
    frames = await reader.read()
    assert isinstance(frames, bytes)
    assert LOST.encode() in frames
    assert b"secret" not in frames
    assert b"event: " not in frames
    assert await reader.read() is None
    remote_runs.release(remote_run)
    await remote_runs.close()
