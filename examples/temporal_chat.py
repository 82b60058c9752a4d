"""A chat whose turns are workflows of Temporal; this program is its worker.

Run `temporal server start-dev`, `python temporal_chat.py`, and `usechat serve temporal_chat.py:agent`.
"""

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker

from usechat.temporal import TemporalSource, WorkflowAnswer, publish, turn_of, worker_plugin


@activity.defn
async def think(turn: dict[str, Any]) -> None:
    async with publish() as say:
        for word in f"You said: {turn_of(turn).text}".split():
            say(f"{word} ")
            await asyncio.sleep(0.05)


@workflow.defn
class Chat:
    @workflow.init
    def __init__(self, _turn: dict[str, Any]) -> None:
        self.answer = WorkflowAnswer()

    @workflow.run
    async def run(self, turn: dict[str, Any]) -> None:
        async with self.answer:
            await self.answer.step(think, turn, start_to_close_timeout=timedelta(minutes=2))


async def agent() -> TemporalSource:
    return TemporalSource(await Client.connect("127.0.0.1:7233"), Chat, task_queue="chat")


async def main() -> None:
    client = await Client.connect("127.0.0.1:7233")
    await Worker(client, task_queue="chat", workflows=[Chat], activities=[think], plugins=[worker_plugin()]).run()


if __name__ == "__main__":
    asyncio.run(main())
