"""The agent of the scripts as Agno agents: one that remembers with a database, and one without memory."""

from collections.abc import AsyncIterator
from typing import Any

from agno.agent import Agent
from agno.db.in_memory import InMemoryDb
from agno.models.anthropic import Claude
from agno.models.openai import OpenAIChat
from agno.tools import tool

from tests.adapters.agents import INSTRUCTIONS, Api, Deeds
from usechat.testing import ScriptedModel


def chat_model(model: ScriptedModel, api: Api) -> Any:
    if api == "anthropic":
        client = {"base_url": model.anthropic_url, "max_retries": 0}
        return Claude(id="claude-test", api_key="none", client_params=client)
    return OpenAIChat(id="gpt-4o", base_url=model.openai_url, api_key="none", max_retries=0)


@tool(external_execution=True)  # type: ignore[untyped-decorator]
def location(exact: bool) -> str:  # type: ignore[empty-body]
    """Say where the user is."""


def _agent(model: ScriptedModel, api: Api, deeds: Deeds, **options: Any) -> Any:
    researcher = Agent(name="researcher", model=chat_model(model, api), telemetry=False)

    async def research(topic: str) -> AsyncIterator[Any]:
        """Ask another agent about a topic."""
        async for event in researcher.arun(topic, stream=True, stream_events=True):
            yield event

    return Agent(
        name="assistant",
        model=chat_model(model, api),
        instructions=INSTRUCTIONS,
        tools=[
            deeds.weather,
            deeds.clock,
            deeds.broken,
            deeds.slow,
            research,
            location,
            tool(requires_confirmation=True)(deeds.delete),
        ],
        telemetry=False,
        **options,
    )


def with_memory(model: ScriptedModel, api: Api, deeds: Deeds) -> Any:
    return _agent(model, api, deeds, db=InMemoryDb(), add_history_to_context=True, num_history_runs=100)


def without_memory(model: ScriptedModel, api: Api, deeds: Deeds) -> Any:
    return _agent(model, api, deeds)
