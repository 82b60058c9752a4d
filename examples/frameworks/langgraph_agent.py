"""A LangChain agent with memory and an approval: `usechat serve examples/frameworks/langgraph_agent.py:graph`."""

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver


def weather(city: str) -> dict[str, object]:
    """Tell the weather of a city."""
    return {"city": city, "celsius": 21}


def delete_note(name: str) -> str:
    """Delete a note."""
    return f"{name} is deleted."


graph = create_agent(
    ChatOpenAI(model="gpt-5-mini"),
    [weather, delete_note],
    system_prompt="Be brief.",
    middleware=[HumanInTheLoopMiddleware(interrupt_on={"delete_note": True})],
    checkpointer=InMemorySaver(),  # use a database in production: langgraph-checkpoint-postgres
)
