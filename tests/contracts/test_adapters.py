"""What every adapter of usechat keeps, checked by `check_adapter` as a stranger checks one.

A new adapter is one more row of `ADAPTERS`: events of a complete turn that says `said`, and one that it cannot know.
"""

import itertools
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest

import usechat
from tests import adapter_page
from tests.adapters.recorded_events import decoded
from tests.agent_ops import frames as agent_ops
from tests.genkit import short as genkit
from tests.open_harness.scripted import deltas, event, flow, node
from usechat.adapters.a2a import A2aAdapter
from usechat.adapters.ag_ui import AgUiAdapter
from usechat.adapters.agent_framework import AgentFrameworkAdapter
from usechat.adapters.agno import AgnoAdapter
from usechat.adapters.anthropic import AnthropicAdapter
from usechat.adapters.claude import ClaudeAdapter
from usechat.adapters.crewai import CrewAiAdapter
from usechat.adapters.dspy import DspyAdapter
from usechat.adapters.google_adk import GoogleAdkAdapter
from usechat.adapters.haystack import HaystackAdapter
from usechat.adapters.llama_index import LlamaIndexAdapter
from usechat.adapters.openai import ChatCompletionsAdapter, ResponsesAdapter
from usechat.adapters.smolagents import SmolagentsAdapter
from usechat.adapters.strands import StrandsAdapter
from usechat.errors import UnknownEvent
from usechat.genkit.wire import FlowChunk, FlowResult, UnknownFrame
from usechat.open_harness.events.adapter import OpenHarnessAdapter
from usechat.parts import Error, Finish, Part, Text
from usechat.protocol import chunks
from usechat.protocol.reframing import ChunkReader
from usechat.sources import Adapter, AdapterSource
from usechat.testing import check_adapter
from usechat.turn import Turn

pytestmark = pytest.mark.unit

PACKAGE = Path(usechat.__file__).parent
WORDS = ["One ", "two ", "three."]


class Case(msgspec.Struct, frozen=True):
    """An adapter, the events of a whole turn that says `WORDS`, and an event that it cannot know."""

    adapter: Callable[[], Adapter[Any]]
    events: Sequence[Any]
    unknown: Any


def example() -> Case:
    """The adapter of docs/adapters.md."""
    files, modules = adapter_page.files(), {}
    for name in ("chirp", "usechat_chirp"):
        modules[name] = ModuleType(name)
        sys.modules[name] = modules[name]
        exec(compile(files[f"{name}.py"], f"{name}.py", "exec"), modules[name].__dict__)
    for name in modules:
        del sys.modules[name]
    tokens = [{"event": "token", "text": word} for word in WORDS]
    done = {"event": "done", "reason": "stop"}
    return Case(modules["usechat_chirp"].ChirpAdapter, [*tokens, done], {"event": "telepathy"})


def pydantic_ai() -> Case:
    """An answer of Pydantic AI; the pieces of a text come as deltas, the first one with its start."""
    from pydantic_ai.messages import (
        ModelResponse,
        PartDeltaEvent,
        PartEndEvent,
        PartStartEvent,
        TextPart,
        TextPartDelta,
    )
    from pydantic_ai.run import AgentRunResultEvent
    from pydantic_ai.usage import RunUsage

    from usechat.adapters.pydantic_ai import PydanticAIAdapter

    whole = TextPart("".join(WORDS))
    result: Any = SimpleNamespace(output=whole.content, usage=RunUsage(), response=ModelResponse([whole]))
    events = [
        PartStartEvent(index=0, part=TextPart(WORDS[0])),
        *(PartDeltaEvent(index=0, delta=TextPartDelta(word)) for word in WORDS[1:]),
        PartEndEvent(index=0, part=whole),
        AgentRunResultEvent(result),
    ]
    return Case(PydanticAIAdapter, events, SimpleNamespace(event_kind="telepathy"))


def a2a() -> Case:
    """An answer of an A2A agent, whose last message repeats it."""

    def update(number: int, word: str) -> dict[str, Any]:
        artifact = {"artifactId": "a1", "parts": [{"text": word}]}
        return {"artifactUpdate": {"artifact": artifact, "append": number > 0}}

    texts = [update(number, word) for number, word in enumerate(WORDS)]
    whole = {"messageId": "m1", "parts": [{"text": "".join(WORDS)}]}
    done = {"statusUpdate": {"status": {"state": "TASK_STATE_COMPLETED", "message": whole}}}
    return Case(A2aAdapter, [*texts, done], {"telepathy": {}})


