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
    ToolApprovalResponseChunk,
    ToolInputAvailableChunk,
    ToolInputErrorChunk,
    ToolOutputAvailableChunk,
    ToolOutputDeniedChunk,
    ToolOutputErrorChunk,
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


NO_RESULT = ToolOutputErrorChunk("p1", "The provider gave no result for this tool call.")
PROVIDERS_CALL = p.ToolCall("p1", "search", {}, provider_executed=True)


@pytest.mark.parametrize(
    ("parts", "settled", "waiting"),
    [
        pytest.param([PROVIDERS_CALL], [NO_RESULT], [], id="alone"),
        pytest.param([PROVIDERS_CALL, p.ToolCall("c1", "locate", {})], [], ["c1"], id="beside-a-client-side-tool"),
        pytest.param([PROVIDERS_CALL, p.ApprovalRequest("a1", "c1")], [NO_RESULT], ["c1"], id="beside-an-approval"),
        pytest.param([PROVIDERS_CALL, p.ApprovalRequest("a1", "p1")], [], ["p1"], id="which-waits-for-its-approval"),
        pytest.param(
            [p.ToolCall("c1", "locate", {}), p.Step(leaves_calls=True), PROVIDERS_CALL],
            [NO_RESULT],
            ["c1"],
            id="behind-the-step-of-a-client-side-tool",
        ),
        pytest.param(
            [PROVIDERS_CALL, p.ApprovalRequest("a1", "p1"), p.ApprovalResponse("a1", False)],
            [ToolOutputDeniedChunk("p1")],
            [],
            id="which-was-denied",
        ),
        pytest.param(
            [p.ToolCall("p1", "search", {}), p.ToolResult("p1", 1, preliminary=True, provider_executed=True)],
            [ToolOutputAvailableChunk("p1", 1)],
            [],
            id="with-a-preliminary-result",
        ),
        pytest.param(
            [PROVIDERS_CALL, p.ToolResult("p1", 1), p.ToolCall("c1", "locate", {}, provider_executed=False)],
            [],
            ["c1"],
            id="which-has-its-result",
        ),
    ],
)
def test_a_call_that_the_provider_runs_waits_for_no_client(
    parts: list[Part], settled: list[Chunk], waiting: list[str]
) -> None:
    stream = MessageStream(message_id="m1", sdk="7")
    for part in parts:
        stream.send(part)
    assert stream.settle() == settled
    assert [call.wire_id for call in stream.waiting_calls] == waiting
    assert stream.close()[-1].finish_reason == ("tool-calls" if waiting else "stop")  # type: ignore[union-attr]


@pytest.mark.parametrize("ending", [p.Finish(), p.Error("It broke."), p.Abort()])
def test_an_automatic_request_without_an_answer_is_denied(ending: Part) -> None:
    stream = MessageStream(message_id="m1", sdk="7")
    stream.send(p.ToolCall("c1", "delete", {}))
    stream.send(p.ApprovalRequest("a1", "c1", is_automatic=True))
    assert stream.send(ending)[:2] == [ToolApprovalResponseChunk("a1", False), ToolOutputDeniedChunk("c1")]


def test_an_automatic_request_of_an_earlier_turn_is_denied_too() -> None:
    approval = {"id": "a1", "isAutomatic": True}
    part = {"type": "tool-t", "toolCallId": "c1", "state": "approval-requested", "input": {}, "approval": approval}
    stream = MessageStream(sdk="7", continues={"id": "m1", "parts": [part]})
    settled = [ToolApprovalResponseChunk("a1", False), ToolOutputDeniedChunk("c1")]
    assert stream.settle() == [StartChunk("m1"), *settled]


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_request_takes_a_preliminary_result_back(dynamic: bool) -> None:
    stream = MessageStream(message_id="m1", sdk="7")
    stream.send(p.ToolCall("c1", "delete", {"file": "a"}, dynamic=dynamic))
    stream.send(p.ToolResult("c1", "half", preliminary=True))
    assert stream.send(p.ToolCall("c1", "delete", {"file": "b"}, dynamic=dynamic)) == []
    assert stream.send(p.ApprovalRequest("a1", "c1")) == [
        ToolInputAvailableChunk("c1", "delete", {"file": "a"}, dynamic=dynamic or None),
        ToolApprovalRequestChunk("a1", "c1"),
    ]


@pytest.mark.parametrize("sdk", ["5", "6", "7"])
def test_a_preliminary_result_that_is_retracted_leaves_a_call_that_waits(sdk: str) -> None:
    stream = MessageStream(message_id="m1", sdk=sdk)
    stream.send(p.ToolCall("c1", "delete", {"file": "a"}))
    stream.send(p.ToolResult("c1", "half", preliminary=True))
    assert stream.send(p.ToolCall("c1", "delete", {"file": "a"}, retracts_output=True)) == [
        ToolInputAvailableChunk("c1", "delete", {"file": "a"})
    ]
    assert stream.settle() == []
    assert [call.wire_id for call in stream.waiting_calls] == ["c1"]


def test_a_preliminary_result_behind_an_approval_is_not_retracted() -> None:
    stream = MessageStream(message_id="m1", sdk="7")
    for part in (
        p.ToolCall("c1", "delete", {}),
        p.ApprovalRequest("a1", "c1"),
        p.ApprovalResponse("a1", True),
        p.ToolResult("c1", "half", preliminary=True),
    ):
        stream.send(part)
    assert stream.send(p.ToolCall("c1", "delete", {}, retracts_output=True)) == []


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


def run(parts: list[Part], sdk: str, continues: dict[str, Any] | None, *, settle: bool) -> list[Chunk]:
    stream = MessageStream(message_id="m1", sdk=sdk, continues=continues)
    out = [chunk for part in parts for chunk in stream.send(part)]
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
    parts: list[Part], sdk: str, continues: dict[str, Any] | None
) -> None:
    assert run(parts, sdk, continues, settle=True) == run(parts, sdk, continues, settle=False)


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
    out = stream.send(p.Error("down"))
    assert [chunk.error_text for chunk in out if hasattr(chunk, "error_text")] == ["The tool call was denied.", "down"]
