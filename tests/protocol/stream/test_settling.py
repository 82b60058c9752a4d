"""Settling a stream before its ending: what the ending would settle, and no more."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import usechat.parts as p
from tests.part_strategies import continued_messages, part_lists
from usechat.errors import LocalProtocolError
from usechat.parts import Part
from usechat.protocol.chunks import (
    Chunk,
    FinishChunk,
    FinishStepChunk,
    MessageMetadataChunk,
    StartChunk,
    StartStepChunk,
    TextEndChunk,
    ToolApprovalRequestChunk,
    ToolInputErrorChunk,
    ToolOutputAvailableChunk,
)
from usechat.protocol.stream import MessageStream


def test_what_is_half_said_is_settled_and_calls_for_the_client_stay_open() -> None:
    stream = MessageStream(message_id="m1", sdk="7")
    for part in (
        p.ToolCall("c1", "ask", {}),
        p.ToolCall("c2", "search", {}),
        p.ToolResult("c2", 1, preliminary=True),
        p.ToolInputStart("c3", "cut"),
        p.Text("Well", lane="x"),
    ):
        stream.send(part)
    error = "The tool call was cut off before its input was complete."
    settled = stream.settle()
    assert settled == [
        ToolInputErrorChunk("c3", "cut", {}, error),
        TextEndChunk("1"),
        ToolOutputAvailableChunk("c2", 1),
    ]
    assert [call.wire_id for call in stream.waiting_calls] == ["c1"]
    assert stream.ending is None


@pytest.mark.parametrize(("sdk", "asked_at_the_end"), [("7", []), ("any", [ToolApprovalRequestChunk("a1", "c1")])])
def test_progress_before_an_approval_request_does_not_answer_it(sdk: str, asked_at_the_end: list[Chunk]) -> None:
    stream = MessageStream(message_id="m1", sdk=sdk)
    for part in (p.ToolCall("c1", "delete", {}), p.ToolResult("c1", "half", preliminary=True)):
        stream.send(part)
    stream.send(p.ApprovalRequest("a1", "c1"))
    assert stream.settle() == asked_at_the_end
    assert [call.wire_id for call in stream.waiting_calls] == ["c1"]


def test_a_stream_that_has_not_begun_begins() -> None:
    stream = MessageStream(message_id="m1", sdk="7")
    assert stream.settle() == [StartChunk("m1")]
    assert stream.close() == [StartStepChunk(), FinishStepChunk(), FinishChunk("stop", {})]


def test_a_stream_that_has_ended_has_nothing_to_settle() -> None:
    stream = MessageStream(message_id="m1", sdk="7")
    stream.close()
    assert stream.settle() == []


def test_a_stream_goes_on_after_it_was_settled() -> None:
    stream = MessageStream(message_id="m1", sdk="7")
    stream.send(p.Text("Hel"))
    assert stream.settle() == [TextEndChunk("1")]
    assert stream.send(p.Metadata({"a": 1})) == [MessageMetadataChunk({"a": 1})]
    assert stream.close() == [FinishStepChunk(), FinishChunk("stop")]


def run(sent: list[Part], sdk: str, continues: dict[str, Any] | None, *, settle: bool) -> list[Chunk]:
    stream = MessageStream(message_id="m1", sdk=sdk, continues=continues)
    out = [chunk for part in sent for chunk in stream.send(part)]
    if settle:
        out += stream.settle()
        waiting = [call.wire_id for call in stream.waiting_calls]
        out += stream.close()
        assert stream.ending is not None
        if isinstance(stream.ending, p.Finish):
            assert [call.wire_id for call in stream.waiting_calls] == waiting
        return out
    return out + stream.close()


@given(part_lists, st.sampled_from(["any", "5", "6", "7"]), st.none() | continued_messages(approvals=True))
def test_a_good_ending_is_the_same_with_and_without_settling(
    sent: list[Part], sdk: str, continues: dict[str, Any] | None
) -> None:
    assert run(sent, sdk, continues, settle=True) == run(sent, sdk, continues, settle=False)


def test_settling_needs_a_message_id() -> None:
    with pytest.raises(LocalProtocolError, match="the stream has no message id"):
        MessageStream(sdk="7").settle()


def test_a_call_that_a_client_tool_denied_is_denied_when_the_turn_fails() -> None:
    call = {"type": "tool-t", "toolCallId": "c1", "state": "input-available", "input": {}}
    question = {"approvalId": "a1", "toolCallId": "c1"}
    no = {"type": "tool-approval", "toolCallId": "c2", "state": "output-available", "input": question}
    stream = MessageStream(
        sdk="5", continues={"id": "m1", "role": "assistant", "parts": [call, no | {"output": {"approved": False}}]}
    )
    sent = stream.send(p.Error("down"))
    assert [chunk.error_text for chunk in sent if hasattr(chunk, "error_text")] == ["The tool call was denied.", "down"]
