"""Going on at an index over HTTP: what a page that counts chunks asks for, and who may post a text."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from usechat.protocol.sse import chunks_json
from usechat.server import ChatApp, Settings
from usechat.turn import Identity, Turn

pytestmark = pytest.mark.quick

MESSAGES = [{"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}]
LONE_FINISH = [b'{"type":"finish"}']


async def words(_turn: Turn) -> AsyncIterator[str]:
    for word in ("one ", "two ", "three"):
        yield word
        await asyncio.sleep(0)


def client(app: Any) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://example", timeout=30)


async def go_on(http: httpx2.AsyncClient, name: str, index: str, **options: Any) -> httpx2.Response:
    response = await http.get(f"/api/chat/{name}/stream", params={"startIndex": index}, **options)
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/event-stream"
    return response


async def test_an_ended_run_is_read_from_any_index_on() -> None:
    async with client(ChatApp(words)) as http:
        posted = await http.post("/api/chat", json={"id": "a/b", "messages": MESSAGES})
        name, sent = posted.headers["x-workflow-run-id"], chunks_json(posted.content)
        for index in range(len(sent)):
            again = await go_on(http, name.replace("%", "%25"), str(index))
            assert chunks_json(again.content) == sent[index:]
        last = await go_on(http, name.replace("%", "%25"), "-2")
        assert chunks_json(last.content) == sent[-2:]
        assert last.headers["x-workflow-stream-tail-index"] == str(len(sent) - 1)
        beyond = await go_on(http, name.replace("%", "%25"), "999")
        assert chunks_json(beyond.content) == LONE_FINISH


async def test_a_post_without_an_id_names_the_chat_that_it_began() -> None:
    async with client(ChatApp(words)) as http:
        posted = await http.post("/api/chat", json={"messages": MESSAGES})
        again = await go_on(http, posted.headers["x-workflow-run-id"], "3")
        assert chunks_json(again.content) == chunks_json(posted.content)[3:]


async def test_an_idle_chat_has_nothing_more_to_say() -> None:
    async with client(ChatApp(words)) as http:
        assert chunks_json((await go_on(http, "c1", "0")).content) == LONE_FINISH
        await http.post("/api/chat", json={"id": "c1", "messages": MESSAGES})
        assert chunks_json((await go_on(http, "c1", "0")).content) == LONE_FINISH
        assert (await http.get("/api/chat/c1/stream")).status_code == 204


async def test_a_run_that_is_not_known_or_belongs_to_somebody_else_is_an_error() -> None:
    async def who(request: Any, _chat_id: str, _action: str) -> Identity:
        return Identity(request.headers["x-user"])

    async with client(ChatApp(words, authorize=who)) as http:
        posted = await http.post("/api/chat", json={"id": "c1", "messages": MESSAGES}, headers={"x-user": "ada"})
        name = posted.headers["x-workflow-run-id"]
        assert len(chunks_json((await go_on(http, name, "0", headers={"x-user": "ada"})).content)) > 1
        answers = [
            await go_on(http, name, "0", headers={"x-user": "bob"}),
            await go_on(http, "run~unknown~~~c1", "0", headers={"x-user": "ada"}),
            await go_on(http, "run~unknown~~~c2", "0", headers={"x-user": "ada"}),
        ]
        for answer in answers:
            [error] = map(json.loads, chunks_json(answer.content))
            assert (error["type"], error["errorText"][:35]) == ("error", "The server does not have this answe")


@pytest.mark.parametrize("index", ["x", "", "1.5", "1" * 13, "--1", "\N{ARABIC-INDIC DIGIT ONE}"])
async def test_an_index_is_a_whole_number(index: str) -> None:
    async with client(ChatApp(words)) as http:
        response = await http.get("/api/chat/c1/stream", params={"startIndex": index})
    assert response.status_code == 400
    assert "startIndex is a whole number" in response.text


@pytest.mark.parametrize("view", ["99", "latest", "6.x"])
async def test_a_view_for_a_release_that_is_none_is_refused(view: str) -> None:
    async with client(ChatApp(words)) as http:
        await http.post("/api/chat", json={"id": "c1", "messages": MESSAGES})
        response = await http.get(f"/api/chat/run~r1~{view}~~c1/stream", params={"startIndex": 0})
    assert response.status_code == 400


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        pytest.param(None, 200, id="no page"),
        pytest.param("http://example", 200, id="same host"),
        pytest.param("https://friend.example", 200, id="allowed"),
        pytest.param("https://other.example", 400, id="another site"),
        pytest.param("null", 400, id="a page without an origin"),
    ],
)
async def test_a_text_is_taken_from_pages_of_the_same_host_and_of_allowed_origins(
    origin: str | None, status: int
) -> None:
    settings = Settings(websocket_origins=("https://friend.example",))
    headers = {"content-type": "text/plain;charset=UTF-8", **({} if origin is None else {"origin": origin})}
    async with client(ChatApp(words, settings=settings)) as http:
        response = await http.post("/api/chat", content=json.dumps({"messages": MESSAGES}), headers=headers)
    assert response.status_code == status
