"""The session's socket: how it is opened, and what is sent over it."""

import asyncio
import http
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from examples.agent_ops_session.server import serving
from tests.agent_ops.talking import PATIENCE, until
from usechat.agent_ops import connection as client
from usechat.agent_ops.connection import SessionSocket, SocketCounter, session_url
from usechat.agent_ops.errors import SessionClosed, SessionUnreachable
from usechat.agent_ops.wire import Channel, prompt_command

FILE: Any = {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,AAAA", "filename": "a.png"}
NAMELESS: Any = {"type": "file", "mediaType": "audio/wav", "url": "data:audio/wav;base64,AAAA"}


@asynccontextmanager
async def upstream(handler: Any, **options: Any) -> AsyncIterator[str]:
    async with serve(handler, "127.0.0.1", 0, **options) as server:
        yield f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}/"


@pytest.mark.parametrize(
    ("template", "url"),
    [
        ("wss://host/api/sessions/{id}/ws?role=client", "wss://host/api/sessions/a%2F..%3Fb%20c/ws?role=client"),
        ("wss://host/{session_id}", "wss://host/a%2F..%3Fb%20c"),
        ("wss://host/one", "wss://host/one"),
    ],
)
def test_the_id_of_the_session_cannot_change_the_address(template: str, url: str) -> None:
    assert session_url(template, "a/..?b c") == url


@pytest.mark.parametrize(
    ("text", "files", "channel", "command"),
    [
        ("Hi", [], None, {"type": "prompt", "content": "Hi"}),
        ("Hi", [], Channel("web", "7"),
         {"type": "prompt", "content": "Hi", "channelType": "web", "channelId": "7"}),
        ("", [FILE, NAMELESS], None,
         {"type": "prompt", "content": "", "attachments": [
             {"type": "file", "mime": "image/png", "url": "data:image/png;base64,AAAA", "filename": "a.png"},
             {"type": "file", "mime": "audio/wav", "url": "data:audio/wav;base64,AAAA"}]}),
    ],
)  # fmt: skip
def test_prompts(text: str, files: list[Any], channel: Channel | None, command: dict[str, Any]) -> None:
    assert prompt_command(text, files, channel) == command


@pytest.mark.parametrize("subprotocol", [None, "agent-ops", "valet"])
async def test_the_token_is_a_header_or_a_subprotocol(subprotocol: str | None) -> None:
    headers_seen: list[tuple[str | None, str | None]] = []

    async def handler(connection: ServerConnection) -> None:
        headers = connection.request.headers if connection.request is not None else {}
        headers_seen.append((headers.get("Authorization"), headers.get("Sec-WebSocket-Protocol")))

    choose = {"select_subprotocol": lambda _connection, offered: offered[0] if offered else None}
    async with upstream(handler, **choose) as url:
        session = await SessionSocket.open(url, "s3cret", subprotocol=subprotocol)
        await session.close()
    expected = ("Bearer s3cret", None) if subprotocol is None else (None, f"{subprotocol}, bearer.s3cret")
    assert headers_seen == [expected]


@pytest.mark.parametrize("subprotocol", [None, "agent-ops"])
async def test_a_redirect_is_not_followed_because_it_would_carry_the_token_away(subprotocol: str | None) -> None:
    elsewhere: list[str] = []

    async def handler(_connection: ServerConnection) -> None:
        elsewhere.append("connected")

    async with upstream(handler) as target:

        def redirect(connection: ServerConnection, _request: Request) -> Response:
            response = connection.respond(http.HTTPStatus.FOUND, "")
            response.headers["Location"] = target
            return response

        async with upstream(handler, process_request=redirect) as url:
            with pytest.raises(SessionUnreachable):
                await SessionSocket.open(url, "s3cret", subprotocol=subprotocol)
    assert elsewhere == []


@pytest.mark.parametrize("url", ["ws://127.0.0.1:1/", "http://127.0.0.1/", "nonsense", "ws://"])
async def test_an_address_at_which_nobody_answers(url: str) -> None:
    with pytest.raises(SessionUnreachable):
        await SessionSocket.open(url, None)


