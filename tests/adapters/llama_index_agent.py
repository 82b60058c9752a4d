"""The agent of the scripts as a LlamaIndex agent."""

from typing import Any

from llama_index.core.agent.workflow import AgentInput, AgentStream, FunctionAgent
from llama_index.core.workflow import Context
from llama_index.llms.anthropic import Anthropic
from llama_index.llms.openai import OpenAI, OpenAIResponses

from tests.adapters.agents import INSTRUCTIONS, Api, Deeds
from usechat.adapters.llama_index import client_tool, needs_approval
from usechat.testing import ScriptedModel


def chat_model(model: ScriptedModel, api: Api) -> Any:
    if api == "anthropic":
        return Anthropic("claude-sonnet-4-5", base_url=model.anthropic_url, api_key="none", max_retries=0)
    common = {"model": "gpt-4o", "api_base": model.openai_url, "api_key": "none", "max_retries": 0}
    if api == "responses":
        return OpenAIResponses(**common)
    return OpenAI(**common, additional_kwargs={"stream_options": {"include_usage": True}})


def location(exact: bool) -> str:
    """Say where the user is."""
    raise NotImplementedError


def make(model: ScriptedModel, api: Api, deeds: Deeds) -> Any:
    researcher = FunctionAgent(name="researcher", llm=chat_model(model, api), tools=[])

    async def research(context: Context, topic: str) -> str:
        """Ask another agent about a topic."""
        handler = researcher.run(user_msg=topic)
        async for event in handler.stream_events():
            if isinstance(event, (AgentInput, AgentStream)):
                context.write_event_to_stream(event)
        return str(await handler)

    return FunctionAgent(
        name="assistant",
        llm=chat_model(model, api),
        system_prompt=INSTRUCTIONS,
        tools=[
            *(deeds.weather, deeds.clock, deeds.broken, deeds.slow, research),
            needs_approval(deeds.delete),
            client_tool(location),
        ],
    )
