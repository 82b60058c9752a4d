"""Stored chats and several workers: a file of chats and a Redis that they share."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.chats.talking import texts, user
from tests.redis_server import redis_server
from tests.server.sockets import Body
from tests.server.streams import Streams
from usechat.chats import ChatStore, SqlChats
from usechat.runs.memory import MemoryRuns
from usechat.runs.redis.store import RedisRuns
from usechat.runs.store import RunStore
from usechat.server import ChatApp, Settings
from usechat.turn import Turn


class Agent:
    """Waits in the middle of an answer until it may go on."""

    def __init__(self) -> None:
        self.waits = asyncio.Event()
        self.goes_on = asyncio.Event()
        self.turns = 0

    async def __call__(self, turn: Turn) -> AsyncIterator[str]:
        self.turns += 1
        yield f"Answer to {turn.text}"
        if turn.text == "wait":
            self.waits.set()
            await self.goes_on.wait()
        yield "."


class Workers:
    """Two workers with a chat store each, on one file."""

    def __init__(self, file: Path, agent: Agent, runs: list[RunStore]) -> None:
        self.chats: ChatStore = SqlChats(str(file))
        self.streams = Streams()
        stores = [self.chats, SqlChats(str(file))]
        self.apps = [
            ChatApp(agent, chats=chats, runs=store, settings=Settings(sdk="7"), observer=self.streams, metrics=False)
            for chats, store in zip(stores, runs, strict=True)
        ]
        self.here, self.there = [
            httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://a", timeout=60)
            for app in self.apps
        ]

    async def close(self) -> None:
        for app in self.apps:
            await app.shut_down()


async def post(client: httpx2.AsyncClient, *messages: Any) -> Any:
    return await client.post("/api/chat", json={"id": "c1", "messages": list(messages)})


@pytest.fixture
def agent() -> Agent:
    return Agent()


async def test_another_worker_joins_and_resumes_and_answers_the_next_question(tmp_path: Path, agent: Agent) -> None:
    with redis_server("valkey") as server:
        workers = Workers(tmp_path / "chats.db", agent, [RedisRuns(server.url), RedisRuns(server.url)])
        first = asyncio.ensure_future(post(workers.here, user("u1", "wait")))
        await asyncio.wait_for(agent.waits.wait(), 60)
        resumed = asyncio.ensure_future(workers.there.get("/api/chat/c1/stream"))
        second = asyncio.ensure_future(post(workers.there, user("u1", "wait")))
        await workers.streams.wait_for(3)
        refused = await post(workers.there, user("u2", "Two"))
        assert (refused.status_code, refused.text) == (409, "This chat is being answered already.")
        agent.goes_on.set()
        answers = [Body((await each).content, complete=True).text for each in (first, resumed, second)]
        assert answers == ["Answer to wait."] * 3
        assert Body((await post(workers.there, user("u2", "Two"))).content, complete=True).text == "Answer to Two."
        loaded = await workers.chats.load("c1", owner="")
        assert texts(loaded.messages) == ["wait", "Answer to wait.", "Two", "Answer to Two."]
        assert agent.turns == 2
        await workers.close()


async def test_a_worker_that_shares_no_runs_refuses_a_chat_that_is_being_answered(tmp_path: Path, agent: Agent) -> None:
    workers = Workers(tmp_path / "chats.db", agent, [MemoryRuns(), MemoryRuns()])
    task = asyncio.ensure_future(post(workers.here, user("u1", "wait")))
    await asyncio.wait_for(agent.waits.wait(), 60)
    for message in (user("u1", "wait"), user("u2", "Two")):
        assert (await post(workers.there, message)).status_code == 409
    agent.goes_on.set()
    await task
    assert Body((await post(workers.there, user("u2", "Two"))).content, complete=True).text == "Answer to Two."
    await workers.close()
