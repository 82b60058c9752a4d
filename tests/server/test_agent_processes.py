"""Web processes, agent processes and Redis, each ended in the middle: nothing hangs, and nothing is said twice."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import httpx2
import pytest

from tests.chats.talking import texts
from tests.redis_server import PATIENCE, SERVERS, RedisServer, redis_server
from tests.runs.redis.test_workers import LOST, Stream, counted, text_of
from tests.server.metrics_page import parse_samples
from tests.server.sockets import Body

pytestmark = pytest.mark.once

LEASE = 6.0
LONG_LEASE = 60.0
"""For tests in which no run may be lost, however slow the machine is."""
LONG = "3000"
"""An answer that goes on for a minute, while a further process starts."""
ROOT = Path(__file__).parents[2]


class Process:
    """A process of the tier."""

    def __init__(self, *arguments: str, **options: Any) -> None:
        command = [sys.executable, "-m", "tests.server.agent_process", *arguments]
        self._process = subprocess.Popen(command, cwd=ROOT, **options)

    def signal(self, number: signal.Signals) -> None:
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE)

    async def exit_code(self) -> int:
        await until(lambda: self._process.poll() is not None, "the process ends")
        return int(self._process.returncode)


class Web(Process):
    """A web process, and a client of it."""

    def __init__(self, url: str, lease: float, *chats: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            descriptor, port = listener.fileno(), listener.getsockname()[1]
            super().__init__("web", str(descriptor), url, str(lease), *chats, pass_fds=[descriptor])
        self.client = httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE)

    async def started(self) -> None:
        async def is_ready() -> bool:
            try:
                return (await self.client.get("/readyz")).status_code == 200
            except httpx2.TransportError:
                return False

        await until(is_ready, "the web process starts")

    async def state(self, chat_id: str = "c1") -> str:
        return str((await self.client.get(f"/api/chat/{chat_id}")).json()["state"])

    async def samples(self) -> dict[str, float]:
        return parse_samples((await self.client.get("/metrics")).text)


class Tier:
    """Everything that a test starts."""

    def __init__(self, redis: RedisServer, directory: Path) -> None:
        self.redis = redis
        self.lease = LONG_LEASE
        self._note = directory / "note.txt"
        self._chats: tuple[str, ...] = ()
        self._directory = directory
        self._processes: list[Process] = []

    def store_chats(self) -> None:
        """Let processes that are started from now on store chats in one file."""
        self._chats = (str(self._directory / "chats.db"),)

    async def web(self) -> Web:
        web = Web(self.redis.url, self.lease, *self._chats)
        self._processes.append(web)
        await web.started()
        return web

    def worker(self, kind: str = "plain", version: str = "v1") -> Process:
        worker = Process("worker", kind, version, self.redis.url, str(self.lease), *self._chats)
        self._processes.append(worker)
        return worker

    def notes(self) -> list[str]:
        return self._note.read_text().splitlines() if self._note.exists() else []

    @asynccontextmanager
    async def send(self, web: Web, text: str, chat_id: str = "c1", message_id: str = "u1") -> AsyncIterator[Stream]:
        message = {"id": message_id, "role": "user", "parts": [{"type": "text", "text": text}]}
        body = {"id": chat_id, "messages": [message], "note": str(self._note)}
        async with web.client.stream("POST", "/api/chat", json=body) as response:
            assert response.status_code == 200, await response.aread()
            yield Stream(response)

    @asynccontextmanager
    async def resume(self, web: Web) -> AsyncIterator[Stream]:
        async with web.client.stream("GET", "/api/chat/c1/stream") as response:
            assert response.status_code == 200
            yield Stream(response)

    async def end(self) -> None:
        for process in self._processes:
            if isinstance(process, Web):
                await process.client.aclose()
            process.kill()


async def until(condition: Any, what: str) -> None:
    deadline = monotonic() + 2 * PATIENCE
    while True:
        result = condition()
        if await result if asyncio.iscoroutine(result) else result:
            return
        assert monotonic() < deadline, f"never happened: {what}"
        await asyncio.sleep(0.05)


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with redis_server(next(iter(SERVERS))) as running:
        yield running


@pytest.fixture
async def tier(redis: RedisServer, tmp_path: Path) -> AsyncIterator[Tier]:
    instance = Tier(redis, tmp_path)
    yield instance
    await instance.end()


async def ready(web: Web, workers: int) -> None:
    """Wait until so many workers ask for turns."""

    async def is_so() -> bool:
        return len([name for name in await web.samples() if name.startswith("adapter_turns_running{")]) >= workers

    await until(is_so, f"{workers} workers are ready")


async def begun(stream: Stream) -> None:
    await stream.until(b'"5 "')


async def test_a_turn_waits_for_a_worker_and_is_answered_by_it(tier: Tier) -> None:
    web = await tier.web()
    async with tier.send(web, "3") as stream:
        assert (await web.samples())["adapter_turns_waiting"] == 1
        tier.worker()
        assert text_of(await stream.rest()) == counted(3)

    async def nothing_is_left() -> bool:  # the worker is done with a turn a moment after its stream has ended
        samples = await web.samples()
        running = [count for name, count in samples.items() if name.startswith('adapter_turns_running{worker="v1:')]
        return (samples["adapter_turns_waiting"], running) == (0, [0])

    await until(nothing_is_left, "no turn waits or runs")


async def test_kill_9_of_the_web_process_while_a_turn_waits(tier: Tier) -> None:
    web, other = await tier.web(), await tier.web()
    async with tier.send(web, "3"):
        web.kill()
    assert await other.state() == "running"
    async with tier.resume(other) as resumed:
        tier.worker()
        assert text_of(await resumed.rest()) == counted(3)
    assert tier.notes() == ["begun"]


async def test_kill_9_of_the_web_process_while_an_agent_answers(tier: Tier) -> None:
    web, other = await tier.web(), await tier.web()
    tier.worker()
    async with tier.send(web, "200") as stream:
        await begun(stream)
        web.kill()
        async with tier.resume(other) as resumed:
            assert text_of(await resumed.rest()) == counted(200)
    assert tier.notes() == ["begun"]


async def test_kill_9_of_a_worker_ends_the_answer_and_frees_the_chat(tier: Tier) -> None:
    tier.lease = LEASE
    web = await tier.web()
    worker = tier.worker()
    async with tier.send(web, "1000") as stream:
        await begun(stream)
        worker.kill()
        assert LOST in await stream.rest()
    assert await web.state() == "lost"
    tier.worker()
    async with tier.send(web, "3", message_id="u2") as stream:
        assert text_of(await stream.rest()) == counted(3)
    assert tier.notes() == ["begun", "begun"]

    async def is_swept() -> bool:
        return not [
            each for each in (await web.samples()).items() if each[0].startswith("adapter_turns_running") and each[1]
        ]

    await until(is_swept, "the entry of the worker that died is removed")


async def test_kill_9_of_a_worker_whose_agent_is_restartable_resets_the_page(tier: Tier) -> None:
    tier.lease = LEASE
    web = await tier.web()
    worker = tier.worker("restartable")
    async with tier.send(web, LONG) as stream:
        await begun(stream)
        tier.worker("restartable")
        await ready(web, 2)
        worker.kill()
        with pytest.raises(httpx2.TransportError):
            await stream.rest()
        assert LOST not in stream.seen
    async with tier.resume(web) as resumed:
        assert text_of(await resumed.rest()) == counted(int(LONG))
    assert tier.notes() == ["begun", "begun"]
    assert await web.state() == "finished"


async def test_no_other_version_of_the_code_restarts_a_turn_but_it_answers_the_next(tier: Tier) -> None:
    tier.lease = LEASE
    web = await tier.web()
    worker = tier.worker("restartable")
    async with tier.send(web, LONG) as stream:
        await begun(stream)
        tier.worker("restartable", "v2")
        await ready(web, 2)
        worker.kill()
        assert LOST in await stream.rest()
    async with tier.send(web, "3", message_id="u2") as stream:
        assert text_of(await stream.rest()) == counted(3)
    assert tier.notes() == ["begun", "begun"]


async def test_a_worker_that_is_told_to_exit_finishes_what_it_has_begun_and_takes_nothing_more(tier: Tier) -> None:
    web = await tier.web()
    worker = tier.worker()
    async with tier.send(web, "200") as stream:
        await begun(stream)
        worker.signal(signal.SIGTERM)
        await asyncio.sleep(1.5)  # longer than one request for turns
        async with tier.send(web, "3", chat_id="c2") as waiting:
            assert text_of(await stream.rest()) == counted(200)
            assert await worker.exit_code() == 0
            assert await web.state("c2") == "running"
            tier.worker()
            assert text_of(await waiting.rest()) == counted(3)


async def test_a_waiting_turn_is_stopped_at_once_and_never_begins(tier: Tier) -> None:
    web, other = await tier.web(), await tier.web()
    async with tier.send(web, "1000") as stream:
        async with asyncio.timeout(PATIENCE):
            assert (await other.client.post("/api/chat/c1/stop")).status_code == 204
        assert b'"type":"abort"' in await stream.rest()
    assert await web.state() == "stopped"
    tier.worker()
    async with tier.send(web, "3", message_id="u2") as stream:
        assert text_of(await stream.rest()) == counted(3)
    assert tier.notes() == ["begun"]


async def test_a_running_turn_is_stopped_from_any_web_process(tier: Tier) -> None:
    web, other = await tier.web(), await tier.web()
    tier.worker()
    async with tier.send(web, "1000") as stream:
        await begun(stream)
        assert (await other.client.post("/api/chat/c1/stop")).status_code == 204
        assert b'"type":"abort"' in await stream.rest()
    assert tier.notes() == ["begun", "stopped"]


async def test_more_turns_than_may_wait_are_refused_with_the_time_to_try_again(tier: Tier) -> None:
    web = await tier.web()
    async with tier.send(web, "1", "a"), tier.send(web, "1", "b"), tier.send(web, "1", "c"):
        message = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "1"}]}
        refused = await web.client.post("/api/chat", json={"id": "d", "messages": [message]})
        assert (refused.status_code, int(refused.headers["retry-after"]) > 0) == (503, True)
        assert "waiting" in refused.text


async def test_kill_9_of_redis_while_an_agent_answers(tier: Tier) -> None:
    tier.lease = LEASE
    web = await tier.web()
    tier.worker()
    async with tier.send(web, "1000") as stream:
        await begun(stream)
        tier.redis.kill()
        assert LOST in await stream.rest()
    tier.redis.lose_everything()
    tier.redis.start()
    await web.started()
    async with tier.send(web, "3", message_id="u2") as stream:
        assert text_of(await stream.rest()) == counted(3)
    assert tier.notes() == ["begun", "stopped", "begun"]


async def test_kill_9_of_redis_while_a_turn_waits(tier: Tier) -> None:
    web = await tier.web()
    async with tier.send(web, "3") as stream:
        tier.redis.kill()
        tier.redis.lose_everything()
        tier.redis.start()
        assert LOST in await stream.rest()
    tier.worker()
    async with tier.send(web, "3", message_id="u2") as stream:
        assert text_of(await stream.rest()) == counted(3)
    assert tier.notes() == ["begun"]


async def test_a_redis_that_comes_back_with_its_data_keeps_waiting_turns(tier: Tier) -> None:
    web = await tier.web()
    async with tier.send(web, "3") as stream:
        tier.redis.kill()
        tier.redis.start()
        tier.worker()
        assert text_of(await stream.rest()) == counted(3)
    assert tier.notes() == ["begun"]


async def loaded(web: Web) -> tuple[list[str], list[str]]:
    chat = (await web.client.get("/api/chat/c1/messages")).json()
    return texts(chat["messages"]), list(chat["outcomes"].values())


async def test_kill_9_of_a_worker_stores_the_answer_as_far_as_the_page_saw_it(tier: Tier) -> None:
    tier.lease = LEASE
    tier.store_chats()
    web = await tier.web()
    worker = tier.worker()
    await ready(web, 1)
    async with tier.send(web, "1000") as stream:
        await begun(stream)
        worker.kill()
        text = Body(await stream.rest(), complete=True).text

    async def is_stored() -> bool:
        return (await loaded(web))[1] == ["lost"]

    await until(is_stored, "the answer is stored")
    assert (await loaded(web))[0] == ["1000", text]
    tier.worker()
    async with tier.send(web, "3", message_id="u2") as stream:
        assert text_of(await stream.rest()) == counted(3)
    assert await loaded(web) == (["1000", text, "3", counted(3)], ["lost", "finished"])


async def test_a_restarted_answer_is_stored_once_and_whole(tier: Tier) -> None:
    tier.lease = LEASE
    tier.store_chats()
    web = await tier.web()
    worker = tier.worker("restartable")
    await ready(web, 1)
    async with tier.send(web, LONG) as stream:
        await begun(stream)
        tier.worker("restartable")
        await ready(web, 2)
        worker.kill()
        with pytest.raises(httpx2.TransportError):
            await stream.rest()
    async with tier.resume(web) as resumed:
        assert text_of(await resumed.rest()) == counted(int(LONG))
    assert tier.notes() == ["begun", "begun"]
    assert await loaded(web) == ([LONG, counted(int(LONG))], ["finished"])


async def test_kill_9_of_the_web_process_while_a_stored_turn_waits(tier: Tier) -> None:
    tier.store_chats()
    web, other = await tier.web(), await tier.web()
    async with tier.send(web, "3"):
        web.kill()
    assert await loaded(other) == (["3"], [])
    async with tier.resume(other) as resumed:
        tier.worker()
        assert text_of(await resumed.rest()) == counted(3)
    assert await loaded(other) == (["3", counted(3)], ["finished"])