def ag_ui() -> Case:
    """An answer of an AG-UI agent."""
    texts = [{"type": "TEXT_MESSAGE_CONTENT", "messageId": "m1", "delta": word} for word in WORDS]
    return Case(AgUiAdapter, [*texts, {"type": "RUN_FINISHED"}], {"type": "telepathy"})


def agno() -> Case:
    """An answer of Agno, whose last event repeats it."""

    def event(kind: str, content: str | None = None) -> Any:
        return decoded({"$type": "Event", "event": kind, "run_id": "r1", "content": content})

    texts = [event("RunContent", word) for word in WORDS]
    return Case(AgnoAdapter, [*texts, event("RunCompleted", "".join(WORDS))], event("telepathy"))


def claude() -> Case:
    """An answer of the Claude Agent SDK, whose whole message repeats it."""

    def stream(**event: Any) -> Any:
        return decoded({"$type": "StreamEvent", "event": event})

    texts = [stream(type="content_block_delta", index=0, delta={"type": "text_delta", "text": word}) for word in WORDS]
    block = {"$type": "TextBlock", "text": "".join(WORDS)}
    events = [
        stream(type="message_start", message={"id": "msg_1"}),
        stream(type="content_block_start", index=0, content_block={"type": "text", "text": ""}),
        *texts,
        decoded({"$type": "AssistantMessage", "message_id": "msg_1", "content": [block]}),
        decoded({"$type": "ResultMessage", "is_error": False, "stop_reason": "end_turn"}),
    ]
    return Case(ClaudeAdapter, events, decoded({"$type": "telepathy"}))


def dspy() -> Case:
    """An answer of DSPy, whose prediction repeats it."""
    field = {"$type": "StreamResponse", "signature_field_name": "answer"}
    pieces = [decoded({**field, "chunk": word}) for word in WORDS]
    return Case(DspyAdapter, [*pieces, {"prediction": {"answer": "".join(WORDS)}}], {"telepathy": 1})


def google_adk() -> Case:
    """An answer of Google ADK, whose last event repeats it."""

    def event(text: str, *, partial: bool) -> Any:
        content = {"$type": "Content", "parts": [{"$type": "Part", "text": text}]}
        return decoded({"$type": "Event", "id": "e1", "partial": partial, "content": content})

    texts = [event(word, partial=True) for word in WORDS]
    whole = event("".join(WORDS), partial=False)
    return Case(GoogleAdkAdapter, [*texts, whole], SimpleNamespace(kind="telepathy"))


def agent_framework() -> Case:
    """An answer of the Agent Framework, whose last text repeats it."""

    def update(text: str, mode: str, reason: str | None = None) -> dict[str, Any]:
        content = {"type": "text", "text": text, "merge_mode": mode}
        return {"role": "assistant", "contents": [content], "finish_reason": reason}

    texts = [update(word, "append") for word in WORDS]
    return Case(AgentFrameworkAdapter, [*texts, update("".join(WORDS), "replace", "stop")], {"type": "telepathy"})


def llama_index() -> Case:
    """An answer of LlamaIndex, whose last events repeat it."""

    def event(kind: str, **fields: Any) -> Any:
        return decoded({"$type": kind, "current_agent_name": "assistant", **fields})

    texts = [event("AgentStream", delta=word) for word in WORDS]
    output = event("AgentOutput", response={"$type": "ChatMessage", "content": "".join(WORDS)})
    return Case(LlamaIndexAdapter, [event("AgentInput"), *texts, output, event("StopEvent")], event("telepathy"))


def haystack() -> Case:
    """An answer of Haystack, whose result repeats it."""
    chunks = [decoded({"$type": "StreamingChunk", "tool_call_result": None, "content": word}) for word in WORDS]
    message = SimpleNamespace(text="".join(WORDS))
    result = {"result": {"exit_reason": "text", "last_message": message}}
    return Case(HaystackAdapter, [*chunks, result], SimpleNamespace(type="telepathy"))


def crewai() -> Case:
    """An answer of CrewAI, whose last events repeat it."""

    def frame(kind: str, **data: Any) -> Any:
        return decoded({"$type": "StreamFrame", "type": kind, "data": {"agent_id": "a1", **data}})

    texts = [frame("llm_stream_chunk", chunk=word) for word in WORDS]
    last = [frame("llm_call_completed", response="".join(WORDS)), {"result": {"text": "".join(WORDS), "value": None}}]
    return Case(CrewAiAdapter, [frame("llm_call_started"), *texts, *last], frame("telepathy"))


