"""Readers that begin at the start of a log that is being written: all of it, in order, and never much of it at once."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runs.test_manager import Agent, manager, start
from usechat.protocol.chunks import TextDeltaChunk
from usechat.protocol.reframing import shorten
from usechat.protocol.sse import ChunkDecoder, encode_frame
from usechat.runs.log import Log, Wake
from usechat.runs.manager import Reading
from usechat.runs.reading import LogReading
from usechat.turn import Turn

MEGABYTE: Final = 1024 * 1024


def delta(text: str, block: str = "1") -> bytes:
    return encode_frame(TextDeltaChunk(block, text))


def text_in(frames: bytes, block: str = "1") -> str:
    deltas = [chunk for chunk in ChunkDecoder().receive(frames) if isinstance(chunk, TextDeltaChunk)]
    return "".join([chunk.delta for chunk in deltas if chunk.id == block])


def write(log: Log, frames: bytes) -> None:
    log.append(frames)
    log.flush()


def reading_of(log: Log, *, maximum_behind: int | None = None) -> LogReading[Log]:
    reader = log.reader(maximum_behind=maximum_behind, from_start=True)
    reading = LogReading(reader, log, on_close=lambda _read: None)
    reading.rewrite(shorten, live=False)
    return reading


async def rest_of(reading: Reading) -> bytes:
    pieces = []
    while (frames := await reading.read()) is not None:
        assert isinstance(frames, bytes)
        pieces.append(frames)
    return b"".join(pieces)


async def test_a_reader_gets_a_compact_replay_then_live_frames_unchanged() -> None:
    log = Log()
    for word in ("a ", "b ", "c "):
        write(log, delta(word))
    reading = reading_of(log)
    assert await reading.read() == delta("a b c ")
    log.append(delta("d "))
    log.append(delta("e "))
    log.flush()
    assert await reading.read() == delta("d e "), "it had not come back yet: this was written before"
    waiting = asyncio.ensure_future(reading.read())
    await asyncio.sleep(0)
    log.append(delta("f "))
    log.append(delta("g "))
    log.flush()
    assert await waiting == delta("f ") + delta("g ")
    log.end()
    assert await reading.read() is None


@pytest.mark.parametrize("size", [1, 40, 60, 200, 100_000])
async def test_a_replay_comes_in_pieces_within_the_backlog_limit(size: int) -> None:
    log = Log()
    for number in range(100):
        write(log, delta(f"{number} ", block=str(number % 2)))
    reader = log.reader(maximum_behind=size, from_start=True)
    pieces = list(iter(reader.replay, None))
    assert b"".join(pieces) == bytes(log.so_far())
    largest = max(map(len, pieces))
    assert largest <= max(size, len(delta("99 ")))
    assert size > largest * 2 or len(pieces) > 1


async def test_a_slow_reader_is_not_disconnected_while_it_replays() -> None:
    log = Log()
    write(log, delta("a "))
    reader = log.reader(maximum_behind=100, from_start=True)
    interrupted: list[bool] = []
    reader.on_cut = lambda _why: interrupted.append(True)
    assert reader.replay() == delta("a ")
    words = [f"{number} " for number in range(1000)]
    for word in words:
        write(log, delta(word))
    assert (reader.behind, interrupted) == (0, [])
    assert text_in(b"".join(iter(reader.replay, None))) == "".join(words)
    for word in words[:5]:
        write(log, delta(word))
    assert interrupted, "now it is one like others"


async def test_a_reader_that_is_woken_in_the_middle_of_its_replay_returns_at_once() -> None:
    log = Log()
    write(log, delta("a "))
    write(log, delta("b ", block="2"))
    reading = reading_of(log, maximum_behind=10)
    assert await reading.read() == delta("a ")
    reading.wake(Wake.SHUTDOWN)
    assert await reading.read() is Wake.SHUTDOWN


async def test_what_a_reader_took_counts_as_backlog_until_its_next_read() -> None:
    log = Log()
    reader = log.reader(maximum_behind=5)
    interrupted: list[bool] = []
    reader.on_cut = lambda _why: interrupted.append(True)
    write(log, b"abc")
    assert await reader.read() == b"abc"
    write(log, b"de")
    assert (reader.behind, interrupted) == (5, [])
    write(log, b"f")
    assert interrupted


async def test_a_large_backlog_is_taken_in_slices_of_whole_frames() -> None:
    log = Log()
    reader = log.reader()
    frames = [delta("x" * 1000, block=str(number)) for number in range(200)]
    write(log, b"".join(frames))
    log.end()
    pieces = []
    while isinstance(piece := await reader.read(), bytes):
        pieces.append(piece)
    assert b"".join(pieces) == b"".join(frames)
    assert [len(piece) < 68_000 and piece.endswith(b"\n\n") for piece in pieces] == [True] * 4


class Patient:
    """A late reader that takes something each time it may, and notes what it got."""

    def __init__(self, log: Log, maximum_behind: int) -> None:
        self.may_read = asyncio.Semaphore(0)
        self.frames = b""
        self.too_slow = False
        self._reading = reading_of(log, maximum_behind=maximum_behind)
        self.task = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        while not self.too_slow:
            await self.may_read.acquire()
            new = await self._reading.read()
            if new is None:
                return
            self.too_slow = new is Wake.TOO_SLOW
            self.frames += new if isinstance(new, bytes) else b""


WRITE: Final = st.tuples(st.text(alphabet='ab"\\é\n', min_size=1, max_size=30), st.sampled_from("12"), st.booleans())
ACTIONS: Final = st.lists(WRITE | st.integers(0, 5) | st.floats(1, 200), max_size=60)


@given(ACTIONS)
def test_a_reader_gets_everything_once_and_in_order_whenever_it_starts(
    actions: list[tuple[str, str, bool] | int | float],
) -> None:
    """Text is written, at once or not; a number lets that reader read; another is the limit of one that comes."""

    async def go() -> None:
        log = Log()
        texts = {"1": "", "2": ""}
        readers: list[Patient] = []
        for action in actions:
            match action:
                case (text, block, at_once):
                    texts[block] += text
                    log.append(delta(text, block))
                    if at_once:
                        log.flush()
                case float():
                    readers.append(Patient(log, int(action)))
                case number if readers:
                    readers[number % len(readers)].may_read.release()
            await asyncio.sleep(0)
        log.end()
        for reader in readers:
            for _ in range(200):
                reader.may_read.release()
            await reader.task
            for block, text in texts.items():
                prefix = text_in(reader.frames, block)
                assert text.startswith(prefix) if reader.too_slow else text == prefix

    asyncio.run(go())


class Author(Agent):
    """Writes ten megabytes, waits, and writes as many again."""

    def __init__(self) -> None:
        super().__init__()
        self.wrote = asyncio.Event()

    async def __call__(self, turn: Turn) -> AsyncIterator[str]:  # noqa: ARG002
        for _ in range(2):
            for number in range(10 * MEGABYTE // 10_000):
                yield f"{number:09} " * 1000
            self.wrote.set()
            await self.go_on.wait()


async def test_resumed_readers_that_read_nothing_hold_no_copies_of_a_long_answer() -> None:
    runs, author = manager(), Author()
    reading = await start(runs, author)
    reading.close()
    await asyncio.wait_for(author.wrote.wait(), 30)
    info = await runs.latest("c1")
    assert info is not None
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        readings = [await runs.attach(info, sdk=info.sdk) for _ in range(10)]
        pieces = [await one.read() for one in readings if one is not None]
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [isinstance(frames, bytes) for frames in pieces] == [True] * 10
    assert (after - before) / 10 < 1.25 * MEGABYTE
    author.go_on.set()
    first, last = readings[0], pieces[0]
    assert first is not None
    assert isinstance(last, bytes)
    assert len(text_in(last + await rest_of(first))) == 2 * (10 * MEGABYTE // 10_000) * 10_000
    await runs.shut_down(drain=0)


class Teller(Agent):
    """Says two words in one go when it may go on."""

    async def __call__(self, turn: Turn) -> AsyncIterator[str]:  # noqa: ARG002
        yield "one "
        self.waits.set()
        await self.go_on.wait()
        yield "two "
        yield "three"


async def test_what_follows_the_replay_comes_to_a_resumed_reader_unchanged() -> None:
    runs, teller = manager(), Teller()
    await start(runs, teller)
    await asyncio.wait_for(teller.waits.wait(), 30)
    info = await runs.latest("c1")
    assert info is not None
    resumed = await runs.attach(info, sdk=info.sdk)
    assert resumed is not None
    replay = await resumed.read()
    assert isinstance(replay, bytes)
    assert replay.endswith(delta("one "))
    teller.go_on.set()
    assert (await rest_of(resumed)).startswith(delta("two ") + delta("three"))
    await runs.shut_down(drain=0)
