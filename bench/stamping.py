"""Agents that say the time, again and again: in the web process, and in a workflow. As a program it is a worker.

It imports little, because Temporal's sandbox imports it again for each workflow.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker

from usechat.temporal import WorkflowAnswer, publish, turn_of, worker_plugin
from usechat.turn import Turn


async def stamps(turn: Turn) -> AsyncIterator[str]:
    """Answer in the web process."""
    for _ in range(turn.body["deltas"]):
        yield f"<{time.monotonic_ns()}>"
        await asyncio.sleep(turn.body["pause"])


@activity.defn
async def stamp(turn: dict[str, Any]) -> None:
    """Answer in an activity."""
    async with publish() as write:
        async for text in stamps(turn_of(turn)):
            write(text)


@workflow.defn
class Stamping:
    """Answers in a workflow."""

    @workflow.init
    def __init__(self, _turn: dict[str, Any]) -> None:
        self.answer = WorkflowAnswer()

    @workflow.run
    async def run(self, turn: dict[str, Any]) -> None:
        async with self.answer:
            await self.answer.step(stamp, turn)


async def work(address: str, task_queue: str) -> None:
    client = await Client.connect(address)
    plugins = [worker_plugin()]
    await Worker(client, task_queue=task_queue, workflows=[Stamping], activities=[stamp], plugins=plugins).run()


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:3]))
