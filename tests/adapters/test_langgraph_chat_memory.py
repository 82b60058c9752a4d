"""Graphs without a checkpointer of their own: their state is stored with the answers of a stored chat."""

import operator
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.channels import DeltaChannel
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import interrupt

from usechat.adapters.langgraph import LangGraphSource
from usechat.chats import ChatStore, MemoryChats, SqlChats
from usechat.client import Chat, HttpChatTransport, is_complete_with_tool_calls
from usechat.client.in_process import InProcessTransport
from usechat.server import ChatApp, Identity
from usechat.testing import AgentClient


class Notes(MessagesState):
    notes: Annotated[list[str], operator.add]


def added(notes: list[str], more: list[list[str]]) -> list[str]:
    return [*notes, *(note for each in more for note in each)]


class DeltaNotes(MessagesState):
    notes: Annotated[list[str], DeltaChannel(added)]


def note(state: Any) -> dict[str, Any]:
    return {"notes": [state["messages"][-1].text]}


def tell(state: Any) -> dict[str, Any]:
    return {"messages": [AIMessage(", ".join(state["notes"]))]}


def noting(schema: type[Any] = Notes) -> Any:
    builder: Any = StateGraph(schema)
    return builder.add_node(note).add_node(tell).add_edge(START, "note").add_edge("note", "tell").compile()


@asynccontextmanager
async def page_of(agent: Any, store: ChatStore, chat: str = "c1") -> AsyncIterator[Chat]:
    app = ChatApp(agent, chats=store, metrics=False)
    transport = HttpChatTransport("http://a/api/chat", http=InProcessTransport(app), retries=0)
    async with transport, Chat(transport, id=chat, send_automatically_when=is_complete_with_tool_calls) as page:
        yield page


def text_of(page: Chat) -> str:
    assert page.last is not None
    return page.last.text


@pytest.mark.parametrize("schema", [Notes, DeltaNotes])
async def test_the_state_of_a_graph_outlives_its_process(schema: type[Any], tmp_path: Path) -> None:
    texts: list[str] = []
    for text in ("a", "b", "c"):
        store = SqlChats(str(tmp_path / "chats.db"))
        async with page_of(noting(schema), store) as page:
            page.messages = [] if not texts else await messages_of(store)
            await page.send(text)
            texts.append(text_of(page))
        await store.close()
    assert texts == ["a", "a, b", "a, b, c"]


async def messages_of(store: ChatStore) -> Any:
    return (await store.load("c1", owner="")).messages


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlChats]:
    store = SqlChats(str(tmp_path / "chats.db"))
    yield store
    await store.close()


async def test_the_state_of_a_graph_follows_the_branch_of_the_page(store: SqlChats) -> None:
    async with page_of(noting(), store) as page:
        await page.send("a")
        await page.send("b")
        await page.regenerate()
        assert text_of(page) == "a, b"
        await page.send("c", message_id=page.messages[2]["id"])
        assert text_of(page) == "a, c"
        await page.send("d", message_id=page.messages[0]["id"])
        assert text_of(page) == "d"


async def test_the_state_of_a_graph_is_of_one_chat_and_is_deleted_with_it(store: SqlChats) -> None:
    async with page_of(noting(), store) as page, page_of(noting(), store, "c2") as other:
        await page.send("a")
        await other.send("b")
        assert text_of(other) == "b"
        await store.delete("c1", owner="")
        await page.send("c")
        assert text_of(page) == "c"


def ask(state: MessagesState) -> dict[str, Any]:  # noqa: ARG001
    return {"messages": [AIMessage(f"You said {interrupt('Sure?')}.")]}


async def test_a_graph_without_a_checkpointer_waits_for_a_person(store: SqlChats) -> None:
    builder: Any = StateGraph(MessagesState)
    inner = builder.add_node(ask).add_edge(START, "ask").compile()
    outer: Any = StateGraph(MessagesState)
    graph = outer.add_node("inner", inner).add_edge(START, "inner").add_edge("inner", END).compile()
    async with page_of(graph, store) as page:
        await page.send("Go.")
        assert page.last is not None
        [call] = page.last.tools
        await page.add_tool_output(call.call_id, "yes")
        assert text_of(page) == "You said yes."


@pytest.mark.parametrize("chats", [None, MemoryChats()])
def test_without_a_database_the_start_says_what_is_forgotten(chats: Any, caplog: pytest.LogCaptureFixture) -> None:
    with AgentClient(ChatApp(noting(), chats=chats)) as client:
        assert client.ask("a").text == "a"
    [line] = [each for each in caplog.messages if "checkpointer" in each]
    assert line.startswith("the graph 'LangGraph' has no checkpointer, so it forgets notes after each answer")


def remember(state: MessagesState, runtime: Runtime) -> dict[str, Any]:
    assert runtime.store is not None
    runtime.store.put(("notes",), state["messages"][-1].text, {})
    return {"messages": [AIMessage(", ".join(sorted(item.key for item in runtime.store.search(("notes",)))))]}


def test_a_graph_without_a_store_remembers_across_the_chats_of_one_person(caplog: pytest.LogCaptureFixture) -> None:
    builder: Any = StateGraph(MessagesState)
    source = LangGraphSource(builder.add_node(remember).add_edge(START, "remember").compile())
    texts = []
    for person, text in [("ada", "a"), ("ada", "b"), ("bob", "c")]:
        app = ChatApp(source, authorize=lambda request, _chat_id, _action: Identity(request.headers["x-person"]))
        with AgentClient(app, headers={"x-person": person}) as client:
            texts.append(client.ask(text).text)
    assert texts == ["a", "a, b", "c"]
    assert len([line for line in caplog.messages if "has no store" in line]) == 1
