"""The agent of the scripts as an agent of the Microsoft Agent Framework."""

from typing import Any

from agent_framework import Agent, FunctionTool, tool
from agent_framework.openai import OpenAIChatClient, OpenAIChatCompletionClient
from openai import AsyncOpenAI

from tests.adapters.agents import INSTRUCTIONS, Api, Deeds
from usechat.adapters.agent_framework import show_sub_agent
from usechat.testing import ScriptedModel

LOCATION = {"type": "object", "properties": {"exact": {"type": "boolean"}}, "required": ["exact"]}


def chat_client(model: ScriptedModel, api: Api) -> Any:
    kind = OpenAIChatClient if api == "responses" else OpenAIChatCompletionClient
    return kind(model="gpt-4o", async_client=AsyncOpenAI(base_url=model.openai_url, api_key="none", max_retries=0))


def make(model: ScriptedModel, api: Api, deeds: Deeds) -> Any:
    researcher = Agent(chat_client(model, api), name="researcher")
    return Agent(
        chat_client(model, api),
        INSTRUCTIONS,
        name="assistant",
        tools=[
            *(tool(function) for function in (deeds.weather, deeds.clock, deeds.broken, deeds.slow)),
            researcher.as_tool(name="research", arg_name="topic", stream_callback=show_sub_agent),
            tool(deeds.delete, approval_mode="always_require"),
            FunctionTool(name="location", description="Says where the user is.", func=None, input_model=LOCATION),
        ],
    )
