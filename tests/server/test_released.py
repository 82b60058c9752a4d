"""A stream that has ended is gone at once: nothing of it waits for the garbage collector, which comes rarely."""

import asyncio
import gc
import json
from collections import Counter
from collections.abc import AsyncIterator, MutableMapping
from typing import Any

import pytest
from starlette.requests import Request

from usechat.protocol.stream import MessageStream
from usechat.runs.log import Log, Reader
from usechat.runs.reading import LogReading
from usechat.runs.run import Run
from usechat.server import ChatApp, Settings, chat_response
from usechat.server.connection import ClientWatch, Sender
from usechat.server.response import StreamResponse
from usechat.server.uvicorn import DirectSender, SteppedClientWatch
from usechat.turn import Turn, TurnContext

pytestmark = pytest.mark.external_agents

PATIENCE = 30.0
KEPT_WHILE_OPEN = (
    Run,
    Log,
    Reader,
    LogReading,
    StreamResponse,
    Sender,
    DirectSender,
    ClientWatch,
    SteppedClientWatch,
    MessageStream,
    Turn,
    TurnContext,
)


class Connection:
    """A server's side of one request, such as uvicorn's."""

    __module__ = "uvicorn.protocols.http.httptools_impl"

    def __init__(self) -> None:
        messages = [{"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Hi"}]}]
        self._body: bytes | None = json.dumps({"id": "c1", "messages": messages}).encode()
        self.departure = asyncio.Event()
        self.body = b""
        self.scope = {
            "type": "http",
            "method": "POST",
            "path": "/api/chat",
            "query_string": b"",
            "headers": [(b"content-type", b"application/json")],
        }

    async def receive(self) -> dict[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self.departure.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        self.body += message.get("body", b"")


def kept() -> dict[int, Any]:
    """Return what there is, by identity. Whoever holds it keeps it: what other tests left neither goes nor counts."""
    return {id(each): each for each in gc.get_objects() if type(each) in KEPT_WHILE_OPEN}


def names_of_new(before: dict[int, Any]) -> Counter[str]:
    return Counter(type(each).__name__ for identity, each in kept().items() if identity not in before)


async def words(_turn: Turn) -> AsyncIterator[str]:
    for word in ("one ", "two ", "three"):
        yield word
        await asyncio.sleep(0)


async def endless(_turn: Turn) -> AsyncIterator[str]:
    while True:
        yield "word "
        await asyncio.sleep(0.001)


async def answer(connection: Connection, agent: Any, way: str) -> None:
    if way == "app":
        app = ChatApp(agent, metrics=False, settings=Settings(disconnect="cancel"))
        await app(connection.scope, connection.receive, connection.send)
    else:
        response = await chat_response(Request(connection.scope, connection.receive), agent)
        await response(connection.scope, connection.receive, connection.send)


@pytest.mark.parametrize("way", ["app", "response"])
@pytest.mark.parametrize("leaves", [False, True], ids=["ends", "leaves"])
async def test_nothing_of_an_ended_stream_waits_for_the_garbage_collector(way: str, leaves: bool) -> None:
    gc.disable()
    try:
        before = kept()
        connection = Connection()
        answering = asyncio.ensure_future(answer(connection, endless if leaves else words, way))
        if leaves:
            while connection.body.count(b"word") < 5:  # noqa: ASYNC110 (nobody tells)
                await asyncio.sleep(0.001)
            assert names_of_new(before)["Run"] == 1
            connection.departure.set()
        await asyncio.wait_for(answering, PATIENCE)
        del answering
        assert leaves or connection.body.endswith(b"data: [DONE]\n\n")
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while (left := names_of_new(before)) and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert left == Counter()
    finally:
        gc.enable()
