"""A message that is posted again is the same only if it says the same."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2
import pytest

from tests.redis_server import redis_server
from tests.server.sockets import Body
from usechat.runs.memory import MemoryRuns
from usechat.runs.redis.store import RedisRuns
from usechat.runs.run import message_digest
from usechat.runs.settings import Conflict
from usechat.runs.store import RunStore
from usechat.server import ChatApp, Settings
from usechat.turn import Turn

pytestmark = pytest.mark.external_agents


class Agent:
    """Answers with what was said; the answer to OLD never ends by itself."""

    def __init__(self) -> None:
        self.waits = asyncio.Event()
        self.stopped = 0

    async def __call__(self, turn: Turn) -> AsyncIterator[str]:
        yield f"answer to {turn.text}"
        if turn.text == "OLD":
            self.waits.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.stopped += 1


def body_of(text: str) -> dict[str, Any]:
    message = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": text}]}
    return {"id": "c1", "messages": [message], "trigger": "submit-message", "messageId": "u1"}


@pytest.fixture(params=["memory", "redis"])
def stores(request: pytest.FixtureRequest) -> Iterator[list[RunStore]]:
    """The store of the worker that answers OLD, and that of the worker that is asked NEW."""
    if request.param == "memory":
        yield [MemoryRuns()] * 2
        return
    with redis_server("valkey") as server:
        yield [RedisRuns(server.url), RedisRuns(server.url)]


@pytest.mark.parametrize("is_left", [True, False])
@pytest.mark.parametrize("conflict", ["reject", "attach", "queue", "interrupt"])
async def test_an_edited_message_gets_the_answer_to_its_new_text(
    stores: list[RunStore], conflict: Conflict, is_left: bool
) -> None:
    agent = Agent()
    apps = [ChatApp(agent, runs=runs, settings=Settings(sdk="7", conflict=conflict)) for runs in stores]
    if stores[0] is stores[1]:
        apps[1] = apps[0]
    clients = [httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://a", timeout=30) for app in apps]
    old = asyncio.ensure_future(clients[0].post("/api/chat", json=body_of("OLD")))
    await asyncio.wait_for(agent.waits.wait(), 30)
    if is_left:
        old.cancel()
        await asyncio.wait([old])
    response = await clients[1].post("/api/chat", json=body_of("NEW"))
    assert (response.status_code, Body(response.content, complete=True).text) == (200, "answer to NEW")
    assert agent.stopped == 1
    await asyncio.wait([old])
    for app in dict.fromkeys(apps):
        await app.shut_down()


def test_messages_with_the_same_parts_have_the_same_digest() -> None:
    def digest(text: str, message_id: str = "u1") -> str:
        return message_digest({"id": message_id, "role": "user", "parts": [{"type": "text", "text": text}]})

    assert digest("a") == digest("a", "u2")
    assert len({digest("a"), digest("b"), digest("\ud800"), digest("\ud801")}) == 4
