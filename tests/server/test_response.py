"""The response that streams a run: what goes out while nothing happens, and how it ends.

Everything holds for all ways of sending: by the task of the response; pushed from wherever frames are made through the
server's `send`; and written to the connection.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeAlias, cast, get_args

import pytest

from tests.plain_asgi import new_server
from usechat.runs.log import Log, Wake
from usechat.runs.reading import LogReading
from usechat.runs.timers import timer_for
from usechat.server.connection import AsgiServer
from usechat.server.observers.observer import Observer
from usechat.server.response import StreamResponse, collect_streams
from usechat.server.uvicorn import UvicornServer

pytestmark = pytest.mark.quick

OPEN = b": stream-open\n\n"
Way: TypeAlias = Literal["task", "push", "write"]


class Transport:
    """The connection below: what is written to it are chunks of HTTP."""

    def __init__(self, connection: "Connection") -> None:
        self.connection = connection

    def get_write_buffer_size(self) -> int:
        return 0 if self.connection.may_send.is_set() else 1

    def is_closing(self) -> bool:
        return self.connection.is_broken

    def write(self, data: bytes) -> None:
        size, _, chunk = data.partition(b"\r\n")
        assert (len(chunk), chunk[-2:]) == (int(size, 16) + 2, b"\r\n")
        self.connection.messages.append({"type": "http.response.body", "body": chunk[:-2], "more_body": True})
        self.connection.direct_writes += 1


class Connection:
    """A server's side of one ASGI connection; a client that does not read makes `send` wait."""

    __module__ = "uvicorn.protocols.http.httptools_impl"

    def __init__(self, *, reads: bool = True, comments: bool = True) -> None:
        self.transport = Transport(self)
        self.chunked_encoding = False
        self.messages: list[dict[str, Any]] = []
        self.senders: list[asyncio.Task[Any] | None] = []
        self.direct_writes = 0
        self.may_send = asyncio.Event()
        self.departure = asyncio.Event()
        self.is_broken = False
        self._free = (b"", OPEN) if comments else (b"",)
        if reads:
            self.may_send.set()

    async def receive(self) -> dict[str, Any]:
        await self.departure.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        if self.is_broken:
            raise RuntimeError("the handler is closed")
        if message["type"] == "http.response.body" and message["body"] not in self._free:
            await self.may_send.wait()
        self.messages.append(message)
        self.senders.append(asyncio.current_task())

    def send_wrapped(self) -> Callable[[dict[str, Any]], Awaitable[None]]:
        """Return a `send` such as middleware makes, which need not be the server's."""

        async def send(message: dict[str, Any]) -> None:
            await self.send(message)

        return send

    @property
    def bodies(self) -> list[bytes]:
        return [message["body"] for message in self.messages if message["type"] == "http.response.body"]

    @property
    def complete(self) -> bool:
        return self.messages[-1].get("more_body") is False


class Listener(Observer):
    def __init__(self) -> None:
        self.events: list[Any] = []
        self.bytes = 0

    def first_frame(self, seconds: float) -> None:
        self.events.append(seconds < 60)

    def bytes_sent(self, count: int) -> None:
        self.bytes += count

    def stream_closed(self, reason: str) -> None:
        self.events.append(reason)


class Answering:
    """A response that is being sent; frames are written to `log`."""

    def __init__(
        self,
        connection: Connection,
        *,
        way: Way,
        keep_alive: float = 60,
        maximum_behind: int | None = None,
        last_words: bytes = b"",
        stuck_timeout: float = 60,
        server: AsgiServer | None = None,
    ) -> None:
        self.log, self.listener, self.closed = Log(), Listener(), False
        send: Any = connection.send_wrapped() if way == "task" else connection.send
        connection.chunked_encoding = way == "write"
        self.reading = reading = LogReading(
            self.log.reader(maximum_behind=maximum_behind),
            self.log,
            on_close=self._close,
            on_too_slow=lambda _log: last_words,
        )
        received = asyncio.get_running_loop().time()
        response = StreamResponse(
            reading,
            server=server or new_server(),
            keep_alive=keep_alive,
            observer=self.listener,
            received=received,
            stuck_timeout=stuck_timeout,
        )
        self.task = asyncio.ensure_future(response({}, connection.receive, send))

    def _close(self, _log: Log) -> None:
        self.closed = True

    async def write(self, frames: bytes) -> None:
        """Write frames, and let others have their turn."""
        self.log.append(frames)
        await settled()

    async def end(self) -> None:
        """Wait for the end of the response."""
        await asyncio.wait_for(self.task, 30)


async def settled() -> None:
    """Let everybody who can go on do so."""
    for _ in range(20):
        await asyncio.sleep(0)


class Clock:
    """The time of the event loop, which passes when the test says so."""

    now = 0.0


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: clock.now)
    return clock


