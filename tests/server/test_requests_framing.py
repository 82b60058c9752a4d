"""Requests whose length can be read in two ways, over a real connection: whatever they ask for, they are refused."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.conformance.served import PATIENCE, Served, serving
from tests.redis_server import free_port
from tests.server.process import serve_process
from usechat.server import ChatApp, chat_response


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving({"app": ChatApp(lambda turn: f"You said {turn.text}.")}) as running:
        yield running


def exchange(port: int, data: bytes) -> bytes:
    """Send bytes, and return everything until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        connection.sendall(data)
        received = b""
        while piece := connection.recv(65536):
            received += piece
    return received


LENGTHS = [
    b"content-length: 5\r\ntransfer-encoding: chunked\r\n",
    b"transfer-encoding: chunked\r\ncontent-length: 5\r\n",
    b"Content-Length: 5\r\nTransfer-Encoding: Chunked\r\n",
]
ROUTES = [("POST", "/api/chat"), ("GET", "/api/chat/c1"), ("GET", "/healthz"), ("HEAD", "/readyz"), ("PUT", "/nowhere")]


def refused(port: int, method: str, path: str, lengths: bytes) -> bool:
    """Tell whether a request gets 400, and nothing behind it an answer."""
    head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n".encode()
    received = exchange(port, head + lengths + b"\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
    return received.startswith(b"HTTP/1.1 400") and received.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize("lengths", LENGTHS)
def test_a_request_with_two_lengths_is_refused_and_nothing_behind_it_is_read(
    served: Served, method: str, path: str, lengths: bytes
) -> None:
    assert refused(served.port, method, f"/app{path}", lengths)


def test_a_route_of_ones_own_refuses_two_lengths() -> None:
    async def chat(request: Request) -> Response:
        return await chat_response(request, lambda turn: turn.text)

    with serving({"own": Starlette(routes=[Route("/chat", chat, methods=["POST"])])}) as running:
        assert refused(running.port, "POST", "/own/chat", LENGTHS[0])


def test_the_page_and_the_metrics_refuse_two_lengths(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text("def agent(turn):\n    return 'Hello.'\n")
    port = free_port()
    with serve_process(tmp_path, "agent.py:agent", "--metrics-listen", f"127.0.0.1:{port}") as server:
        own = int(server.url.rpartition(":")[2])
        assert [path for path in ("/", "/assets/x", "/metrics") if not refused(own, "GET", path, LENGTHS[0])] == []
        assert [path for path in ("/metrics", "/healthz", "/") if not refused(port, "GET", path, LENGTHS[0])] == []
