"""A real uvicorn on a free port, in a thread of the test's process: its insides can be looked at, its logs be read."""

import asyncio
import socket
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from usechat.server import ChatApp
from usechat.turn import Turn

PATIENCE: Final = 30.0
"""Seconds to wait for something that should happen at once; a loaded machine is slow."""


class Served:
    """A running server; `apps` are mounted under their names."""

    def __init__(self, server: uvicorn.Server, port: int) -> None:
        self._server = server
        self.port = port
        self.loop: asyncio.AbstractEventLoop | None = None

    def url(self, name: str) -> str:
        """Return where the app of this name takes posts."""
        return f"http://127.0.0.1:{self.port}/{name}/api/chat"

    def connections(self) -> int:
        """How many sockets are open."""
        return len(self._server.server_state.connections)

    def tasks(self) -> list[str]:
        """The names of all tasks in the server's event loop."""
        assert self.loop is not None
        return [task.get_name() for task in asyncio.all_tasks(self.loop)]


def eventually(condition: Callable[[], object], what: str) -> None:
    """Wait until this holds."""
    deadline = monotonic() + PATIENCE
    while not condition():
        assert monotonic() < deadline, f"never happened: {what}"
        sleep(0.01)


@contextmanager
def serving(apps: Mapping[str, Any]) -> Iterator[Served]:
    """Serve ASGI apps, each under its name; those that are chat apps are shut down at the end."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    routes = [Mount(f"/{name}", app) for name, app in apps.items()]
    config = uvicorn.Config(Starlette(routes=routes), log_config=None, lifespan="off", timeout_graceful_shutdown=5)
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
            if isinstance(app, ChatApp) and served.loop is not None:
                asyncio.run_coroutine_threadsafe(app.shut_down(), served.loop).result(PATIENCE)
        server.should_exit = True
        thread.join(PATIENCE)
        listener.close()


class Gates:
    """Places where agents wait until the test lets them go on; one per chat and name."""

    def __init__(self) -> None:
        self._open: defaultdict[tuple[str, str], threading.Event] = defaultdict(threading.Event)

    def open(self, chat_id: str, name: str = "") -> None:
        self._open[chat_id, name].set()

    async def passed(self, turn: Turn, name: str = "") -> None:
        while not self._open[turn.chat_id, name].is_set():
            await asyncio.sleep(0.005)