def smolagents() -> Case:
    """An answer of smolagents, whose last step repeats it."""
    pieces = [f'{{"answer": "{WORDS[0]}', WORDS[1], f'{WORDS[2]}"}}']

    def delta(text: str) -> Any:
        function = {"$type": "Function", "name": "final_answer", "arguments": text}
        calls = [{"$type": "Call", "index": 0, "id": "c1", "function": function}]
        return decoded({"$type": "ChatMessageStreamDelta", "tool_calls": calls})

    last = decoded({"$type": "FinalAnswerStep", "output": "".join(WORDS)})
    return Case(SmolagentsAdapter, [*map(delta, pieces), last], decoded({"$type": "telepathy"}))


def strands() -> Case:
    """An answer of Strands."""
    texts = [{"data": word} for word in WORDS]
    result = {"result": SimpleNamespace(stop_reason="end_turn")}
    return Case(StrandsAdapter, [*texts, result], {"telepathy": True})


def langgraph() -> Case:
    """An answer of LangGraph."""
    from langchain_core.messages import AIMessageChunk

    from usechat.adapters.langgraph import LangGraphAdapter

    chunks = [AIMessageChunk(content=word) for word in WORDS] + [AIMessageChunk(content="", chunk_position="last")]
    meta = {"langgraph_checkpoint_ns": "model:1"}
    events = [{"type": "messages", "ns": (), "data": (chunk, meta)} for chunk in chunks]
    return Case(LangGraphAdapter, events, {"type": "telepathy", "ns": (), "data": None})


def openai() -> tuple[Case, Case]:
    """Answers of the OpenAI client: Chat Completions, Responses."""

    def chunk(text: str | None, reason: str | None = None) -> Any:
        choice = SimpleNamespace(index=0, delta=SimpleNamespace(content=text), finish_reason=reason)
        return SimpleNamespace(choices=[choice])

    deltas = [SimpleNamespace(type="response.output_text.delta", delta=word) for word in WORDS]
    response = SimpleNamespace(usage=None, incomplete_details=None)
    return (
        Case(ChatCompletionsAdapter, [*map(chunk, WORDS), chunk(None, "stop")], SimpleNamespace(type="telepathy")),
        Case(
            ResponsesAdapter,
            [*deltas, SimpleNamespace(type="response.completed", response=response)],
            SimpleNamespace(type="telepathy"),
        ),
    )


def openai_agents() -> Case:
    """An answer of the OpenAI Agents SDK; the result of its run comes last and repeats it."""
    from agents import Agent, RunContextWrapper, RunResultStreaming
    from agents.stream_events import RawResponsesStreamEvent

    from usechat.adapters.openai_agents import OpenAIAgentsAdapter

    def raw(kind: str, **data: Any) -> Any:
        event: Any = SimpleNamespace(type=kind, **data)
        return RawResponsesStreamEvent(data=event)

    result = RunResultStreaming(
        input="hi",
        new_items=[],
        raw_responses=[],
        final_output="".join(WORDS),
        input_guardrail_results=[],
        output_guardrail_results=[],
        tool_input_guardrail_results=[],
        tool_output_guardrail_results=[],
        context_wrapper=RunContextWrapper(None),
        current_agent=Agent("assistant"),
        current_turn=1,
        max_turns=1,
        _current_agent_output_schema=None,
        trace=None,
    )
    texts = [raw("response.output_text.delta", delta=word) for word in WORDS]
    completed = raw("response.completed", response=SimpleNamespace(usage=None, incomplete_details=None))
    return Case(OpenAIAgentsAdapter, [*texts, completed, result], SimpleNamespace(type="telepathy"))


