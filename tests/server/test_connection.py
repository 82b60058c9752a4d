"""Connections of a server that are ended here, on both event loops."""

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from usechat.server.connection import reset_at_once


async def _ended_by_both(*, is_closed: bool) -> None:
    accepted: asyncio.Future[asyncio.StreamWriter] = asyncio.get_running_loop().create_future()
    server = await asyncio.start_server(lambda _, writer: accepted.set_result(writer), "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        transport = (await accepted).transport
        assert transport.get_extra_info("socket") is not None, "servers ask for it at the beginning"
        if is_closed:
            transport.abort()
            await reader.read()  # the transport has closed its socket
        reset_at_once(transport)
        transport.abort()
        if not is_closed:
            with pytest.raises(ConnectionResetError):
                await reader.read()
        writer.close()


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("is_closed", [False, True], ids=["open", "closed"])
def test_a_connection_is_reset_unless_it_has_ended_already(
    make_loop: Callable[[], asyncio.AbstractEventLoop], is_closed: bool
) -> None:
    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(_ended_by_both(is_closed=is_closed))
