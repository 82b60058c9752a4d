"""An agent of Pydantic AI in a workflow, for the tests. As a program it is a worker; its model is at `MODEL_URL`."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.durable_exec.temporal import PydanticAIPlugin, PydanticAIWorkflow
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import Worker

from usechat import replayable
from usechat.temporal import WorkflowAnswer, turn_of, worker_plugin
from usechat.temporal.pydantic_ai import durable, run_agent, show_sub_agent

MODEL_URL = os.environ.get("MODEL_URL", "http://127.0.0.1:1/v1")
NOTES = Path(os.environ.get("NOTES", os.devnull))
SECONDS = float(os.environ.get("TOOL_SECONDS", "0"))


def note(line: str) -> None:
    with NOTES.open("a", encoding="utf-8") as notes:
        notes.write(f"{line}\n")


@replayable
async def weather(city: str) -> dict[str, int]:
    note(f"weather {city}")
    await asyncio.sleep(SECONDS)
    return {"celsius": 21}


async def book(city: str) -> str:
    note(f"book {city}")
    await asyncio.sleep(SECONDS)
    return f"booked {city}"


async def broken() -> str:
    raise RuntimeError("a secret")


async def research(topic: str) -> str:
    return (await researcher.run(topic, event_stream_handler=show_sub_agent)).output


model = OpenAIChatModel("gpt-5.2", provider=OpenAIProvider(base_url=MODEL_URL, api_key="none"))
researcher = Agent(model, name="researcher", tools=[weather])
agent = Agent(model, name="assistant", tools=[weather, book, broken, research], capabilities=durable())


@agent.tool_plain(requires_approval=True)
async def delete(file: str) -> str:
    note(f"delete {file}")
    return f"{file} is gone"


@workflow.defn
class Assistant(PydanticAIWorkflow):
    __pydantic_ai_agents__ = [agent]  # noqa: RUF012

    @workflow.init
    def __init__(self, _argument: dict[str, Any]) -> None:
        self.answer = WorkflowAnswer()

    @workflow.run
    async def run(self, argument: dict[str, Any]) -> None:
        async with self.answer:
            await run_agent(agent, turn_of(argument), self.answer)


async def main(address: str, task_queue: str, namespace: str) -> None:
    client = await Client.connect(address, namespace=namespace, plugins=[PydanticAIPlugin()])
    async with Worker(client, task_queue=task_queue, workflows=[Assistant], plugins=[worker_plugin()]):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
