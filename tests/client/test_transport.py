"""The HTTP transport against real sockets: what it asks, what it reads, and what it says when it cannot."""

import asyncio
import gzip
import re
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.client.endpoints import HELLO, HELLO_BYTES, Endpoint, frame, served
from tests.conformance.served import unanswered_port
from usechat.client import Chat, HttpChatTransport
from usechat.client.in_process import InProcessTransport
from usechat.client.transport import append_path
from usechat.errors import (
    AnswerTimedOut,
    ConnectionLost,
    FileTooLarge,
    InvalidAddress,
    InvalidChunk,
    InvalidSetting,
    NotAStream,
    RequestRefused,
    StreamFailed,
    TransportError,
)
from usechat.protocol.chunks import chunk_to_json
from usechat.protocol.request import ChatRequest
from usechat.server import ChatApp, Limits, Settings
from usechat.sources import ChatTransport

pytestmark = pytest.mark.quick

HTML = PlainTextResponse("<!doctype html>")
QUESTION: Any = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
REQUEST = ChatRequest(chat_id="c 1", messages=[QUESTION], body={"model": "small"})


async def read(transport: HttpChatTransport) -> list[Any]:
    async with transport:
        return [chunk_to_json(chunk) async for chunk in await transport.send_messages(REQUEST)]


async def failure_of(url: str, **options: Any) -> TransportError:
    with pytest.raises(TransportError) as failure:
        await read(HttpChatTransport(url, **options))
    return failure.value


async def test_a_request_is_that_of_the_npm_client() -> None:
    endpoint = Endpoint()
    with served(endpoint) as url:
        transport = HttpChatTransport(url, headers={"X-Team": "blue"}, body={"extra": 1, "model": "large"})
        assert isinstance(transport, ChatTransport)
        assert await read(transport) == list(HELLO)
    body = {"id": "c 1", "messages": [QUESTION], "trigger": "submit-message", "extra": 1, "model": "small"}
    assert endpoint.requests == [("POST", "", body)]
    assert endpoint.headers[0]["content-type"] == "application/json"
    assert endpoint.headers[0]["x-team"] == "blue"


async def test_headers_may_be_made_for_each_request_and_the_body_for_another_server() -> None:
    endpoint = Endpoint()
    tokens = iter(["one", "two"])
    with served(endpoint) as url:
        async with HttpChatTransport(
            url,
            headers=lambda: {"authorization": next(tokens)},
            prepare_body=lambda request: {"id": request.chat_id, "message": request.messages[-1]},
        ) as transport:
            for _ in range(2):
                assert [chunk async for chunk in await transport.send_messages(REQUEST)]
    assert [headers["authorization"] for headers in endpoint.headers] == ["one", "two"]
    assert endpoint.requests[0][2] == {"id": "c 1", "message": QUESTION}


async def test_a_stream_is_resumed_where_the_npm_client_looks_for_it() -> None:
    endpoint = Endpoint(resumed=Response(HELLO_BYTES, media_type="text/event-stream"))
    with served(endpoint) as url:
        async with HttpChatTransport(url) as transport:
            stream = await transport.reconnect_to_stream("c 1")
            assert stream is not None
            assert [chunk_to_json(chunk) async for chunk in stream] == list(HELLO)
    assert endpoint.requests == [("GET", "/c 1/stream", None)]


async def test_nothing_is_resumed_where_nothing_runs() -> None:
    with served(Endpoint()) as url:
        async with HttpChatTransport(url) as transport:
            assert await transport.reconnect_to_stream("c1") is None


async def test_a_resume_that_is_refused_is_an_error() -> None:
    with served(Endpoint(resumed=PlainTextResponse("Who are you?", 401))) as url:
        async with HttpChatTransport(url) as transport:
            with pytest.raises(RequestRefused, match="Who are you"):
                await transport.reconnect_to_stream("c1")


@pytest.mark.parametrize(
    ("body", "text"), [(b"No such model.", "No such model."), (b"", "Failed to fetch the chat response.")]
)
async def test_a_refusal_says_what_the_body_says(body: bytes, text: str) -> None:
    with served(Endpoint(body, status=418, content_type="text/plain")) as url:
        error = await failure_of(url)
    assert isinstance(error, RequestRefused)
    assert (str(error), error.status, error.body, error.url) == (text, 418, body.decode(), url)


