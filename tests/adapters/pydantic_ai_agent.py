"""The agent of the scripts as an agent of Pydantic AI."""

from typing import Any

from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from pydantic_ai import Agent, CallDeferred, RunContext
from pydantic_ai.capabilities import NativeTool
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.native_tools import WebSearchTool
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from tests.adapters.agents import INSTRUCTIONS, Api, Deeds
from usechat.adapters.pydantic_ai import show_sub_agent
from usechat.testing import ScriptedModel


def chat_model(model: ScriptedModel, api: Api) -> Any:
    if api == "anthropic":
        client = AsyncAnthropic(base_url=model.anthropic_url, api_key="none", max_retries=0)
        return AnthropicModel("claude-test", provider=AnthropicProvider(anthropic_client=client))
    provider = OpenAIProvider(openai_client=AsyncOpenAI(base_url=model.openai_url, api_key="none", max_retries=0))
    kind = OpenAIResponsesModel if api == "responses" else OpenAIChatModel
    return kind("gpt-4o", provider=provider)


def make(model: ScriptedModel, api: Api, deeds: Deeds, handler: Any = show_sub_agent) -> Any:
    """Return the agent; ``handler`` gets the events of its sub-agent, which only a turn of usechat can show."""
    search = [] if api == "chat" else [NativeTool(WebSearchTool())]
    agent = Agent(chat_model(model, api), instructions=INSTRUCTIONS, name="assistant", capabilities=search)
    researcher = Agent(chat_model(model, api), name="researcher")

    @agent.tool_plain
    def location(exact: bool) -> str:  # noqa: ARG001 (it is the page's)
        """Say where the user is."""
        raise CallDeferred

    @agent.tool
    async def research(context: RunContext[object], topic: str) -> str:
        """Ask another agent about a topic."""
        answer = await researcher.run(topic, usage=context.usage, event_stream_handler=handler)
        return answer.output

    for function in (deeds.weather, deeds.clock, deeds.broken, deeds.slow):
        agent.tool_plain(function)
    agent.tool_plain(requires_approval=True)(deeds.delete)
    return agent
