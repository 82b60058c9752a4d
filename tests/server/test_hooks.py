"""Applications with a database of their own: what `load` and `on_finish` are given, and what comes of it."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.chats.talking import answer, texts, user
from tests.server.sockets import Body
from usechat import parts
from usechat.chats import MemoryChats, last_messages
from usechat.errors import InvalidSetting
from usechat.server import ChatApp, Settings, chat_response
from usechat.turn import Turn

pytestmark = [pytest.mark.external_agents, pytest.mark.quick]


async def agent(turn: Turn) -> AsyncIterator[str | parts.Part]:
    if turn.text == "fail":
        yield "Half"
        raise ValueError("secret")
    if turn.text == "where":
        yield parts.ToolCall("t1", "locate", {})
        return
    yield " | ".join(texts(turn.messages))


def in_chat_app(**hooks: Any) -> Any:
    return ChatApp(agent, settings=Settings(sdk="7"), metrics=False, **hooks)


def in_own_route(**hooks: Any) -> Any:
    async def chat(request: Request) -> Response:
        return await chat_response(request, agent, settings=Settings(sdk="7"), **hooks)

    return Starlette(routes=[Route("/api/chat", chat, methods=["POST"])])


@pytest.fixture(params=[in_chat_app, in_own_route])
def app_with(request: pytest.FixtureRequest) -> Callable[..., Any]:
    make_app: Callable[..., Any] = request.param
    return make_app


async def post(app: Any, *messages: Any, **body: Any) -> Body:
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://a", timeout=30) as client:
        response = await client.post("/api/chat", json={"id": "c1", "messages": list(messages), **body})
    assert response.status_code == 200, response.text
    return Body(response.content, complete=True)


@pytest.mark.parametrize(
    ("question", "text", "outcome"), [("Hi", "Hi", "finished"), ("fail", "Half", "failed"), ("where", "", "waiting")]
)
async def test_on_finish_gets_the_message_the_turn_and_the_outcome(
    app_with: Callable[..., Any], question: str, text: str, outcome: str
) -> None:
    calls: list[Any] = []

    async def save(message: Any, turn: Turn, outcome: str) -> None:
        await asyncio.sleep(0)
        calls.append((message, turn.chat_id, texts(turn.messages), outcome))

    body = await post(app_with(on_finish=save), user("u1", question))
    [(message, *rest)] = calls
    assert (texts([message]), message["id"], rest) == ([text], body.message_id, ["c1", [question], outcome])


async def test_a_plain_function_may_save_and_load(app_with: Callable[..., Any]) -> None:
    roles: list[Any] = []
    hooks = {
        "on_finish": lambda message, _turn, _outcome: roles.append(message["role"]),
        "load": lambda _turn: [user("u1", "One"), answer("a1", "First.")],
    }
    assert (await post(app_with(**hooks), user("u2", "Two"))).text == "One | First. | Two"
    assert roles == ["assistant"]


async def test_a_plain_function_does_not_delay_other_chats(app_with: Callable[..., Any]) -> None:
    gate = threading.Event()

    def load(turn: Turn) -> list[Any]:
        assert turn.text != "wait" or gate.wait(30)
        return []

    def save(_message: Any, turn: Turn, _outcome: str) -> None:
        assert turn.text != "Saved late" or gate.wait(30)

    app = app_with(load=load, on_finish=save)
    slow = [asyncio.ensure_future(post(app, user("u1", text), id=text)) for text in ("wait", "Saved late")]
    assert (await post(app, user("u1", "Hi"))).text == "Hi"
    assert [each.done() for each in slow] == [False, False]
    gate.set()
    assert [(await each).text for each in slow] == ["wait", "Saved late"]


async def test_what_load_returns_is_the_history_whatever_the_page_sends(app_with: Callable[..., Any]) -> None:
    async def load(turn: Turn) -> list[Any]:
        assert turn.chat_id == "c1"
        return [user("u1", "One"), answer("a1", "First.")]

    forged = (user("u1", "One"), answer("a1", "Forged"), user("u2", "Two"))
    assert (await post(app_with(load=load), *forged)).text == "One | First. | Two"
    again = await post(app_with(load=load), user("u1", "One"), trigger="regenerate-message", messageId="a1")
    assert again.text == "One"


async def test_on_finish_that_raises_is_logged_and_the_page_gets_its_end(
    app_with: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    def save(*_arguments: object) -> None:
        raise ValueError("secret")

    with caplog.at_level(logging.ERROR, "usechat.chats"):
        body = await post(app_with(on_finish=save), user("u1", "Hi"))
    assert body.text == "Hi"
    assert b"secret" not in body.data
    assert [record.getMessage().partition("; reference ")[0] for record in caplog.records] == [
        f"on_finish failed for the answer {body.message_id} of chat c1"
    ]


async def test_on_finish_that_hangs_does_not_keep_the_page_waiting_for_ever(
    app_with: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("usechat.server.hooks._HOOK_SECONDS", 0.01)

    async def save(*_arguments: object) -> None:
        await asyncio.Event().wait()

    assert (await post(app_with(on_finish=save), user("u1", "Hi"))).text == "Hi"


async def test_a_plain_on_finish_that_hangs_does_not_keep_the_page_waiting_for_ever(
    app_with: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("usechat.server.hooks._HOOK_SECONDS", 0.01)
    gate = threading.Event()
    ended: list[bool] = []

    def save(*_arguments: object) -> None:
        ended.append(gate.wait(30))

    assert (await post(app_with(on_finish=save), user("u1", "Hi"))).text == "Hi"
    assert ended == []
    gate.set()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"titles": lambda _: "x"},
            "titles, history, on_feedback, share and mcp_servers are for chats that are stored; give chats, too",
        ),
        (
            {"history": last_messages(1)},
            "titles, history, on_feedback, share and mcp_servers are for chats that are stored; give chats, too",
        ),
        (
            {"chats": MemoryChats(), "load": lambda _: []},
            "chats and load both provide the history; give only one of them",
        ),
        (
            {"chats": MemoryChats(), "path": "/p/{project}/chat"},
            "chats are stored by their id alone, so the path cannot have parameters: /p/{project}/chat",
        ),
    ],
)
def test_arguments_that_contradict_each_other_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidSetting) as raised:
        ChatApp(agent, metrics=False, **options)
    assert str(raised.value) == sentence
