# mypy: ignore-errors
# ruff: noqa: ARG001, ARG002 (their frameworks say what they take)
"""Agents, swarms and graphs of Strands as people write them."""

from strands import Agent, tool
from strands.agent import AgentResult
from strands.hooks import BeforeToolCallEvent
from strands.models.openai import OpenAIModel
from strands.multiagent import GraphBuilder, Swarm
from strands.multiagent.base import MultiAgentBase, MultiAgentResult, NodeResult, Status
from strands.telemetry.metrics import EventLoopMetrics


@tool
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool
def clock() -> str:
    """Say what time it is."""
    return "noon"


def approve(event: BeforeToolCallEvent) -> None:
    if event.tool_use["name"] == "pay" and not event.interrupt("approval"):
        event.cancel_tool = "Not allowed."


def agent(name, **options):
    return Agent(name=name, model=OpenAIModel(model_id="gpt-4o"), callback_handler=None, **options)


class Function(MultiAgentBase):
    """A node that is a function, as in the guide to graphs."""

    id = "function"

    async def invoke_async(self, task, invocation_state=None, **options):
        message = {"role": "assistant", "content": [{"text": "Checked."}]}
        result = AgentResult(stop_reason="end_turn", message=message, metrics=EventLoopMetrics(), state={})
        node = NodeResult(result=result, status=Status.COMPLETED)
        return MultiAgentResult(status=Status.COMPLETED, results={"function": node})


def graph(**nodes):
    builder = GraphBuilder()
    builder.set_execution_timeout(60)
    for name, node in nodes.items():
        builder.add_node(node, name)
    return builder


bank = agent("bank", tools=[pay, clock])
bank.add_hook(approve, BeforeToolCallEvent)

strands_plain = agent("plain", tools=[clock])
swarm = Swarm([agent("ann"), agent("bob")])
paying_swarm = Swarm([bank, agent("helper")])

_chain = graph(ann=agent("ann"), bob=agent("bob"))
_chain.add_edge("ann", "bob")
chain = _chain.build()

_diamond = graph(ann=agent("ann"), bob=agent("bob"))
both = _diamond.build()

_nested = graph(team=Swarm([agent("bob")]), check=Function())
_nested.add_edge("team", "check")
nested = _nested.build()


def strands_factory(turn):
    return agent("made")
