"""A Pydantic AI agent with an approval: `usechat serve examples/frameworks/pydantic_ai_agent.py:agent`."""

from pydantic_ai import Agent

agent = Agent("openai:gpt-5-mini", instructions="Be brief.", defer_model_check=True)


@agent.tool_plain
def weather(city: str) -> dict[str, object]:
    """Tell the weather of a city."""
    return {"city": city, "celsius": 21}


@agent.tool_plain(requires_approval=True)
def delete_note(name: str) -> str:
    """Delete a note."""
    return f"{name} is deleted."
