"""What clients that read nothing cost: twenty of them resume one long answer, and leave it unread."""

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncGenerator

import msgspec

from usechat.protocol.request import ChatRequest
from usechat.runs.manager import RunManager
from usechat.runs.memory import MemoryRuns
from usechat.runs.run import PreparedRun, RunInfo
from usechat.runs.settings import Settings
from usechat.sources import as_source
from usechat.turn import Turn, TurnContext, TurnInput


class Stalled(msgspec.Struct, frozen=True):
    """Megabytes: the size of an answer, what it takes of memory, and what its stalled readers take besides."""

    readers: int
    answer: float
    log: float
    added: float


def measure_stalled(*, readers: int = 20, megabytes: int = 8) -> Stalled:
    """Measure the memory that Python allocates, in this process."""
    return asyncio.run(_measure(readers, megabytes))


async def _measure(readers: int, megabytes: int) -> Stalled:
    end = asyncio.Event()

    async def agent(_turn: Turn) -> AsyncGenerator[str, None]:
        for number in range(megabytes * 1000):
            yield f"{number:0999} "
        end.set()
        await asyncio.Event().wait()

    manager = RunManager(MemoryRuns(), Settings(disconnect="continue", maximum_waiting_bytes=1 << 20))
    request = ChatRequest.parse(
        b'{"id":"chat","messages":[{"id":"user-1","role":"user","parts":[{"type":"text","text":"Why?"}]}]}'
    )
    info = RunInfo(run_id="run", chat_id="chat", message_id="message", sdk="7")
    tracemalloc.start()
    try:
        before = _traced()
        (await manager.start(info, as_source(agent), PreparedRun(info, TurnContext(TurnInput(request))))).close()
        await end.wait()
        alone = _traced()
        open_readings = [await manager.attach(info, sdk="7") for _ in range(readers)]
        for reading in open_readings:
            assert reading is not None
            await reading.read()  # the first piece is on its way, and never taken
        growth = _traced() - alone
    finally:
        tracemalloc.stop()
    await manager.stop(info)
    return Stalled(readers, float(megabytes), (alone - before) / 1e6, growth / 1e6)


def _traced() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
