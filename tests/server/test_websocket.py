"""The WebSocket route: a real client on a real socket of a real uvicorn, every frame by value."""

import asyncio
import contextlib
import json
import socket
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2
import pytest
from starlette.requests import Request
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin, Subprotocol

from tests.conformance.served import PATIENCE, Gates, Served, eventually, serving
from usechat import parts
from usechat.requests import Limits
from usechat.server import ChatApp, Settings
from usechat.server.asking import Action, Unauthenticated
from usechat.server.observer import Unobserved
from usechat.server.websocket import is_welcome
from usechat.turn import Identity, Turn

GATES = Gates()
STOPPED: set[str] = set()
"""The chats whose agent was closed before its end."""


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

    def __init__(self, connection: ClientConnection) -> None:
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


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    apps = {
        "open": ChatApp(agent, settings=Settings(linger=0), drain=0),
        "owned": ChatApp(agent, authorize=by_name, drain=0),
        "small": ChatApp(
            agent,
            settings=Settings(
                limits=Limits(maximum_bytes=1000), websocket_requests=2, websocket_origins=("https://friend.example",)
            ),
        ),
        "flood": ChatApp(flood, drain=0),
        "echo": ChatApp(echo),
        "custom": ChatApp(custom),
    }
    with serving(apps) as running:
        yield running


# Send


def test_a_turn_frame_by_frame(server: Served) -> None:
    GATES.open("turn")
    with opened(server) as client:
        client.send("r1", "turn")
        frames = client.frames("r1")
    first = frames[1]["chunk"]
    assert first["messageId"].startswith("msg-")
    chunks = [
        first,
        {"type": "start-step"},
        {"type": "text-start", "id": "1"},
        {"type": "text-delta", "id": "1", "delta": "one "},
        {"type": "text-delta", "id": "1", "delta": "two"},
        {"type": "text-end", "id": "1"},
        {"type": "finish-step"},
        {"type": "finish", "finishReason": "stop"},
    ]
    assert frames == [
        {"type": "start", "requestId": "r1"},
        *[{"type": "chunk", "requestId": "r1", "sequence": i, "chunk": chunk} for i, chunk in enumerate(chunks)],
        {"type": "end", "requestId": "r1"},
    ]


def test_requests_on_one_socket_do_not_wait_for_each_other(server: Served) -> None:
    with opened(server) as client:
        client.send("r1", "first")
        client.until("r1", "one ")
        client.send("r2", "second")
        client.until("r2", "one ")
        GATES.open("second")
        rest = client.frames("r2")
        assert [frame["sequence"] for frame in rest if "chunk" in frame] == [4, 5, 6, 7]
        GATES.open("first")
        rest = client.frames("r1")
        assert [frame["sequence"] for frame in rest if "chunk" in frame] == [4, 5, 6, 7]


def test_as_many_requests_as_a_socket_may_carry_are_kept_apart(server: Served) -> None:
    names = [f"echo {number}" for number in range(32)]
    with opened(server, "echo") as client:
        for name in names:
            client.send(name, name, name * 10)
        frames = {name: client.frames(name) for name in names}
    for name in names:
        chunks = [frame for frame in frames[name] if frame["type"] == "chunk"]
        assert [chunk["sequence"] for chunk in chunks] == list(range(len(chunks)))
        assert "".join(chunk["chunk"].get("delta", "") for chunk in chunks) == name * 10


def test_a_failure_of_the_agent_is_a_chunk(server: Served) -> None:
    GATES.open("failing")
    with opened(server) as client:
        client.send("r1", "failing", "fail")
        frames = client.frames("r1")
    (error,) = [frame["chunk"] for frame in frames if frame.get("chunk", {}).get("type") == "error"]
    assert error["errorText"].startswith("An error occurred. Reference: ")
    assert frames[-1] == {"type": "end", "requestId": "r1"}


@pytest.mark.parametrize(
    ("query", "handshake", "headers", "kind"),
    [
        ("", {}, {}, "custom"),
        ("?sdk=6", {}, {}, "data-custom"),
        ("", {"x-ai-sdk": "6"}, {}, "data-custom"),
        ("", {}, {"x-ai-sdk": "6"}, "data-custom"),
    ],
)
def test_an_answer_is_for_release_7_unless_another_is_named(
    server: Served, query: str, handshake: dict[str, str], headers: dict[str, str], kind: str
) -> None:
    with opened(server, "custom", query, additional_headers=handshake) as client:
        client.send("r1", "sdk", headers=headers)
        assert kind in [frame["chunk"]["type"] for frame in client.frames("r1") if "chunk" in frame]


