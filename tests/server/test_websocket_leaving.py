"""How a WebSocket ends: aborts, clients that vanish or cannot follow, servers that go; and who hears of it."""

import asyncio
import contextlib
import json
import socket
from typing import Any

import httpx2
import pytest
from websockets.exceptions import InvalidStatus
from websockets.typing import Origin

from tests.conformance.served import PATIENCE, Served, eventually, serving
from tests.server.socket_apps import FLOODED, GATES, STOPPED, agent, body_of, opened
from usechat.server import ChatApp, Settings
from usechat.server.observers.observer import Observer

pytestmark = pytest.mark.external_agents


def test_an_abort_leaves_the_run_as_a_closed_connection_does(server: Served) -> None:
    with opened(server) as client:
        client.send("r1", "aborted")
        client.until("r1", "one ")
        client.abort("r1")
        client.abort("r1")
        client.abort("unknown")
        eventually(lambda: "aborted" in STOPPED, "nobody reads the run, so it is stopped")
        eventually(lambda: not running(server, "aborted"), "the end of the run is stored")
        client.resume("r2", "aborted")
        assert client.frame("r2")["type"] == "no-active", "the socket lives on, and nothing else came"


def test_an_abort_of_one_reader_leaves_the_run_to_the_others(server: Served) -> None:
    with opened(server) as client, opened(server) as other:
        client.send("r1", "shared")
        client.until("r1", "one ")
        other.resume("r1", "shared")
        other.until("r1", "one ")
        client.abort("r1")
        GATES.open("shared")
        assert other.text("r1") == "two"
    assert "shared" not in STOPPED


def test_a_request_that_is_aborted_before_it_began_leaves_nothing(server: Served) -> None:
    with opened(server) as client:
        client.send("r1", "regretted")
        client.abort("r1")
        client.resume("r0", "unknown")
        assert client.frame("r0")["type"] == "no-active", "both were heard"
        eventually(lambda: "usechat socket request r1" not in server.tasks(), "what has not begun by now never does")
        eventually(lambda: not running(server, "regretted"), "the run is left at once, and its end is stored")
        client.resume("r2", "regretted")
        assert client.frame("r2")["type"] == "no-active"


def running(server: Served, chat_id: str) -> bool:
    state = httpx2.get(f"{server.url('open')}/{chat_id}", timeout=PATIENCE)
    return state.status_code == 200 and state.json()["state"] == "running"


def test_a_closed_socket_leaves_all_its_runs(server: Served) -> None:
    with opened(server) as client:
        for name in ("left 1", "left 2"):
            client.send(name, name)
            client.until(name, "one ")
    eventually(lambda: {"left 1", "left 2"} <= STOPPED, "nobody reads the runs, so they are stopped")
    eventually(lambda: not any("socket request" in name for name in server.tasks()), "no task is left")


def test_clients_that_vanish_leave_nothing(server: Served) -> None:
    names = [f"vanished {number}" for number in range(50)]
    with contextlib.ExitStack() as stack:
        for name in names:
            client = stack.enter_context(opened(server))
            client.send(name, name)
            client.until(name, "one ")
            stack.callback(client.connection.socket.shutdown, socket.SHUT_RDWR)
    eventually(lambda: set(names) <= STOPPED, "nobody reads the runs, so they are stopped")
    eventually(lambda: not any("usechat" in name and "vanished" in name for name in server.tasks()), "no task is left")


def test_a_client_that_cannot_follow_is_disconnected_and_may_resume(server: Served) -> None:
    with opened(server, "flood", max_queue=1, compression=None) as client:
        client.send("r1", "flooded")
        client.until("r1", "x" * 10_000)
        # It reads no more: what the sockets' buffers do not take waits in the server, up to the limit.
        eventually(lambda: not any("socket request" in name for name in server.tasks()), "the socket is given up")
        assert client.closed() in [(1013, "The connection is too slow; resume."), (0, "")], "told, if it reads in time"
    eventually(lambda: "flooded" in FLOODED, "the flood is over; it would break the next reader off too")
    with opened(server, "flood", max_size=None) as client:
        client.resume("r2", "flooded")
        assert client.frame("r2") == {"type": "start", "requestId": "r2"}
        GATES.open("flooded")
        assert len(client.text("r2")) == 20_000_000


class Ear(Observer):
    """Writes down what it hears of requests and streams."""

    def __init__(self) -> None:
        self.events: list[object] = []

    def request_refused(self, status: int) -> None:
        self.events.append(status)

    def stream_opened(self) -> None:
        self.events.append("opened")

    def first_frame(self, seconds: float) -> None:
        self.events.append("first" if 0 <= seconds < PATIENCE else seconds)

    def stream_closed(self, reason: str) -> None:
        self.events.append(reason)


