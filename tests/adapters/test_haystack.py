"""The chunks of Haystack to parts: lists in, lists out. No Haystack is needed."""

from typing import Any

import pytest

from tests.adapters.recorded_events import decoded
from tests.adapters.turns import said_by
from usechat.adapters import conversation
from usechat.adapters.haystack import HaystackAdapter, parts
from usechat.errors import UnknownEvent
from usechat.parts import (
    Error,
    Part,
    Reasoning,
    Step,
    Text,
    ToolCall,
    ToolError,
    ToolInputDelta,
    ToolInputError,
    ToolInputStart,
    ToolResult,
)

USED = {"prompt_tokens": 11, "completion_tokens": 7}
FINISHED = conversation.finish("stop", conversation.usage(11, 7))


def chunk(**fields: Any) -> Any:
    return decoded({"$type": "StreamingChunk", "tool_call_result": None, **fields})


def delta(text: str | None, call_id: str | None = None, name: str | None = None, index: int = 0) -> Any:
    call = {"$type": "ToolCallDelta", "index": index, "id": call_id, "tool_name": name, "arguments": text}
    return chunk(tool_calls=[call])


def result(output: Any, *, error: bool = False) -> Any:
    origin = {"$type": "ToolCall", "id": "c1", "tool_name": "weather", "arguments": {"city": "Paris"}}
    return chunk(tool_call_result={"$type": "ToolCallResult", "result": output, "origin": origin, "error": error})


def ended(reason: str = "text", text: str | None = None) -> Any:
    message = decoded({"$type": "ChatMessage", "text": text})
    return {"result": {"exit_reason": reason, "token_usage": USED, "last_message": message}}


ROUND_OVER = chunk(finish_reason="tool_call_results")
CALLED = ToolCall("c1", "weather", {"city": "Paris"})


def said(*events: Any) -> list[Part]:
    return said_by(HaystackAdapter(), events)


def test_text_is_streamed_once() -> None:
    events = [chunk(content="Hel"), chunk(content="lo"), chunk(finish_reason="stop"), ended(text="Hello")]
    assert said(*events) == [Step(), Text("Hel"), Text("lo"), FINISHED]


def test_a_model_that_does_not_stream_is_heard() -> None:
    assert said(ended(text="Hello")) == [Text("Hello"), FINISHED]


def test_reasoning_is_streamed() -> None:
    reasoning = {"$type": "ReasoningContent", "reasoning_text": "Hm."}
    assert said(chunk(reasoning=reasoning), ended()) == [Step(), Reasoning("Hm."), FINISHED]


def test_a_call_is_complete_before_its_tool_runs_and_results_begin_a_step() -> None:
    events = [
        delta(None, "c1", "weather"),
        delta('{"city": '),
        delta('"Paris"}'),
        chunk(finish_reason="tool_calls"),
        result('{"celsius": 21}'),
        ROUND_OVER,
        chunk(content="21"),
        ended(),
    ]
    assert said(*events) == [
        Step(),
        ToolInputStart("c1", "weather"),
        ToolInputDelta("c1", '{"city": '),
        ToolInputDelta("c1", '"Paris"}'),
        CALLED,
        ToolResult("c1", {"celsius": 21}),
        Step(),
        Text("21"),
        FINISHED,
    ]


def test_a_call_that_was_not_streamed_comes_with_its_result() -> None:
    assert said(result("sunny"), ended())[:2] == [CALLED, ToolResult("c1", "sunny")]


def test_a_result_of_several_parts_is_a_list() -> None:
    content = [{"$type": "TextContent", "text": "sunny"}, {"$type": "ImageContent"}]
    assert said(result(content), ended())[1] == ToolResult("c1", ["sunny", {"type": "ImageContent"}])


def test_a_tool_that_raised_or_does_not_exist_has_failed() -> None:
    assert said(result("secret", error=True), ended())[1] == ToolError("c1", conversation.TOOL_FAILED)
    unknown = [delta("", "c2", "nothing"), chunk(finish_reason="tool_calls"), ROUND_OVER, ended()]
    assert said(*unknown)[2:4] == [ToolCall("c2", "nothing", {}), ToolError("c2", conversation.TOOL_FAILED)]


def test_an_input_that_is_no_json_is_an_input_error() -> None:
    events = [delta("{city", "c1", "weather"), chunk(finish_reason="tool_calls"), ended()]
    assert said(*events)[3] == ToolInputError("c1", "weather", "The input is not valid JSON.", "{city")


def test_endings_are_told_apart() -> None:
    assert said(ended("length"))[-1] == conversation.finish("length", conversation.usage(11, 7))
    assert said(ended("max_agent_steps"))[-1] == conversation.finish("other", conversation.usage(11, 7))
    assert said({"result": {}})[-1] == conversation.finish("other", None)
    assert said(chunk(content="Hel"))[-1] == Error(conversation.INCOMPLETE)
    assert list(HaystackAdapter().close(RuntimeError("secret"))) == []
    with pytest.raises(UnknownEvent, match="Telepathy"):
        said(type("Telepathy", (), {})())


async def test_the_parts_of_a_run_are_yielded_in_an_agent_function() -> None:
    async def events() -> Any:
        yield chunk(content="Hello")
        yield ended()

    assert [part async for part in parts(events())] == [Step(), Text("Hello"), FINISHED]
