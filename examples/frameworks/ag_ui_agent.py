"""An AG-UI agent in this process, with an approval: `usechat serve examples/frameworks/ag_ui_agent.py:agent`."""

from collections.abc import AsyncIterator

from ag_ui.core import BaseEvent, RunAgentInput
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.ui.ag_ui import AGUIAdapter

from usechat.adapters.ag_ui import AgUiSource

assistant = Agent(
    "openai:gpt-5-mini", instructions="Be brief.", output_type=[str, DeferredToolRequests], defer_model_check=True
)


@assistant.tool_plain
def weather(city: str) -> dict[str, object]:
    """Tell the weather of a city."""
    return {"city": city, "celsius": 21}


@assistant.tool_plain(requires_approval=True)
def delete_note(name: str) -> str:
    """Delete a note."""
    return f"{name} is deleted."


def run(run_input: RunAgentInput) -> AsyncIterator[BaseEvent]:
    """Answer a run. Any function with this signature works."""
    return AGUIAdapter(agent=assistant, run_input=run_input).run_stream()


agent = AgUiSource(run)
