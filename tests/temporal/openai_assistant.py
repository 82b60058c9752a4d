"""An agent of the OpenAI Agents SDK in a workflow, for the tests. As a program it is a worker.

It runs with the packages of `openai_agents.txt`: Temporal's plugin needs an older SDK than usechat's own adapter.
"""

import asyncio
import os
import sys
from datetime import timedelta
from pathlib import Path
from time import sleep
from typing import Any

from agents import Agent, OpenAIProvider, Tool, function_tool, set_tracing_disabled
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.openai_agents import ModelActivityParameters, OpenAIAgentsPlugin
from temporalio.openai_agents.workflow import activity_as_tool
from temporalio.worker import Worker

from usechat.temporal import WorkflowAnswer, turn_of, worker_plugin
from usechat.temporal.openai_agents import PublishedModels, agent_tool, reported, run_agent

NOTES = Path(os.environ.get("NOTES", os.devnull))
GATE = Path(os.environ.get("GATE", os.devnull))
"""The file for which a tool waits."""
SECONDS = timedelta(seconds=float(os.environ.get("SECONDS", "60")))
"""After which a worker that is silent is taken for dead; one that is only slow must not be."""
PLUGIN = OpenAIAgentsPlugin(
    ModelActivityParameters(start_to_close_timeout=timedelta(minutes=5), heartbeat_timeout=SECONDS),
    PublishedModels(OpenAIProvider(base_url=os.environ.get("MODEL_URL", "http://127.0.0.1:1/v1"), api_key="none")),
)


def note(line: str) -> None:
    with NOTES.open("a", encoding="utf-8") as notes:
        notes.write(f"{line}\n")


def wait_for(gate: Path) -> None:
    while not gate.exists():
        sleep(0.05)


@activity.defn
async def weather(city: str) -> str:
    """Look up the weather."""
    note(f"weather {city}")
    return f"21 degrees in {city}"


@activity.defn
async def book(city: str) -> str:
    """Book a journey."""
    note(f"book {city}")
    await asyncio.to_thread(wait_for, GATE)
    return f"booked {city}"


@activity.defn
async def broken() -> str:
    """Fail."""
    raise RuntimeError("a secret")


@function_tool(needs_approval=True)
async def delete(file: str) -> str:
    """Delete a file."""
    return f"{file} is gone"


once = RetryPolicy(maximum_attempts=1)


@workflow.defn
class Assistant:
    @workflow.init
    def __init__(self, _argument: dict[str, Any]) -> None:
        self.answer = WorkflowAnswer()

    @workflow.run
    async def run(self, argument: dict[str, Any]) -> None:
        facts = reported(activity_as_tool(weather, start_to_close_timeout=SECONDS, retry_policy=once))
        researcher = Agent(name="researcher", model="gpt-5.2", tools=[facts])
        tools: list[Tool] = [
            agent_tool(researcher, self.answer, "research", "Asks a researcher."),
            facts,
            reported(activity_as_tool(book, start_to_close_timeout=SECONDS, retry_policy=once)),
            reported(activity_as_tool(broken, start_to_close_timeout=SECONDS, retry_policy=once)),
            delete,
        ]
        expert = Agent(name="expert", model="gpt-5.2", instructions="You know it.")
        agent = Agent(name="assistant", model="gpt-5.2", tools=tools, handoffs=[expert])
        async with self.answer:
            await run_agent(agent, turn_of(argument), self.answer)


async def main(address: str, task_queue: str, namespace: str) -> None:
    set_tracing_disabled(True)
    client = await Client.connect(address, namespace=namespace, plugins=[PLUGIN])
    async with Worker(
        client,
        task_queue=task_queue,
        workflows=[Assistant],
        activities=[weather, book, broken],
        plugins=[worker_plugin()],
    ):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
