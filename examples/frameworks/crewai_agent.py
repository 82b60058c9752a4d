"""An agent of CrewAI with a tool: `usechat serve examples/frameworks/crewai_agent.py:agent`."""

import os

os.environ.setdefault("CREWAI_DISABLE_TELEMETRY", "true")  # before CrewAI is imported
os.environ.setdefault("CREWAI_TRACING_ENABLED", "false")

from crewai import LLM, Agent
from crewai.tools import tool


@tool("weather")  # type: ignore[untyped-decorator]
def weather(city: str) -> dict[str, object]:
    """Tell the weather of a city."""
    return {"city": city, "celsius": 21}


agent = Agent(
    role="assistant",
    goal="Answer the user.",
    backstory="Be brief.",
    llm=LLM("gpt-5-mini"),
    tools=[weather],
)
