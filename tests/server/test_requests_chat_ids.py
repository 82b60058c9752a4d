"""Where the id of a chat comes from, and how long it may be."""

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.conformance.served import Served
from tests.server.socket_apps import opened
from usechat import parts
from usechat.errors import ChatNotFound
from usechat.protocol.message import MessageBuilder
from usechat.protocol.request import LONGEST_ID
from usechat.protocol.sse import ChunkDecoder
from usechat.server import ChatApp, chat_response
from usechat.server.requests import chat_key
from usechat.turn import Turn

pytestmark = pytest.mark.external_agents

USER = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
LONG = "x" * LONGEST_ID


async def curious(turn: Turn) -> AsyncIterator[Any]:
    yield f"{turn.chat_id} {[each.output for each in turn.tool_outputs]}"
    if not turn.request.continues:
        yield parts.ToolCall("t1", "ask", {})


async def chat(request: Request) -> Response:
    return await chat_response(request, curious)


ROUTES = Starlette(
    routes=[Route("/chats/{chat_id}", chat, methods=["POST"]), Route("/numbers/{chat_id:int}", chat, methods=["POST"])]
)


def client(app: Any) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://example", timeout=30)


async def posted(path: str, *messages: Any, **more: Any) -> Any:
    """Post messages; return the message that comes back, which goes on with the last one."""
    async with client(ROUTES) as http:
        response = await http.post(path, json={"messages": messages, **more})
    builder = MessageBuilder(sdk="7", message=messages[-1] if messages[-1]["role"] == "assistant" else None)
    for chunk in ChunkDecoder().receive(response.content):
        builder.receive(chunk)
    return builder.message


@pytest.mark.parametrize(
    ("path", "body", "chat_id"),
    [
        pytest.param("/chats/a%20b", {}, "a b", id="in the path"),
        pytest.param("/numbers/42", {}, "42", id="a number in the path"),
        pytest.param("/chats/a%20b", {"id": "c1"}, "c1", id="in the body, which comes first"),
    ],
)
async def test_the_id_stands_in_the_body_or_in_the_path(path: str, body: dict[str, str], chat_id: str) -> None:
    message = await posted(path, USER, **body)
    output = {"state": "output-available", "output": 5}
    message["parts"] = [part | output if "toolCallId" in part else part for part in message["parts"]]
    after = await posted(path, USER, message, **body)
    assert [part["text"] for part in after["parts"] if part["type"] == "text"] == [f"{chat_id} []", f"{chat_id} [5]"]


async def test_an_id_that_is_too_long_names_no_chat() -> None:
    async with client(ChatApp(curious)) as http:
        assert (await http.post("/api/chat", json={"id": LONG, "messages": [USER]})).status_code == 200
        assert (await http.get(f"/api/chat/{LONG}")).status_code == 200
        refused = await http.post("/api/chat", json={"id": f"{LONG}x", "messages": [USER]})
        assert (refused.status_code, refused.text) == (400, "the chat id has 1025 characters; an id has at most 1024")
        assert (await http.get(f"/api/chat/{LONG}x")).status_code == 404
        assert (await http.post(f"/api/chat/{LONG}x/stop")).status_code == 404
        assert (await http.get(f"/api/chat/{LONG}x/stream")).status_code == 204
    async with client(ROUTES) as http:
        assert (await http.post(f"/chats/{LONG}x", json={"messages": [USER]})).status_code == 404


def test_nor_does_it_on_a_socket(server: Served) -> None:
    with opened(server) as socket:
        socket.resume("r1", f"{LONG}x")
        assert socket.frames("r1") == [{"type": "no-active", "requestId": "r1"}]


@pytest.mark.parametrize(("path_params", "chat_id"), [({}, f"{LONG}x"), ({"session": f"{LONG}x"}, "c1")])
def test_no_name_in_a_path_is_too_long(path_params: dict[str, str], chat_id: str) -> None:
    with pytest.raises(ChatNotFound):
        chat_key(path_params, chat_id)
