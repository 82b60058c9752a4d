# mypy: ignore-errors
# ruff: noqa: ARG001 (their frameworks say what they take)
"""Agents, teams and workflows of Agno as people write them."""

from agno.agent import Agent
from agno.db.in_memory import InMemoryDb
from agno.guardrails import PromptInjectionGuardrail
from agno.models.openai import OpenAIChat
from agno.team import Team
from agno.team.mode import TeamMode
from agno.tools import tool
from agno.workflow import Condition, Loop, Parallel, Router, Step, Workflow
from agno.workflow.types import StepOutput
from pydantic import BaseModel


class City(BaseModel):
    name: str


def weather(city: str) -> str:
    """Say how the weather is."""
    return f"sunny in {city}"


@tool(requires_confirmation=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def agent(name, **options):
    return Agent(name=name, model=OpenAIChat(id="gpt-4o"), telemetry=False, **options)


def team(mode):
    members = [agent("ann"), agent("bob")]
    return Team(name="lead", mode=mode, model=OpenAIChat(id="gpt-4o"), members=members, telemetry=False)


def shout(step_input):
    return StepOutput(content=f"{step_input.previous_step_content}!")


async def streamed(step_input):
    async for event in agent("writer").arun(step_input.input, stream=True, stream_events=True):
        yield event
    yield StepOutput(content=event.content)


async def whole(workflow, execution_input):
    return f"You said {execution_input.input}."


agno_guarded = agent("guarded", pre_hooks=[PromptInjectionGuardrail()])
agno_structured = agent("structured", output_schema=City)
agno_paying = agent("paying", tools=[pay])
agno_remembering = agent("remembering", db=InMemoryDb(), add_history_to_context=True)
coordinating = team(TeamMode.coordinate)
routing = team(TeamMode.route)
broadcasting = team(TeamMode.broadcast)
planning = team(TeamMode.tasks)
routed = Step(name="routed", agent=agent("routed"))
steps = Workflow(name="steps", steps=[agent("ann", tools=[weather]), shout], telemetry=False)
parallel = Workflow(
    name="parallel",
    steps=[Parallel(Step(name="one", agent=agent("ann")), Step(name="two", agent=agent("bob")))],
    telemetry=False,
)
branches = Workflow(
    name="branches",
    steps=[
        Condition(name="if", evaluator=lambda _input: True, steps=[agent("checked")]),
        Loop(name="loop", steps=[Step(name="again", agent=agent("again"))], max_iterations=2),
        Router(name="router", selector=lambda _input: [routed], choices=[routed]),
    ],
    telemetry=False,
)
writing = Workflow(name="writing", steps=[streamed], telemetry=False)
function_workflow = Workflow(name="function", steps=whole, telemetry=False)
failing_workflow = Workflow(
    name="failing", steps=[Step(name="ann", agent=agent("ann"), max_retries=0)], telemetry=False
)
