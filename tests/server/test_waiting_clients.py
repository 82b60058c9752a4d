"""What does not start an agent, and what does not keep a chat busy: clients that left, observers that raise."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from tests.server.process import question
from usechat.server import ChatApp, Observer, Settings
from usechat.turn import Turn

pytestmark = pytest.mark.external_agents

PATIENCE = 30.0


def client_of(app: ChatApp, port: int = 1) -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(app, client=("127.0.0.1", port))
    return httpx2.AsyncClient(transport=transport, base_url="http://a", timeout=60)


class Agent:
    """Answers the first question when it is told to, and the others at once."""

    def __init__(self) -> None:
        self.questions: list[str] = []
        self.beginning = asyncio.Event()
        self.gate = asyncio.Event()

    async def __call__(self, turn: Turn) -> AsyncIterator[str]:
        self.questions.append(turn.text)
        self.beginning.set()
        yield "answer"
        if turn.text == "first":
            await self.gate.wait()


async def test_a_client_that_left_while_it_waited_starts_no_agent() -> None:
    agent = Agent()
    app = ChatApp(agent, settings=Settings(conflict="queue"))
    left = asyncio.Event()
    statuses: list[int] = []

    async def ask(text: str) -> None:
        body = [{"type": "http.request", "body": httpx2.Request("POST", "/", json=message(text)).content}]

        async def receive() -> Any:
            if body:
                return body.pop()
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(event: dict[str, object]) -> None:
            if event["type"] == "http.response.start":
                statuses.append(int(str(event["status"])))

        headers = [(b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/api/chat", "query_string": b"", "headers": headers}
        await app(scope, receive, send)

    async with client_of(app) as client:
        first = asyncio.ensure_future(client.post("/api/chat", json=message("first")))
        async with asyncio.timeout(PATIENCE):
            await agent.beginning.wait()
            second = asyncio.ensure_future(ask("second"))
            await asyncio.sleep(0.1)
            left.set()
            await second
            agent.gate.set()
            assert (await first).status_code == 200
            assert (await client.post("/api/chat", json=message("third"))).status_code == 200
    assert (agent.questions, statuses) == (["first", "third"], [499])
    await app.shut_down()


@pytest.mark.parametrize("leaves", ["abort", "disconnect"])
async def test_a_socket_that_left_while_its_request_waited_starts_no_agent(leaves: str) -> None:
    agent = Agent()
    app = ChatApp(agent, settings=Settings(conflict="queue"))
    incoming: asyncio.Queue[Any] = asyncio.Queue()
    accepted = asyncio.Event()

    async def send(event: dict[str, object]) -> None:
        if event["type"] == "websocket.accept":
            accepted.set()

    def ask(text: str) -> None:
        frame = {"type": "send", "requestId": text, "trigger": "submit-message", **message(text)}
        incoming.put_nowait({"type": "websocket.receive", "text": json.dumps(frame)})

    scope = {"type": "websocket", "path": "/api/chat/ws", "query_string": b"", "headers": [], "subprotocols": []}
    async with client_of(app) as client, asyncio.timeout(PATIENCE):
        first = asyncio.ensure_future(client.post("/api/chat", json=message("first")))
        await agent.beginning.wait()
        incoming.put_nowait({"type": "websocket.connect"})
        socket = asyncio.ensure_future(app(scope, incoming.get, send))
        await accepted.wait()
        ask("second")
        await asyncio.sleep(0.1)
        if leaves == "abort":
            incoming.put_nowait({"type": "websocket.receive", "text": '{"type": "abort", "requestId": "second"}'})
            await asyncio.sleep(0.1)
        incoming.put_nowait({"type": "websocket.disconnect", "code": 1001})
        await socket
        agent.gate.set()
        assert (await first).status_code == 200
        await asyncio.sleep(0.5)  # time enough for a request that waits to begin
        assert (await client.post("/api/chat", json=message("third"))).status_code == 200
    assert agent.questions == ["first", "third"]
    await app.shut_down()


def message(text: str) -> dict[str, object]:
    body = question(text)
    body["messages"][0]["id"] = text
    return body


RAISING = ["bytes_sent", "first_frame", "run_ended", "run_started", "stream_closed", "stream_opened"]


def fail(*_event: object) -> None:
    raise RuntimeError("broken")


Broken = type("Broken", (Observer,), dict.fromkeys(RAISING, fail))
"""Raises in every method that a turn calls."""


async def test_an_observer_that_raises_is_logged_and_the_chat_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    agent = Agent()
    app = ChatApp(agent, observer=Broken())
    async with client_of(app) as client:
        for text in ("one", "two"):
            response = await client.post("/api/chat", json=message(text))
            assert (response.status_code, b"answer" in response.content) == (200, True)
        assert (await client.get("/api/chat/c1")).json()["state"] == "finished"
    raised = [record.args for record in caplog.records if record.exc_info]
    assert sorted(raised, key=str) == [("Broken", method) for method in RAISING], "once each"
    await app.shut_down()
