"""A LlamaIndex agent with an approval: `usechat serve examples/frameworks/llama_index_agent.py:agent`."""

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai import OpenAI

from usechat.adapters.llama_index import needs_approval


def weather(city: str) -> dict[str, object]:
    """Tell the weather of a city."""
    return {"city": city, "celsius": 21}


def delete_note(name: str) -> str:
    """Delete a note."""
    return f"{name} is deleted."


agent = FunctionAgent(
    llm=OpenAI("gpt-4o"),
    system_prompt="Be brief.",
    tools=[weather, needs_approval(delete_note)],
)
