"""A real uvicorn on a free port, in a thread of the test's process: its insides can be looked at, its logs be read."""

import asyncio
import http.client
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import closing, contextmanager
from time import monotonic, sleep
from typing import Any, Final, TypeVar

import uvicorn
from starlette.routing import Mount, Router

from usechat.server.app import EndpointsApp
from usechat.turn import Turn

PATIENCE: Final = 120.0
"""Seconds to wait for something that should happen at once; a loaded machine is slow."""

T = TypeVar("T")


class Served:
    """A running server; `apps` are mounted under their names."""

    def __init__(self, server: uvicorn.Server, port: int) -> None:
        self._server = server
        self.port = port
        self.loop: asyncio.AbstractEventLoop | None = None

    def url(self, name: str) -> str:
        """Return where the app of this name takes posts."""
        return f"http://127.0.0.1:{self.port}/{name}/api/chat"

    def post(self, path: str) -> int:
        """Post nothing, and return the status of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        with closing(connection):
            connection.request("POST", path)
            return connection.getresponse().status

    def connections(self) -> int:
        """How many sockets are open."""
        return len(self._server.server_state.connections)

    def tasks(self) -> list[str]:
        """The names of all tasks in the server's event loop."""
        assert self.loop is not None
        return [task.get_name() for task in asyncio.all_tasks(self.loop)]

    def cut(self) -> None:
        """Break every connection, as a network that goes away does."""
        assert self.loop is not None
        for connection in list(self._server.server_state.connections):
            self.loop.call_soon_threadsafe(connection.transport.abort)

    def run(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Do this in the server's event loop."""
        assert self.loop is not None
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def later(self, seconds: float) -> "Future[None]":
        """Return what is done when the server's event loop has gone on for so long."""
        return self.run(asyncio.sleep(seconds))


def eventually(condition: Callable[[], object], what: str) -> None:
    """Wait until this holds."""
    deadline = monotonic() + PATIENCE
    while not condition():
        assert monotonic() < deadline, f"never happened: {what}"
        sleep(0.01)


@contextmanager
def unanswered_port() -> Iterator[int]:
    """Hold a port at which nobody listens; one that was let go somebody else may be given at any time."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]


@contextmanager
def serving(apps: Mapping[str, Any], **options: Any) -> Iterator[Served]:
    """Serve ASGI apps, each under its name; chat apps are shut down at the end. Options are uvicorn's."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    routes = [Mount(f"/{name}", app) for name, app in apps.items()]
    config = uvicorn.Config(
        Router(routes=routes), log_config=None, lifespan="off", timeout_graceful_shutdown=5, **options
    )
    server = uvicorn.Server(config)
    served = Served(server, listener.getsockname()[1])

    async def serve() -> None:
        served.loop = asyncio.get_running_loop()
        await server.serve(sockets=[listener])

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    eventually(lambda: server.started, "the server starts")
    try:
        yield served
    finally:
        for app in apps.values():
            if isinstance(app, EndpointsApp):
                served.run(app.shut_down()).result(PATIENCE)
        server.should_exit = True
        thread.join(PATIENCE)
        listener.close()


class Gates:
    """Places where agents wait until the test lets them go on; one per chat and name."""

    def __init__(self) -> None:
        self._open: set[tuple[str, str]] = set()

    def open(self, chat_id: str, name: str = "") -> None:
        self._open.add((chat_id, name))

    async def passed(self, turn: Turn, name: str = "") -> None:
        while (turn.chat_id, name) not in self._open:  # noqa: ASYNC110 (gates are opened in another thread)
            await asyncio.sleep(0.005)
