"""What an agent needs per request: a value, or a function of the turn, async or not; the same in every source."""

import asyncio
import threading
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import httpx2
import pytest
from agents import Agent as OpenAIAgent
from agents import RunContextWrapper, set_tracing_disabled
from agents.models.openai_chatcompletions import OpenAIChatCompletionsModel
from langchain_core.messages import AIMessage, AnyMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.runtime import Runtime
from openai import AsyncOpenAI
from pydantic import BaseModel
from pydantic_ai import Agent, RunContext
from pydantic_ai.models.function import AgentInfo, FunctionModel

from tests.adapters.turns import user
from usechat.adapters.langgraph import LangGraphSource
from usechat.adapters.openai_agents import OpenAIAgentsSource
from usechat.adapters.pydantic_ai import PydanticAISource
from usechat.errors import CannotAnswer
from usechat.server import ChatApp
from usechat.sources import as_source
from usechat.testing import AgentClient, ScriptedModel
from usechat.turn import Turn


@dataclass
class Visitor:
    name: str


@dataclass
class Language:
    code: str = "en"


class Colour(BaseModel):
    name: str


class Wish(TypedDict):
    text: str


async def visitor(turn: Turn) -> Visitor:
    return Visitor(turn.headers["x-name"])


CONTEXTS = [Visitor("Ada"), lambda turn: Visitor(turn.headers["x-name"]), visitor]


def answer_of(agent: Any) -> str:
    with AgentClient(agent, headers={"x-name": "Ada"}) as client:
        return client.ask("Hi").text


def graph_with(context_schema: Any, say: Any) -> Any:
    def answer(_state: MessagesState, runtime: Runtime[Any]) -> Any:
        return {"messages": [AIMessage(say(runtime.context))]}

    builder: Any = StateGraph(MessagesState, context_schema=context_schema)
    return builder.add_node("answer", answer).add_edge(START, "answer").compile()


def agent_with(deps_type: Any, say: Any) -> Agent[Any, str]:
    async def stream(_messages: Any, info: AgentInfo) -> Any:
        yield info.instructions

    agent = Agent(FunctionModel(stream_function=stream), deps_type=deps_type)

    @agent.instructions
    def instructions(context: RunContext[Any]) -> str:
        return str(say(context.deps))

    return agent


@pytest.mark.parametrize("context", CONTEXTS)
def test_a_graph_gets_the_context_of_the_turn(context: Any) -> None:
    assert answer_of(LangGraphSource(graph_with(Visitor, lambda given: given.name), context=context)) == "Ada"


@pytest.mark.parametrize("context", CONTEXTS)
def test_an_agent_of_pydantic_ai_gets_its_deps(context: Any) -> None:
    assert answer_of(PydanticAISource(agent_with(Visitor, lambda deps: deps.name), context=context)) == "Ada"


@pytest.mark.parametrize("context", CONTEXTS)
def test_an_agent_of_openai_gets_its_context(context: Any) -> None:
    def instructions(wrapper: RunContextWrapper[Any], _agent: Any) -> str:
        return f"You talk to {wrapper.context.name}."

    set_tracing_disabled(True)
    with ScriptedModel(["Hello."]) as model:
        client = AsyncOpenAI(base_url=model.openai_url, api_key="none")
        agent = OpenAIAgent(
            name="clerk",
            instructions=instructions,
            model=OpenAIChatCompletionsModel("gpt-test", client),
        )
        assert answer_of(OpenAIAgentsSource(agent, context=context)) == "Hello."
        assert model.requests[0]["messages"][0]["content"] == "You talk to Ada."


def test_the_configuration_of_a_graph_may_be_made_by_an_async_function() -> None:
    async def config(turn: Turn) -> Any:
        return {"configurable": {"name": turn.headers["x-name"]}}

    def answer(_state: MessagesState, config: Any) -> Any:
        return {"messages": [AIMessage(config["configurable"]["name"])]}

    answer.__annotations__["config"] = "RunnableConfig"
    builder: Any = StateGraph(MessagesState)
    graph = builder.add_node("answer", answer).add_edge(START, "answer").compile()
    assert answer_of(LangGraphSource(graph, config=config)) == "Ada"


