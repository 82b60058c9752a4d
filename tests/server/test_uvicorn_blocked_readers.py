"""Clients that take nothing: a server that goes does not wait for them, and none is held for ever."""

import asyncio
import gc
import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route

from tests.conformance.served import serving
from tests.server.process import PATIENCE, eventually, question
from tests.server.sockets import Client
from tests.server.test_response import Answering, Connection, Transport, Way, settled
from usechat import chat_response, parts
from usechat.runs.log import Wake
from usechat.server import Settings
from usechat.server.uvicorn import UvicornServer
from usechat.turn import Turn

APPS = """
import asyncio
from usechat.server import ChatApp, Settings

async def long(turn):  # more than any kernel takes for a client that does not read
    yield "word "
    for _ in range(400):
        yield "x" * 50_000
    print("all is said", flush=True)
    if turn.text == "wait":
        await asyncio.sleep(3600)

app = ChatApp(long, drain=0.2, settings=Settings(maximum_waiting_bytes=1 << 30))
"""


@contextmanager
def served_by_uvicorn(directory: Path, loop: str) -> Iterator[tuple[subprocess.Popen[bytes], Path, int]]:
    """Run uvicorn as anyone would; yield the process, its output and its port."""
    (directory / "long_app.py").write_text(APPS, encoding="utf-8")
    log = directory / "output.txt"
    with log.open("wb") as output:
        command = [sys.executable, "-m", "uvicorn", "long_app:app", "--port", "0", "--loop", loop]
        process = subprocess.Popen(command, cwd=directory, stdout=output, stderr=subprocess.STDOUT)
    try:
        eventually(lambda: "running on http" in log.read_text(), "it starts")
        [port] = re.findall(r"running on http://[\d.]+:(\d+)", log.read_text())
        yield process, log, int(port)
    finally:
        process.kill()
        process.wait()


def connected(port: int) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(PATIENCE)
    connection.connect(("127.0.0.1", port))
    return connection


def post(connection: socket.socket, body: dict[str, Any]) -> None:
    content = json.dumps(body).encode()
    head = f"POST /api/chat HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\ncontent-length: {len(content)}"
    connection.sendall(head.encode() + b"\r\n\r\n" + content)


def read_all(connection: socket.socket) -> None:
    while connection.recv(65536):
        pass


def send_over_websocket(connection: socket.socket, body: dict[str, Any]) -> None:
    connection.sendall(
        b"GET /api/chat/ws HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
        b"sec-websocket-version: 13\r\nsec-websocket-key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
    )
    assert connection.recv(1000).startswith(b"HTTP/1.1 101")
    frame = json.dumps({"type": "send", "requestId": "r1", "chatId": body["id"], **body}).encode()
    connection.sendall(b"\x81\xfe" + len(frame).to_bytes(2, "big") + b"\0\0\0\0" + frame)


@pytest.mark.parametrize("loop", [name for name in ("asyncio", "uvloop") if find_spec(name)])
@pytest.mark.parametrize("text", ["wait", "end"])
@pytest.mark.parametrize("send", [post, send_over_websocket])
def test_a_server_that_goes_does_not_wait_for_a_client_that_takes_nothing(
    tmp_path: Path, send: Any, text: str, loop: str
) -> None:
    """Neither while its run goes on, nor when that has ended."""
    with served_by_uvicorn(tmp_path, loop) as (process, log, port), connected(port) as connection:
        send(connection, question(text))
        eventually(lambda: "all is said" in log.read_text(), "the agent has said all")
        process.terminate()
        assert process.wait(PATIENCE) == -signal.SIGTERM
        assert not re.search("Traceback|ERROR", log.read_text()), log.read_text()
        if send is post:
            with pytest.raises(ConnectionResetError):
                read_all(connection)


@pytest.fixture(params=["task", "push", "write"])
def way(request: pytest.FixtureRequest) -> Way:
    param: Way = request.param
    return param


