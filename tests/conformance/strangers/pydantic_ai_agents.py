# mypy: ignore-errors

"""Agents of Pydantic AI as people write them."""

from dataclasses import dataclass

from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.toolsets import FunctionToolset


class City(BaseModel):
    name: str


@dataclass
class Visitor:
    name: str = "Ann"


structured = Agent("openai-chat:gpt-4o", output_type=City)
text_or_city = Agent("openai-chat:gpt-4o", output_type=[City, str])
validated = Agent("openai-chat:gpt-4o")


@validated.output_validator
def long_enough(output: str) -> str:
    if len(output) < 5:
        raise ModelRetry("Say more.")
    return output


with_deps = Agent("openai-chat:gpt-4o", deps_type=Visitor)


@with_deps.instructions
def greet(context: RunContext[Visitor]) -> str:
    return f"The visitor is {context.deps.name}."


clerk = Agent("openai-chat:gpt-4o", name="clerk")
delegating = Agent("openai-chat:gpt-4o")


@delegating.tool
async def ask_clerk(context: RunContext[None], question: str) -> str:
    """Ask another agent."""
    return (await clerk.run(question, usage=context.usage)).output


def weather(city: str) -> str:
    """Say how the weather is."""
    if city == "Nowhere":
        raise ModelRetry("There is no such city.")
    return f"sunny in {city}"


toolset = Agent("openai-chat:gpt-4o", toolsets=[FunctionToolset([weather])])
failing = Agent("openai-chat:gpt-4o")


@failing.tool_plain
def broken() -> str:
    """Fail."""
    raise RuntimeError("the password is hunter2")
