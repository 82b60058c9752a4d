"""Adapters of frameworks: what one costs per delta, beside what the framework itself takes per delta.

Each framework streams an answer of many words from a model in this process, with no network between. Its own cost is
the time until all its events were read. The adapter's cost is that of turning the same events into parts.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec
from agents import Agent as OpenAIAgent
from agents import Model, ModelResponse, Runner, Usage, set_tracing_disabled
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseCreatedEvent,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
    ResponseUsage,
)
from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails
from pydantic_ai import Agent
from pydantic_ai.models.function import FunctionModel

from bench.machine import Circumstances, circumstances
from bench.report import table
from bench.results import Goal
from bench.rounds import Figure, measure_in_rounds, timed
from bench.sample import text_deltas
from usechat.adapters.langgraph import STREAM, LangGraphAdapter
from usechat.adapters.openai_agents import OpenAIAgentsAdapter
from usechat.adapters.pydantic_ai import PydanticAIAdapter
from usechat.sources import Adapter

LIMIT: Final = 0.05
"""An adapter costs at most this share of what its framework costs."""
_PACKAGES: Final = {name: name for name in ("langgraph", "langchain", "openai-agents", "pydantic-ai-slim")}

Events: TypeAlias = AsyncIterator[Any]


class FrameworkFigures(msgspec.Struct, frozen=True):
    """Nanoseconds per delta: those of the framework, and those of its adapter."""

    framework: Figure
    adapter: Figure

    @property
    def share(self) -> float:
        """The adapter's cost as a share of the framework's."""
        return self.adapter.median / self.framework.median


class FrameworkResults(msgspec.Struct, frozen=True):
    """One run."""

    circumstances: Circumstances
    figures: dict[str, FrameworkFigures]


# LangGraph


class _Words(BaseChatModel):
    """A chat model that streams given words."""

    words: list[str]

    @property
    def _llm_type(self) -> str:
        return "words"

    def _generate(self, *_arguments: Any, **_options: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage("".join(self.words)))])

    async def _astream(self, *_arguments: Any, **_options: Any) -> AsyncIterator[ChatGenerationChunk]:
        for word in self.words:
            yield ChatGenerationChunk(message=AIMessageChunk(content=word))
        yield ChatGenerationChunk(message=AIMessageChunk(content="", chunk_position="last"))


def langgraph_events(words: Sequence[str]) -> Events:
    """Return the events of a LangChain agent that answers with these words."""
    graph: Any = create_agent(_Words(words=list(words)), [])
    return aiter(graph.astream({"messages": [("user", "Hello")]}, **STREAM))


# OpenAI Agents


class _Spoken(Model):
    """A model of the OpenAI Agents SDK that streams given words."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words

    async def get_response(self, *_arguments: Any, **_options: Any) -> ModelResponse:
        return ModelResponse(output=[_message("".join(self._words))], usage=Usage(), response_id=None)

    async def stream_response(self, *_arguments: Any, **_options: Any) -> Any:
        yield ResponseCreatedEvent(type="response.created", sequence_number=0, response=_response([]))
        place: Any = {"item_id": "m1", "output_index": 0, "content_index": 0, "logprobs": []}
        for number, word in enumerate(self._words, 1):
            yield ResponseTextDeltaEvent(type="response.output_text.delta", sequence_number=number, delta=word, **place)
        response = _response([_message("".join(self._words))])
        yield ResponseCompletedEvent(type="response.completed", sequence_number=len(self._words) + 1, response=response)


def _message(text: str) -> ResponseOutputMessage:
    content: Any = [ResponseOutputText(type="output_text", text=text, annotations=[])]
    return ResponseOutputMessage(type="message", id="m1", role="assistant", status="completed", content=content)


def _response(output: Any) -> Response:
    usage = ResponseUsage(
        input_tokens=1,
        output_tokens=1,
        total_tokens=2,
        input_tokens_details=InputTokensDetails(cached_tokens=0, cache_write_tokens=0),
        output_tokens_details=OutputTokensDetails(reasoning_tokens=0),
    )
    return Response(
        id="r1",
        object="response",
        created_at=1,
        model="words",
        output=output,
        tools=[],
        tool_choice="auto",
        parallel_tool_calls=False,
        usage=usage,
    )


