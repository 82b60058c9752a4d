"""An agent of the Microsoft Agent Framework: `usechat serve examples/frameworks/agent_framework_agent.py:agent`."""

from agent_framework import Agent, tool
from agent_framework.openai import OpenAIChatClient


@tool  # type: ignore[untyped-decorator]
def weather(city: str) -> dict[str, object]:
    """Tell the weather of a city."""
    return {"city": city, "celsius": 21}


@tool(approval_mode="always_require")  # type: ignore[untyped-decorator]
def delete_note(name: str) -> str:
    """Delete a note."""
    return f"{name} is deleted."


agent = Agent(OpenAIChatClient(model="gpt-5-mini"), "Be brief.", tools=[weather, delete_note])
