"""The agent of the scripts as an agent of Haystack."""

import inspect
from collections.abc import Callable
from typing import Any

from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import Tool
from haystack.utils import Secret

from tests.adapters.agents import INSTRUCTIONS, Api, Deeds
from usechat.testing import ScriptedModel


def chat_model(model: ScriptedModel) -> Any:
    return OpenAIChatGenerator(
        api_key=Secret.from_token("none"),
        model="gpt-4o",
        api_base_url=model.openai_url,
        max_retries=0,
        generation_kwargs={"stream_options": {"include_usage": True}},
    )


def tool(function: Callable[..., Any], argument: str) -> Tool:
    parameters = {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}
    kind = "async_function" if inspect.iscoroutinefunction(function) else "function"
    return Tool(name=function.__name__, description="Do it.", parameters=parameters, **{kind: function})


def make(model: ScriptedModel, _api: Api, deeds: Deeds) -> Any:
    researcher = Agent(chat_generator=chat_model(model), tools=[])

    async def research(topic: str) -> str:
        result = await researcher.run_async(messages=[ChatMessage.from_user(topic)])
        return str(result["last_message"].text)

    tools = {
        "city": deeds.weather,
        "zone": deeds.clock,
        "reason": deeds.broken,
        "task": deeds.slow,
        "path": deeds.delete,
        "topic": research,
    }
    return Agent(
        chat_generator=chat_model(model),
        system_prompt=INSTRUCTIONS,
        tools=[tool(function, argument) for argument, function in tools.items()],
    )