def anthropic() -> Case:
    """A message of the Anthropic client."""
    start = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    deltas = [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word}} for word in WORDS
    ]
    end = [{"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}]
    return Case(AnthropicAdapter, [start, *deltas, *end], {"type": "telepathy"})


ADAPTERS = {
    "chat transport": Case(
        ChunkReader,
        [
            chunks.StartChunk("m1"),
            chunks.TextStartChunk("1"),
            *(chunks.TextDeltaChunk("1", word) for word in WORDS),
            chunks.TextEndChunk("1"),
            chunks.FinishChunk("stop"),
        ],
        None,  # what is no chunk does not get this far: ChunkDecoder refuses it
    ),
    "Open Harness": Case(
        lambda: OpenHarnessAdapter(new_reference=map(str, itertools.count(1)).__next__),
        flow(*node("a1", *deltas("a1", *WORDS))),
        event("telepathy", "a1"),
    ),
    "Agent Ops": Case(
        agent_ops.adapter,
        [agent_ops.CREATE, *(agent_ops.delta(word) for word in WORDS), agent_ops.finalize(), agent_ops.COMPLETE],
        {"type": "telepathy"},
    ),
    "Genkit": Case(genkit.adapter, [*map(FlowChunk, WORDS), FlowResult("".join(WORDS))], UnknownFrame("telepathy")),
    "A2A": a2a(),
    "AG-UI": ag_ui(),
    "Agno": agno(),
    "Anthropic client": anthropic(),
    "Claude Agent SDK": claude(),
    "LlamaIndex": llama_index(),
    "Haystack": haystack(),
    "smolagents": smolagents(),
    "CrewAI": crewai(),
    "DSPy": dspy(),
    "Strands": strands(),
    "Agent Framework": agent_framework(),
    "Google ADK": google_adk(),
    "OpenAI client, Chat Completions": openai()[0],
    "OpenAI client, Responses": openai()[1],
    "Pydantic AI": pydantic_ai(),
    **({"LangGraph": langgraph()} if find_spec("langgraph") else {}),
    **({"OpenAI Agents SDK": openai_agents()} if find_spec("agents") else {}),
    "docs/adapters.md": example(),
}
EVERY = pytest.mark.parametrize("case", ADAPTERS.values(), ids=ADAPTERS)


@pytest.mark.skipif(not (find_spec("langgraph") and find_spec("agents")), reason="needs every framework of ADAPTERS")
def test_every_adapter_of_the_package_has_its_row() -> None:
    definition = re.compile(r"^class ([A-Z]\w*Adapter)\b(?!\(Protocol)", re.MULTILINE)
    defined = {name for path in PACKAGE.rglob("*.py") for name in definition.findall(path.read_text(encoding="utf-8"))}
    assert defined - {type(case.adapter()).__name__ for case in ADAPTERS.values()} == set()


def source_of(case: Any) -> AdapterSource[Any] | None:
    """Return a source that replays the events of a case."""

    async def events(_turn: Turn) -> AsyncIterator[Any]:
        for each in case.events:
            yield each

    return AdapterSource(events, case.adapter) if isinstance(case, Case) else None


@EVERY
def test_an_adapter_keeps_what_every_adapter_keeps(case: Case) -> None:
    check_adapter(source_of, agents=[case], unknown=case.unknown)


class Careless:
    """An adapter of words that breaks one rule."""

    def __init__(self, rule: str) -> None:
        self._rule = rule
        self._is_done = False

    def feed(self, event: str) -> Iterator[Any]:
        """Yield what the word becomes."""
        if event == "end":
            self._is_done = True
            yield from [Finish("stop"), Text("late")] if self._rule == "ending" else [Finish("stop")]
        elif event == "telepathy" and self._rule != "unknown":
            raise UnknownEvent(event)
        elif event != "telepathy":
            yield {"type": "text"} if self._rule == "parts" else Text(event)

    def close(self, error: BaseException | None = None) -> Iterator[Part]:
        """Yield an error for events that break off, or with the text of an exception."""
        if self._rule == "leak" and isinstance(error, ConnectionError):
            yield Error(str(error))
        elif not self._is_done and error is None and self._rule != "cut":
            yield Error("The answer ended before it was complete.")


@pytest.mark.parametrize(
    ("rule", "complaint"),
    [
        ("parts", "an adapter yields parts, not"),
        ("ending", "nothing may follow an ending"),
        ("leak", "the text of an exception reaches the page"),
        ("cut", "events that break off must end with an Error"),
        ("unknown", "raise UnknownEvent"),
    ],
)
def test_a_broken_rule_is_named(rule: str, complaint: str) -> None:
    case = Case(lambda: Careless(rule), [*WORDS, "end"], "telepathy")
    check_adapter(source_of, agents=[Case(lambda: Careless(""), case.events, "telepathy")], unknown="telepathy")
    with pytest.raises(AssertionError, match=complaint):
        check_adapter(source_of, agents=[case], unknown="telepathy")


def test_a_source_for_everything_is_refused() -> None:
    case = Case(lambda: Careless(""), [*WORDS, "end"], None)
    with pytest.raises(AssertionError, match="source_of must return None"):
        check_adapter(lambda _agent: source_of(case), agents=[case])
