"""`usechat types` of framework agents: the tools are found in the agent."""

from typing import Any

import pytest

from usechat.typescript import types_of, typescript

WEATHER = "weather: { input: { city: string; days?: number }"


def pydantic_ai_agent() -> Any:
    from pydantic_ai import Agent

    return Agent(tools=[weather])


def openai_agent() -> Any:
    from agents import Agent, function_tool

    return Agent(name="Ann", tools=[function_tool(weather, strict_mode=False)])


def langchain_agent() -> Any:
    from langchain.agents import create_agent
    from langchain_core.language_models import FakeListChatModel
    from langchain_core.tools import tool

    return create_agent(FakeListChatModel(responses=[]), tools=[tool(weather)])


def weather(city: str, days: int = 1) -> int:
    """Tell how warm it will be."""
    return len(city) * days


@pytest.mark.parametrize("agent", [pydantic_ai_agent, openai_agent, langchain_agent])
def test_the_tools_of_an_agent_are_described(agent: Any) -> None:
    assert WEATHER in typescript(types_of(agent()))


def test_tools_that_a_provider_runs_have_no_types() -> None:
    from agents import Agent, WebSearchTool

    assert dict(types_of(Agent(name="Ann", tools=[WebSearchTool()])).tools) == {}
