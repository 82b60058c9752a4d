"""The agent of the scripts as a Strands agent, which is made anew for each turn."""

from collections.abc import AsyncIterator
from typing import Any

from strands import Agent, ToolContext, tool
from strands.hooks import BeforeToolCallEvent
from strands.models.anthropic import AnthropicModel
from strands.models.openai import OpenAIModel
from strands.models.openai_responses import OpenAIResponsesModel

from tests.adapters.agents import INSTRUCTIONS, Api, Deeds
from usechat.adapters.strands import StrandsSource
from usechat.testing import ScriptedModel


def chat_model(model: ScriptedModel, api: Api) -> Any:
    if api == "anthropic":
        arguments = {"base_url": model.anthropic_url, "api_key": "none", "max_retries": 0}
        return AnthropicModel(client_args=arguments, model_id="claude-test", max_tokens=1000)
    kind = OpenAIResponsesModel if api == "responses" else OpenAIModel
    return kind(client_args={"base_url": model.openai_url, "api_key": "none", "max_retries": 0}, model_id="gpt-4o")


@tool(context=True)  # type: ignore[untyped-decorator]
def location(exact: bool, tool_context: ToolContext) -> Any:  # noqa: ARG001 (it is the page's)
    """Say where the user is."""
    return tool_context.interrupt("location")


def approve(event: BeforeToolCallEvent) -> None:
    """Ask before a file is deleted; tell the model why it was not."""
    if event.tool_use["name"] == "delete" and not event.interrupt("approval"):
        event.cancel_tool = "The user did not allow it."


def make(model: ScriptedModel, api: Api, deeds: Deeds) -> Any:
    def assistant(_turn: object) -> Any:
        researcher = Agent(name="researcher", model=chat_model(model, api), callback_handler=None)

        @tool  # type: ignore[untyped-decorator]
        async def research(topic: str) -> AsyncIterator[Any]:
            """Ask another agent about a topic."""
            async for event in researcher.stream_async(topic):
                yield event
            yield str(event["result"]).strip()

        agent = Agent(
            name="assistant",
            model=chat_model(model, api),
            system_prompt=INSTRUCTIONS,
            tools=[
                *(tool(function) for function in (deeds.weather, deeds.clock, deeds.broken, deeds.slow, deeds.delete)),
                location,
                research,
            ],
            callback_handler=None,
            retry_strategy=None,
        )
        agent.add_hook(approve, BeforeToolCallEvent)
        return agent

    return StrandsSource(assistant)
