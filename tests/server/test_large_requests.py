"""Large bodies of small values and bodies that never end: neither stops a server."""

import asyncio
import json
import socket
import time
from typing import Any

import httpx2
import pytest

from tests.conformance.served import serving
from usechat.protocol.request import Limits
from usechat.server import ChatApp, Settings

pytestmark = pytest.mark.external_agents


def answer(turn: Any) -> str:
    return f"Hello, {len(turn.body['values'])}!"


def body_of(count: int) -> dict[str, Any]:
    message = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Hi"}]}
    return {"id": "c1", "messages": [message], "values": [[] for _ in range(count)]}


async def post(app: ChatApp, content: Any) -> httpx2.Response:
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://a", timeout=60) as client:
        return await client.post("/api/chat", content=content, headers={"content-type": "application/json"})


async def test_a_body_of_very_many_values_is_refused_before_it_is_read() -> None:
    content = b'{"messages":[' + b"[]," * 4_000_000 + b"[]]}"
    response = await post(ChatApp(answer), content)
    assert (response.status_code, response.text) == (
        413,
        "the body holds too many values; the limit maximum_values is 250000",
    )


async def test_a_large_body_is_read_while_the_event_loop_goes_on() -> None:
    slept: list[float] = []

    async def watch() -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(0)
            slept.append(time.monotonic() - began)

    app = ChatApp(answer, settings=Settings(limits=Limits(maximum_values=1_000_000)))
    content = json.dumps(body_of(100_000)).encode()
    watching = asyncio.ensure_future(watch())
    response = await post(app, content)
    watching.cancel()
    assert (response.status_code, b"100000" in response.content) == (200, True)
    assert len(slept) > 20


@pytest.mark.parametrize("plain_asgi", [False, True])
def test_a_body_that_does_not_arrive_in_time_is_refused(plain_asgi: bool) -> None:
    apps = {"chat": ChatApp(answer, settings=Settings(body_timeout=0.05, plain_asgi=plain_asgi))}
    head = "POST /chat/api/chat HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"
    with serving(apps) as server, socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(head.encode())
        received = b""
        while piece := connection.recv(4096):  # to the end: the server closes the connection
            received += piece
    assert received.startswith(b"HTTP/1.1 408 ")
    assert received.endswith(b"The request was not complete after 0.05 seconds.")
