"""The response that streams a run: what goes out while nothing happens, and how it ends."""

import asyncio
from typing import Any

import pytest

from usechat.runs.log import Log, Reader, Wake
from usechat.server.observer import Unobserved
from usechat.server.response import StreamResponse


class Connection:
    """A server's side of one ASGI connection; a client that does not read makes `send` wait."""

    def __init__(self, *, reads: bool = True) -> None:
        self.sent: list[dict[str, Any]] = []
        self.may_send = asyncio.Event()
        self.gone = asyncio.Event()
        if reads:
            self.may_send.set()

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.body" and message["body"] not in (b"", b": stream-open\n\n"):
            await self.may_send.wait()
        self.sent.append(message)

    @property
    def bodies(self) -> list[bytes]:
        return [message["body"] for message in self.sent if message["type"] == "http.response.body"]

    @property
    def complete(self) -> bool:
        return self.sent[-1].get("more_body") is False


class Reading:
    """Reads a log as a run's reader does."""

    def __init__(self, log: Log, *, maximum_behind: int | None = None, last_words: bytes = b"") -> None:
        self._reader: Reader = log.reader(maximum_behind=maximum_behind)
        self._last_words = last_words
        self.closed = False

    async def read(self) -> bytes | Wake | None:
        return await self._reader.read()

    def wake(self, reason: Wake) -> None:
        self._reader.wake(reason)

    def on_too_slow(self, interrupt: Any) -> None:
        self._reader.on_too_slow = interrupt

    def give_up(self) -> bytes:
        return self._last_words

    def close(self) -> None:
        self.closed = True
        self._reader.close()


class Listener(Unobserved):
    def __init__(self) -> None:
        self.heard: list[Any] = []

    def first_frame(self, seconds: float) -> None:
        self.heard.append(seconds < 60)

    def stream_closed(self, reason: str) -> None:
        self.heard.append(reason)


def respond(connection: Connection, reading: Reading, listener: Listener, keep_alive: float = 60) -> asyncio.Task[None]:
    received = asyncio.get_running_loop().time()
    response = StreamResponse(reading, keep_alive=keep_alive, observer=listener, received=received)
    return asyncio.ensure_future(response({}, connection.receive, connection.send))


async def test_frames_go_out_as_they_come_and_the_end_is_clean() -> None:
    log, connection, listener = Log(), Connection(), Listener()
    reading = Reading(log)
    answering = respond(connection, reading, listener)
    log.append(b"a")
    await asyncio.sleep(0.01)
    log.append(b"b")
    log.append(b"c")
    log.end()
    await asyncio.wait_for(answering, 5)
    assert connection.bodies == [b": stream-open\n\n", b"a", b"bc", b""]
    assert (connection.complete, reading.closed, listener.heard) == (True, True, [True, "ended"])


async def test_silence_is_filled_with_comments() -> None:
    log, connection = Log(), Connection()
    answering = respond(connection, Reading(log), Listener(), keep_alive=0.05)
    await asyncio.sleep(0.2)
    log.end()
    await asyncio.wait_for(answering, 5)
    comments = connection.bodies[1:-1]
    assert set(comments) == {b": keep-alive\n\n"}
    assert 2 <= len(comments) <= 4


async def test_a_client_that_goes_away_ends_the_response() -> None:
    log, connection, listener = Log(), Connection(), Listener()
    reading = Reading(log)
    answering = respond(connection, reading, listener)
    await asyncio.sleep(0.01)
    connection.gone.set()
    await asyncio.wait_for(answering, 5)
    assert (connection.complete, reading.closed, listener.heard) == (False, True, ["client"])


async def test_a_shutdown_breaks_the_response_off() -> None:
    log, connection, listener = Log(), Connection(), Listener()
    answering = respond(connection, Reading(log), listener)
    await asyncio.sleep(0.01)
    log.break_off()
    await asyncio.wait_for(answering, 5)
    assert b'"type":"error"' in connection.bodies[-1]
    assert (connection.complete, listener.heard) == (False, ["broken-off"])


@pytest.mark.parametrize("last_words", [b"", b"data: error\n\n"])
async def test_a_client_that_does_not_read_is_broken_off(last_words: bytes) -> None:
    log, connection, listener = Log(), Connection(reads=False), Listener()
    answering = respond(connection, Reading(log, maximum_behind=10, last_words=last_words), listener)
    await asyncio.sleep(0.01)
    log.append(b"x" * 8)
    await asyncio.sleep(0.01)
    log.append(b"y" * 20)
    await asyncio.sleep(0.01)
    log.append(b"z")
    await asyncio.sleep(0.01)
    connection.may_send.set()
    await asyncio.wait_for(answering, 10)
    assert connection.bodies[0] == b": stream-open\n\n"
    assert [b"error" in body for body in connection.bodies[1:]] == [True]
    assert not last_words or connection.bodies[1] == last_words
    assert (connection.complete, listener.heard) == (False, ["slow"])


async def test_a_response_that_is_cancelled_lets_go() -> None:
    log, connection, listener = Log(), Connection(), Listener()
    reading = Reading(log)
    answering = respond(connection, reading, listener)
    await asyncio.sleep(0.01)
    answering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answering
    assert (reading.closed, log.readers) == (True, 0)
