"""Many at once, many in a row, many that vanish, and one that does not read: a real uvicorn under load."""

import asyncio
import gc
import logging
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.routing import Mount, Route

from tests.conformance.served import PATIENCE, Gates, Served, serving
from tests.plain_asgi import PLAIN_ASGI
from tests.server.sockets import Body, Client
from usechat import parts
from usechat.protocol.chunks import DataChunk, ErrorChunk, FinishChunk
from usechat.runs.memory import MemoryRuns
from usechat.runs.settings import cancel_after
from usechat.server import ChatApp, Settings, chat_response
from usechat.turn import Turn

pytestmark = pytest.mark.external_agents

DELTAS = 100
GATES = Gates()
STARTED: set[str] = set()
CLEANED: set[str] = set()
SAID: dict[str, int] = {}


def expected(chat_id: str) -> str:
    return "".join(f"{chat_id} says {number}; " for number in range(DELTAS))


async def distinct(turn: Turn) -> AsyncIterator[str | parts.Part]:
    """Say what nobody else says, in turns with all others."""
    for number in range(DELTAS):
        yield f"{turn.chat_id} says {number}; "
        await asyncio.sleep(0.002 if number % 10 == 0 else 0)


async def distinct_in_two_halves(turn: Turn) -> AsyncIterator[str | parts.Part]:
    """Say the same, but wait for the test in the middle."""
    async for text in distinct(turn):
        if text == f"{turn.chat_id} says {DELTAS // 2}; ":
            await GATES.passed(turn)
        yield text


async def endless(turn: Turn) -> AsyncIterator[str]:
    STARTED.add(turn.chat_id)
    try:
        while True:
            yield "still here "
            await asyncio.sleep(0.01)
    finally:
        CLEANED.add(turn.chat_id)


async def flooding(turn: Turn) -> None:
    """Say far more than a client that does not read can take, in a way that cannot be held back."""
    try:
        for number in range(100_000):
            SAID[turn.chat_id] = number
            turn.send(parts.Text("x" * 1000))
            await asyncio.sleep(0)
    finally:
        CLEANED.add(turn.chat_id)


async def fast(turn: Turn) -> AsyncIterator[str]:
    """Say it as fast as it is taken."""
    try:
        for number in range(8_000):
            SAID[turn.chat_id] = number
            yield f"{number:0999} "
            if turn.chat_id.startswith("pausing"):
                await asyncio.sleep(0)
    finally:
        CLEANED.add(turn.chat_id)


def fast_in_a_thread(turn: Turn) -> Iterator[str]:
    """Say the same in a thread."""
    for number in range(8_000):
        SAID[turn.chat_id] = number
        yield f"{number:0999} "


async def bursting(turn: Turn) -> AsyncIterator[str]:
    """Say more than may wait without giving anyone a chance to read it."""
    for number in range(20_000):
        turn.emit("progress", {"number": number, "of": 20_000})
    yield "done"


async def flooding_a_little(turn: Turn) -> AsyncIterator[str]:
    """Say more than may wait and the kernel takes for it (4 MB and more), and then wait for the test."""
    SAID[turn.chat_id] = 0
    for number in range(14_000):
        if number == 7_000:
            await asyncio.sleep(0.5)  # in another process it may arrive in one piece, and one such piece may wait
        yield f"{number:0999} "
    SAID[turn.chat_id] = 14_000
    while turn.chat_id not in STARTED:  # noqa: ASYNC110 (set in another thread)
        await asyncio.sleep(0.01)
    yield "end"


async def bulky(_turn: Turn) -> AsyncIterator[parts.Part]:
    """Say one thing that is larger than what may wait for a slow reader."""
    yield parts.Text("before ")
    yield parts.Data("bulk", "y" * 3_000_000)
    yield parts.Text("after")


def bare(agent: Any) -> Starlette:
    async def chat(request: Request) -> Any:
        return await chat_response(request, agent)

    return Starlette(routes=[Route("/api/chat", chat, methods=["POST"])])


def wrapped(app: Any) -> Starlette:
    """Put middleware before an app that hides the server, and ends every response well."""

    async def pass_on(request: Request, call_next: Any) -> Any:
        return await call_next(request)

    return Starlette(routes=[Mount("/", app)], middleware=[Middleware(BaseHTTPMiddleware, pass_on)] * 2)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    apps = {
        "distinct": ChatApp(distinct),
        "halves": ChatApp(distinct_in_two_halves),
        "forgetting": ChatApp(lambda turn: turn.text, runs=MemoryRuns(remember=0.01)),
        "storm": ChatApp(endless, settings=Settings(disconnect=cancel_after(0.2))),
        "bare-storm": bare(endless),
        "fast": bare(fast),
        "wrapped-fast": wrapped(bare(fast)),
        "fast-thread": bare(fast_in_a_thread),
        "burst": ChatApp(bursting),
        "bare-burst": bare(bursting),
        "wrapped-burst": wrapped(ChatApp(bursting)),
        "flood": bare(flooding),
        "wrapped-flood": wrapped(bare(flooding)),
        "little-flood": ChatApp(flooding_a_little, settings=Settings(disconnect=cancel_after(60))),
        "wrapped-little-flood": wrapped(ChatApp(flooding_a_little, settings=Settings(disconnect=cancel_after(60)))),
        "bulky": ChatApp(bulky),
        "bare-bulky": bare(bulky),
    }
    with serving(apps) as running:
        yield running


