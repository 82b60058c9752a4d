"""Graphs as people write them: functional ones, and texts that no encoder takes."""

from typing import Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage
from langgraph.func import entrypoint

from usechat.errors import CannotAnswer
from usechat.sources import as_source
from usechat.testing import AgentClient


class State(TypedDict):
    messages: list[AnyMessage]


class Query(TypedDict):
    query: str


def echo(state: Any) -> dict[str, Any]:
    return {"messages": [AIMessage(f"You said {state['messages'][-1].content}.")]}


@entrypoint()
def functional(state: State) -> dict[str, Any]:
    return echo(state)


@entrypoint()
def quoted(state: "State") -> dict[str, Any]:
    return echo(state)


@entrypoint()
async def waiting(state: "State") -> dict[str, Any]:
    return echo(state)


@entrypoint()
def asking(query: Query) -> str:
    return query["query"]


@entrypoint()
def unknown(query: "Elsewhere") -> str:  # type: ignore[name-defined]  # noqa: F821
    return str(query)


@pytest.mark.parametrize("graph", [functional, quoted, waiting])
def test_an_entrypoint_with_a_state_of_the_standard_library_answers(graph: Any) -> None:
    with AgentClient(graph) as client:
        assert client.ask("Hi").text == "You said Hi."


@pytest.mark.parametrize("graph", [asking, unknown])
def test_an_entrypoint_without_messages_is_refused_with_a_sentence(graph: Any) -> None:
    with pytest.raises(CannotAnswer, match="has no `messages`; give LangGraphSource"):
        as_source(graph)
