"""Chat apps whose sockets the tests open, and a client on a real socket that reads frame by frame."""

import asyncio
import contextlib
import json
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from starlette.requests import Request
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.sync.connection import Connection

from tests.conformance.served import PATIENCE, Gates, Served
from usechat import parts
from usechat.errors import Unauthenticated
from usechat.protocol.request import Limits
from usechat.server import ChatApp, Settings
from usechat.server.requests import Action
from usechat.turn import Identity, Turn

GATES = Gates()
STOPPED: set[str] = set()
"""The chats whose agent was closed before its end."""
FLOODED: set[str] = set()
"""The chats of which all is said."""


async def agent(turn: Turn) -> AsyncIterator[str]:
    """Say one word, wait at the gate, say the other; what stops it is written down."""
    try:
        yield "one "
        await GATES.passed(turn)
        if turn.text == "fail":
            raise ValueError("secret")
        yield "two"
    except (asyncio.CancelledError, GeneratorExit):
        STOPPED.add(turn.chat_id)
        raise


async def flood(turn: Turn) -> AsyncIterator[str]:
    """Say 20 MB, as fast as it can; then wait at the gate."""
    for _ in range(2_000):
        yield "x" * 10_000
    FLOODED.add(turn.chat_id)
    await GATES.passed(turn)


async def echo(turn: Turn) -> AsyncIterator[str]:
    """Say what was said, letter by letter, and let others speak in between."""
    for letter in turn.text:
        yield letter
        await asyncio.sleep(0)


async def custom(_turn: Turn) -> AsyncIterator[parts.Part]:
    """Say what only release 7 knows."""
    yield parts.Custom("a.b")


async def by_name(request: Request, chat_id: str, action: Action) -> Identity | None:
    """Chats belong to the one whose name they begin with; Mallory breaks everything."""
    name = request.headers.get("authorization", "").removeprefix("Bearer ")
    if not name:
        raise Unauthenticated("Who are you?")
    if name == "mallory":
        raise RuntimeError("secret")
    SEEN.append((action, request.method, request.url.scheme, chat_id, name))
    return Identity(name) if chat_id.startswith(name) or name == "admin" else None


SEEN: list[tuple[str, ...]] = []


class Client:
    """One socket, as `WebSocketChatTransport` uses it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._waiting: defaultdict[str, deque[dict[str, Any]]] = defaultdict(deque)

    def ask(self, frame: dict[str, Any]) -> None:
        self.connection.send(json.dumps({"headers": {}, "body": {}} | frame))

    def send(self, request_id: str, chat_id: str, text: str = "hi", **more: Any) -> None:
        self.ask({"type": "send", "requestId": request_id, **body_of(chat_id, text), **more})

    def resume(self, request_id: str, chat_id: str, **more: Any) -> None:
        self.ask({"type": "resume", "requestId": request_id, "id": chat_id, **more})

    def abort(self, request_id: str) -> None:
        self.ask({"type": "abort", "requestId": request_id})

    def frame(self, request_id: str) -> dict[str, Any]:
        """Return the next frame of a request."""
        while not self._waiting[request_id]:
            frame = json.loads(self.connection.recv(PATIENCE))
            self._waiting[frame["requestId"]].append(frame)
        return self._waiting[request_id].popleft()

    def frames(self, request_id: str) -> list[dict[str, Any]]:
        """Return the frames of a request up to its end."""
        frames = [self.frame(request_id)]
        while frames[-1]["type"] not in ("end", "error", "no-active"):
            frames.append(self.frame(request_id))
        return frames

    def text(self, request_id: str) -> str:
        """Return what an answer says, up to its end."""
        return "".join(frame["chunk"].get("delta", "") for frame in self.frames(request_id) if "chunk" in frame)

    def until(self, request_id: str, delta: str) -> None:
        """Read up to this delta."""
        while self.frame(request_id).get("chunk", {}).get("delta") != delta:
            pass

    def closed(self) -> tuple[int, str]:
        """Wait until the server closes the socket; return how."""
        with pytest.raises(ConnectionClosed) as raised:
            self._read_on()
        close = raised.value.rcvd
        return (0, "") if close is None else (close.code, close.reason)

    def _read_on(self) -> None:
        while True:
            self.connection.recv(PATIENCE)


def body_of(chat_id: str, text: str = "hi") -> dict[str, Any]:
    message = {"id": f"user {chat_id}", "role": "user", "parts": [{"type": "text", "text": text}]}
    return {"id": chat_id, "messages": [message], "trigger": "submit-message"}


@contextlib.contextmanager
def opened(server: Served, name: str = "open", query: str = "", **options: Any) -> Iterator[Client]:
    url = server.url(name).replace("http", "ws", 1)
    with connect(f"{url}/ws{query}", **options) as connection:
        yield Client(connection)


def socket_apps() -> dict[str, ChatApp]:
    return {
        "open": ChatApp(agent, settings=Settings(disconnect="cancel"), drain=0),
        "owned": ChatApp(agent, authorize=by_name, drain=0),
        "small": ChatApp(
            agent,
            settings=Settings(
                limits=Limits(maximum_bytes=1000), websocket_requests=2, websocket_origins=("https://friend.example",)
            ),
        ),
        "flood": ChatApp(flood, settings=Settings(disconnect="continue"), drain=0),
        "echo": ChatApp(echo),
        "custom": ChatApp(custom),
    }