# Resume


def test_a_resumed_stream_begins_at_its_start_and_goes_on(server: Served) -> None:
    with opened(server) as client, opened(server) as other:
        client.send("r1", "resumed")
        client.until("r1", "one ")
        other.resume("r2", "resumed")
        other.until("r2", "one ")
        GATES.open("resumed")
        assert other.text("r2") == "two"
        assert client.text("r1") == "two"


def test_a_socket_resumes_what_http_has_sent(server: Served) -> None:
    with opened(server, "owned") as client:
        headers = {"authorization": "Bearer ada"}
        with httpx2.stream("POST", server.url("owned"), json=body_of("ada posted"), headers=headers) as posted:
            lines = posted.iter_lines()
            while "one " not in next(lines):
                pass
            client.resume("r1", "ada posted", headers=headers)
            assert client.frame("r1") == {"type": "start", "requestId": "r1"}
            client.until("r1", "one ")
            GATES.open("ada posted")
            assert client.text("r1") == "two"
            assert any("two" in line for line in lines)


def test_there_is_nothing_to_resume_of_an_unknown_an_idle_or_a_foreign_chat(server: Served) -> None:
    ada, bob = {"authorization": "Bearer ada"}, {"authorization": "Bearer bob"}
    GATES.open("ada idle")
    with opened(server, "owned") as client:
        client.send("r1", "ada idle", headers=ada)
        client.frames("r1")
        client.send("r2", "ada busy", headers=ada)
        client.until("r2", "one ")
        client.resume("r3", "ada unknown", headers=ada)
        client.resume("r4", "ada idle", headers=ada)
        client.resume("r5", "ada busy", headers=bob)  # the rule says no
        client.resume("r6", "ada busy", headers={"authorization": "Bearer admin"})  # the rule says yes, the run says no
        for request_id in ("r3", "r4", "r5", "r6"):
            assert client.frames(request_id) == [{"type": "no-active", "requestId": request_id}]
        GATES.open("ada busy")
        assert client.text("r2") == "two"


# Refusals

REFUSED: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    ("owned", body_of("ada"), {}),
    ("owned", body_of("ada"), {"authorization": "Bearer bob"}),
    ("owned", body_of("ada taken"), {"authorization": "Bearer ada"}),
    ("owned", body_of("ada taken"), {"authorization": "Bearer admin"}),
    ("owned", body_of("mallory"), {"authorization": "Bearer mallory"}),
    ("open", body_of("a") | {"messages": []}, {}),
    ("open", body_of("a") | {"messages": [{"role": "nobody"}]}, {}),
    ("open", body_of("a") | {"messages": "hi"}, {}),
    ("open", body_of("a") | {"trigger": "other"}, {}),
    ("open", body_of("a"), {"x-ai-sdk": "4"}),
    ("small", body_of("a", "x" * 1000), {}),
]


@pytest.mark.parametrize(("app", "body", "headers"), REFUSED)
def test_a_refusal_says_what_http_says(server: Served, app: str, body: dict[str, Any], headers: dict[str, str]) -> None:
    with opened(server, "owned") as first:
        if body["id"] == "ada taken":
            first.send("r0", "ada taken", headers={"authorization": "Bearer ada"})
            first.until("r0", "one ")
            body = body | {"messages": [{**body["messages"][0], "id": "another"}]}
        posted = httpx2.post(server.url(app), json=body, headers=headers)
        assert posted.status_code >= 400
        with opened(server, app) as client:
            client.ask({"type": "send", "requestId": "r1", "headers": headers, **body})
            assert client.frames("r1") == [{"type": "error", "requestId": "r1", "errorText": posted.text}]
            client.resume("r2", "unknown", headers={"authorization": "Bearer unknown"})
            assert client.frame("r2")["type"] == "no-active", "the socket lives on"
    assert "secret" not in posted.text


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        ({"type": "resume", "id": "ada"}, "Who are you?"),
        ({"type": "resume", "id": 1}, "the chat id must be a string, not a number"),
        ({"type": "resume", "id": "ada", "headers": {"a": 1}}, "headers: 'a' is not a header that HTTP could carry"),
        ({"type": "send", "body": []}, "body must be an object, not an array"),
    ],
)
def test_a_frame_that_is_refused(server: Served, frame: dict[str, Any], text: str) -> None:
    with opened(server, "owned") as client:
        client.ask({"requestId": "r1"} | frame)
        assert client.frames("r1") == [{"type": "error", "requestId": "r1", "errorText": text}]


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        ("hello", "A frame is not JSON."),
        (b'{"type":"abort","requestId":"r"}', "A frame is not JSON."),
        ('{"type":"ping","requestId":"r"}', "The type of a frame is send, resume or abort."),
        ('{"type":"abort"}', "The requestId of a frame is a string of up to 256 characters."),
    ],
)
def test_a_frame_that_cannot_be_answered_closes_the_socket(server: Served, frame: str | bytes, reason: str) -> None:
    with opened(server) as client:
        client.connection.send(frame)
        assert client.closed() == (1008, reason)