@pytest.fixture(params=get_args(Way))
def way(request: pytest.FixtureRequest) -> Way:
    return cast("Way", request.param)


async def test_frames_go_out_as_they_come_and_the_end_is_clean(way: Way) -> None:
    connection = Connection()
    answering = Answering(connection, way=way)
    await answering.write(b"a")
    await answering.write(b"b")
    answering.log.append(b"c")
    answering.log.append(b"d")
    answering.log.end()
    await answering.end()
    assert connection.bodies == [OPEN, b"a", b"b", b"cd", b""]
    assert (connection.complete, answering.closed, answering.listener.events) == (True, True, [True, "ended"])
    assert answering.listener.bytes == len(OPEN) + 4


async def test_what_is_pushed_needs_no_task_of_its_own() -> None:
    connection = Connection()
    answering = Answering(connection, way="push", server=UvicornServer())
    await answering.write(b"a")
    answering.log.append(b"b")
    answering.log.flush()
    assert connection.bodies == [OPEN, b"a", b"b"]
    assert connection.senders[-2] is answering.task
    assert connection.senders[-1] is not answering.task
    answering.log.end()
    await answering.end()


async def test_streams_that_speak_in_one_turn_of_the_loop_are_sent_one_after_the_other() -> None:
    connections = [Connection(), Connection()]
    answers = [Answering(connection, way="push") for connection in connections]
    for answering in answers:
        await answering.write(b"a")
    for frames in (b"b", b"c"):
        for answering in answers:
            answering.log.append(frames)
    assert [connection.bodies for connection in connections] == [[OPEN, b"a"], [OPEN, b"a"]]
    await settled()
    assert [connection.bodies for connection in connections] == [[OPEN, b"a", b"bc"], [OPEN, b"a", b"bc"]]
    for answering in answers:
        answering.log.end()
        await answering.end()


async def test_what_is_written_is_not_sent() -> None:
    connection = Connection()
    answering = Answering(connection, way="write", server=UvicornServer())
    for frames in (b"a", b"b", b"c"):
        await answering.write(frames)
    assert (connection.bodies, connection.direct_writes) == ([OPEN, b"a", b"b", b"c"], 2)
    answering.log.end()
    await answering.end()


async def test_what_passes_through_others_is_sent_by_the_task() -> None:
    connection = Connection()
    answering = Answering(connection, way="task")
    await answering.write(b"a")
    await answering.write(b"b")
    assert set(connection.senders) == {answering.task}
    answering.log.end()
    await answering.end()


async def test_a_stream_that_is_collected_is_sent_by_whoever_collects_it() -> None:
    connection, log = Connection(), Log()
    response = StreamResponse(
        LogReading(log.reader(), log, on_close=lambda _read: None),
        server=new_server(),
        keep_alive=60,
        observer=Observer(),
        received=0,
    )
    scope: dict[str, Any] = {}
    streams = collect_streams(scope)
    await response(scope, connection.receive, connection.send)
    assert (streams, connection.messages) == ([response], [])
    log.append(b"a")
    log.end()
    await streams[0].stream({}, connection.receive, connection.send)
    assert connection.bodies == [OPEN, b"a", b""]


async def test_silence_is_filled_with_comments(way: Way, clock: Clock) -> None:
    connection = Connection()
    answering = Answering(connection, way=way, keep_alive=0.05)
    await answering.write(b"a")
    while len(connection.bodies) < 4:
        clock.now += 0.001
        await settled()
    await answering.write(b"b")
    answering.log.end()
    await answering.end()
    assert connection.bodies[1] == b"a"
    assert set(connection.bodies[2:-2]) == {b": keep-alive\n\n"}
    assert connection.bodies[-2:] == [b"b", b""]


@pytest.mark.parametrize("keep_alive", [0.2, 1, 15, 20.5, 60])
@pytest.mark.usefixtures("clock")  # nobody else looks meanwhile
async def test_a_silence_is_broken_in_time(keep_alive: float) -> None:
    connection, log = Connection(), Log()
    response = StreamResponse(
        LogReading(log.reader(), log, on_close=lambda _read: None),
        server=new_server(),
        keep_alive=keep_alive,
        observer=Observer(),
        received=0,
    )
    answering = asyncio.ensure_future(response({}, connection.receive, connection.send))
    await settled()
    every = timer_for(keep_alive).interval
    looks = 0
    while len(connection.bodies) == 1 and looks < 1000:
        response.tick(looks * every)  # the first finds that the stream was opened, up to a look ago
        looks += 1
        await settled()
    assert connection.bodies == [OPEN, b": keep-alive\n\n"]
    assert keep_alive - 2 * every <= looks * every <= keep_alive
    log.end()
    await answering


async def test_who_speaks_needs_no_comments(way: Way, clock: Clock) -> None:
    connection = Connection()
    answering = Answering(connection, way=way, keep_alive=0.5)
    while clock.now < 2:
        await answering.write(b"a")
        clock.now += 0.005
    answering.log.end()
    await answering.end()
    assert set(connection.bodies[1:-1]) == {b"a"}


