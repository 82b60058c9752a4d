"""Listening at the addresses of a host name."""

import asyncio
import socket

import pytest

from usechat.errors import CannotListen
from usechat.server.listening import is_loopback, listen_at, resolve


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
    sockets = listen_at(resolve("localhost", 0))
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

    [listening] = listen_at(resolve("127.0.0.1", 0))
    async with await loop.create_server(Accepts, sock=listening):
        _, writer = await asyncio.open_connection(*listening.getsockname())
        transport = await asyncio.wait_for(accepted, 30)
        assert transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        writer.close()
        transport.close()
        await writer.wait_closed()


def test_a_port_that_is_taken() -> None:
    [other] = listen_at(resolve("127.0.0.1", 0))
    with other:
        port = other.getsockname()[1]
        text = f"port {port} of 127.0.0.1 cannot be used: Address already in use; stop the program that uses it, or "
        with pytest.raises(CannotListen, match=f"^{text}choose another port$"):
            listen_at(resolve("127.0.0.1", port))
