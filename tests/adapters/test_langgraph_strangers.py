"""Graphs as people write them: functional ones, and texts that no encoder takes."""

import logging
from typing import Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint
from langgraph.graph import START, MessagesState, StateGraph

from usechat.errors import CannotAnswer
from usechat.runs.memory import MemoryRuns
from usechat.server import ChatApp
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


class SharedRuns(MemoryRuns):
    """Runs as they are in Redis, for several processes."""

    is_shared = True


def remembering() -> Any:
    builder: Any = StateGraph(MessagesState).add_node("answer", echo).add_edge(START, "answer")
    return builder.compile(checkpointer=InMemorySaver())


@pytest.mark.parametrize("agent", [remembering(), remembering])
@pytest.mark.parametrize(("runs", "count"), [(SharedRuns, 1), (MemoryRuns, 0)])
def test_a_memory_of_one_process_is_named_where_several_answer(
    agent: Any, runs: Any, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "usechat"), AgentClient(ChatApp(agent, runs=runs())) as client:
        client.ask("Hi")
        client.ask("Bye")
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == count
    assert all("remembers chats in the memory of this process (InMemorySaver)" in line for line in lines)
