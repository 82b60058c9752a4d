"""The events of smolagents to parts: lists in, lists out. No smolagents is needed."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from tests.adapters.recorded_events import decoded
from tests.adapters.turns import said_by
from usechat.adapters import conversation
from usechat.adapters.smolagents import SmolagentsAdapter, parts
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
    ToolInputStart,
    ToolResult,
)


def event(kind: str, **fields: Any) -> Any:
    return decoded({"$type": kind, **fields})


def delta(index: int, text: str, call_id: str | None = None, name: str | None = None) -> Any:
    function = {"$type": "Function", "name": name, "arguments": text}
    call = {"$type": "Call", "index": index, "id": call_id, "function": function}
    return event("ChatMessageStreamDelta", tool_calls=[call])


def step(**fields: Any) -> Any:
    used = {"$type": "TokenUsage", "input_tokens": 11, "output_tokens": 7}
    return event("ActionStep", token_usage=used, **fields)


def final(output: Any) -> Any:
    return event("FinalAnswerStep", output=output)


def finish(steps: int = 0) -> Part:
    return conversation.finish("stop", conversation.usage(11 * steps, 7 * steps))


CALL = event("ToolCall", id="c1", name="weather", arguments={"city": "Paris"})
CALLED = ToolCall("c1", "weather", {"city": "Paris"})
CODE = event("ToolCall", id="c1", name="python_interpreter", arguments="print(1)")


def said(*events: Any) -> list[Part]:
    return said_by(SmolagentsAdapter(), events)


def test_the_answer_is_streamed_from_the_argument_of_the_final_tool_and_not_repeated() -> None:
    pieces = ['{"answer": "It ', "is ", 'sunny."}']
    events = [delta(0, piece, "c9" if not number else None, "final_answer" if not number else None)
              for number, piece in enumerate(pieces)]  # fmt: skip
    call = event("ToolCall", id="c9", name="final_answer", arguments=json.loads("".join(pieces)))
    output = event("ToolOutput", id="c9", output="It is sunny.")
    ending = [event("ActionOutput"), step(is_final_answer=True), final("It is sunny.")]
    assert said(*events, call, output, *ending) == [
        Step(),
        Text("It "),
        Text("is "),
        Text("sunny."),
        finish(1),
    ]


def test_what_the_model_says_beside_calls_is_reasoning() -> None:
    assert said(event("ChatMessageStreamDelta", content="Hm."), final("Yes.")) == [
        Step(),
        Reasoning("Hm."),
        Text("Yes."),
        finish(),
    ]


def test_the_input_of_a_tool_is_streamed_and_each_step_is_one() -> None:
    events = [
        delta(0, "", "c1", "weather"),
        delta(0, '{"city": '),
        delta(0, '"Paris"}'),
        CALL,
        event("ToolOutput", id="c1", output={"celsius": 21}),
        step(),
        event("ChatMessageStreamDelta", content="Hm."),
        step(),
        final("21"),
    ]
    assert said(*events) == [
        Step(),
        ToolInputStart("c1", "weather"),
        ToolInputDelta("c1", '{"city": '),
        ToolInputDelta("c1", '"Paris"}'),
        CALLED,
        ToolResult("c1", {"celsius": 21}),
        Step(),
        Reasoning("Hm."),
        Text("21"),
        finish(2),
    ]


def test_a_tool_that_raised_has_failed() -> None:
    assert said(CALL, step(error={"$type": "AgentError", "message": "secret"}), final("No.")) == [
        Step(),
        CALLED,
        ToolError("c1", conversation.TOOL_FAILED),
        Text("No."),
        finish(1),
    ]


@pytest.mark.parametrize(
    ("ending", "output"),
    [(step(observations="Execution logs:\n1"), "Execution logs:\n1"), (step(is_final_answer=True), None)],
    ids=["what it printed", "the final answer"],
)
def test_code_is_a_tool_whose_output_is(ending: Any, output: Any) -> None:
    assert said(CODE, ending, final("1"))[1:3] == [
        ToolCall("c1", "python_interpreter", {"code": "print(1)"}),
        ToolResult("c1", output),
    ]


@pytest.mark.parametrize(
    ("output", "parts"),
    [
        (42, [Text("42")]),
        ({"city": "Paris"}, [Data("output", {"city": "Paris"})]),
        (event("AgentImage"), [Data("output", {"type": "AgentImage"})]),
        (None, []),
    ],
)
def test_a_final_answer_is_text_or_data(output: Any, parts: list[Part]) -> None:
    answer = type("FinalAnswerStep", (SimpleNamespace,), {})(output=output)
    assert said(answer) == [
        *parts,
        finish(),
    ]


def test_the_tokens_of_a_plan_count() -> None:
    used = {"$type": "TokenUsage", "input_tokens": 11, "output_tokens": 7}
    assert said(event("PlanningStep", token_usage=used), event("PlanningStep"), final("Yes."))[-1] == finish(1)


def test_endings_are_told_apart() -> None:
    assert said(CALL)[-1] == Error(conversation.INCOMPLETE)
    assert list(SmolagentsAdapter().close(RuntimeError("secret"))) == []
    with pytest.raises(UnknownEvent, match="Telepathy"):
        said(event("Telepathy"))


async def test_the_parts_of_a_run_are_yielded_in_an_agent_function() -> None:
    async def events() -> Any:
        yield final("Hello")

    assert [part async for part in parts(events())] == [Text("Hello"), finish()]
