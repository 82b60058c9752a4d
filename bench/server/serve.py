"""`python -m bench.server.serve NAME`: serve one contestant on a free port, which the first line of stdout tells."""

import socket
import sys
from importlib.util import find_spec
from typing import Any

import uvicorn

from bench.server.contestants import APPS, App, Make
from bench.server.load import Load
from usechat.cli.plan import collect_rarely


def listen() -> socket.socket:
    """Listen on loopback. asyncio turns Nagle's delays off only where the protocol is named as TCP."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(4096)
    return listener


def both(make: Make) -> App:
    """Return an app that answers at the paths `/paced` and `/flood`, as if each were `/api/chat`."""
    apps = {"/paced": make(Load("paced")), "/flood": make(Load("flood"))}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":  # as stock uvicorn has it; one app stands for all of the process
            await next(iter(apps.values()))(scope, receive, send)
            return
        target = apps[scope["path"]]
        scope["path"] = "/api/chat"
        await target(scope, receive, send)

    return app


def config_of(app: App) -> uvicorn.Config:
    """Return how uvicorn serves an app: as fast as it can, without a log."""
    return uvicorn.Config(
        app,
        loop="uvloop" if find_spec("uvloop") else "asyncio",
        http="httptools" if find_spec("httptools") else "h11",
        lifespan="auto",
        log_level="critical",
        access_log=False,
        backlog=4096,
    )


def main(name: str) -> None:
    listener = listen()
    config = config_of(both(APPS[name]))
    print(listener.getsockname()[1], flush=True)
    collect_rarely()  # as `usechat serve` does: everyone gets the same settings of the garbage collector
    uvicorn.Server(config).run([listener])


if __name__ == "__main__":
    main(sys.argv[1])
