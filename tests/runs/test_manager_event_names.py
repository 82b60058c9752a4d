"""With `event_names` every frame names its chunk, also for readers who come late, from elsewhere or after a loss."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest

from usechat.errors import RunLost
from usechat.protocol.request import ChatRequest
from usechat.protocol.sse import DONE
from usechat.runs.manager import Reading, RunManager
from usechat.runs.memory import MemoryRuns
from usechat.runs.run import PreparedRun, RunInfo
from usechat.runs.settings import Settings
from usechat.runs.store import LOST
from usechat.sources import as_source
from usechat.turn import Turn, TurnContext, TurnInput

RUN = RunInfo("r1", "c1", "m1", "7")
FRAME = re.compile(rb'event: (\S+)\ndata: \{"type":"([^"]+)".*\}\n\n')
NAMES = {"start": "message-start", "finish": "message-finish"}
EARLIER = {"id": "m1", "role": "assistant", "parts": [{"type": "text", "text": "Before. "}]}


class DeadWorker(MemoryRuns):
    """Knows of a run in a worker that dies after its first words."""

    async def read(self, info: RunInfo) -> AsyncGenerator[bytes, None]:
        assert info == RUN
        yield b'event: message-start\ndata: {"type":"start","messageId":"m1"}\n\n'
        raise RunLost(LOST)


def manager(store: MemoryRuns | None = None) -> RunManager:
    return RunManager(store or MemoryRuns(), Settings(disconnect="continue", event_names=True))


async def start(runs: RunManager, go_on: asyncio.Event, continues: Any = None) -> Reading:
    async def agent(_turn: Turn) -> AsyncIterator[str]:
        yield "one "
        yield "two "
        await go_on.wait()
        yield "three"

    message = {"id": "u1", "role": "user", "parts": []}
    request = ChatRequest.parse({"id": "c1", "messages": [message]})
    return await runs.start(RUN, as_source(agent), PreparedRun(RUN, TurnContext(TurnInput(request)), continues))


async def names_of(reading: Reading | None) -> list[str]:
    """Read to the end; return the types of the chunks, each of which must be named."""
    assert reading is not None
    stream = b""
    async with asyncio.timeout(30):
        while isinstance(frames := await reading.read(), bytes):
            stream += frames
    assert stream.endswith(DONE)
    types = FRAME.findall(stream)
    assert b"".join(match[0] for match in FRAME.finditer(stream)) + DONE == stream, "every frame has a name"
    assert all(name.decode() == NAMES.get(kind.decode(), kind.decode()) for name, kind in types)
    return [kind.decode() for _, kind in types]


async def test_a_live_reader() -> None:
    go_on = asyncio.Event()
    reading = await start(manager(), go_on)
    go_on.set()
    assert (await names_of(reading)).count("text-delta") == 3


@pytest.mark.parametrize("sdk", ["7", "5"])
@pytest.mark.parametrize("continues", [None, EARLIER])
async def test_a_late_reader_also_of_another_release_and_of_a_continuation(sdk: str, continues: Any) -> None:
    runs, go_on = manager(), asyncio.Event()
    await start(runs, go_on, continues)
    await asyncio.sleep(0.05)
    late = await runs.attach(RUN, sdk=sdk)
    go_on.set()
    names = await names_of(late)
    assert names.count("text-delta") == (2 if continues is None else 3)
    assert names[-1] == "finish"


async def test_a_reader_of_a_run_that_is_lost() -> None:
    reading = await manager(DeadWorker()).attach(RUN, sdk="7")
    assert (await names_of(reading))[-2:] == ["error", "finish"]
