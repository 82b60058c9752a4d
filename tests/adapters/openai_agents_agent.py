"""The agent of the scripts as an agent of the OpenAI Agents SDK."""

from dataclasses import dataclass
from typing import Any

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

from tests.adapters.agents import INSTRUCTIONS, Api, Deeds
from usechat.adapters.openai_agents import show_sub_agent
from usechat.testing import ScriptedModel

set_tracing_disabled(True)


@dataclass
class Topic:
    topic: str


def chat_model(model: ScriptedModel, api: Api) -> Any:
    client = AsyncOpenAI(base_url=model.openai_url, api_key="none", max_retries=0)
    kind = OpenAIResponsesModel if api == "responses" else OpenAIChatCompletionsModel
    return kind(model="gpt-4o", openai_client=client)


def make(model: ScriptedModel, api: Api, deeds: Deeds) -> Any:
    researcher: Agent[Any] = Agent(name="researcher", model=chat_model(model, api))

    research = researcher.as_tool("research", "Asks another agent.", parameters=Topic, on_stream=show_sub_agent)
    return Agent(
        name="assistant",
        instructions=INSTRUCTIONS,
        model=chat_model(model, api),
        model_settings=ModelSettings(include_usage=True),  # else Chat Completions tells nothing of it
        tools=[
            *(function_tool(tool) for tool in (deeds.weather, deeds.clock, deeds.broken, deeds.slow)),
            research,
            function_tool(deeds.delete, needs_approval=True),
        ],
    )
