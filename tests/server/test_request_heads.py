"""Half-sent request heads against a real `usechat serve` with few descriptors."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
from websockets.sync.client import connect

from tests.server.process import PATIENCE, ServeProcess, eventually, question, serve_process

DESCRIPTORS = 256
AGENT = f"""
import os, resource, time

resource.setrlimit(resource.RLIMIT_NOFILE, ({DESCRIPTORS}, {DESCRIPTORS}))

def agent(turn):
    if turn.text == "use all":
        files = [os.open("/dev/null", os.O_RDONLY) for _ in range({DESCRIPTORS} - 4 - len(os.listdir("/proc/self/fd")))]
        yield f"{{len(files)}} files"
        time.sleep(2)
        for file in files:
            os.close(file)
    else:
        yield "one "
        time.sleep(13)
        yield "two"
"""
HALF = b"GET /healthz HTTP/1.1\r\nhost: test\r\nx-half: "


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    directory: Path = tmp_path_factory.mktemp("heads")
    (directory / "agent.py").write_text(AGENT)
    with serve_process(directory, "agent.py:agent") as running:
        yield running


def connection_to(server: ServeProcess, data: bytes = b"") -> socket.socket:
    address = urlsplit(server.url)
    connection = socket.create_connection((address.hostname or "", address.port or 0), timeout=PATIENCE)
    connection.sendall(data)
    return connection


def is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def status_of(server: ServeProcess) -> int:
    return httpx2.get(f"{server.url}/healthz", timeout=PATIENCE).status_code


def test_many_half_heads_of_one_address_keep_nobody_from_being_answered(server: ServeProcess) -> None:
    with ExitStack() as stack:
        connections = [stack.enter_context(connection_to(server, HALF)) for _ in range(300)]
        assert [status_of(server) for _ in range(5)] == [200] * 5
        eventually(lambda: sum(map(is_closed, connections)) >= 300 - DESCRIPTORS * 3 // 4, "the oldest are closed")
        assert not is_closed(connections[-1])
    assert server.written.count("connections open without a request") == 1


def test_a_half_head_is_given_up_and_what_is_served_is_not(server: ServeProcess) -> None:
    address = server.url.replace("http:", "ws:")
    with ExitStack() as stack:
        silent = stack.enter_context(connection_to(server))
        slow = stack.enter_context(connection_to(server, HALF))
        second = stack.enter_context(connection_to(server, b"GET /healthz HTTP/1.1\r\nhost: test\r\n\r\n"))
        assert second.recv(65536).startswith(b"HTTP/1.1 200")
        second.sendall(HALF)
        web_socket = stack.enter_context(connect(f"{address}/api/chat/ws"))
        stream = stack.enter_context(
            httpx2.stream("POST", f"{server.url}/api/chat", json=question("wait"), timeout=PATIENCE)
        )
        deadline = time.monotonic() + 30
        while not all(map(is_closed, (silent, slow, second))):
            assert time.monotonic() < deadline, "never closed"
            time.sleep(1)
            for connection in (slow, second):
                if not is_closed(connection):
                    connection.send(b"x")
        assert "two" in "".join(stream.iter_text())
        web_socket.ping().wait(PATIENCE)


HANDSHAKE = (
    b"GET /api/chat/ws HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)
UNREADABLE = {
    "body": b"content-length: 5\r\n",
    "chunks": b"transfer-encoding: chunked\r\n",
    "long line": b"x-long: " + b"x" * 9000 + b"\r\n",
    "many lines": b"".join(b"x-%d: 1\r\n" % number for number in range(200)),
}


def test_a_handshake_that_cannot_be_read_is_given_up(server: ServeProcess) -> None:
    with ExitStack() as stack:
        unreadable = {
            name: stack.enter_context(connection_to(server, HANDSHAKE + lines + b"\r\n"))
            for name, lines in UNREADABLE.items()
        }
        readable = stack.enter_context(connection_to(server, HANDSHAKE + b"\r\n"))
        assert readable.recv(65536).startswith(b"HTTP/1.1 101")
        for name, connection in unreadable.items():
            eventually(lambda: is_closed(connection), f"{name}: it is closed", seconds=30)  # noqa: B023 (used at once)
        assert not is_closed(readable)


def test_descriptors_that_run_out_are_one_line_in_the_log(server: ServeProcess) -> None:
    text = f"nearly all {DESCRIPTORS} descriptors are in use"
    assert text not in server.written
    with httpx2.stream("POST", f"{server.url}/api/chat", json=question("use all", "c2"), timeout=PATIENCE) as stream:
        lines = stream.iter_lines()
        while "files" not in next(lines):
            pass
        for _ in range(3):
            assert status_of(server) == 200
    assert server.written.count(text) == 1
