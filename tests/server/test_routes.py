"""Which chat a path names: ids with odd characters, and paths with parameters of their own."""

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from tests.server.guarded import Streams
from usechat.server import ChatApp
from usechat.server.requests import chat_key
from usechat.turn import Turn

pytestmark = [pytest.mark.external_agents, pytest.mark.quick]

ODD_IDS = [
    "a/b",
    "/a",
    "a/",
    "a//b",
    "a/stream",
    "a/stop/b",
    "ws",
    "stop",
    "Grüße 🙂",
    "a?b#c",
    "50%",
    "a\nb",
    "a\\b",
    "{a}",
]


class Agent:
    """Waits until it is told to go on."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()

    async def answer(self, turn: Turn) -> AsyncIterator[str]:
        yield f"{turn.chat_id} {dict(turn.path_params)}"
        await self.go_on.wait()


def client(app: Any) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://example", timeout=30)


def body(chat_id: str) -> dict[str, Any]:
    return {"id": chat_id, "messages": [{"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}]}


async def until_it_runs(http: httpx2.AsyncClient, path: str) -> None:
    async with asyncio.timeout(30):
        while (await http.get(path)).status_code != 200:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("chat_id", ODD_IDS)
async def test_a_chat_of_any_id_is_resumed_and_stopped(chat_id: str) -> None:
    chats = ChatApp(Agent().answer)
    name = quote(chat_id, safe="")  # as encodeURIComponent does it (ai 5.0.277, 6.0.326, 7.0.170)
    async with client(chats) as http:
        answering = asyncio.ensure_future(http.post("/api/chat", json=body(chat_id)))
        await asyncio.sleep(0)
        async with asyncio.timeout(30):
            while (stopped := await http.post(f"/api/chat/{name}/stop")).status_code == 404:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert stopped.status_code == 204
        assert '"type":"abort"' in (await answering).text
        assert (await http.get(f"/api/chat/{name}/stream")).status_code == 204


@pytest.mark.parametrize("path", ["/api/chat/a/b", "/api/chat/a%2Fb"])
async def test_a_slash_is_part_of_the_id_whether_the_page_encodes_it_or_not(path: str) -> None:
    agent, streams = Agent(), Streams()
    chats = ChatApp(agent.answer, observer=streams)
    async with client(chats) as http:
        answering = asyncio.ensure_future(http.post("/api/chat", json=body("a/b")))
        await until_it_runs(http, path)
        resumed = asyncio.ensure_future(http.get(f"{path}/stream"))
        async with asyncio.timeout(30):
            for _ in (answering, resumed):
                await streams.opened.acquire()
        agent.go_on.set()
        assert (await resumed).text.count("a/b {}") == 1
        assert (await answering).status_code == 200
        assert (await http.get(path)).json()["state"] == "finished"


async def test_a_slash_at_the_end_of_the_path_still_leads_to_it() -> None:
    agent = Agent()
    agent.go_on.set()
    async with client(ChatApp(agent.answer)) as http:
        response = await http.post("/api/chat/", json=body("c1"), follow_redirects=True)
        assert response.status_code == 200
        assert (await http.get("/api/chat")).status_code == 405
        assert (await http.delete("/api/chat/c1")).status_code == 405


@pytest.mark.parametrize(
    ("app", "prefix"),
    [
        pytest.param(lambda agent: ChatApp(agent, path="/sessions/{session}/chat"), "/sessions/s%201/chat", id="path"),
        pytest.param(
            lambda agent: Starlette(routes=[Mount("/sessions/{session}", ChatApp(agent, path="/chat"))]),
            "/sessions/s%201/chat",
            id="mount",
        ),
    ],
)
async def test_a_path_may_have_parameters(app: Any, prefix: str) -> None:
    agent = Agent()
    async with client(app(agent.answer)) as http:
        answering = asyncio.ensure_future(http.post(prefix, json=body("a/b")))
        await until_it_runs(http, f"{prefix}/a%2Fb")
        assert (await http.get("/sessions/other/chat/a%2Fb")).status_code == 404
        assert (await http.get("/sessions/other/chat/a%2Fb/stream")).status_code == 204
        assert (await http.post("/sessions/other/chat/a%2Fb/stop")).status_code == 404
        assert (await http.post(f"{prefix}/a%2Fb/stop")).status_code == 204
        assert "a/b {'session': 's 1'}" in (await answering).text


def test_no_two_chats_share_a_key() -> None:
    chats: list[tuple[dict[str, Any], str]] = [
        ({}, "c"),
        ({}, "a/c"),
        ({}, "x=a/c"),
        ({"x": "a"}, "c"),
        ({"y": "a"}, "c"),
        ({"x": "a", "y": "b"}, "c"),
        ({"x": "a/y=b"}, "c"),
        ({"x": "a"}, "b/c"),
        ({"x": "a/b"}, "c"),
        ({"x": "a%2Fb"}, "c"),
        ({}, "\ud800"),
    ]
    keys = [chat_key(params, chat_id) for params, chat_id in chats]
    assert len(set(keys)) == len(chats)
    assert all(key.isascii() and key.isprintable() for key in keys)


def test_the_key_of_a_usual_chat_is_its_id() -> None:
    assert chat_key({"chat_id": "Zx8-1_a.b~c"}, "Zx8-1_a.b~c") == "Zx8-1_a.b~c"
    assert chat_key({"session_id": "s1", "chat_id": "c1"}, "c1") == "session_id=s1/c1"


async def test_the_garbage_collector_of_the_host_is_left_alone() -> None:
    states: list[tuple[int, tuple[int, int, int]]] = []
    events = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

    async def receive() -> dict[str, str]:
        return next(events)

    async def send(message: dict[str, str]) -> None:
        states.append((gc.get_freeze_count(), gc.get_threshold()))
        assert message["type"].endswith(".complete")

    before = (gc.get_freeze_count(), gc.get_threshold())
    await ChatApp(lambda _turn: "Hi")({"type": "lifespan", "asgi": {"version": "3.0"}}, receive, send)
    assert states == [before, before]
