"""Noticing that a client goes, with a server that is known and with any other."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from usechat.runs.log import Log, Wake
from usechat.runs.reading import LogReading
from usechat.server.uvicorn import Leaving, is_uvicorn


class Connection:
    """Receives what is put into it."""

    __module__ = "uvicorn.protocols.http.h11_impl"

    def __init__(self) -> None:
        self.messages: asyncio.Queue[str] = asyncio.Queue()
        self.receiving = 0

    async def receive(self) -> dict[str, Any]:
        self.receiving += 1
        try:
            return {"type": await self.messages.get()}
        finally:
            self.receiving -= 1


class Broken(asyncio.Queue[str]):
    async def get(self) -> str:
        raise RuntimeError("the handler is closed")


def wrapped(receive: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
    async def receive_more() -> Any:
        return await receive()

    return receive_more


@pytest.fixture(params=[False, True], ids=["uvicorn", "another"])
def connection(request: pytest.FixtureRequest) -> tuple[Connection, Any]:
    connection = Connection()
    receive = wrapped(connection.receive) if request.param else connection.receive
    assert is_uvicorn(receive) is not request.param
    return connection, receive


def new_reading() -> LogReading[None]:
    return LogReading(Log().reader(), None, on_close=lambda _read: None)


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_client_that_goes_wakes_the_reading(connection: tuple[Connection, Any]) -> None:
    server, receive = connection
    reading = new_reading()
    leaving = Leaving(reading)
    leaving.listen(receive)
    await turns()
    server.messages.put_nowait("http.request")
    await turns()
    assert (leaving.gone, server.receiving) == (False, 1)
    server.messages.put_nowait("http.disconnect")
    async with asyncio.timeout(10):
        assert await reading.read() is Wake.GONE
    assert (leaving.gone, server.receiving) == (True, 0)
    leaving.close()


async def test_a_client_that_has_gone_already_is_noticed_too(connection: tuple[Connection, Any]) -> None:
    server, receive = connection
    for message in ("http.request", "http.disconnect"):
        server.messages.put_nowait(message)
    reading = new_reading()
    leaving = Leaving(reading)
    leaving.listen(receive)
    async with asyncio.timeout(10):
        assert await reading.read() is Wake.GONE
    assert leaving.gone


async def test_a_connection_that_cannot_be_listened_to_is_lost() -> None:
    server, reading = Connection(), new_reading()
    server.messages = Broken()
    leaving = Leaving(reading)
    leaving.listen(server.receive)
    async with asyncio.timeout(10):
        assert await reading.read() is Wake.GONE
    assert leaving.gone
    leaving.close()


async def test_nobody_listens_to_a_stream_that_has_ended(connection: tuple[Connection, Any]) -> None:
    server, receive = connection
    leaving = Leaving(new_reading())
    leaving.listen(receive)
    await turns()
    server.messages.put_nowait("http.disconnect")
    leaving.close()
    await turns()
    assert (leaving.gone, server.receiving) == (False, 0)
