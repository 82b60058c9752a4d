"""Two real workers over one Redis: any of them serves any run, and the death of one is seen by the other."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import httpx2
import pytest

from tests.redis_server import PATIENCE, SERVERS, RedisServer, redis_server
from tests.server.metrics_page import chat_request, parse_samples
from usechat.protocol.message import MessageBuilder
from usechat.protocol.sse import ChunkDecoder

pytestmark = pytest.mark.unit

LEASE = 3.0
LONG_LEASE = 60.0
"""For tests in which no run may be lost."""
LOST = b'{"type":"error","errorText":"The run was lost."}'


class Worker:
    """A process that serves chats."""

    def __init__(self, redis_url: str, lease: float) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            descriptor, port = listener.fileno(), listener.getsockname()[1]
            command = [sys.executable, "-m", "tests.runs.redis_worker", str(descriptor), redis_url, str(lease)]
            self._process = subprocess.Popen(command, cwd=Path(__file__).parents[3], pass_fds=[descriptor])
        self.client = httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE)

    async def started(self) -> None:
        async def is_ready() -> bool:
            try:
                return (await self.client.get("/readyz")).status_code == 200
            except httpx2.TransportError:
                return False

        await until(is_ready, "the worker starts")

    def signal(self, number: signal.Signals) -> None:
        os.kill(self._process.pid, number)

    async def end(self) -> None:
        await self.client.aclose()
        self._process.kill()
        self._process.wait(PATIENCE)

    async def state(self) -> str | None:
        answer = await self.client.get("/api/chat/c1")
        return answer.json()["state"] if answer.status_code == 200 else None

    async def counted(self, outcome: str) -> float:
        """Return how many runs this worker says have ended so."""
        page = (await self.client.get("/metrics")).text
        return parse_samples(page)[f'adapter_request_count_total{{outcome="{outcome}",status="200"}}']

    @asynccontextmanager
    async def send(self, text: str, note: Path, message_id: str = "u1") -> AsyncIterator["Stream"]:
        message = {"id": message_id, "role": "user", "parts": [{"type": "text", "text": text}]}
        body = {"id": "c1", "messages": [message], "note": str(note)}
        async with self.client.stream("POST", "/api/chat", json=body) as response:
            assert response.status_code == 200, await response.aread()
            yield Stream(response)

    @asynccontextmanager
    async def resume(self, sdk: str = "any") -> AsyncIterator["Stream"]:
        async with self.client.stream("GET", f"/api/chat/c1/stream?sdk={sdk}") as response:
            assert response.status_code == 200
            yield Stream(response)


class Stream:
    """What a client reads."""

    def __init__(self, response: httpx2.Response) -> None:
        self._pieces = response.aiter_bytes()
        self.seen = b""

    async def until(self, word: bytes) -> None:
        async with asyncio.timeout(PATIENCE):
            while word not in self.seen:
                self.seen += await anext(self._pieces)

    async def rest(self) -> bytes:
        async with asyncio.timeout(PATIENCE):
            async for piece in self._pieces:
                self.seen += piece
        return self.seen


def text_of(frames: bytes) -> str:
    builder = MessageBuilder(sdk="7")
    for chunk in ChunkDecoder().receive(frames):
        builder.receive(chunk)
    message: Any = builder.message
    return "".join(part["text"] for part in message["parts"] if part["type"] == "text")


def counted(number: int) -> str:
    return "".join(f"{each} " for each in range(number))


async def until(condition: Callable[[], Any], what: str) -> None:
    deadline = monotonic() + PATIENCE
    while not await condition():
        assert monotonic() < deadline, f"never happened: {what}"
        await asyncio.sleep(0.05)


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    with redis_server(request.param) as running:
        yield running


@pytest.fixture
async def workers(server: RedisServer, request: pytest.FixtureRequest) -> AsyncIterator[tuple[Worker, Worker]]:
    lease: float = getattr(request, "param", LONG_LEASE)
    pair = Worker(server.url, lease), Worker(server.url, lease)
    try:
        await asyncio.gather(*[worker.started() for worker in pair])
        yield pair
    finally:
        for worker in pair:
            await worker.end()


async def test_a_run_is_resumed_and_stopped_by_another_worker(workers: tuple[Worker, Worker], tmp_path: Path) -> None:
    owner, other = workers
    note = tmp_path / "note"
    async with owner.send("100000", note) as live:
        await live.until(b'"10 "')
        async with other.resume() as replay, other.resume(sdk="7") as for_another_release:
            await replay.until(b"20 ")
            assert b'"5 "' not in replay.seen  # compacted
            assert await other.state() == "running"
            assert (await other.client.post("/api/chat/c1/stop")).status_code == 204
            assert note.read_text() == "stopped"
            assert await other.state() == "stopped"
            texts = [text_of(await stream.rest()) for stream in (live, replay, for_another_release)]
    assert texts[0].startswith(counted(20))
    assert texts[1:] == texts[:1] * 2
    assert (await other.client.get("/api/chat/c1/stream")).status_code == 204


async def test_a_run_goes_on_for_readers_of_another_worker(workers: tuple[Worker, Worker], tmp_path: Path) -> None:
    owner, other = workers
    async with owner.send("100", tmp_path / "note") as live:
        await live.until(b'"3 "')
    async with other.resume() as replay:  # the page was reloaded, and another worker answers
        assert text_of(await replay.rest()) == counted(100)
    assert await other.state() == "finished"


@pytest.mark.parametrize("workers", [LEASE], indirect=True)
async def test_the_death_of_the_owner_is_an_error_for_every_reader(
    workers: tuple[Worker, Worker], tmp_path: Path
) -> None:
    owner, other = workers
    async with owner.send("100000", tmp_path / "note") as live:
        await live.until(b'"3 "')
        async with other.resume() as replay, other.resume(sdk="7") as for_another_release:
            await replay.until(b"10 ")
            await for_another_release.until(b"10 ")
            owner.signal(signal.SIGKILL)
            died = monotonic()
            frames = await replay.rest(), await for_another_release.rest()
            assert monotonic() - died < LEASE + PATIENCE / 2
    for each in frames:
        assert LOST in each
        assert each.endswith(b"data: [DONE]\n\n")
        assert each.index(b'"text-end"') < each.index(LOST)
    assert await other.state() == "lost"
    assert (await other.client.get("/api/chat/c1/stream")).status_code == 204
    async with other.send("3", tmp_path / "note", "u2") as again:
        assert text_of(await again.rest()) == counted(3)
    assert [await other.counted(outcome) for outcome in ("lost", "failed", "finished")] == [1, 0, 1]


@pytest.mark.parametrize("workers", [LEASE], indirect=True)
async def test_an_owner_that_was_paused_for_too_long_stops_its_run(
    workers: tuple[Worker, Worker], tmp_path: Path
) -> None:
    owner, other = workers
    note = tmp_path / "note"
    async with owner.send("100000", note) as live:
        await live.until(b'"3 "')
        owner.signal(signal.SIGSTOP)

        async def is_lost() -> bool:
            return await other.state() == "lost"

        await until(is_lost, "the run is lost")
        async with other.send("100000", tmp_path / "other note", "u2") as next_run:
            await next_run.until(b'"3 "')
            owner.signal(signal.SIGCONT)
            assert LOST in await live.rest()

            async def is_stopped() -> bool:
                return note.exists()

            await until(is_stopped, "the agent is stopped")
            assert await owner.state() == await other.state() == "running"
            async with owner.resume() as replay:
                await replay.until(b"50 ")
                assert (await owner.client.post("/api/chat/c1/stop")).status_code == 204
                assert text_of(await replay.rest()) == text_of(await next_run.rest())
    both = [[await worker.counted(outcome) for worker in workers] for outcome in ("lost", "failed", "stopped")]
    assert both == [[0, 1], [0, 0], [0, 1]]


async def test_a_restart_of_redis_is_not_noticed(
    workers: tuple[Worker, Worker], server: RedisServer, tmp_path: Path
) -> None:
    owner, other = workers
    async with owner.send("100", tmp_path / "note") as live, other.resume() as replay:
        await live.until(b'"20 "')
        await asyncio.to_thread(server.stop)
        assert (await other.client.get("/readyz")).status_code == 503
        assert (await other.client.get("/api/chat/c1")).status_code == 503
        refused = await other.client.post("/api/chat", json=chat_request("1"))
        assert (refused.status_code, refused.text) == (503, "The run store cannot be reached.")
        await asyncio.to_thread(server.start)
        assert text_of(await live.rest()) == text_of(await replay.rest()) == counted(100)
    assert await other.state() == "finished"
