"""An agent in its own process, so a new deployment of the web server ends no answer. In two terminals, with a Redis:

usechat serve examples/worker_agent.py:agent --redis redis://localhost:6379 --agents external
usechat worker examples/worker_agent.py:agent --redis redis://localhost:6379 --drain 3600
"""

import asyncio
import os
from collections.abc import AsyncIterator

from usechat import Turn
from usechat.server import restartable


@restartable  # it calls no tools: if its process dies, another process may answer the question again
async def agent(turn: Turn) -> AsyncIterator[str]:
    yield f"Process {os.getpid()} thinks about {turn.text!r}. "
    for step in range(1, 11):
        await asyncio.sleep(0.05)
        yield f"{step} "
    yield "Done."
