"""ASGI apps on a real uvicorn in the test's own event loop."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import uvicorn

PATIENCE: Final = 30.0
"""Seconds to wait for something that should happen at once; a loaded machine is slow."""


class Serving:
    """A server that runs."""

    def __init__(self, server: uvicorn.Server, port: int) -> None:
        self._server = server
        self.port = port

    @property
    def connections(self) -> int:
        return len(self._server.server_state.connections)

    def cut(self) -> None:
        """Break every connection."""
        for connection in list(self._server.server_state.connections):
            connection.transport.abort()


@asynccontextmanager
async def serving(app: Any) -> AsyncIterator[Serving]:
    """Serve an app on a free port until the block ends."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_config=None, lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    task = asyncio.create_task(server.serve(sockets=[listener]))
    await until(lambda: server.started)
    try:
        yield Serving(server, listener.getsockname()[1])
    finally:
        server.should_exit = True
        await task
        listener.close()


async def until(condition: Callable[[], object]) -> None:
    """Wait until this holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 (what it waits for comes over a socket)
            await asyncio.sleep(0.005)
