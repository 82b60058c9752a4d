"""Limits per person, in one process and across workers."""

import argparse
import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.requests import Request

from tests.redis_server import redis_server
from tests.server.process import question, serve_process
from tests.server.test_worker import until
from usechat.cli import options as read
from usechat.runs.memory import MemoryRuns
from usechat.runs.quotas import QuotaLimiter, Quotas
from usechat.runs.redis.store import RedisRuns
from usechat.runs.run import RunInfo, RunState
from usechat.runs.store import RunStore
from usechat.server import ChatApp, Settings
from usechat.turn import Identity, Turn

pytestmark = pytest.mark.external_agents


@pytest.fixture(params=["memory", "redis"])
def stores(request: pytest.FixtureRequest) -> Iterator[list[RunStore]]:
    """The stores of two workers; in memory there is one worker."""
    if request.param == "memory":
        yield [MemoryRuns()]
        return
    with redis_server("valkey") as server:
        yield [RedisRuns(server.url), RedisRuns(server.url)]


def by_name(request: Request, _chat_id: str, _action: str) -> Identity:
    return Identity(request.headers["x-name"])


class Workers:
    """Workers of one service; requests go to one after the other."""

    def __init__(self, stores: list[RunStore], quotas: Quotas) -> None:
        self.gate = asyncio.Event()
        self.beginning = asyncio.Event()
        settings = Settings(quotas=quotas)
        self.apps = [ChatApp(self._answer, runs=runs, authorize=by_name, settings=settings) for runs in stores]
        self._count = 0

    async def _answer(self, turn: Turn) -> AsyncIterator[str]:
        yield "x" * 100
        self.beginning.set()
        if turn.text == "wait":
            await self.gate.wait()

    async def ask(self, text: str = "Hi", name: str = "ada") -> tuple[int, str, Any]:
        self._count += 1
        transport = httpx2.ASGITransport(self.apps[self._count % len(self.apps)])
        async with httpx2.AsyncClient(transport=transport, base_url="http://a", timeout=60) as client:
            chat = f"{name}-{self._count}"
            response = await client.post("/api/chat", json=question(text, chat), headers={"x-name": name})
        body = "" if response.status_code == 200 else response.text
        return response.status_code, body, response.headers.get("retry-after")

    async def until(self, status: int) -> tuple[int, str, Any]:
        """Ask until the answer has this status: what a run used is counted just after its end."""
        async with asyncio.timeout(30):
            while (response := await self.ask())[0] != status:
                pass
        return response

    async def close(self) -> None:
        for app in self.apps:
            await app.shut_down()


async def test_requests_a_minute_are_limited_per_person(stores: list[RunStore]) -> None:
    workers = Workers(stores, Quotas(requests_per_minute=2))
    assert [(await workers.ask())[0] for _ in range(2)] == [200, 200]
    status, text, retry_after = await workers.ask()
    assert (status, text) == (429, "More than 2 requests in a minute. Please wait.")
    assert 0 < int(retry_after) <= 60
    assert (await workers.ask(name="bob"))[0] == 200
    await workers.close()


async def test_runs_at_once_are_limited_per_person(stores: list[RunStore]) -> None:
    workers = Workers(stores, Quotas(concurrent_runs=1))
    running = asyncio.ensure_future(workers.ask("wait"))
    await asyncio.wait_for(workers.beginning.wait(), 30)
    assert await workers.ask() == (429, "More than 1 messages at once. Please wait.", "5")
    assert (await workers.ask(name="bob"))[0] == 200
    workers.gate.set()
    assert (await running)[0] == 200
    await workers.until(200)
    await workers.close()


async def test_a_run_whose_worker_died_counts_until_it_is_found_lost() -> None:
    quotas = Quotas(concurrent_runs=1)
    with redis_server("valkey") as server:
        dying = RedisRuns(server.url, lease=1)
        await QuotaLimiter(quotas, dying).admit("ada", "r1")
        await dying.claim(RunInfo("r1", "c1", "m1", sdk="7", subject="ada"))
        await dying.close()  # nobody renews its lease, and nobody records an end
        runs = RedisRuns(server.url, lease=1)
        workers = Workers([runs], quotas)
        assert (await workers.ask())[0] == 429
        await until(lambda: _is_lost(runs), "the run is found lost")
        await workers.until(200)
        await workers.close()


async def _is_lost(runs: RedisRuns) -> bool:
    info = await runs.latest("c1")
    return info is not None and info.state is RunState.LOST


async def test_bytes_a_day_are_limited_per_person(stores: list[RunStore]) -> None:
    workers = Workers(stores, Quotas(bytes_per_day=100))
    assert (await workers.ask())[0] == 200
    response = await workers.until(429)
    assert response[:2] == (429, "Your quota for today is used up.")
    assert 86_000 < int(response[2]) <= 86_400
    await workers.close()


def test_the_command_limits_requests_a_minute(tmp_path: Path) -> None:
    (tmp_path / "my_app.py").write_text("def agent(turn):\n    return 'Hello'\n", encoding="utf-8")
    with serve_process(tmp_path, "my_app:agent", "--rate", "2/min") as served:
        answers = [
            httpx2.post(f"{served.url}/api/chat", json=question(chat_id=f"c{number}"), timeout=60)
            for number in range(3)
        ]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert int(answers[2].headers["retry-after"]) > 0


@pytest.mark.parametrize("text", ["30", "30/s", "0/min", "-1/min", "x/min"])
def test_a_rate_is_a_number_of_requests_a_minute(text: str) -> None:
    assert read.rate("30/min") == 30
    with pytest.raises(argparse.ArgumentTypeError, match="is not a rate such as 30/min"):
        read.rate(text)