async def test_a_shutdown_does_not_wait_for_a_client_that_takes_nothing(way: Way) -> None:
    connection = Connection()
    answering = Answering(connection, way=way)
    await answering.write(b"a")
    connection.may_send.clear()
    await answering.write(b"b")
    for _ in range(2):  # whoever shuts down may say so more than once
        answering.reading.wake(Wake.SHUTDOWN)
        await settled()
    connection.may_send.set()
    await answering.end()
    assert (connection.complete, answering.listener.events) == (False, [True, "disconnected"])


async def test_nor_does_it_wait_for_the_end_of_an_answer_that_has_ended(way: Way) -> None:
    connection = Connection()
    answering = Answering(connection, way=way)
    await answering.write(b"a")
    connection.may_send.clear()
    await answering.write(b"b")
    answering.log.end()
    await settled()
    answering.reading.wake(Wake.SHUTDOWN)
    await settled()
    connection.may_send.set()
    await answering.end()
    assert (connection.complete, answering.listener.events) == (False, [True, "disconnected"])


class Breakable(Transport):
    def abort(self) -> None:
        self.connection.departure.set()


async def test_a_client_that_takes_nothing_for_too_long_is_disconnected(way: Way) -> None:
    connection = Connection()
    connection.transport = Breakable(connection)
    answering = Answering(connection, way=way, keep_alive=0.4, stuck_timeout=0.2, server=UvicornServer())
    await answering.write(b"a")
    connection.may_send.clear()
    await answering.write(b"b")
    answering.log.end()
    await answering.end()
    assert (connection.complete, answering.listener.events) == (False, [True, "slow"])
    assert connection.departure.is_set()


class Taking(Breakable):
    """One whose client has taken something each time that somebody looks."""

    looks = 0

    def get_write_buffer_size(self) -> int:
        self.looks += 1
        return 0 if self.connection.may_send.is_set() else 1000 - self.looks


async def test_one_that_takes_a_little_at_each_look_is_not(way: Way) -> None:
    connection = Connection()
    connection.transport = transport = Taking(connection)
    answering = Answering(connection, way=way, keep_alive=0.4, stuck_timeout=0.1, server=UvicornServer())
    await answering.write(b"a")
    connection.may_send.clear()
    await answering.write(b"b")
    async with asyncio.timeout(PATIENCE):
        while transport.looks < 20:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    connection.may_send.set()
    answering.log.end()
    await answering.end()
    assert (connection.complete, answering.listener.events) == (True, [True, "ended"])


SAID: dict[str, int] = {}
ENDED: set[str] = set()


async def much(turn: Turn) -> AsyncIterator[str]:
    SAID[turn.chat_id] = 0
    try:
        for _ in range(2000):
            yield "x" * 3000
            SAID[turn.chat_id] += 1
            await asyncio.sleep(0)
        await asyncio.sleep(3600)
    finally:
        ENDED.add(turn.chat_id)


async def much_at_once(turn: Turn) -> None:
    """Say it in a way that cannot be held back."""
    async for text in much(turn):
        turn.send(parts.Text(text))


async def late(request: Request) -> Any:
    """A route that takes its time between making the answer and sending it."""
    response = await chat_response(request, much_at_once, settings=Settings(disconnect="cancel"))
    async with asyncio.timeout(PATIENCE):
        while "late" not in ENDED:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return response


async def failing(request: Request) -> Any:
    await chat_response(request, much)
    raise RuntimeError("in the route")


async def test_too_much_before_the_response_begins_stops_the_run_and_is_told() -> None:
    app = Starlette(routes=[Route("/api/chat", late, methods=["POST"])])
    with serving({"app": app}) as server:
        body = await (await Client.post(server.port, "/app/api/chat", "late")).rest()
    assert b"too slow" in body.data
    assert b"[DONE]" in body.data
    assert SAID["late"] < 1000


async def test_a_response_that_is_never_sent_leaves_its_run() -> None:
    app = Starlette(routes=[Route("/api/chat", failing, methods=["POST"])])
    with serving({"app": app}) as server:
        client = await Client.post(server.port, "/app/api/chat", "failed")
        await client.until(b"500 Internal Server Error")
        async with asyncio.timeout(PATIENCE):
            while "failed" not in ENDED:
                gc.collect()
                await asyncio.sleep(0.01)
        client.vanish()