@pytest.mark.parametrize(
    ("schema", "say", "text"),
    [(Language, lambda given: given.code, "en"), (Wish, lambda given: (given or {}).get("text", "none"), "none")],
)
def test_a_graph_whose_context_has_defaults_gets_them(schema: Any, say: Any, text: str) -> None:
    assert answer_of(graph_with(schema, say)) == text


def test_deps_that_have_defaults_are_made_for_each_turn() -> None:
    assert answer_of(agent_with(Language, lambda deps: deps.code)) == "en"


@pytest.mark.parametrize(
    ("agent", "sentence"),
    [
        (graph_with(Visitor, str), "needs a context with name; give LangGraphSource(graph, context=…), or --context"),
        (graph_with(Colour, str), "needs a context with name; give LangGraphSource(graph, context=…), or --context"),
        (agent_with(Visitor, str), "dependencies of the type Visitor; give PydanticAISource(agent, context=…), or"),
        (agent_with(str, str), "dependencies of the type str; give PydanticAISource(agent, context=…), or --context"),
    ],
)
def test_a_context_that_nobody_gave_is_asked_for_at_the_start(agent: Any, sentence: str) -> None:
    with pytest.raises(CannotAnswer) as refusal:
        as_source(agent)
    assert sentence in str(refusal.value)


def test_deps_may_be_given_with_the_options() -> None:
    source = PydanticAISource(agent_with(Visitor, lambda deps: deps.name), options={"deps": Visitor("Ada")})
    assert answer_of(source) == "Ada"


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


def test_a_graph_with_a_state_of_the_standard_library_answers() -> None:
    builder: Any = StateGraph(State)
    builder.add_node("answer", lambda _state: {"messages": [AIMessage("Hello")]}).add_edge(START, "answer")
    assert answer_of(builder.compile()) == "Hello"


# Classes as contexts, and functions that block.


@dataclass
class Asker:
    turn: Turn

    @property
    def name(self) -> str:
        return self.turn.headers["x-name"]


class Guest:
    def __init__(self, asked: "Turn", /, title: str = "") -> None:
        self.name = title + asked.headers["x-name"]


class Nobody:
    name = "nobody"


class Painted(BaseModel):
    name: str = "red"


@pytest.mark.parametrize(
    ("context", "name"), [(Asker, "Ada"), (Guest, "Ada"), (Nobody, "nobody"), (Painted, "red"), (Language, "en")]
)
def test_a_class_makes_the_context_of_each_turn(context: Any, name: str) -> None:
    graph = graph_with(context, lambda given: getattr(given, "name", None) or given.code)
    assert answer_of(LangGraphSource(graph, context=context)) == name
    assert answer_of(as_source(lambda _turn: graph, context=context)) == name


@pytest.mark.parametrize("made_by", ["adapter", "function", "factory"])
def test_a_class_that_needs_more_than_the_turn_is_refused_at_the_start(made_by: str) -> None:
    graph = graph_with(Visitor, str)
    agents: dict[str, Any] = {"adapter": graph, "function": lambda _turn: graph, "factory": lambda: graph}
    with pytest.raises(CannotAnswer) as refusal:
        as_source(agents[made_by], context=Visitor)
    assert str(refusal.value) == (
        "the context Visitor is a class that needs name; give a function of the turn that makes one:"
        " def context(turn): return Visitor(name=…)"
    )


def test_a_function_of_the_context_that_blocks_delays_no_other_chat() -> None:
    together = threading.Barrier(2, timeout=30)

    def blocking(turn: Turn) -> Visitor:
        together.wait()
        return Visitor(turn.headers["x-name"])

    source = LangGraphSource(graph_with(Visitor, lambda given: given.name), context=blocking)
    app = ChatApp(source)

    async def both() -> list[bool]:
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://test", timeout=60) as client:
            bodies = [{"id": chat_id, "messages": [user("Hi")]} for chat_id in ("one", "two")]
            posts = [client.post("/api/chat", json=body, headers={"x-name": "Ada"}) for body in bodies]
            return ["Ada" in response.text for response in await asyncio.gather(*posts)]

    assert asyncio.run(both()) == [True, True]
