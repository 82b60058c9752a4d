"""The agent of the scripts as an agent of smolagents, which is made anew for each turn."""

from collections.abc import Callable
from typing import Any

from smolagents import OpenAIModel, Tool, ToolCallingAgent

from tests.adapters.agents import INSTRUCTIONS, Api, Deeds
from usechat.adapters.smolagents import SmolagentsSource
from usechat.testing import ScriptedModel


def chat_model(model: ScriptedModel) -> Any:
    client = {"max_retries": 0}
    return OpenAIModel("gpt-4o", api_base=model.openai_url, api_key="none", client_kwargs=client, retry=False)


def tool(name: str, function: Callable[..., Any], argument: str) -> Tool:
    tool_name = name

    class Made(Tool):  # type: ignore[misc]
        name = tool_name
        description = "Do what its name says."
        inputs = {argument: {"type": "string", "description": "What it is about."}}  # noqa: RUF012
        output_type = "any"
        skip_forward_signature_validation = True

        def forward(self, **arguments: str) -> Any:
            return function(**arguments)

    return Made()


def make(model: ScriptedModel, _api: Api, deeds: Deeds) -> Any:
    def assistant(_turn: object) -> Any:
        tools = {"weather": "city", "clock": "zone", "broken": "reason", "slow": "task", "delete": "path"}
        functions = {"slow": deeds.slow_in_a_thread}
        return ToolCallingAgent(
            tools=[tool(name, functions.get(name, getattr(deeds, name)), argument) for name, argument in tools.items()],
            model=chat_model(model),
            instructions=INSTRUCTIONS,
            stream_outputs=True,
            verbosity_level=0,
        )

    return SmolagentsSource(assistant)