def test_a_request_id_is_used_once_at_a_time(server: Served) -> None:
    GATES.open("again")
    with opened(server) as client:
        client.send("r1", "again")
        client.frames("r1")
        client.send("r1", "in use")
        client.until("r1", "one ")
        client.send("r1", "again")
        assert client.closed() == (1008, "The requestId is in use.")


def test_a_socket_carries_a_limited_number_of_requests(server: Served) -> None:
    with opened(server, "small") as client:
        for name in ("s1", "s2"):
            client.send(name, name)
            client.until(name, "one ")
        client.send("s3", "s3")
        assert client.frames("s3") == [
            {"type": "error", "requestId": "s3", "errorText": "More than 2 requests at once on one connection."}
        ]
        GATES.open("s1")
        assert client.text("s1") == "two"
        GATES.open("s3")
        client.send("s3", "s3")
        assert client.text("s3") == "one two"
        GATES.open("s2")


# Who asks


def test_the_rule_is_shown_the_headers_of_every_frame(server: Served) -> None:
    SEEN.clear()
    GATES.open("ada shown")
    with opened(server, "owned", additional_headers={"authorization": "Bearer bob"}) as client:
        client.send("r1", "ada shown", headers={"Authorization": "Bearer ada"})
        client.frames("r1")
        client.resume("r2", "bob shown")
        client.frames("r2")
        client.resume("r3", "ada shown", headers={"authorization": "Bearer ada"})
        client.frames("r3")
    assert SEEN == [
        ("send", "POST", "http", "ada shown", "ada"),
        ("resume", "GET", "http", "bob shown", "bob"),
        ("resume", "GET", "http", "ada shown", "ada"),
    ]


@pytest.mark.parametrize(
    ("origin", "host", "welcome"),
    [
        (None, "example.org", True),
        ("https://example.org", "example.org", True),
        ("https://Example.org", "example.ORG:443", True),
        ("https://example.org:443", "example.org", True),
        ("http://example.org", "example.org:80", True),
        ("http://localhost:8000", "localhost:8000", True),
        ("http://[::1]:8000", "[::1]:8000", True),
        ("https://friend.example", "example.org", True),
        ("http://friend.example", "example.org", False),
        ("https://example.org", "example.org:80", False),
        ("http://localhost:3000", "localhost:8000", False),
        ("https://example.org.evil.example", "example.org", False),
        ("https://evil.example", "example.org", False),
        ("null", "example.org", False),
        ("", "", False),
        ("https://", "", False),
    ],
)
def test_pages_of_the_same_host_and_of_allowed_origins_are_welcome(
    origin: str | None, host: str, welcome: bool
) -> None:
    assert is_welcome(origin, host, ("https://friend.example",)) is welcome
    assert is_welcome(origin, host, ("*",))


def test_a_page_of_another_origin_is_turned_away(server: Served) -> None:
    GATES.open("welcome")
    for origin in (f"http://127.0.0.1:{server.port}", "https://friend.example"):
        with opened(server, "small", origin=Origin(origin)) as client:
            client.send("r1", "welcome")
            assert client.text("r1") == "one two"
    for app, origin in (("small", "https://evil.example"), ("open", "https://friend.example"), ("open", "null")):
        with pytest.raises(InvalidStatus) as raised, opened(server, app, origin=Origin(origin)):
            pass
        assert raised.value.response.status_code == 403


