"""A Strands agent with an approval: `usechat serve examples/frameworks/strands_agent.py:agent`."""

from strands import Agent, tool
from strands.models.openai import OpenAIModel
from strands.vended_interventions.hitl import HumanInTheLoop

from usechat import Turn
from usechat.adapters.strands import StrandsSource


@tool  # type: ignore[untyped-decorator]
def weather(city: str) -> dict[str, object]:
    """Tell the weather of a city."""
    return {"city": city, "celsius": 21}


@tool  # type: ignore[untyped-decorator]
def delete_note(name: str) -> str:
    """Delete a note."""
    return f"{name} is deleted."


@StrandsSource  # calls the function once per turn: an Agent holds one conversation
def agent(turn: Turn) -> Agent:  # noqa: ARG001 (the same agent for everybody)
    return Agent(
        model=OpenAIModel(model_id="gpt-5-mini"),
        system_prompt="Be brief.",
        tools=[weather, delete_note],
        interventions=[HumanInTheLoop(allowed_tools=["weather"])],
        callback_handler=None,
    )
