"""Graphs whose agents hand over to each other: the call that hands over ends, and the other agent has a name."""

from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState
from langgraph.types import Command

from tests.adapters.langgraph_agent import chat_model
from usechat.testing import AgentClient, ModelAnswer, ModelCall, ScriptedModel


@tool
def transfer_to_bob(
    state: Annotated[dict[str, Any], InjectedState], tool_call_id: Annotated[str, InjectedToolCallId]
) -> Any:
    """Hand over to Bob, with a result as langgraph-supervisor and langgraph-swarm write it."""
    result = ToolMessage("Bob takes over.", name="transfer_to_bob", tool_call_id=tool_call_id)
    return Command(goto="bob", graph=Command.PARENT, update={"messages": [*state["messages"], result]})


@tool
def call_bob() -> Any:
    """Hand over to Bob, and say nothing."""
    return Command(goto="bob", graph=Command.PARENT)


def team(model: ScriptedModel, handoff: Any) -> Any:
    alice = create_agent(chat_model(model, "chat"), tools=[handoff], name="alice")
    bob = create_agent(chat_model(model, "chat"), tools=[], name="bob")
    builder: Any = StateGraph(MessagesState)
    builder.add_node("alice", alice, destinations=("bob",)).add_node("bob", bob).add_edge(START, "alice")
    return builder.compile()


@pytest.mark.parametrize(("handoff", "output"), [(transfer_to_bob, "Bob takes over."), (call_bob, "Handed over.")])
def test_a_call_that_hands_over_to_the_parent_graph_ends(handoff: Any, output: str) -> None:
    call = ModelAnswer(calls=[ModelCall(handoff.name, {})])
    with ScriptedModel([call, "I am Bob.", ModelAnswer(calls=[ModelCall(handoff.name, {})]), "Bob again."]) as model:
        with AgentClient(team(model, handoff), headers={"x-ai-sdk": "7"}) as client:
            answer = client.ask("Bob, please.")
            later = client.ask("Again, please.")
        assert model.refusals == []
    assert [(each.name, each.state, each.output) for each in answer.tools] == [
        (handoff.name, "output-available", output)
    ]
    assert (answer.text, later.text) == ("I am Bob.", "Bob again.")
    agents = [part["data"] for part in answer.message.parts if part["type"] == "data-agent"]
    assert agents == [{"name": "alice"}, {"name": "bob"}]