def test_observers_hear_of_sockets_what_they_hear_of_http() -> None:
    ear = Ear()
    app = ChatApp(agent, observer=ear, drain=0)
    GATES.open("heard")
    with serving({"app": app}) as server:
        with opened(server, "app") as client:
            client.send("r1", "heard")
            client.frames("r1")
            client.send("r2", "heard", trigger="other")
            client.frames("r2")
            client.send("r3", "unheard")
            client.until("r3", "one ")
        eventually(lambda: ear.events[-1] == "client", "the client has gone")
        with pytest.raises(InvalidStatus), opened(server, "app", origin=Origin("null")):
            pass
    assert ear.events == ["opened", "first", "ended", 400, "opened", "first", "client", 403]


def test_a_server_that_goes_breaks_its_sockets_off() -> None:
    app = ChatApp(agent, drain=0)
    with serving({"app": app}) as server, opened(server, "app") as client:
        client.send("r1", "going")
        client.until("r1", "one ")
        assert server.loop is not None
        server.loop.call_soon_threadsafe(app.disconnect_readers)
        assert client.closed() == (1012, "The server is shutting down; resume.")


def test_a_client_that_is_dead_is_noticed_by_pings() -> None:
    app = ChatApp(agent, settings=Settings(disconnect="cancel"), drain=0)
    with (
        serving({"app": app}, ws_ping_interval=2, ws_ping_timeout=1) as server,
        socket.create_connection(("127.0.0.1", server.port), PATIENCE) as dead,
    ):
        frame = json.dumps({"type": "send", "requestId": "r1", **body_of("dead")}).encode()
        dead.sendall(
            b"GET /app/api/chat/ws HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
            b"sec-websocket-version: 13\r\nsec-websocket-key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
        )
        assert dead.recv(1000).startswith(b"HTTP/1.1 101")
        dead.sendall(b"\x81\xfe" + len(frame).to_bytes(2, "big") + b"\0\0\0\0" + frame)
        eventually(lambda: "dead" in STOPPED, "nobody answers the ping, so the run is left")


SCOPE = {"type": "websocket", "path": "/api/chat/ws", "query_string": b"", "headers": []}


def queue_of(*frames: dict[str, Any]) -> asyncio.Queue[dict[str, Any]]:
    """Return what a server that has received these frames hands to its app."""
    queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    queue.put_nowait({"type": "websocket.connect"})
    for frame in frames:
        queue.put_nowait({"type": "websocket.receive", "text": json.dumps(frame)})
    return queue


async def test_a_socket_that_takes_nothing_more_is_left() -> None:
    """As uvicorn does it after a ping without an answer, while bytes still wait: it raises, and tells nobody else."""

    async def send(message: dict[str, Any]) -> None:
        if "one " in message.get("text", ""):
            raise RuntimeError("the socket is closed")

    app = ChatApp(agent, settings=Settings(disconnect="cancel"), drain=0)
    incoming = queue_of({"type": "send", "requestId": "r1", **body_of("deaf")})
    await asyncio.wait_for(app(SCOPE, incoming.get, send), PATIENCE)
    await asyncio.wait_for(app.shut_down(), PATIENCE)
    assert "deaf" in STOPPED


@pytest.mark.parametrize(("code", "reason"), [(1012, "disconnected"), (1000, "client"), (1006, "client")])
async def test_observers_hear_who_closed_a_socket(code: int, reason: str) -> None:
    """uvicorn closes sockets with 1012 when it goes; a page cannot say that (WHATWG WebSockets, close)."""
    ear = Ear()
    app = ChatApp(agent, observer=ear, settings=Settings(disconnect="cancel"), drain=0)
    incoming = queue_of({"type": "send", "requestId": "r1", **body_of(f"closed {code}")})

    async def send(message: dict[str, Any]) -> None:
        if "one " in message.get("text", ""):
            incoming.put_nowait({"type": "websocket.disconnect", "code": code})

    await asyncio.wait_for(app(SCOPE, incoming.get, send), PATIENCE)
    assert ear.events == ["opened", "first", reason]


async def test_observers_hear_that_a_server_had_no_more_time_for_a_socket() -> None:
    ear = Ear()
    app = ChatApp(agent, observer=ear, settings=Settings(disconnect="cancel"), drain=0)
    incoming = queue_of({"type": "send", "requestId": "r1", **body_of("cancelled")})
    first_word = asyncio.Event()

    async def send(message: dict[str, Any]) -> None:
        if "one " in message.get("text", ""):
            first_word.set()

    serving_it = asyncio.ensure_future(app(SCOPE, incoming.get, send))
    await asyncio.wait_for(first_word.wait(), PATIENCE)
    serving_it.cancel()
    await asyncio.wait([serving_it], timeout=PATIENCE)
    assert ear.events == ["opened", "first", "disconnected"]


async def test_a_client_that_does_not_wait_for_answers_is_sent_away() -> None:
    messages: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        messages.append(message)

    app = ChatApp(agent, settings=Settings(websocket_requests=2), drain=0)
    incoming = queue_of(*[{"type": "resume", "requestId": str(number), "id": "a"} for number in range(5)])
    await asyncio.wait_for(app(SCOPE, incoming.get, send), PATIENCE)
    assert messages[-1] == {
        "type": "websocket.close",
        "code": 1008,
        "reason": "The client sends too many requests without waiting for answers.",
    }
