"""A Google ADK agent with an approval: `usechat serve examples/frameworks/google_adk_agent.py:agent`."""

from google.adk.agents import LlmAgent
from google.adk.models.anthropic_llm import AnthropicLlm
from google.adk.tools import FunctionTool


def weather(city: str) -> dict[str, object]:
    """Tell the weather of a city."""
    return {"city": city, "celsius": 21}


def delete_note(name: str) -> str:
    """Delete a note."""
    return f"{name} is deleted."


agent = LlmAgent(
    name="assistant",
    model=AnthropicLlm(model="claude-haiku-4-5"),  # or the name of a Gemini model
    instruction="Be brief.",
    tools=[weather, FunctionTool(delete_note, require_confirmation=True)],
)
