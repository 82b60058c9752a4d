# mypy: ignore-errors
# ruff: noqa: ARG001 (their frameworks say what they take)
"""Agents of the OpenAI Agents SDK as people write them."""

from agents import (
    Agent,
    GuardrailFunctionOutput,
    function_tool,
    handoff,
    input_guardrail,
    set_default_openai_api,
    set_tracing_disabled,
)
from pydantic import BaseModel

set_tracing_disabled(True)
set_default_openai_api("chat_completions")


class City(BaseModel):
    name: str


@function_tool
def weather(city: str) -> str:
    """Say how the weather is."""
    return f"sunny in {city}"


@function_tool(needs_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@function_tool
def broken() -> str:
    """Fail."""
    raise RuntimeError("the password is hunter2")


@input_guardrail
async def no_homework(_context, _agent, question):
    asks = "homework" in str(question)
    return GuardrailFunctionOutput(output_info="homework", tripwire_triggered=asks)


spanish = Agent(name="spanish", instructions="Speak Spanish.")
triage = Agent(name="triage", handoffs=[handoff(spanish)])
paying = Agent(name="paying", tools=[pay])
structured = Agent(name="structured", output_type=City)
guarded = Agent(name="guarded", input_guardrails=[no_homework])
manager = Agent(name="manager", tools=[spanish.as_tool("translate", "Translate a text.")])
failing = Agent(name="failing", tools=[broken])


def instructions(context, agent):
    return f"You are {agent.name}."


dynamic = Agent(name="dynamic", instructions=instructions, tools=[weather])


def per_person(turn):
    return Agent(name="assistant", instructions=f"This is chat {turn.chat_id}.")
