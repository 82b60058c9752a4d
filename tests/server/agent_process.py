"""The processes of the tests of an agent tier, with a short lease.

`python -m tests.server.agent_process web SOCKET URL LEASE [CHATS]`, and
`… worker plain|restartable VERSION URL LEASE [CHATS]`.
"""

import asyncio
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn

from tests.plain_asgi import PLAIN_ASGI
from usechat.runs.redis.store import RedisRuns
from usechat.runs.redis.turns import RedisTurns
from usechat.server import ChatApp, Observer, Settings
from usechat.server.worker import AgentWorker
from usechat.sources import restartable
from usechat.turn import Turn

if TYPE_CHECKING:
    from usechat.chats import SqlChats

_QUEUE = "agents"


async def count(turn: Turn) -> AsyncIterator[str]:
    """Say as many numbers as asked for; note every beginning, and being stopped.

    Fifty a second, so that a test can do something in the middle; an answer that is begun again is quicker.
    """
    note = Path(turn.body["note"])
    pause = 0.002 if note.exists() else 0.02  # noqa: ASYNC240
    with note.open("a") as file:  # noqa: ASYNC230
        file.write("begun\n")
    try:
        for number in range(int(turn.text)):
            yield f"{number} "
            await asyncio.sleep(pause)
    except asyncio.CancelledError:
        with note.open("a") as file:  # noqa: ASYNC230
            file.write("stopped\n")
        raise


def chats_in(database: str) -> "SqlChats | None":
    if not database:
        return None
    from usechat.chats import SqlChats  # takes longer than everything else that is imported here

    return SqlChats(database)


def serve(descriptor: str, url: str, lease: str, database: str = "") -> None:
    runs = RedisRuns(url, lease=float(lease))
    queue, settings = RedisTurns(runs, _QUEUE, maximum_waiting=3), Settings(plain_asgi=PLAIN_ASGI)
    app = ChatApp(queue, runs=runs, chats=chats_in(database), settings=settings)
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run([socket.socket(fileno=int(descriptor))])


async def work(kind: str, version: str, url: str, lease: str, database: str = "") -> None:
    agent = restartable(count) if kind == "restartable" else count
    turns = RedisTurns(RedisRuns(url, lease=float(lease)), _QUEUE)
    options: dict[str, Any] = {"settings": Settings(), "observer": Observer(), "concurrency": 2}
    worker = AgentWorker(agent, turns, version=version, chats=chats_in(database), **options)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    await worker.work(drain=60)


def main() -> None:
    role, *arguments = sys.argv[1:]
    if role == "web":
        serve(*arguments)
    else:
        asyncio.run(work(*arguments))


if __name__ == "__main__":
    main()