def test_the_first_subprotocol_that_is_offered_is_chosen(server: Served) -> None:
    with opened(server, subprotocols=[Subprotocol("chat"), Subprotocol("token.abc")]) as client:
        assert client.connection.subprotocol == "chat"


# Leaving


def test_an_abort_leaves_the_run_as_a_closed_connection_does(server: Served) -> None:
    with opened(server) as client:
        client.send("r1", "aborted")
        client.until("r1", "one ")
        client.abort("r1")
        client.abort("r1")
        client.abort("unknown")
        eventually(lambda: "aborted" in STOPPED, "nobody reads the run, so it is stopped")
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
        eventually(lambda: "regretted" in STOPPED or not running(server, "regretted"), "the run is left at once")
        client.resume("r2", "regretted")
        assert client.frame("r2")["type"] == "no-active"


def running(server: Served, chat_id: str) -> bool:
    state = httpx2.get(f"{server.url('open')}/{chat_id}")
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


def test_a_client_that_cannot_follow_is_broken_off_and_may_resume(server: Served) -> None:
    with opened(server, "flood", max_queue=1, compression=None) as client:
        client.send("r1", "flooded")
        client.until("r1", "x" * 10_000)
        # It reads no more: what the sockets' buffers do not take waits in the server, up to the limit.
        eventually(lambda: not any("socket request" in name for name in server.tasks()), "the socket is given up")
        assert client.closed() in [(1013, "The connection is too slow; resume."), (0, "")], "told, if it reads in time"
    with opened(server, "flood", max_size=None) as client:
        client.resume("r2", "flooded")
        assert client.frame("r2") == {"type": "start", "requestId": "r2"}
        GATES.open("flooded")
        assert len(client.text("r2")) == 20_000_000


class Ear(Unobserved):
    """Writes down what it hears of requests and streams."""

    def __init__(self) -> None:
        self.heard: list[object] = []

    def request_refused(self, status: int) -> None:
        self.heard.append(status)

    def stream_opened(self) -> None:
        self.heard.append("opened")

    def first_frame(self, seconds: float) -> None:
        self.heard.append("first" if 0 <= seconds < PATIENCE else seconds)

    def stream_closed(self, reason: str) -> None:
        self.heard.append(reason)


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
        eventually(lambda: ear.heard[-1] == "client", "the client has gone")
        with pytest.raises(InvalidStatus), opened(server, "app", origin=Origin("null")):
            pass
    assert ear.heard == ["opened", "first", "ended", 400, "opened", "first", "client", 403]


def test_a_server_that_goes_breaks_its_sockets_off() -> None:
    app = ChatApp(agent, drain=0)
    with serving({"app": app}) as server, opened(server, "app") as client:
        client.send("r1", "going")
        client.until("r1", "one ")
        assert server.loop is not None
        server.loop.call_soon_threadsafe(app.break_off)
        assert client.closed() == (1012, "The server is shutting down; resume.")


def test_a_client_that_is_dead_is_noticed_by_pings() -> None:
    app = ChatApp(agent, settings=Settings(linger=0), drain=0)
    with (
        serving({"app": app}, ws_ping_interval=0.2, ws_ping_timeout=0.2) as server,
        socket.create_connection(("127.0.0.1", server.port), PATIENCE) as dead,
    ):
        dead.sendall(
            b"GET /app/api/chat/ws HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
            b"sec-websocket-version: 13\r\nsec-websocket-key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
        )
        assert dead.recv(1000).startswith(b"HTTP/1.1 101")
        frame = json.dumps({"type": "send", "requestId": "r1", **body_of("dead")}).encode()
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

    app = ChatApp(agent, settings=Settings(linger=0), drain=0)
    incoming = queue_of({"type": "send", "requestId": "r1", **body_of("deaf")})
    await asyncio.wait_for(app(SCOPE, incoming.get, send), PATIENCE)
    await asyncio.wait_for(app.shut_down(), PATIENCE)
    assert "deaf" in STOPPED


async def test_a_client_that_does_not_wait_for_answers_is_sent_away() -> None:
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    app = ChatApp(agent, settings=Settings(websocket_requests=2), drain=0)
    incoming = queue_of(*[{"type": "resume", "requestId": str(number), "id": "a"} for number in range(5)])
    await asyncio.wait_for(app(SCOPE, incoming.get, send), PATIENCE)
    assert sent[-1] == {"type": "websocket.close", "code": 1008, "reason": "The client does not wait for answers."}
