"""An Agno agent with memory and an approval: `usechat serve examples/frameworks/agno_agent.py:agent`."""

from agno.agent import Agent
from agno.db.in_memory import InMemoryDb
from agno.models.openai import OpenAIChat
from agno.tools import tool


def weather(city: str) -> dict[str, object]:
    """Tell the weather of a city."""
    return {"city": city, "celsius": 21}


@tool(requires_confirmation=True)  # type: ignore[untyped-decorator]
def delete_note(name: str) -> str:
    """Delete a note."""
    return f"{name} is deleted."


agent = Agent(
    model=OpenAIChat(id="gpt-5-mini"),
    instructions="Be brief.",
    tools=[weather, delete_note],
    db=InMemoryDb(),  # use a database in production: agno.db.postgres
    add_history_to_context=True,
)
