"""`python -m bench.agent_ops.serve upstream|gateway …`: run one of the two on a free port, and print the port."""

import asyncio
import contextlib
import itertools
import json
import sys
from importlib.util import find_spec
from time import monotonic_ns
from typing import Any, Final

import uvicorn
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from bench.server.load import INTERVAL
from bench.server.serve import listen
from usechat.agent_ops import AgentOpsApp, SessionDirectory

_numbers: Final = itertools.count(1)


async def session(client: ServerConnection) -> None:
    """Answer every prompt of a client until it disconnects."""
    with contextlib.suppress(ConnectionClosed):
        await send(client, {"type": "init", "session": {"id": "s", "status": "running"}, "data": {"runnerBusy": False}})
        async for frame in client:
            command = json.loads(frame)
            if command["type"] == "prompt":
                await turn(client, command["content"])


async def turn(client: ServerConnection, prompt: str) -> None:
    """Send as many deltas as the prompt says, each with the time at which it was sent."""
    turn_id = f"turn-{next(_numbers)}"
    message = {"id": turn_id, "role": "assistant", "content": "", "parts": []}
    await send(client, {"type": "message", "data": {"id": f"user-{turn_id}", "role": "user", "content": prompt}})
    await send(client, {"type": "status", "data": {"runnerBusy": True}})
    await send(client, {"type": "message", "data": message})
    begin = monotonic_ns()
    for number in range(int(prompt)):
        early = begin + number * INTERVAL - monotonic_ns()
        if early > 0:
            await asyncio.sleep(early / 1e9)
        await client.send(f'{{"type":"chunk","messageId":"{turn_id}","content":"@{monotonic_ns():016d}"}}')
    finish = {**message, "parts": [{"type": "finish", "reason": "end_turn"}]}
    await send(client, {"type": "message.updated", "data": finish})
    await send(client, {"type": "status", "data": {"runnerBusy": False}})


async def send(client: ServerConnection, event: dict[str, Any]) -> None:
    await client.send(json.dumps(event))


async def upstream() -> None:
    listener = listen()
    print(listener.getsockname()[1], flush=True)
    async with serve(session, sock=listener, compression=None):
        await asyncio.Event().wait()


def gateway(address: str, directory: str) -> None:
    listener = listen()
    access = SessionDirectory(directory)
    config = uvicorn.Config(
        AgentOpsApp(address, access=access, authorize=access.bearer(), enabled=True),
        loop="uvloop" if find_spec("uvloop") else "asyncio",
        http="httptools" if find_spec("httptools") else "h11",
        log_level="critical",
        access_log=False,
        backlog=4096,
    )
    print(listener.getsockname()[1], flush=True)
    uvicorn.Server(config).run([listener])


if __name__ == "__main__":
    if sys.argv[1] == "upstream":
        asyncio.run(upstream())
    else:
        gateway(*sys.argv[2:])
