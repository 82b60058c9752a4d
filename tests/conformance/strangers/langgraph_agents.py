# mypy: ignore-errors
# ruff: noqa: ARG001 (their frameworks say what they take)
"""Graphs and agents of LangChain as people write them."""

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Literal

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState
from langgraph.runtime import Runtime
from langgraph.types import Command, Send, interrupt
from pydantic import BaseModel
from typing_extensions import TypedDict

model = ChatOpenAI(model="gpt-4o")


@tool
def weather(city: str) -> str:
    """Say how the weather is."""
    return f"sunny in {city}"


@tool
def blocks(city: str) -> list[dict[str, str]]:
    """Answer as a tool of an MCP server does."""
    return [{"type": "text", "text": f"sunny in {city}"}]


async def answer(state: MessagesState) -> dict[str, object]:
    return {"messages": [await model.ainvoke(state["messages"])]}


@dataclass
class Settings:
    prefix: str = "Be brief."


async def answer_with_settings(state: MessagesState, runtime: Runtime[Settings]) -> dict[str, object]:
    return {"messages": [await model.ainvoke([("system", runtime.context.prefix), *state["messages"]])]}


context_defaults = (
    StateGraph(MessagesState, context_schema=Settings)
    .add_node("answer", answer_with_settings)
    .add_edge(START, "answer")
    .compile()
)


def make_graph(config):
    assert config["configurable"]["thread_id"]
    return StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer").compile()


@asynccontextmanager
async def opened_graph():
    yield create_agent(model, [weather])


@tool
def to_expert(
    state: Annotated[dict, InjectedState], tool_call_id: Annotated[str, InjectedToolCallId]
) -> Command[Literal["expert"]]:
    """Hand over to the expert."""
    result = ToolMessage("Handed over.", name="to_expert", tool_call_id=tool_call_id)
    update = {"messages": [*state["messages"], result]}
    return Command(goto="expert", graph=Command.PARENT, update=update)


handoff = (
    StateGraph(MessagesState)
    .add_node("clerk", create_agent(model, [to_expert], name="clerk"), destinations=("expert",))
    .add_node("expert", create_agent(model, [], name="expert"))
    .add_edge(START, "clerk")
    .compile()
)


class City(BaseModel):
    name: str


structured = create_agent(model, response_format=City)
mcp_blocks = create_agent(model, [blocks])
approval = create_agent(
    model, [weather], middleware=[HumanInTheLoopMiddleware({"weather": True})], checkpointer=InMemorySaver()
)

asking_per_call = HumanInTheLoopMiddleware({"weather": True}, interrupt_mode="per_call", edit_notice="")
editing = create_agent(model, [weather], middleware=[asking_per_call], checkpointer=InMemorySaver())


async def ask(state: MessagesState) -> dict[str, object]:
    return {"messages": [AIMessage(f"You said {interrupt({'question': 'Sure?'})}.")]}


question = StateGraph(MessagesState).add_node("ask", ask).add_edge(START, "ask").compile(checkpointer=InMemorySaver())


async def report(state: MessagesState) -> dict[str, object]:
    get_stream_writer()({"progress": 50})
    return await answer(state)


custom_data = StateGraph(MessagesState).add_node("report", report).add_edge(START, "report").compile()
subgraph = StateGraph(MessagesState).add_node("inner", custom_data).add_edge(START, "inner").compile()


class Topics(TypedDict):
    topic: str


async def write(state: Topics) -> dict[str, object]:
    return {"messages": [await model.ainvoke(state["topic"])]}


fan_out = (
    StateGraph(MessagesState)
    .add_node("write", write)
    .add_conditional_edges(START, lambda _state: [Send("write", {"topic": topic}) for topic in ("a", "b")], ["write"])
    .compile()
)