async def test_a_client_that_goes_away_ends_the_response(way: Way) -> None:
    connection = Connection()
    answering = Answering(connection, way=way)
    await answering.write(b"a")
    connection.departure.set()
    await answering.end()
    assert (connection.complete, answering.closed, answering.listener.events) == (False, True, [True, "client"])


async def test_a_client_that_goes_away_while_it_does_not_read_ends_the_response(way: Way) -> None:
    connection = Connection()
    answering = Answering(connection, way=way)
    await answering.write(b"a")
    connection.may_send.clear()
    await answering.write(b"b")
    connection.departure.set()
    await settled()
    connection.may_send.set()  # a server lets those go who wait for a client that is gone
    await answering.end()
    assert (connection.bodies, answering.listener.events) == ([OPEN, b"a", b"b"], [True, "client"])


async def test_a_shutdown_breaks_the_response_off(way: Way) -> None:
    connection = Connection()
    answering = Answering(connection, way=way)
    await answering.write(b"a")
    answering.reading.wake(Wake.SHUTDOWN)
    await answering.end()
    assert b'"type":"error"' in connection.bodies[-1]
    assert (connection.complete, answering.listener.events) == (False, [True, "disconnected"])


async def test_a_client_that_reads_again_gets_everything_in_order(way: Way) -> None:
    connection = Connection()
    answering = Answering(connection, way=way)
    await answering.write(b"a")
    connection.may_send.clear()
    for frames in (b"b", b"c", b"d"):
        await answering.write(frames)
    assert connection.bodies == [OPEN, b"a"]
    connection.may_send.set()
    await settled()
    await answering.write(b"e")
    answering.log.end()
    await answering.end()
    assert connection.bodies == [OPEN, b"a", b"b", b"cd", b"e", b""]


@pytest.mark.parametrize("last_words", [b"", b"data: error\n\n"])
async def test_a_client_that_does_not_read_is_disconnected(last_words: bytes, way: Way) -> None:
    connection = Connection()
    answering = Answering(connection, way=way, maximum_behind=10, last_words=last_words)
    await answering.write(b"a")
    connection.may_send.clear()
    for frames in (b"x" * 8, b"y" * 8, b"z" * 8):
        await answering.write(frames)
    connection.may_send.set()
    await answering.end()
    assert connection.bodies[:2] == [OPEN, b"a"]
    assert [b"error" in body for body in connection.bodies[2:]] == [True]
    assert not last_words or connection.bodies[2] == last_words
    assert (connection.complete, answering.listener.events) == (False, [True, "slow"])


async def test_a_client_becomes_too_slow_before_the_response_has_heard_of_it() -> None:
    connection = Connection()
    answering = Answering(connection, way="push", maximum_behind=10)
    await answering.write(b"a")
    connection.may_send.clear()
    answering.log.append(b"x" * 8)
    answering.log.flush()
    await asyncio.sleep(0)  # it is pushed, and the response has not heard yet that it does not go through
    for frames in (b"y" * 8, b"z" * 8):
        answering.log.append(frames)
        answering.log.flush()
    await settled()
    connection.may_send.set()
    await answering.end()
    assert (connection.bodies[:2], answering.listener.events) == ([OPEN, b"a"], [True, "slow"])


async def test_a_client_that_takes_not_even_the_first_comment_is_disconnected(way: Way) -> None:
    connection = Connection(reads=False, comments=False)
    answering = Answering(connection, way=way, maximum_behind=10)
    for _ in range(3):
        await answering.write(b"x" * 20)
    connection.may_send.set()
    await answering.end()
    assert answering.listener.events == ["slow"]


async def test_a_server_that_fails_fails_the_response_and_nobody_else(way: Way) -> None:
    connection = Connection()
    answering = Answering(connection, way=way)
    await answering.write(b"a")
    connection.is_broken = True
    await answering.write(b"b")
    with pytest.raises(RuntimeError, match="the handler is closed"):
        await answering.end()
    assert (answering.closed, answering.log.readers) == (True, 0)


async def test_a_response_that_is_cancelled_lets_go(way: Way) -> None:
    connection = Connection()
    answering = Answering(connection, way=way)
    await answering.write(b"a")
    answering.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answering.task
    assert (answering.closed, answering.log.readers) == (True, 0)
    assert answering.listener.events == [True, "disconnected"]


async def test_a_response_that_is_cancelled_while_it_waits_for_its_client_lets_go(way: Way) -> None:
    connection = Connection()
    answering = Answering(connection, way=way)
    await answering.write(b"a")
    connection.may_send.clear()
    await answering.write(b"b")
    answering.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answering.task
    assert (connection.bodies, answering.closed) == ([OPEN, b"a"], True)
