"""An agent of the OpenAI Agents SDK: `usechat serve examples/frameworks/openai_agents_agent.py:agent`."""

from typing import Any

from agents import Agent, function_tool


@function_tool
def weather(city: str) -> dict[str, object]:
    """Tell the weather of a city."""
    return {"city": city, "celsius": 21}


@function_tool(needs_approval=True)
def delete_note(name: str) -> str:
    """Delete a note."""
    return f"{name} is deleted."


agent: Agent[Any] = Agent(name="assistant", instructions="Be brief.", model="gpt-5-mini", tools=[weather, delete_note])
