"""What it costs that a client can go on at an exact chunk: the log in memory keeps the lengths of the deltas it merges.

It measures the bytes of one run, the processor time of keeping it with those lengths and without them, and that of
sending its second half to a client after its end.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from functools import partial
from time import process_time_ns
from typing import Final

import msgspec

from bench.rounds import TURN, measure_in_rounds, timed
from bench.sample import text_deltas
from usechat.protocol.request import ChatRequest
from usechat.protocol.sse import Cuts, ShortenedFrames, pieces_of
from usechat.runs.log import Wake
from usechat.runs.manager import RunManager
from usechat.runs.memory import MemoryRuns
from usechat.runs.reading import Reading
from usechat.runs.run import PreparedRun, RunInfo
from usechat.runs.settings import Settings
from usechat.sources import as_source
from usechat.turn import Turn, TurnContext, TurnInput

CHUNKS: Final = 20_000
_PIECE: Final = 1024
"""Bytes: the log merges about this many at once, when every reader has taken them."""


class Exact(msgspec.Struct, frozen=True):
    """A run with ``deltas`` deltas. Bytes: as it was sent, as it is kept, and what the lengths add to that.

    Milliseconds of processor time: to keep it without the lengths and with them, and to send its second half again.
    """

    deltas: int
    sent: int
    compact: int
    lengths: int
    merged: float
    kept: float
    resumed: float

    @property
    def added(self) -> float:
        """The microseconds that the lengths add to a delta."""
        return (self.kept - self.merged) * 1000 / self.deltas


class _NoCuts(Cuts):
    def add(self, place: int) -> None:
        """Drop it."""


class Merged(ShortenedFrames):
    """Frames in few bytes, without the lengths of their deltas."""

    def __init__(self) -> None:
        super().__init__(cuts=_NoCuts())

    def _add_cuts(self, frames: bytes, beginning: bytes, place: int) -> None:
        """Drop them."""


def measure_exact(*, deltas: int = CHUNKS, rounds: int = 15, least: int = TURN) -> Exact:
    """Measure a run in this process."""
    frames, resumed = asyncio.run(_run(deltas, rounds))
    pieces = list(pieces_of(frames, _PIECE))
    keepers: dict[str, Callable[[], ShortenedFrames]] = {"merged": Merged, "kept": ShortenedFrames}
    works = {name: timed(partial(keep, make, pieces), 1, least=least) for name, make in keepers.items()}
    costs = measure_in_rounds(works, rounds=rounds, warm_up=1, title="exact chunks")
    compact = keep(ShortenedFrames, pieces)
    return Exact(
        deltas=deltas,
        sent=len(frames),
        compact=len(compact),
        lengths=len(compact.cuts),
        merged=costs["merged"].median / 1e6,
        kept=costs["kept"].median / 1e6,
        resumed=resumed / 1e6,
    )


def keep(make: Callable[[], ShortenedFrames], pieces: Iterable[bytes]) -> ShortenedFrames:
    """Add pieces to frames that are made for them."""
    shortened = make()
    for piece in pieces:
        shortened.add(piece)
    return shortened


async def _run(deltas: int, rounds: int) -> tuple[bytes, float]:
    """Run an agent; return its frames, and the nanoseconds in which a client gets their second half, at best."""

    async def agent(_turn: Turn) -> AsyncGenerator[str, None]:
        for text in text_deltas(deltas):
            yield text

    manager = RunManager(MemoryRuns(), Settings(disconnect="continue", maximum_waiting_bytes=1 << 30))
    request = ChatRequest.parse(
        b'{"id":"chat","messages":[{"id":"user-1","role":"user","parts":[{"type":"text","text":"Why?"}]}]}'
    )
    info = RunInfo(run_id="run", chat_id="chat", message_id="message", sdk="7")
    reading = await manager.start(info, as_source(agent), PreparedRun(info, TurnContext(TurnInput(request))))
    frames = await _everything(reading)
    half = frames.count(b"\n\n") // 2
    return frames, min([await _resume(manager, reading, half) for _ in range(rounds)])


async def _resume(manager: RunManager, reading: Reading, start: int) -> float:
    latest = await manager.latest("chat")
    assert latest is not None
    begin = process_time_ns()
    tail = await manager.tail(latest, reading.view, start)
    assert tail is not None
    await _everything(tail[0])
    return process_time_ns() - begin


async def _everything(reading: Reading) -> bytes:
    pieces = []
    while (piece := await reading.read()) is not None:
        assert not isinstance(piece, Wake)
        pieces.append(piece)
    reading.close()
    return b"".join(pieces)