async def openai_agents_events(words: Sequence[str]) -> Events:
    """Yield the events of an agent of the OpenAI Agents SDK that answers with these words."""
    set_tracing_disabled(True)
    agent: OpenAIAgent[Any] = OpenAIAgent(name="words", model=_Spoken(words))
    async for event in Runner.run_streamed(agent, "Hello").stream_events():
        yield event


# Pydantic AI


async def pydantic_ai_events(words: Sequence[str]) -> Events:
    """Yield the events of an agent of Pydantic AI that answers with these words."""

    async def said(*_arguments: Any) -> AsyncIterator[str]:
        for word in words:
            yield word

    async with Agent(FunctionModel(stream_function=said)).run_stream_events("Hello") as events:
        async for event in events:
            yield event


FRAMEWORKS: Final[dict[str, tuple[Callable[[Sequence[str]], Events], Callable[[], Adapter[Any]]]]] = {
    "LangGraph": (langgraph_events, LangGraphAdapter),
    "OpenAI Agents": (openai_agents_events, OpenAIAgentsAdapter),
    "Pydantic AI": (pydantic_ai_events, PydanticAIAdapter),
}


def measure(*, rounds: int, deltas: int, least: int = 100_000_000) -> FrameworkResults:
    """Measure all frameworks and their adapters, side by side; ``least`` is how many nanoseconds a turn takes."""
    words = text_deltas(deltas)
    measures = {}
    for name, (events, adapter) in FRAMEWORKS.items():
        recorded = _run(events, words)
        measures[f"{name}: framework"] = timed(partial(_run, events, words), deltas, least=least)
        measures[f"{name}: adapter"] = timed(partial(_adapt, adapter, recorded), deltas, least=least)
    times = measure_in_rounds(measures, rounds=rounds, warm_up=1, title="frameworks")
    figures = {name: FrameworkFigures(times[f"{name}: framework"], times[f"{name}: adapter"]) for name in FRAMEWORKS}
    return FrameworkResults(circumstances(_PACKAGES), figures)


def _run(events: Callable[[Sequence[str]], Events], words: Sequence[str]) -> list[Any]:
    async def read() -> list[Any]:
        return [event async for event in events(words)]

    return asyncio.run(read())


def _adapt(adapter: Callable[[], Adapter[Any]], events: Sequence[Any]) -> int:
    return sum(1 for _ in parts_of(adapter(), events))


def parts_of(adapter: Adapter[Any], events: Sequence[Any]) -> Iterator[Any]:
    """Yield the parts that an adapter makes of recorded events."""
    for event in events:
        yield from adapter.feed(event)


def goals(results: FrameworkResults) -> list[Goal]:
    """Judge the run."""
    return [
        Goal(f"{name}: the adapter under {LIMIT:.0%} of the framework", f"{each.share:.1%}", each.share < LIMIT)
        for name, each in results.figures.items()
    ]


def report(results: FrameworkResults) -> str:
    """Return the whole report."""
    header = ["framework", "framework, µs per delta", "adapter, µs per delta", "share"]
    rows = [
        [name, f"{each.framework.median / 1000:.1f}", f"{each.adapter.median / 1000:.2f}", f"{each.share:.1%}"]
        for name, each in results.figures.items()
    ]
    return "\n\n".join(["# Adapters beside their frameworks", summary(results), table(header, rows)])


def summary(results: FrameworkResults) -> str:
    """Return what the README shows of it."""
    run = results.circumstances
    versions = ", ".join(f"{name} {version}" for name, version in run.versions.items())
    listed = "\n".join(f"- {'met' if goal.met else 'MISSED'}: {goal.text}: {goal.measured}" for goal in goals(results))
    return f"{run.date}, {run.machine}, {run.python}; {versions}.\n\n{listed}"
