"""The WebSocket transport: against our own server, and against one that breaks the rules."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request

from tests.certificate import write_certificate
from tests.conformance.served import PATIENCE, Served, serving, unanswered_port
from usechat.client import Chat, WebSocketChatTransport
from usechat.errors import (
    AnswerTimedOut,
    ConnectionLost,
    FileTooLarge,
    InvalidAddress,
    InvalidSetting,
    RemoteProtocolError,
    RequestRefused,
    StreamFailed,
)
from usechat.protocol.request import ChatRequest, Limits
from usechat.server import ChatApp, Settings
from usechat.server.requests import allow_all
from usechat.turn import Identity, Turn

QUESTION: Any = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
REQUEST = ChatRequest(chat_id="c1", messages=[QUESTION])
HELD: dict[str, asyncio.Event] = {}


async def agent(turn: Turn) -> AsyncIterator[str]:
    yield f"{turn.headers.get('x-team', '')} {turn.body.get('model', '')} One "
    if turn.text == "hold":
        await HELD.setdefault(turn.chat_id, asyncio.Event()).wait()
    yield "two."


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving({"app": ChatApp(agent)}) as running:
        yield running


def url_of(served: Served) -> str:
    return f"{served.url('app')}/ws"


async def test_many_chats_share_one_socket(served: Served) -> None:
    async with WebSocketChatTransport(url_of(served), headers={"X-Team": "blue"}, body={"model": "small"}) as transport:
        chats = [Chat(transport, id=f"many-{number}") for number in range(5)]
        for answer in [await reply for reply in [chat.send("hi") for chat in chats]]:
            assert answer is not None
            assert answer.text == "blue small One two."


async def test_an_answer_is_left_and_resumed(served: Served) -> None:
    async with WebSocketChatTransport(url_of(served)) as transport, Chat(transport, id="resumed") as chat:
        async for update in chat.send("hold"):
            if update.text_delta:
                break
        await chat.stop()
        reply = chat.resume()
        async for update in reply:
            if update.text_delta:
                served.run(opened("resumed")).result()
        await reply
        assert chat.last is not None
        assert chat.last.text.endswith("One two.")


async def opened(chat_id: str) -> None:
    HELD[chat_id].set()


async def test_there_may_be_nothing_to_resume(served: Served) -> None:
    async with WebSocketChatTransport(url_of(served)) as transport:
        assert await transport.reconnect_to_stream("nobody") is None


@pytest.mark.parametrize(
    ("limits", "error"),
    [
        (Limits(maximum_file_bytes=30), "note.txt is too large: ws://.*/ws takes files of 22 bytes"),
        (Limits(maximum_files=1), "2 files; ws://.*/ws takes at most 1"),
    ],
)
async def test_files_that_the_server_would_refuse_are_not_sent(limits: Limits, error: str, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("Some words.")
    texts: list[str] = []

    def noting(turn: Turn) -> str:
        texts.append(turn.text)
        return f"{len(turn.files)} files"

    async with limited(noting, limits) as transport, Chat(transport) as chat:
        with pytest.raises(FileTooLarge, match=error):
            await chat.send("Look", files=[tmp_path / "note.txt", tmp_path / "note.txt"])
    assert texts == []


async def test_files_within_the_limits_are_sent_and_the_server_is_asked_with_the_headers(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("Some words.")
    credentials: list[str] = []

    async def authorize(request: Any, _chat_id: str, _action: str) -> Identity:
        credentials.append(request.headers["authorization"])
        return Identity("ada")

    def counting(turn: Turn) -> str:
        return f"{len(turn.files)} files"

    async with limited(counting, Limits(maximum_files=3), authorize) as transport, Chat(transport) as chat:
        answer = await chat.send("Look", files=[tmp_path / "note.txt"])
        assert answer is not None
        assert answer.text == "1 files"
        limits = await transport.limits()
        assert limits is not None
        assert limits.maximum_files == 3
        assert [each.name for each in await transport.agents()] == ["counting"]
    assert set(credentials) == {"Bearer abc"}


async def test_files_go_to_a_socket_without_limits(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("Some words.")

    async def answer(connection: ServerConnection, request_id: str) -> None:
        for frame in (chunk(request_id, 0), {"type": "end", "requestId": request_id}):
            await connection.send(json.dumps(frame))

    async with answering(answer) as transport:
        await Chat(transport).send("Look", files=[tmp_path / "note.txt"])
        assert await transport.limits() is None


@asynccontextmanager
async def limited(
    agent: Callable[[Turn], str], limits: Limits, authorize: Any = allow_all
) -> AsyncIterator[WebSocketChatTransport]:
    """A server with limits, and a socket to it."""
    with serving({"app": ChatApp(agent, settings=Settings(limits=limits), authorize=authorize)}) as running:
        headers = {"Authorization": "Bearer abc"}
        url = f"{running.url('app')}/ws"
        async with WebSocketChatTransport(url, headers=headers, handshake_headers=headers) as transport:
            yield transport


async def test_a_refusal_is_an_error_and_the_socket_goes_on(served: Served) -> None:
    async with WebSocketChatTransport(url_of(served)) as transport:
        with pytest.raises(StreamFailed, match="messages has no user message to answer"):
            await read(transport, ChatRequest(chat_id="empty", messages=[]))
        assert await read(transport)


async def read(transport: WebSocketChatTransport, request: ChatRequest = REQUEST) -> list[Any]:
    return [chunk async for chunk in await transport.send_messages(request)]


async def test_a_socket_that_is_closed_is_opened_again(served: Served) -> None:
    transport = WebSocketChatTransport(url_of(served))
    assert await read(transport)
    await transport.aclose()
    assert await read(transport)
    await transport.aclose()


async def test_an_address_without_a_socket_is_refused(served: Served) -> None:
    with pytest.raises(RequestRefused) as failure:
        await read(WebSocketChatTransport(served.url("app")))
    assert failure.value.status == 403
    with unanswered_port() as port, pytest.raises(ConnectionLost, match="cannot connect to"):
        await read(WebSocketChatTransport(f"ws://127.0.0.1:{port}/"))


@pytest.mark.parametrize(("retries", "attempts"), [(0, 1), (1, 2)])
async def test_a_socket_that_could_not_be_opened_is_tried_again(retries: int, attempts: int) -> None:
    paths: list[str] = []

    async def fail_once(connection: ServerConnection, request: Request) -> None:
        paths.append(request.path)
        if len(paths) == 1:
            connection.transport.abort()

    async def answer(connection: ServerConnection) -> None:
        request_id = json.loads(await connection.recv())["requestId"]
        for frame in (chunk(request_id, 0), {"type": "end", "requestId": request_id}):
            await connection.send(json.dumps(frame))
        await connection.wait_closed()

    async with serve(answer, "127.0.0.1", 0, process_request=fail_once) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with WebSocketChatTransport(f"ws://127.0.0.1:{port}/", retries=retries) as transport:
            if retries:
                assert len(await read(transport)) == 1
            else:
                with pytest.raises(ConnectionLost, match="cannot connect to"):
                    await read(transport)
    assert len(paths) == attempts


async def test_a_request_that_may_have_arrived_is_not_repeated() -> None:
    request_ids: list[str] = []

    async def leaving(connection: ServerConnection, request_id: str) -> None:
        request_ids.append(request_id)
        await connection.close(1012, "going")

    async with answering(leaving) as transport:
        with pytest.raises(ConnectionLost, match="1012"):
            await read(transport)
    assert len(request_ids) == 1


def test_retries_that_make_no_sense_are_named() -> None:
    with pytest.raises(InvalidSetting, match="retries is 0 or more, not -1"):
        WebSocketChatTransport("ws://h/", retries=-1)


async def test_a_socket_with_tls_is_opened_if_its_certificate_is_trusted(tmp_path: Path) -> None:
    async def end(socket: ServerConnection) -> None:
        async for message in socket:
            request_id = json.loads(message)["requestId"]
            await socket.send(json.dumps({"type": "end", "requestId": request_id}))

    write_certificate(tmp_path / "server.pem", host="127.0.0.1")
    own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    own.load_cert_chain(tmp_path / "server.pem")
    trusting = ssl.create_default_context(cafile=tmp_path / "server.pem")
    async with serve(end, "127.0.0.1", 0, ssl=own) as server:
        url = f"wss://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        async with WebSocketChatTransport(url, ssl_context=trusting) as transport:
            assert await read(transport) == []
        with pytest.raises(ConnectionLost, match="CERTIFICATE_VERIFY_FAILED"):
            await read(WebSocketChatTransport(url, retries=0))


async def test_a_socket_without_tls_is_named(served: Served) -> None:
    with pytest.raises(ConnectionLost, match="the server does not use TLS; write http: instead of https:, or ws: "):
        await read(WebSocketChatTransport(url_of(served).replace("http:", "wss:"), retries=0))


async def test_a_context_for_tls_is_not_used_without_it(served: Served) -> None:
    async with WebSocketChatTransport(url_of(served), ssl_context=ssl.create_default_context()) as transport:
        assert await read(transport)


@pytest.mark.parametrize("url", ["ftp://h/", "ws://", "ws://h/#x", "h", "ws://[::1", "ws://h:99999/", "ws://a..b/"])
def test_what_is_no_socket_is_named(url: str) -> None:
    with pytest.raises(InvalidAddress, match="is not the URL of a WebSocket"):
        WebSocketChatTransport(url)


@asynccontextmanager
async def answering(
    answer: Callable[[ServerConnection, str], Awaitable[None]], *, idle_timeout: float = PATIENCE
) -> AsyncIterator[WebSocketChatTransport]:
    """A server that answers the first frame in its own way."""

    async def handle(connection: ServerConnection) -> None:
        frame = json.loads(await connection.recv())
        await answer(connection, frame["requestId"])
        await connection.wait_closed()

    async with serve(handle, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with WebSocketChatTransport(f"ws://127.0.0.1:{port}/", idle_timeout=idle_timeout) as transport:
            yield transport


def chunk(request_id: str, sequence: Any) -> dict[str, Any]:
    return {"type": "chunk", "requestId": request_id, "sequence": sequence, "chunk": {"type": "start"}}


@pytest.mark.parametrize(
    ("frames", "text"),
    [
        ([{"type": "chunk", "sequence": 1, "chunk": {"type": "start"}}], "Out-of-order"),
        ([{"type": "chunk", "sequence": "0", "chunk": {"type": "start"}}], "Invalid WebSocket chat chunk sequence"),
        ([{"type": "nothing"}], "Unknown WebSocket chat response type: nothing"),
        (["{"], "Invalid WebSocket chat response frame"),
        (["[]"], "Invalid WebSocket chat response frame"),
        ([{"type": "chunk", "sequence": 0, "chunk": {"type": "nothing"}}], "nothing"),
    ],
)
async def test_a_server_that_breaks_the_rules_is_named(frames: list[Any], text: str) -> None:
    async def answer(connection: ServerConnection, request_id: str) -> None:
        for frame in frames:
            await connection.send(frame if isinstance(frame, str) else json.dumps({"requestId": request_id, **frame}))

    async with answering(answer) as transport:
        with pytest.raises(RemoteProtocolError, match=text):
            await read(transport)


async def test_a_chunk_that_comes_twice_counts_once() -> None:
    async def answer(connection: ServerConnection, request_id: str) -> None:
        for frame in (chunk(request_id, 0), chunk("nobody", 0), chunk(request_id, 0), chunk(request_id, 1)):
            await connection.send(json.dumps(frame))
        await connection.send(json.dumps({"type": "end", "requestId": request_id}))

    async with answering(answer) as transport:
        assert len(await read(transport)) == 2


async def test_a_server_that_falls_silent_times_out() -> None:
    async def silent(_connection: ServerConnection, _request_id: str) -> None:
        pass

    async with answering(silent, idle_timeout=0.3) as transport:
        with pytest.raises(AnswerTimedOut, match=r"sent nothing for 0\.3 s"):
            await read(transport)


async def test_a_socket_that_breaks_fails_its_answers() -> None:
    async def leaving(connection: ServerConnection, request_id: str) -> None:
        await connection.send(json.dumps(chunk(request_id, 0)))
        await connection.close(1012, "going")

    async with answering(leaving) as transport:
        with pytest.raises(ConnectionLost, match="1012"):
            await read(transport)
