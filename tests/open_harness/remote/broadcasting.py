"""A scripted server that behaves as Open Harness's own on the wire, which cannot be installed here.

It has one run for everybody, sends every event to every client, and has no command to start the run.
"""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from websockets.asyncio.server import ServerConnection, broadcast, serve

PATIENCE: Final = 30.0
"""Seconds to wait for something that should happen at once; a loaded machine is slow."""


class BroadcastingServer:
    """What it heard, and a way to say events; `answer` is called with each command."""

    def __init__(self, answer: Callable[["BroadcastingServer", Mapping[str, Any]], None]) -> None:
        self.commands: list[Mapping[str, Any]] = []
        self.port = 0
        self._answer = answer
        self._clients: set[ServerConnection] = set()
        self.opened = 0

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/ws"

    @property
    def clients(self) -> int:
        return len(self._clients)

    def emit(self, *events: Mapping[str, Any]) -> None:
        """Tell everybody."""
        for event in events:
            broadcast(self._clients, json.dumps({"type": "event", "event": {**event, "timestamp": 1}}))

    def say(self, frame: str) -> None:
        """Send a frame as it is."""
        broadcast(self._clients, frame)

    def cut(self) -> None:
        """Break every connection."""
        for client in list(self._clients):
            client.transport.abort()

    async def until(self, condition: Callable[["BroadcastingServer"], object]) -> None:
        """Wait until the server looks like this."""
        async with asyncio.timeout(PATIENCE):
            while not condition(self):  # noqa: ASYNC110 (what it waits for comes over a socket)
                await asyncio.sleep(0.005)

    async def handle(self, client: ServerConnection) -> None:
        self._clients.add(client)
        self.opened += 1
        try:
            async for frame in client:
                command = json.loads(frame)["command"]
                self.commands.append(command)
                self.emit({"type": "command:received", "command": command})
                self._answer(self, command)
        finally:
            self._clients.discard(client)


@asynccontextmanager
async def broadcasting(
    answer: Callable[[BroadcastingServer, Mapping[str, Any]], None] = lambda _server, _command: None,
    *,
    bound: socket.socket | None = None,
) -> AsyncIterator[BroadcastingServer]:
    """Serve until the block ends, on a socket of its own if it is given none."""
    server = BroadcastingServer(answer)
    listener = bound or socket.create_server(("127.0.0.1", 0))
    async with serve(server.handle, sock=listener):
        server.port = listener.getsockname()[1]
        yield server