async def test_an_upstream_that_never_answers_the_handshake() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute, pytest.raises(SessionUnreachable):
        await SessionSocket.open(f"ws://127.0.0.1:{mute.getsockname()[1]}/", None, open_timeout=0.1)


async def test_whoever_has_no_token_is_not_let_in(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as sessions:
        with pytest.raises(SessionUnreachable):
            await SessionSocket.open(session_url(sessions.url, "s1"), None, name="s1")
        assert (sessions.refused, sessions.connections) == (1, 0)
    assert caplog.messages == ["session s1: cannot connect: HTTP status 401"]


@pytest.mark.parametrize(
    ("code", "logged"),
    [
        (1012, "session s1: the session closed the socket with code 1012"),
        (None, "session s1: the connection was lost"),
    ],
)
async def test_the_log_names_the_session_and_the_close_code(
    code: int | None, logged: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(connection: ServerConnection) -> None:
        if code is None:
            connection.transport.abort()
        else:
            await connection.close(code)

    async with upstream(handler) as url:
        session = await SessionSocket.open(url, None, name="s1")
        with pytest.raises(SessionClosed):
            await session.receive()
        await session.close()
    assert caplog.messages == [logged]


async def test_pings_are_sent_and_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PING_INTERVAL", 0.01)
    async with serving() as sessions:
        session = await SessionSocket.open(session_url(sessions.url, "s1"), "ada")
        async with asyncio.timeout(PATIENCE):
            kinds = [(await session.receive())["type"] for _ in range(3)]
        await session.close()
    assert kinds == ["init", "pong", "pong"]


async def test_pings_end_with_the_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PING_INTERVAL", 0.01)
    async with serving() as sessions:
        session = await SessionSocket.open(session_url(sessions.url, "s1"), "ada")
        await session.receive()
        sessions["s1"].cut_off()
        await until(lambda: not [task for task in asyncio.all_tasks() if "ping" in task.get_name()])
        await session.close()


async def test_frames_that_are_no_objects_are_of_no_known_kind() -> None:
    frames: list[str | bytes] = ['{"type":"chunk","content":"\\ud83d"}', "7", "no JSON", b"\xff", "[" * 100_000]

    async def handler(connection: ServerConnection) -> None:
        for frame in frames:
            await connection.send(frame)
        await connection.wait_closed()

    async with upstream(handler) as url:
        session = await SessionSocket.open(url, None)
        received = [await session.receive() for _ in frames]
        await session.close()
    assert received[0] == {"type": "chunk", "content": "\ud83d"}
    assert [frame["type"] for frame in received[1:]] == ["(no object)", "(no JSON)", "(no JSON)", "(no JSON)"]


async def test_a_socket_that_is_closed_says_so() -> None:
    async def handler(_connection: ServerConnection) -> None:
        return

    async with upstream(handler) as url:
        session = await SessionSocket.open(url, None)
        with pytest.raises(SessionClosed):
            await session.receive()
        with pytest.raises(SessionClosed):
            await session.send({"type": "prompt"})
        await session.send_last({"type": "abort"})
        await session.close()


async def test_a_frame_that_is_too_large_ends_the_socket() -> None:
    async def handler(connection: ServerConnection) -> None:
        await connection.send("x" * 2000)
        await connection.wait_closed()

    async with upstream(handler) as url:
        session = await SessionSocket.open(url, None, maximum_frame_bytes=1000)
        with pytest.raises(SessionClosed):
            await session.receive()
        await session.close()


async def test_what_a_session_has_shown_is_remembered_and_the_oldest_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "_REMEMBERED_SESSIONS", 2)
    sockets = SocketCounter(1)
    for session_id in ("s1", "s2", "s3"):
        with sockets.reserve(session_id) as streams:
            streams.note_echo()
    echoes = {}
    for session_id in ("s2", "s3", "s1"):
        with sockets.reserve(session_id) as streams:
            echoes[session_id] = streams.habits.echoes
    assert echoes == {"s2": True, "s3": True, "s1": False}
