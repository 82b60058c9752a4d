"""A smolagents agent with a tool: `usechat serve examples/frameworks/smolagents_agent.py:agent`."""

import os

from smolagents import OpenAIModel, ToolCallingAgent, tool

from usechat import Turn
from usechat.adapters.smolagents import SmolagentsSource


@tool  # type: ignore[untyped-decorator]
def weather(city: str) -> dict[str, object]:
    """Tell the weather of a city.

    Args:
        city: The name of the city.
    """
    return {"city": city, "celsius": 21}


@SmolagentsSource  # calls the function once per turn: an agent holds one conversation
def agent(turn: Turn) -> ToolCallingAgent:  # noqa: ARG001 (the same agent for everybody)
    return ToolCallingAgent(
        tools=[weather],
        model=OpenAIModel("gpt-5-mini", api_base=os.environ.get("OPENAI_BASE_URL")),
        instructions="Be brief.",
        stream_outputs=True,
        verbosity_level=0,
    )
