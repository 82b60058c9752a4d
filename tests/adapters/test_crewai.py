"""The frames of CrewAI to parts: lists in, lists out. No CrewAI is needed."""

import json
from typing import Any

import pytest

from tests.adapters.recorded_events import decoded
from tests.adapters.turns import said_by
from usechat.adapters import conversation
from usechat.adapters.crewai import CrewAiAdapter, parts
from usechat.errors import UnknownEvent
from usechat.parts import (
    Data,
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


def frame(kind: str, frame_id: str = "e1", **data: Any) -> Any:
    return decoded({"$type": "StreamFrame", "id": frame_id, "type": kind, "data": {"agent_id": "a1", **data}})


def chunk(text: str, **more: Any) -> Any:
    return frame("llm_stream_chunk", chunk=text, **more)


def written(arguments: str, call_id: str | None = "c1", name: str | None = "weather", index: int = 0) -> Any:
    call = {"id": call_id, "index": index, "function": {"name": name, "arguments": arguments}}
    return chunk(arguments, tool_call=call)


def began(frame_id: str = "e1", name: str = "weather", tool_args: Any = None) -> Any:
    return frame("tool_usage_started", frame_id, tool_name=name, tool_args=tool_args or {"city": "Paris"})


def ended(output: Any, started: str = "e1", **more: Any) -> Any:
    return frame("tool_usage_finished", tool_name="weather", started_event_id=started, output=output, **more)


def completed(response: str | None = None, **more: Any) -> Any:
    return frame("llm_call_completed", response=response, **more)


def result(text: str | None, value: Any = None) -> Any:
    return {"result": {"text": text, "value": value}}


STARTED = frame("llm_call_started")
INPUT = '{"city": "Paris"}'
CALLED = ToolCall("c1", "weather", {"city": "Paris"})
END = conversation.finish("stop", None)


def said(*events: Any) -> list[Part]:
    return said_by(CrewAiAdapter(), [*events, frame("flow_finished")])


def test_text_is_streamed_and_not_repeated_by_what_comes_behind_it() -> None:
    usage = {"prompt_tokens": 11, "completion_tokens": 7}
    events = [STARTED, chunk("It is "), chunk("sunny."), completed("It is sunny.", usage=usage, finish_reason="stop")]
    assert said(*events, result("It is sunny.")) == [
        Step(),
        Text("It is "),
        Text("sunny."),
        conversation.finish("stop", conversation.usage(11, 7)),
    ]


def test_the_text_of_a_model_that_does_not_stream_is_shown_when_it_is_there() -> None:
    usage = {"input_tokens": 11, "output_tokens": 7}
    assert said(STARTED, completed("Yes.", usage=usage), STARTED, completed("No.", usage=usage), result("No.")) == [
        Step(),
        Text("Yes."),
        Step(),
        Text("No."),
        conversation.finish("stop", conversation.usage(22, 14)),
    ]


@pytest.mark.parametrize(("reason", "finish_reason"), [("length", "length"), ("tool_calls", "stop"), (None, "stop")])
def test_the_reason_is_that_of_the_last_call_of_the_model(reason: str | None, finish_reason: str) -> None:
    events = [STARTED, completed("Yes.", finish_reason="stop"), STARTED, completed("It is", finish_reason=reason)]
    assert said(*events)[-1] == conversation.finish(finish_reason, None)


def test_a_result_that_was_not_said_is_text() -> None:
    assert said(STARTED, chunk("It is bad."), result("It is good.")) == [
        Step(),
        Text("It is bad."),
        Step(),
        Text("It is good."),
        END,
    ]
    assert said(result("21 °C")) == [Text("21 °C"), END]


def test_a_value_is_data() -> None:
    assert said(STARTED, chunk('{"celsius": 21}'), result('{"celsius": 21}', {"celsius": 21}))[2:] == [
        Data("output", {"celsius": 21}),
        END,
    ]
    assert said(result(None, [1])) == [Data("output", [1]), END]


def test_the_input_of_a_tool_is_streamed_from_frames_that_each_have_all_of_it() -> None:
    events = [
        STARTED,
        written(""),
        written('{"city": '),
        written(INPUT),
        completed(),
        began(),
        ended("{'celsius': 21}"),
    ]
    assert said(*events, STARTED, chunk("21 °C"), result("21 °C")) == [
        Step(),
        ToolInputStart("c1", "weather"),
        ToolInputDelta("c1", '{"city": '),
        ToolInputDelta("c1", '"Paris"}'),
        CALLED,
        ToolResult("c1", {"celsius": 21}),
        Step(),
        Text("21 °C"),
        END,
    ]


def test_the_input_waits_for_the_id_of_its_call() -> None:
    assert said(written('{"city": ', None, None), written(INPUT), began())[:4] == [
        Step(),
        ToolInputStart("c1", "weather"),
        ToolInputDelta("c1", INPUT),
        CALLED,
    ]


def test_parallel_calls_of_one_tool_are_told_apart_by_their_inputs() -> None:
    rome = '{"city": "Rome"}'
    calls = [written(INPUT), written(rome, "c2", index=1)]
    starts = [began("e2", tool_args={"city": "Rome"}), began("e1")]
    results = [ended("15", "e2"), ended("21", "e1")]
    assert said(STARTED, *calls, *starts, *results)[5:] == [
        ToolCall("c2", "weather", {"city": "Rome"}),
        CALLED,
        ToolResult("c2", "15"),
        ToolResult("c1", "21"),
        END,
    ]


def test_a_call_whose_input_was_changed_is_found_by_its_name() -> None:
    assert ToolCall("c1", "weather", {"city": "Rome"}) in said(written(INPUT), began(tool_args={"city": "Rome"}))


def test_a_call_that_was_not_streamed_has_the_id_of_its_event() -> None:
    assert said(STARTED, began(tool_args=INPUT), ended("21")) == [
        Step(),
        ToolCall("e1", "weather", {"city": "Paris"}),
        ToolResult("e1", "21"),
        END,
    ]


@pytest.mark.parametrize(
    "failure",
    [frame("tool_usage_error", started_event_id="e1", error="secret"), ended("secret", failure={"message": "secret"})],
    ids=["raised", "reported"],
)
def test_a_tool_that_failed_has_failed_without_its_text(failure: Any) -> None:
    assert said(began(), failure)[1:] == [
        ToolCall("e1", "weather", {"city": "Paris"}),
        ToolError("e1", conversation.TOOL_FAILED),
        END,
    ]


def test_a_tool_without_an_agent_is_that_of_the_agent_who_spoke_last() -> None:
    assert said(STARTED, chunk("Hm."), frame("tool_usage_started", agent_id=None, tool_name="dig"))[-2:] == [
        ToolCall("e1", "dig", {}),
        END,
    ]
    assert said(frame("tool_usage_started", agent_id=None, tool_name="dig")) == [END]


def test_a_result_without_a_call_is_left_out() -> None:
    assert said(ended("21", "e9")) == [END]


def test_a_call_that_never_began_had_an_input_that_cannot_be_read() -> None:
    assert said(STARTED, written('{"city'), STARTED)[1:] == [
        ToolInputStart("c1", "weather"),
        ToolInputDelta("c1", '{"city'),
        ToolInputError("c1", "weather", "The input is not valid JSON.", '{"city'),
        END,
    ]


def test_thinking_is_reasoning() -> None:
    assert said(STARTED, frame("llm_thinking_chunk", chunk="Hm."), frame("llm_thinking_chunk"))[:-1] == [
        Step(),
        Reasoning("Hm."),
    ]


@pytest.mark.parametrize("size", [1, 3, 100])
def test_marked_thoughts_are_reasoning_and_the_final_answer_is_text(size: int) -> None:
    text = "Thought: Final? I know.\nFinal Answer: It is Final."
    pieces = [chunk(text[start : start + size]) for start in range(0, len(text), size)]
    parts = said(STARTED, *pieces, completed(text), result("It is Final."))[1:-1]
    assert "".join(part.text for part in parts if isinstance(part, Reasoning)) == "Thought: Final? I know.\n"
    assert "".join(part.text for part in parts if isinstance(part, Text)) == "It is Final."


def test_marked_actions_are_reasoning_to_their_end() -> None:
    text = "Action: weather\nAction Input: {}\nF"
    assert said(STARTED, chunk(text), completed(text)) == [Step(), Reasoning(text[:-1]), Reasoning("F"), END]


@pytest.mark.parametrize("size", [1, 7, 100])
@pytest.mark.parametrize("text", ["Action: call your bank.", "Thought: a noun.\nAction: another. Final"])
def test_an_answer_that_begins_with_a_mark_is_shown_once_as_text(text: str, size: int) -> None:
    pieces = [chunk(text[start : start + size]) for start in range(0, len(text), size)]
    assert said(STARTED, *pieces, completed(text), result(text)) == [Step(), Text(text), END]


def test_a_text_that_begins_like_a_mark_is_shown_when_it_is_none() -> None:
    assert said(STARTED, chunk("Th"), chunk("e"), completed("The"))[1:-1] == [Text("The")]
    assert said(STARTED, chunk("Th"), completed("Th"), result("Th"))[1:-1] == [Text("Th")]


def test_each_further_agent_is_a_lane_with_its_role() -> None:
    other = {"agent_id": "a2", "agent_role": "writer"}
    events = [STARTED, chunk("One."), frame("llm_call_started", **other), chunk("Two.", **other), result("Two.")]
    assert said(*events) == [
        Step(),
        Text("One."),
        Step(lane="a2"),
        Data("agent", {"name": "writer"}, id="a2", lane="a2"),
        Text("Two.", lane="a2"),
        END,
    ]


def test_calls_of_the_model_that_no_agent_makes_are_counted_and_not_shown() -> None:
    alone: Any = {"agent_id": None}
    usage = {"prompt_tokens": 1, "completion_tokens": 2}
    events = [frame("llm_call_started", **alone), chunk("A summary.", **alone), completed("A.", usage=usage, **alone)]
    assert said(*events) == [conversation.finish("stop", conversation.usage(1, 2))]


def test_endings_are_told_apart() -> None:
    crew = decoded({"$type": "StreamFrame", "type": "crew_kickoff_completed", "channel": "custom", "data": {}})
    assert said(crew, frame("llm_call_failed"), frame("tool_failure_detected")) == [END]
    assert said_by(CrewAiAdapter(), [STARTED, chunk("It is")])[-1] == Error(conversation.INCOMPLETE)
    assert said_by(CrewAiAdapter(), [frame("flow_finished"), STARTED])[-1] == Error(conversation.INCOMPLETE)
    assert list(CrewAiAdapter().close(RuntimeError("secret"))) == []
    with pytest.raises(UnknownEvent, match="telepathy"):
        said(frame("telepathy"))
    with pytest.raises(UnknownEvent, match="dict"):
        said(json.loads("{}"))


async def test_the_parts_of_a_run_are_yielded_in_an_agent_function() -> None:
    async def events() -> Any:
        yield result("Hello")

    assert [part async for part in parts(events())] == [Text("Hello"), END]
