"""An answer goes to each framework as history and comes back through a turn: nothing that it can hold is lost."""

from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from agents import Agent
from agents.items import ToolCallOutputItem
from agents.stream_events import RawResponsesStreamEvent, RunItemStreamEvent
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage
from openai.types.responses import ResponseFunctionToolCall
from pydantic_ai.messages import FunctionToolResultEvent, PartEndEvent, PartStartEvent, ToolReturnPart, UserPromptPart

from tests.adapters.turns import assistant, user
from usechat.adapters.langgraph import LangGraphAdapter, to_langchain
from usechat.adapters.openai_agents import OpenAIAgentsAdapter, to_openai_agents
from usechat.adapters.pydantic_ai import PydanticAIAdapter, to_pydantic_ai
from usechat.parts import Part
from usechat.protocol.message import MessageBuilder
from usechat.protocol.model_messages import model_messages, repair_messages
from usechat.protocol.stream import MessageStream

Json = Any
SIGNED = {
    "anthropic": {"anthropic": {"signature": "s"}},
    "openai": {"openai": {"itemId": "rs_1", "reasoningEncryptedContent": "e"}},
}

texts = st.text("ab \né", min_size=1, max_size=12).filter(str.strip)
values = st.one_of(texts, st.dictionaries(st.sampled_from(["a", "b"]), st.integers(0, 9) | texts), st.lists(texts))
inputs = st.dictionaries(st.sampled_from(["city", "zone"]), texts | st.integers(0, 9))
outcomes = st.one_of(
    st.fixed_dictionaries({"state": st.just("output-available"), "output": values}),
    st.just({"state": "output-error", "errorText": "It broke."}),
)
calls = st.builds(
    lambda name, call_input, outcome: {"type": f"tool-{name}", "input": call_input, **outcome},
    st.sampled_from(["weather", "clock"]),
    inputs,
    outcomes,
)
steps = st.tuples(st.none() | texts, st.none() | texts, st.lists(calls, max_size=3))


def answer_of(steps: Iterable[Any], provider: str) -> Json:
    """Return a message with these steps; each call has a different id. Only the last step may be without calls."""
    parts: list[Json] = []
    for number, (reasoning, text, tool_calls) in enumerate(steps):
        parts.append({"type": "step-start"})
        if reasoning is not None:
            parts.append({"type": "reasoning", "text": reasoning, "providerMetadata": SIGNED[provider]})
        if text is not None:
            parts.append({"type": "text", "text": text})
        parts.extend({**call, "toolCallId": f"c{number}-{at}"} for at, call in enumerate(tool_calls))
    return assistant(*parts)


answers = st.tuples(st.lists(steps.filter(lambda step: bool(step[2])), max_size=3), texts).map(
    lambda pair: [*pair[0], (None, pair[1], [])]
)


def facts(message: Json) -> list[Any]:
    """Return what a message says, without the text of failures, which stays on the server."""
    entries: list[Any] = []
    for part in message["parts"]:
        if part["type"] in ("text", "reasoning"):
            entries.append((part["type"], part["text"], part.get("providerMetadata")))
        elif part["type"].startswith("tool-"):
            entries.append((part["type"], part["toolCallId"], part["input"], part["state"], part.get("output")))
    return entries


def shown(parts: Iterable[Part]) -> Json:
    """Return the message that a page makes of parts."""
    stream, builder = MessageStream(message_id="m1", sdk="7"), MessageBuilder(sdk="7")
    for chunk in [*(chunk for part in parts for chunk in stream.send(part)), *stream.close()]:
        builder.receive(chunk)
    return builder.message


def back_from_langgraph(history: Any) -> Iterator[Part]:
    adapter = LangGraphAdapter()
    for number, message in enumerate(to_langchain(history)):
        if not isinstance(message, HumanMessage):
            meta = {"langgraph_checkpoint_ns": f"model:{number}"}
            yield from adapter.feed({"type": "messages", "ns": (), "data": (message, meta)})


def back_from_pydantic_ai(history: Any) -> Iterator[Part]:
    adapter = PydanticAIAdapter()
    for message in to_pydantic_ai(history):
        for index, part in enumerate(message.parts):
            if isinstance(part, ToolReturnPart):
                yield from adapter.feed(FunctionToolResultEvent(part))
            elif not isinstance(part, UserPromptPart):
                yield from adapter.feed(PartStartEvent(index=index, part=part))  # type: ignore[arg-type]
                yield from adapter.feed(PartEndEvent(index=index, part=part))  # type: ignore[arg-type]


def back_from_openai_agents(history: Any) -> Iterator[Part]:
    adapter = OpenAIAgentsAdapter()
    results = True  # a model answers after what people say, and after results
    for item in to_openai_agents(history):
        if item.get("role") == "user":
            continue
        is_result = item.get("type") == "function_call_output"
        if results and not is_result:
            yield from adapter.feed(raw("created"))
        results = is_result
        for event in openai_events(item):
            yield from adapter.feed(event)


def raw(kind: str, **fields: Any) -> Any:
    data: Any = SimpleNamespace(type=f"response.{kind}", **fields)
    return RawResponsesStreamEvent(data=data)


def openai_events(item: Any) -> Iterator[Any]:
    match item:
        case {"type": "reasoning", "id": item_id, "summary": summary, "encrypted_content": encrypted}:
            yield from (raw("reasoning_summary_text.delta", delta=each["text"]) for each in summary)
            done = SimpleNamespace(type="reasoning", id=item_id, encrypted_content=encrypted)
            yield raw("output_item.done", item=done)
        case {"type": "function_call"}:
            yield raw("output_item.done", item=ResponseFunctionToolCall(**item))
        case {"type": "function_call_output", "output": output}:
            output_item: Any = ToolCallOutputItem(agent=Agent(name="a"), raw_item=item, output=output)
            yield RunItemStreamEvent(name="tool_output", item=output_item)
        case {"type": "message", "content": [{"type": "output_text", "text": text}]}:
            yield raw("output_text.delta", delta=text)
            yield raw("output_item.done", item=SimpleNamespace(type="message"))


ROADS = {
    "langgraph": (back_from_langgraph, "anthropic"),
    "pydantic-ai": (back_from_pydantic_ai, "anthropic"),
    "openai-agents": (back_from_openai_agents, "openai"),
}


@pytest.mark.parametrize("name", ROADS)
@given(steps=answers)
def test_an_answer_comes_back_as_it_went(name: str, steps: list[Any]) -> None:
    road: tuple[Callable[[Any], Iterator[Part]], str] = ROADS[name]
    back, provider = road
    answer = answer_of(steps, provider)
    history = repair_messages(model_messages([user("Hello?"), answer]))
    expected, result = facts(answer), facts(shown(back(history)))
    if name == "openai-agents":  # its items have no mark of a failure: the text of the failure is the result
        failures = {fact[1] for fact in expected if fact[-2] == "output-error"}
        result = [(*fact[:3], "output-error", None) if fact[1] in failures else fact for fact in result]
    assert result == expected
