"""Noticing that a client goes, with a server that is known and with any other."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from usechat.runs.log import Log, Wake
from usechat.runs.reading import LogReading
from usechat.server.connection import ClientWatch
from usechat.server.uvicorn import SteppedClientWatch, UvicornServer


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
async def connection(request: pytest.FixtureRequest) -> tuple[Connection, Any]:
    connection = Connection()
    receive = wrapped(connection.receive) if request.param else connection.receive
    watch = UvicornServer().watch_client(receive, new_reading())
    assert type(watch) is (ClientWatch if request.param else SteppedClientWatch)
    return connection, receive


def new_reading() -> LogReading[None]:
    return LogReading(Log().reader(), None, on_close=lambda _read: None)


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_client_that_goes_wakes_the_reading(connection: tuple[Connection, Any]) -> None:
    server, receive = connection
    reading = new_reading()
    client = UvicornServer().watch_client(receive, reading)
    client.start()
    await turns()
    server.messages.put_nowait("http.request")
    await turns()
    assert (client.is_gone, server.receiving) == (False, 1)
    server.messages.put_nowait("http.disconnect")
    async with asyncio.timeout(10):
        assert await reading.read() is Wake.GONE
    assert (client.is_gone, server.receiving) == (True, 0)
    client.close()


async def test_a_client_that_has_gone_already_is_noticed_too(connection: tuple[Connection, Any]) -> None:
    server, receive = connection
    for message in ("http.request", "http.disconnect"):
        server.messages.put_nowait(message)
    reading = new_reading()
    client = UvicornServer().watch_client(receive, reading)
    client.start()
    async with asyncio.timeout(10):
        assert await reading.read() is Wake.GONE
    assert client.is_gone


async def test_a_connection_that_cannot_be_listened_to_is_lost() -> None:
    server, reading = Connection(), new_reading()
    server.messages = Broken()
    client = UvicornServer().watch_client(server.receive, reading)
    client.start()
    async with asyncio.timeout(10):
        assert await reading.read() is Wake.GONE
    assert client.is_gone
    client.close()


async def test_nobody_listens_to_a_stream_that_has_ended(connection: tuple[Connection, Any]) -> None:
    server, receive = connection
    client = UvicornServer().watch_client(receive, new_reading())
    client.start()
    await turns()
    server.messages.put_nowait("http.disconnect")
    client.close()
    await turns()
    assert (client.is_gone, server.receiving) == (False, 0)