async def answer(served: Served, app: str, chat_id: str) -> Body:
    return await (await Client.post(served.port, f"/{app}/api/chat", chat_id)).rest()


async def eventually(condition: Any, what: str) -> None:
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, f"never happened: {what}"
        await asyncio.sleep(0.01)


def runs_of(served: Served) -> list[str]:
    """Return the tasks of runs, and of copies of runs; agent processes have tasks of their own that stay."""
    return [name for name in served.tasks() if name.startswith(("usechat run", "usechat remote run"))]


async def tasks_at_rest(served: Served, app: str) -> int:
    """Return how many tasks an app leaves that has answered: stores and agent processes start with the first turn."""
    client = await Client.post(served.port, f"/{app}/api/chat", f"first-of-{app}")
    await client.until(b"text-delta")
    client.vanish()
    await eventually(lambda: not runs_of(served) and served.connections() == 0, "the first turn has ended")
    return len(served.tasks())


async def nothing_is_left(served: Served, tasks: int) -> None:
    await eventually(lambda: not runs_of(served), "no run is left")
    await eventually(lambda: served.connections() == 0, "no socket is left")
    await eventually(lambda: len(served.tasks()) <= tasks, f"no task is left: {served.tasks()}")


async def test_a_hundred_streams_at_once_keep_every_byte_to_themselves(served: Served) -> None:
    names = [f"chat-{number}" for number in range(100)]
    bodies = await asyncio.gather(*[answer(served, "distinct", name) for name in names])
    assert [body.complete for body in bodies] == [True] * 100
    assert [body.text for body in bodies] == [expected(name) for name in names]
    assert len({body.message_id for body in bodies}) == 100


async def test_readers_that_come_in_the_middle_get_all_of_their_own_stream(served: Served) -> None:
    names = [f"late-{number}" for number in range(20)]
    firsts = [await Client.post(served.port, "/halves/api/chat", name) for name in names]
    for first in firsts:
        await first.until(b"says 3")
    others = [await Client.get(served.port, f"/halves/api/chat/{name}/stream") for name in names]
    for name, other in zip(names, others, strict=True):
        await other.until(b"says 3")
        GATES.open(name)
    bodies = await asyncio.gather(*[other.rest() for other in others])
    assert [body.text for body in bodies] == [expected(name) for name in names]
    for first in firsts:
        first.vanish()


async def test_memory_stays_flat_over_hundreds_of_turns(served: Served) -> None:
    tasks = await tasks_at_rest(served, "forgetting")

    async def turns(first: int, last: int) -> int:
        for number in range(first, last):
            body = await answer(served, "forgetting", f"turn-{number}")
            assert body.text == "hi"
        await nothing_is_left(served, tasks)
        await asyncio.sleep(0.1)
        gc.collect()
        # The coverage tool keeps a tracer of every thread that ever was.
        ours = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(False, "*/coverage/*")])
        return sum(trace.size for trace in ours.traces)

    tracemalloc.start()
    try:
        before = await turns(0, 200)
        after = await turns(200, 600)
    finally:
        tracemalloc.stop()
    # A run that is not let go of would cost several kilobytes each time; the slope is about 25 bytes.
    assert after - before < 400 * 500


@pytest.mark.parametrize("app", ["storm", "bare-storm"])
async def test_clients_that_vanish_leave_nothing_behind(served: Served, app: str) -> None:
    tasks = await tasks_at_rest(served, app)
    names = {f"{app}-{number}" for number in range(200)}
    clients = await asyncio.gather(*[Client.post(served.port, f"/{app}/api/chat", name) for name in names])
    await asyncio.gather(*[client.until(b"still here") for client in clients])
    assert names <= STARTED
    for number, client in enumerate(clients):
        client.vanish(reset=number % 2 == 0)
    await eventually(lambda: names <= CLEANED, "every agent is stopped")
    await nothing_is_left(served, tasks)


async def test_a_client_that_does_not_read_costs_little_and_is_disconnected(served: Served) -> None:
    tasks = len(served.tasks())
    tracemalloc.start()
    try:
        client = await Client.post(served.port, "/flood/api/chat", "flood", receive_buffer=4096)
        await eventually(lambda: "flood" in CLEANED, "the agent is stopped")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # What the sockets hold is said as well (about 3 MB here); what waits is about 1 MB, and it is all there is.
    assert SAID["flood"] < 10_000
    assert peak < 4_000_000
    if PLAIN_ASGI:
        client.vanish()  # its connection cannot be reset
    await nothing_is_left(served, tasks)
    client.vanish()