async def test_an_answer_without_a_body_is_no_stream() -> None:
    with served(Endpoint(status=204)) as url:
        error = await failure_of(url)
    assert isinstance(error, NotAStream)
    assert str(error) == "The response body is empty."


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b"<!doctype html><html></html>", "the body is HTML, not an event stream"),
        (b'{"answer": "hi"}', "the body is JSON, not an event stream"),
        (b"hello", "the body is plain text, not an event stream"),
        (b'0:"Hel"\n0:"lo"\n', "the body is the data stream of AI SDK 4"),
    ],
)
async def test_what_is_no_stream_is_named(body: bytes, what: str) -> None:
    with served(Endpoint(body, content_type="text/html")) as url:
        error = await failure_of(url)
    assert isinstance(error, NotAStream)
    assert str(error) == f"{url} is not a UI message stream: {what}"


async def test_an_empty_stream_is_an_empty_answer() -> None:
    with served(Endpoint(b": keep-alive\n\n")) as url:
        assert await read(HttpChatTransport(url)) == []


async def test_an_illegal_chunk_is_named_with_its_frame() -> None:
    endpoint = Endpoint(frame(HELLO[0]) + frame({"type": "text-delta", "id": "1"}))
    with served(endpoint) as url, pytest.raises(InvalidChunk, match="frame 2"):
        await read(HttpChatTransport(url))


async def test_a_server_that_falls_silent_times_out() -> None:
    with served(Endpoint(frame(HELLO[0]), holds=True)) as url:
        error = await failure_of(url, idle_timeout=0.2)
    assert isinstance(error, AnswerTimedOut)
    assert str(error) == f"{url} sent nothing for 0.2 s"


async def test_an_address_where_nobody_listens_is_tried_again_and_then_named() -> None:
    with unanswered_port() as port:
        error = await failure_of(f"http://127.0.0.1:{port}/api/chat", retries=1)
    assert isinstance(error, ConnectionLost)
    assert str(error).startswith(f"cannot connect to http://127.0.0.1:{port}/api/chat: ")


def read_request(connection: socket.socket) -> bytes:
    """Read a request to its end: a connection that is closed before that is reset, and its answer may be lost."""
    with connection.makefile("rb") as stream:
        head = b"".join(takewhile(lambda line: line != b"\r\n", iter(stream.readline, b"")))
        length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        return head + stream.read(int(length[1]) if length else 0)


