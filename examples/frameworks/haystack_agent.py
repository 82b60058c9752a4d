"""A Haystack agent with a tool: `usechat serve examples/frameworks/haystack_agent.py:agent`."""

from typing import Annotated

from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.tools import tool


@tool  # type: ignore[untyped-decorator]
def weather(city: Annotated[str, "The name of the city"]) -> dict[str, object]:
    """Tell the weather of a city."""
    return {"city": city, "celsius": 21}


agent = Agent(
    chat_generator=OpenAIChatGenerator(model="gpt-5-mini"),
    system_prompt="Be brief.",
    tools=[weather],
)
