"""The events of DSPy to parts, and chats to its history: lists in, lists out. No DSPy is needed."""

from typing import Any

import pytest

from tests.adapters.recorded_events import decoded
from tests.adapters.turns import assistant, said_by, text, tool, turn_of, user
from usechat.adapters import conversation
from usechat.adapters.dspy import DspyAdapter, parts, to_dspy
from usechat.errors import UnknownEvent
from usechat.parts import Data, Error, Part, Reasoning, Step, Text, ToolCall, ToolError, ToolResult

FINISHED = conversation.finish("stop", None)
CALL = {"call": "c1", "tool": "weather", "input": {"city": "Paris"}}


def piece(field: str, chunk: str) -> Any:
    return decoded({"$type": "StreamResponse", "signature_field_name": field, "chunk": chunk})


def prediction(**fields: Any) -> Any:
    return {"prediction": fields}


def result(output: Any, *, failed: bool = False) -> Any:
    return {"result": "c1", "output": output, "failed": failed}


def said(*events: Any) -> list[Part]:
    return said_by(DspyAdapter(), events)


def test_the_answer_is_streamed_once_and_thoughts_are_reasoning() -> None:
    events = [
        {"lm": "l1"},
        piece("next_thought", "Hm."),
        {"lm": "l2"},
        piece("answer", "Hel"),
        piece("answer", ""),
        piece("answer", "lo"),
        prediction(reasoning="Hm.", trajectory={}, answer="Hello"),
    ]
    assert said(*events) == [Step(), Reasoning("Hm."), Step(), Text("Hel"), Text("lo"), FINISHED]


def test_a_program_that_does_not_stream_is_heard_and_its_tokens_count() -> None:
    ended = {**prediction(answer="Hello"), "usage": {"prompt_tokens": 11, "completion_tokens": 7}}
    assert said(ended) == [Text("Hello"), conversation.finish("stop", conversation.usage(11, 7))]


def test_outputs_that_are_no_texts_are_data() -> None:
    assert said(prediction(score=1, answer="Yes.")) == [
        Text("Yes."),
        Data("output", {"score": 1, "answer": "Yes."}),
        FINISHED,
    ]


def test_calls_have_results_or_fail() -> None:
    call = ToolCall("c1", "weather", {"city": "Paris"})
    assert said(CALL, result({"celsius": 21}), prediction())[:2] == [call, ToolResult("c1", {"celsius": 21})]
    assert said(CALL, result(None, failed=True), prediction())[:2] == [
        call,
        ToolError("c1", conversation.TOOL_FAILED),
    ]
    assert said(result("Completed."), prediction()) == [FINISHED]


def test_a_status_message_is_data() -> None:
    assert said(decoded({"$type": "StatusMessage", "message": "Looking."}), prediction())[0] == Data(
        "status", {"message": "Looking."}
    )


def test_endings_are_told_apart() -> None:
    assert said(piece("answer", "Hel"))[-1] == Error(conversation.INCOMPLETE)
    assert list(DspyAdapter().close(RuntimeError("secret"))) == []
    with pytest.raises(UnknownEvent, match="telepathy"):
        said({"telepathy": 1})
    with pytest.raises(UnknownEvent, match="ModelResponseStream"):
        said(type("ModelResponseStream", (), {})())


async def test_the_parts_of_a_run_are_yielded_in_an_agent_function() -> None:
    async def events() -> Any:
        yield prediction(answer="Hello")

    assert [part async for part in parts(events())] == [Text("Hello"), FINISHED]


async def test_a_chat_becomes_questions_and_answers() -> None:
    note = {"type": "file", "mediaType": "text/plain", "url": "data:text/plain,hi", "filename": "a.txt"}
    image = {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,aGk=", "filename": "a.png"}
    chat = turn_of(
        user("Look.", "u1", note, image),
        assistant(
            {"type": "step-start"},
            text("Let me see. "),
            tool("weather", "c1", "output-available", output=21),
            {"type": "step-start"},
            text("Sunny."),
        ),
        user("And?", "u2"),
        user("Thanks.", "u3"),
    )
    assert to_dspy(conversation.history(chat), "question", "answer") == [
        {"question": "Look.\n\na.txt:\nhi\n\na.png (image/png)", "answer": "Let me see. Sunny."},
        {"question": "And?", "answer": ""},
        {"question": "Thanks."},
    ]
