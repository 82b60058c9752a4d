"""The way of a delta inside the process: from an agent through its run and the log in memory to a reader."""

import asyncio
from collections.abc import AsyncGenerator
from time import process_time_ns

from usechat.protocol.request import ChatRequest
from usechat.runs.manager import RunManager
from usechat.runs.memory import MemoryRuns
from usechat.runs.run import PreparedRun, RunInfo
from usechat.runs.settings import Settings
from usechat.sources import as_source
from usechat.turn import Turn, TurnContext, TurnInput

DELTAS = 20_000


async def _once(deltas: int) -> float:
    async def agent(_turn: Turn) -> AsyncGenerator[str, None]:
        for _ in range(deltas):
            yield " kettle"

    manager = RunManager(MemoryRuns(remember=0), Settings(disconnect="cancel", maximum_waiting_bytes=1 << 30))
    request = ChatRequest.parse(
        b'{"id":"chat","messages":[{"id":"user-1","role":"user","parts":[{"type":"text","text":"Why?"}]}]}'
    )
    info = RunInfo(run_id="run", chat_id="chat", message_id="message", sdk="7")
    begin = process_time_ns()
    reading = await manager.start(info, as_source(agent), PreparedRun(info, TurnContext(TurnInput(request))))
    while await reading.read() is not None:
        pass
    duration = process_time_ns() - begin
    reading.close()
    return duration / deltas / 1000


def measure_pipeline(*, rounds: int, deltas: int = DELTAS) -> float:
    """Return the microseconds per delta, the best of some rounds."""
    return min(asyncio.run(_once(deltas)) for _ in range(rounds))