@pytest.mark.parametrize("app", ["flood", "wrapped-flood"])
async def test_a_slow_reader_that_cannot_come_back_is_told_so_at_the_end(
    served: Served, app: str, caplog: pytest.LogCaptureFixture
) -> None:
    tasks = len(served.tasks())
    chat_id = f"told-{app}"
    client = await Client.post(served.port, f"/{app}/api/chat", chat_id, receive_buffer=4096)
    await eventually(lambda: chat_id in CLEANED, "the agent is stopped")
    body = await client.rest()
    assert PLAIN_ASGI or not body.complete, "the connection is reset"
    assert [type(chunk) for chunk in body.chunks[-2:]] == [ErrorChunk, FinishChunk]
    assert "too slow" in body.data.decode()
    # What waited is dropped in whole frames: the text is a beginning of what was said.
    assert 0 < len(body.text) < SAID[chat_id] * 1000
    await nothing_is_left(served, tasks)
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    [cut] = [warning for warning in warnings if warning != "ASGI callable returned without completing response."]
    assert cut.endswith("its client reads too slowly; the run is stopped, because nothing is kept to resume from")
    assert PLAIN_ASGI or warnings == [cut]


async def test_one_that_reads_slowly_is_told_as_well(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("usechat.server.response._LAST_WORDS", 1.0)
    client = await Client.post(served.port, "/flood/api/chat", "trickle", receive_buffer=4096)
    await eventually(lambda: "trickle" in CLEANED, "the agent is stopped")
    body = await client.rest(pause=0.05)
    assert [type(chunk) for chunk in body.chunks[-2:]] == [ErrorChunk, FinishChunk]


@pytest.mark.parametrize("app", ["fast", "wrapped-fast", "fast-thread"])
@pytest.mark.parametrize("pace", ["hurried", "pausing"])
async def test_where_nobody_can_come_back_the_agent_waits_for_its_client(served: Served, app: str, pace: str) -> None:
    chat_id = f"{pace}-{app}"
    client = await Client.post(served.port, f"/{app}/api/chat", chat_id, receive_buffer=4096)
    await held_back(chat_id)
    assert SAID[chat_id] < 7_000
    body = await client.rest()
    assert body.complete
    assert body.text == "".join(f"{number:0999} " for number in range(8_000))


async def test_an_agent_that_waits_for_its_client_is_stopped_when_that_leaves(served: Served) -> None:
    tasks = len(served.tasks())
    client = await Client.post(served.port, "/fast/api/chat", "left", receive_buffer=4096)
    await held_back("left")
    client.vanish()
    await eventually(lambda: "left" in CLEANED, "the agent is stopped")
    await nothing_is_left(served, tasks)


async def held_back(chat_id: str) -> None:
    """Wait until an agent says nothing more."""
    said = -1
    while SAID.get(chat_id, -1) != said or said < 0:
        said = SAID.get(chat_id, -1)
        await asyncio.sleep(0.3)


@pytest.mark.parametrize("app", ["burst", "bare-burst", "wrapped-burst"])
async def test_what_is_said_at_once_does_not_make_a_reader_slow(served: Served, app: str) -> None:
    body = await answer(served, app, "burst")
    assert body.complete
    assert [chunk.data["number"] for chunk in body.chunks if isinstance(chunk, DataChunk)] == list(range(20_000))


@pytest.mark.parametrize("app", ["little-flood", "wrapped-little-flood"])
async def test_a_slow_reader_is_disconnected_and_gets_everything_when_it_comes_back(served: Served, app: str) -> None:
    client = await Client.post(served.port, f"/{app}/api/chat", app, receive_buffer=4096)
    await eventually(lambda: app in SAID, "the flood begins")
    if PLAIN_ASGI:
        await eventually(lambda: SAID.get(app) == 14_000, "the flood is over")
        body = await client.rest()
        assert type(body.chunks[-1]) is ErrorChunk
    else:
        await eventually(lambda: served.connections() == 0, "the reader is disconnected")
        body = await client.rest()
        assert (body.complete, b"error" in body.data) == (False, False)
    await eventually(lambda: SAID.get(app) == 14_000, "the flood is over; it would break the next reader off too")
    again = await Client.get(served.port, f"/{app}/api/chat/{app}/stream")
    await again.until(b"data: ")  # the reader is back
    STARTED.add(app)
    body = await again.rest()
    assert body.complete
    assert body.text == "".join(f"{number:0999} " for number in range(14_000)) + "end"


@pytest.mark.parametrize("app", ["bulky", "bare-bulky"])
async def test_one_large_thing_does_not_make_a_reader_slow(served: Served, app: str) -> None:
    body = await answer(served, app, "bulky")
    assert body.complete
    assert body.text == "before after"