@contextmanager
def breaking_server(accepted: list[bytes], answer: bytes) -> Iterator[str]:
    """A server that closes every connection after this answer."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            accepted.append(read_request(connection))
            connection.sendall(answer)
            connection.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/api/chat"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


async def test_a_post_that_may_have_arrived_is_not_repeated_and_a_get_is() -> None:
    accepted: list[bytes] = []
    with breaking_server(accepted, b"") as url:
        error = await failure_of(url, retries=2)
        assert isinstance(error, ConnectionLost)
        assert len(accepted) == 1
        async with HttpChatTransport(url, retries=2) as transport:
            with pytest.raises(ConnectionLost, match="lost the connection to"):
                await transport.reconnect_to_stream("c1")
    assert len(accepted) == 4


async def test_a_connection_that_breaks_in_the_answer_is_lost() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 1000\r\n\r\n"
    with breaking_server([], head + frame(HELLO[0])) as url:
        error = await failure_of(url)
    assert isinstance(error, ConnectionLost)


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n"


def chunked(pieces: Iterable[bytes]) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


@pytest.mark.parametrize(
    "response",
    [
        pytest.param(HEAD + b"\r\n\xef\xbb\xbf" + HELLO_BYTES, id="byte order mark"),
        pytest.param(HEAD + b"\r\n" + HELLO_BYTES.replace(b"\n", b"\r\n"), id="carriage returns"),
        pytest.param(HEAD + b"content-encoding: gzip\r\n\r\n" + gzip.compress(HELLO_BYTES), id="gzip"),
        pytest.param(
            HEAD
            + b"transfer-encoding: chunked\r\n\r\n"
            + chunked(HELLO_BYTES[at : at + 1] for at in range(len(HELLO_BYTES))),
            id="one byte at a time",
        ),
        pytest.param(b"HTTP/1.1 103 Early Hints\r\n\r\n" + HEAD + b"\r\n" + HELLO_BYTES, id="early hints"),
        pytest.param(b"HTTP/1.0 200 OK\r\n\r\n" + HELLO_BYTES, id="no headers at all"),
    ],
)
async def test_a_server_may_write_the_same_stream_in_other_ways(response: bytes) -> None:
    with breaking_server([], response) as url:
        assert await read(HttpChatTransport(url)) == list(HELLO)


async def test_a_redirect_that_keeps_the_request_is_followed() -> None:
    with served(endpoint := Endpoint()) as url:
        redirect = f"HTTP/1.1 308 Permanent Redirect\r\nlocation: {url}\r\ncontent-length: 0\r\n\r\n"
        with breaking_server([], redirect.encode()) as old_url:
            assert await read(HttpChatTransport(old_url)) == list(HELLO)
    assert [(method, body["id"]) for method, _, body in endpoint.requests] == [("POST", "c 1")]


async def test_an_answer_that_is_cut_inside_a_character_is_lost() -> None:
    text = frame({"type": "text-delta", "id": "1", "delta": "é"}).replace(b"\\u00e9", "é".encode())
    cut = b"".join(map(frame, HELLO[:3])) + text[: text.index("é".encode()) + 1]
    with breaking_server([], HEAD + b"content-length: 1000\r\n\r\n" + cut) as url:
        async with Chat(HttpChatTransport(url)) as chat:
            with pytest.raises(ConnectionLost):
                await chat.send("hi")
            assert (chat.status, chat.last and chat.last.text) == ("error", "")


async def test_an_answer_whose_body_ends_properly_but_early_is_lost_and_read_on() -> None:
    whole = Response(HELLO_BYTES, media_type="text/event-stream")
    with served(Endpoint(b"".join(map(frame, HELLO[:4])), resumed=whole)) as url:
        async with HttpChatTransport(url) as transport, Chat(transport) as chat:
            with pytest.raises(ConnectionLost, match="the stream ends without `finish`"):
                await chat.send("hi")
            assert (chat.status, chat.last and chat.last.text) == ("error", "Hel")
            await chat.resume()
            assert (chat.status, chat.last and chat.last.text) == ("ready", "Hello")


@pytest.mark.parametrize("ending", [b'data: {"type":"finish"}\n\n', b"data: [DONE]\n\n"])
async def test_a_stream_has_ended_with_its_finish_or_with_its_mark(ending: bytes) -> None:
    with served(Endpoint(b"".join(map(frame, HELLO[:7])) + ending)) as url:
        assert (await read(HttpChatTransport(url)))[:7] == list(HELLO[:7])


async def test_a_server_without_tls_is_named() -> None:
    with served(Endpoint()) as url:
        error = await failure_of(url.replace("http:", "https:"), retries=0)
    assert str(error).endswith(": the server does not use TLS; write http: instead of https:, or ws: instead of wss:")


async def leave_early(transport: HttpChatTransport) -> None:
    async with transport:
        stream = await transport.send_messages(REQUEST)
        await anext(aiter(stream))
        await stream.aclose()  # type: ignore[attr-defined]


async def test_an_answer_that_is_closed_early_is_stopped_on_the_server() -> None:
    endpoint = Endpoint(frame(HELLO[0]), holds=True)
    with served(endpoint) as url:
        await leave_early(HttpChatTransport(url))
    assert [request[:2] for request in endpoint.requests] == [("POST", ""), ("POST", "/c 1/stop")]


@pytest.mark.parametrize(("options", "has_stop"), [({"stop_route": False}, True), ({}, False)])
async def test_an_answer_is_just_left_where_the_server_cannot_stop_it(options: Any, has_stop: bool) -> None:
    endpoint = Endpoint(frame(HELLO[0]), holds=True, has_stop=has_stop)
    with served(endpoint) as url:
        await leave_early(HttpChatTransport(url, **options))
    assert [request[:2] for request in endpoint.requests] == [("POST", "")]


async def test_an_answer_that_is_cancelled_is_stopped_too() -> None:
    endpoint = Endpoint(frame(HELLO[0]), holds=True)
    with served(endpoint) as url:
        async with HttpChatTransport(url) as transport:
            start = asyncio.Event()

            async def consume(stream: AsyncIterator[Any]) -> None:
                async for _ in stream:
                    start.set()

            task = asyncio.create_task(consume(await transport.send_messages(REQUEST)))
            await start.wait()
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled()
    assert [request[1] for request in endpoint.requests] == ["", "/c 1/stop"]


@pytest.mark.parametrize(
    "ending",
    [{"type": "error", "errorText": "No."}, {"type": "abort"}, {"type": "finish"}],
    ids=["error", "abort", "finish"],
)
@pytest.mark.parametrize("is_done", [True, False], ids=["with [DONE]", "still open"])
async def test_an_answer_that_has_ended_is_not_stopped(ending: Any, is_done: bool) -> None:
    frames = [*map(frame, HELLO[:1]), frame(ending), *([b"data: [DONE]\n\n"] if is_done else [])]
    endpoint = Endpoint(frames, holds=not is_done)
    with served(endpoint) as url:
        async with HttpChatTransport(url) as transport:
            stream = await transport.send_messages(REQUEST)
            async for chunk in stream:
                if chunk_to_json(chunk) == ending:
                    break
            await stream.aclose()  # type: ignore[attr-defined]
    assert [request[:2] for request in endpoint.requests] == [("POST", "")]


async def test_a_chat_does_not_stop_an_answer_that_failed() -> None:
    endpoint = Endpoint([frame(HELLO[0]), frame({"type": "error", "errorText": "No."}), b"data: [DONE]\n\n"])
    with served(endpoint) as url:
        async with Chat(url) as chat:
            with pytest.raises(StreamFailed, match="No"):
                await chat.send("hi")
    assert [request[:2] for request in endpoint.requests] == [("POST", "")]


async def test_a_stop_that_nobody_hears_is_told() -> None:
    with unanswered_port() as port:
        async with HttpChatTransport(f"http://127.0.0.1:{port}/api/chat") as transport:
            assert await transport.stop("c1") is False


@pytest.mark.parametrize(
    "url", ["localhost:8000", "ftp://h", "", "http://", "http://[::1", "http://h:99999", "http://a..b"]
)
def test_what_is_no_address_is_named(url: str) -> None:
    with pytest.raises(InvalidAddress, match="is not an endpoint; give a URL such as"):
        HttpChatTransport(url)


def test_settings_that_make_no_sense_are_named() -> None:
    with pytest.raises(InvalidSetting, match="retries is 0 or more, not -1"):
        HttpChatTransport("http://example.org", retries=-1)


@pytest.mark.parametrize(
    ("url", "stream_url"),
    [
        ("http://h/api/chat", "http://h/api/chat/a%2Fb/stream"),
        ("http://h/api/chat/", "http://h/api/chat/a%2Fb/stream"),
        ("http://h/api/chat?key=1", "http://h/api/chat/a%2Fb/stream?key=1"),
    ],
)
def test_a_chat_id_is_one_segment_of_the_path(url: str, stream_url: str) -> None:
    assert append_path(url, "a/b", "stream") == stream_url
    with pytest.raises(InvalidSetting, match="a chat id must not be"):
        append_path(url, "..", "stream")


async def test_a_foreign_endpoint_can_be_served_with_what_our_server_adds() -> None:
    endpoint = Endpoint()
    with served(endpoint) as url:
        async with (
            HttpChatTransport(url) as foreign,
            HttpChatTransport("http://ours/api/chat", http=InProcessTransport(ChatApp(foreign))) as transport,
            Chat(transport, id="c1") as chat,
        ):
            answer = await chat.send("hi")
            assert answer is not None
            assert answer.text == "Hello"
    assert endpoint.requests[0][2]["messages"][0]["parts"] == [{"type": "text", "text": "hi"}]


def in_process(agent: Any, **options: Any) -> HttpChatTransport:
    http = httpx2.ASGITransport(app=ChatApp(agent, metrics=False, **options))
    return HttpChatTransport("http://localhost/api/chat", http=http)


async def test_the_agents_of_a_server_can_be_listed_and_chosen() -> None:
    agents = {name: lambda turn, name=name: f"{name}: {turn.text}" for name in ("writer", "coder")}
    async with in_process(agents) as transport, Chat(transport, body={"agent": "coder"}) as chat:
        assert [agent.name for agent in await transport.agents()] == ["writer", "coder"]
        await chat.send("Hi")
        assert chat.last is not None
        assert chat.last.text == "coder: Hi"


async def test_a_server_that_describes_nothing_has_neither_agents_nor_limits() -> None:
    with served(Endpoint()) as url:
        async with HttpChatTransport(url) as transport:
            assert (await transport.agents(), await transport.limits()) == ([], None)


async def test_a_description_of_another_kind_counts_as_none() -> None:
    async with HttpChatTransport("http://localhost/api/chat", http=httpx2.ASGITransport(HTML)) as transport:
        assert (await transport.agents(), await transport.limits()) == ([], None)


@pytest.mark.parametrize(
    ("limits", "error"),
    [
        (Limits(maximum_file_bytes=30), "note.txt is too large"),
        (Limits(maximum_files=1), "2 files; http://localhost/api/chat takes at most 1"),
        (Limits(maximum_bytes=60), "the files are too large"),
    ],
)
async def test_files_that_the_server_would_refuse_are_not_sent(limits: Limits, error: str, tmp_path: Path) -> None:
    texts: list[str] = []
    note = tmp_path / "note.txt"
    note.write_text("Some words.")

    def agent(turn: Any) -> str:
        texts.append(turn.text)
        return "Thank you."

    async with in_process(agent, settings=Settings(limits=limits)) as transport, Chat(transport) as chat:
        with pytest.raises(FileTooLarge, match=error):
            await chat.send("Look", files=[note, note])
    assert texts == []


async def test_files_within_the_limits_are_sent(tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    note.write_text("Some words.")
    async with in_process(lambda turn: str(len(turn.files))) as transport, Chat(transport) as chat:
        await chat.send("Look", files=[note, str(note)])
        assert chat.last is not None
        assert chat.last.text == "2"


@contextmanager
def endpoint_with_limits(limits: Callable[[Request], Awaitable[Response]]) -> Iterator[tuple[Endpoint, str]]:
    """An endpoint that is not ours, beside a route that is called as ours."""
    endpoint = Endpoint()
    endpoint.app.routes.append(Route("/api/limits", limits))
    with served(endpoint) as url:
        yield endpoint, url


@pytest.mark.parametrize("is_silent", [True, False], ids=["silent", "something else"])
async def test_a_server_that_does_not_tell_its_limits_is_asked_once_and_gets_the_files(
    is_silent: bool, tmp_path: Path
) -> None:
    note = tmp_path / "note.txt"
    note.write_text("Some words.")
    paths: list[str] = []

    async def limits(request: Request) -> Response:
        paths.append(request.url.path.removeprefix("/app"))
        if is_silent:
            await asyncio.sleep(60)
        return PlainTextResponse("Something else.", 500)

    with endpoint_with_limits(limits) as (endpoint, url):
        async with asyncio.timeout(30), HttpChatTransport(url) as transport, Chat(transport) as chat:
            for _ in range(2):
                await chat.send("Look", files=[note])
    assert [request[:2] for request in endpoint.requests] == [("POST", ""), ("POST", "")]
    assert paths == ["/api/limits"]


async def test_limits_that_come_byte_by_byte_are_not_waited_for(tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    note.write_text("Some words.")

    async def drip() -> AsyncIterator[bytes]:
        for _ in range(600):
            yield b" "
            await asyncio.sleep(0.1)

    async def limits(_request: Request) -> Response:
        return StreamingResponse(drip(), media_type="application/json")

    with endpoint_with_limits(limits) as (endpoint, url):
        async with asyncio.timeout(30), Chat(url) as chat:
            await chat.send("Look", files=[note])
    assert [request[:2] for request in endpoint.requests] == [("POST", "")]


async def test_limits_whose_connection_is_closed_are_asked_once(tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    note.write_text("Some words.")
    connections: list[int] = []

    async def close(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(1)
        writer.close()

    server = await asyncio.start_server(close, "127.0.0.1", 0)
    async with server, HttpChatTransport(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as transport:
        with pytest.raises(ConnectionLost):
            await transport.limits()
        assert await transport.limits() is None
    assert len(connections) == 1


async def test_a_server_that_is_away_is_reported_by_the_request_itself(tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    note.write_text("Some words.")
    with unanswered_port() as port:
        async with HttpChatTransport(f"http://127.0.0.1:{port}/api/chat", retries=0) as transport:
            with pytest.raises(ConnectionLost):
                await Chat(transport).send("Look", files=[note])
