"""Where a server listens, and which pages may ask one that asks nobody who they are."""

import asyncio
import socket
from collections.abc import Mapping

import pytest
from starlette.requests import Request

from usechat.errors import CannotListen, ForeignOrigin
from usechat.server.auth.origin import LocalPagesOnly, is_loopback, listen, resolve
from usechat.turn import Identity


@pytest.mark.parametrize(
    ("host", "local"), [("127.0.0.1", True), ("127.8.9.1", True), ("localhost", True), ("0.0.0.0", False)]
)
def test_loopback_is_told_from_the_rest(host: str, local: bool) -> None:
    assert {is_loopback(address) for address in resolve(host, 8000)} == {local}


@pytest.mark.parametrize("host", ["no.such.host.invalid", "a" * 70, "x" * 300])
def test_a_host_that_is_none(host: str) -> None:
    with pytest.raises(CannotListen, match=f"^the host '{host}' cannot be found: "):
        resolve(host, 8000)


def test_all_addresses_of_a_name_share_a_port() -> None:
    sockets = listen(resolve("localhost", 0))
    try:
        [port] = {listening.getsockname()[1] for listening in sockets}
        assert port > 0
        with socket.create_connection(("localhost", port), timeout=10):
            pass
    finally:
        for listening in sockets:
            listening.close()


async def test_small_frames_are_not_held_back() -> None:
    loop = asyncio.get_running_loop()
    accepted: asyncio.Future[asyncio.BaseTransport] = loop.create_future()

    class Accepts(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            accepted.set_result(transport)

    [listening] = listen(resolve("127.0.0.1", 0))
    async with await loop.create_server(Accepts, sock=listening):
        _, writer = await asyncio.open_connection(*listening.getsockname())
        transport = await asyncio.wait_for(accepted, 30)
        assert transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        writer.close()
        transport.close()
        await writer.wait_closed()


def test_a_port_that_is_taken() -> None:
    [taken] = listen(resolve("127.0.0.1", 0))
    with taken:
        port = taken.getsockname()[1]
        with pytest.raises(CannotListen, match=f"^port {port} of 127.0.0.1 cannot be used: Address already in use$"):
            listen(resolve("127.0.0.1", port))


async def ask(headers: Mapping[str, str], *origins: str) -> Identity | None:
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    return await LocalPagesOnly(origins)(Request({"type": "http", "headers": raw}), "c1", "send")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"host": "127.0.0.1:8000"},
        {"host": "[::1]:8000"},
        {"host": "LocalHost:8000", "origin": "http://localhost:3000"},
        {"host": "127.0.0.1:8000", "origin": "http://app.localhost:3000"},
        {"host": "127.0.0.1:8000", "origin": "https://chat.example"},
        {"host": "chat.example", "origin": "https://chat.example"},
    ],
)
async def test_pages_of_this_machine_and_named_ones_may_ask(headers: Mapping[str, str]) -> None:
    assert await ask(headers, "https://chat.example") == Identity("")


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "127.0.0.1:8000", "origin": "https://evil.example"},
        {"host": "127.0.0.1:8000", "origin": "http://127.0.0.1.evil.example"},
        {"host": "127.0.0.1:8000", "origin": "http://chat.example"},
        {"host": "127.0.0.1:8000", "origin": "null"},
        {"host": "127.0.0.1:8000", "origin": "http://[::1"},
        {"host": "evil.example:8000"},
        {"host": "evil.example:8000", "origin": "http://localhost"},
        {"host": "[::1"},
    ],
)
async def test_other_pages_may_not(headers: Mapping[str, str]) -> None:
    with pytest.raises(ForeignOrigin) as caught:
        await ask(headers, "https://chat.example")
    assert caught.value.status == 403
