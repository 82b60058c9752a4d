"""A worker of the tests, run as a separate process: `python -m tests.runs.redis_worker SOCKET URL LEASE`."""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import uvicorn

from tests.plain_asgi import PLAIN_ASGI
from usechat.runs.redis.store import RedisRuns
from usechat.server import ChatApp, Settings
from usechat.turn import Turn


async def count(turn: Turn) -> AsyncIterator[str]:
    """Say as many numbers as asked for, fifty a second; leave a note when stopped."""
    try:
        for number in range(int(turn.text)):
            yield f"{number} "
            await asyncio.sleep(0.02)
    except asyncio.CancelledError:
        Path(turn.body["note"]).write_text("stopped")  # noqa: ASYNC240
        raise


def main() -> None:
    descriptor, url, lease = sys.argv[1:]
    app = ChatApp(count, runs=RedisRuns(url, lease=float(lease)), drain=0, settings=Settings(plain_asgi=PLAIN_ASGI))
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run([socket.socket(fileno=int(descriptor))])


if __name__ == "__main__":
    main()
