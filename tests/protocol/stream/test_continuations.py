"""A message that goes on: what stood in it already is known."""

from typing import Any

import pytest

from tests.protocol.stream.sending import SUNNY, SUNNY_CHUNK, WEATHER, send, text
from usechat.parts import Part
from usechat.protocol.chunks import (
    AbortChunk,
    Chunk,
    FinishChunk,
    FinishStepChunk,
    StartChunk,
    StartStepChunk,
    TextDeltaChunk,
    TextEndChunk,
    TextStartChunk,
    ToolApprovalRequestChunk,
    ToolApprovalResponseChunk,
    ToolInputAvailableChunk,
    ToolInputErrorChunk,
    ToolInputStartChunk,
    ToolOutputAvailableChunk,
    ToolOutputDeniedChunk,
    ToolOutputErrorChunk,
)
from usechat.protocol.stream import UNFINISHED, MessageStream
from usechat.protocol.tool_calls import call_of
from usechat.protocol.ui_messages import tool_parts_of

# Parts are written `p.Text`, chunks by their bare names.
import usechat.parts as p  # isort: skip

CONTINUED: dict[str, Any] = {
    "id": "assistant-1",
    "role": "assistant",
    "parts": [
        {"type": "step-start"},
        {"type": "text", "text": "Let me see."},
        {"type": "tool-weather", "toolCallId": "c1", "state": "input-available", "input": {"city": "Paris"}},
        {"type": "dynamic-tool", "toolName": "rm", "toolCallId": "c2", "state": "input-available", "input": {}},
        {
            "type": "tool-rm",
            "toolCallId": "c3",
            "state": "approval-responded",
            "input": {},
            "approval": {"id": "a3", "approved": True},
        },
        {
            "type": "tool-rm",
            "toolCallId": "c4",
            "state": "approval-responded",
            "input": {},
            "approval": {"id": "a4", "approved": False},
        },
        {"type": "tool-rm", "toolCallId": "c5", "state": "input-streaming"},
        {"type": "tool-rm", "toolCallId": "c6", "state": "strange"},
        {"type": "tool-t", "toolCallId": "c7", "state": "output-available", "output": 1, "preliminary": True},
        {"type": "tool-t", "toolCallId": "c8", "state": "output-available", "output": 1},
        {
            "type": "tool-approval",
            "toolCallId": "a9",
            "state": "input-available",
            "input": {"approvalId": "a9", "toolCallId": "c5"},
        },
    ],
}


def continue_with(*parts: Part, sdk: str = "7") -> list[Chunk]:
    stream = MessageStream(message_id="ignored", sdk=sdk, continues=CONTINUED)
    out = [chunk for part in parts for chunk in stream.send(part)]
    assert out[0] == StartChunk("assistant-1")
    return out[1:]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        pytest.param([SUNNY], [SUNNY_CHUNK], id="an-output-needs-no-step"),
        pytest.param(
            [p.ToolResult("c2", 1), p.Text("Done.")],
            [
                ToolOutputAvailableChunk("c2", 1, dynamic=True),
                TextStartChunk("1"),
                TextDeltaChunk("1", "Done."),
            ],
            id="text-goes-on-in-a-step-with-open-calls-and-dynamic-is-remembered",
        ),
        pytest.param([p.ToolResult("c3", 1)], [ToolOutputAvailableChunk("c3", 1)], id="an-approved-tool-answers"),
        pytest.param([p.ToolDenied("c4")], [], id="a-denial-beside-an-open-call-is-left-for-the-next-turn"),
        pytest.param([WEATHER], [], id="a-known-call-is-not-told-again"),
        pytest.param(
            [p.ToolCall("c8", "t", 1)],
            [ToolInputAvailableChunk("c8-2", "t", 1)],
            id="a-finished-id-is-new",
        ),
        pytest.param([p.Start("other")], [], id="the-id-stays"),
        pytest.param(
            [p.ApprovalResponse("a9", True)],
            [ToolOutputAvailableChunk("a9", {"approved": True})],
            id="an-earlier-question",
        ),
        pytest.param(
            [p.Finish()],
            [
                ToolInputErrorChunk("c5", "rm", {}, "The tool call was cut off before its input was complete."),
                ToolOutputErrorChunk("c3", "The approved tool call gave no result."),
                ToolOutputAvailableChunk("c7", 1),
                FinishChunk("tool-calls"),
            ],
            id="what-was-answered-is-settled-at-the-end",
        ),
    ],
)
def test_continuations(parts: list[Part], expected: list[Chunk]) -> None:
    assert continue_with(*parts) == expected


@pytest.mark.parametrize(
    "message",
    [
        {"id": "", "parts": None},
        {"parts": [5, {"type": None}, {"type": "tool-t"}, {"type": "tool-t", "toolCallId": 5}]},
        {
            "id": 7,
            "parts": [{"type": "tool-approval", "toolCallId": "a", "input": {"approvalId": "a", "toolCallId": "gone"}}],
        },
    ],
)
def test_an_odd_message_can_be_continued(message: dict[str, Any]) -> None:
    out = send([p.Text("a")], continues=message)
    assert out[0] == StartChunk("m1")


def test_only_tool_parts_are_calls() -> None:
    kinds = ("data-x", "dynamic", "dynamic-tool", "dynamic-tools", "text", "tool", "tool-x", "tools")
    tools = tool_parts_of({"parts": [{"type": kind, "toolCallId": "c1"} for kind in kinds]})
    assert [part["type"] for part in tools] == ["dynamic-tool", "tool-x"]


def test_the_last_part_of_an_id_is_the_one_that_is_spoken_of() -> None:
    twice: list[dict[str, Any]] = [
        {"type": "tool-t", "toolCallId": "c1", "state": state, "input": {}}
        for state in ("output-available", "input-available")
    ]
    out = send([p.Error("x")], continues={"id": "m1", "parts": twice})
    assert [chunk for chunk in out if isinstance(chunk, ToolOutputErrorChunk)] == [
        ToolOutputErrorChunk("c1", UNFINISHED)
    ]


def part_of(state: str, call_id: str = "c1", **more: Any) -> dict[str, Any]:
    return {"type": "tool-rm", "toolCallId": call_id, "state": state, "input": {}, **more}


def continued(*tools: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": "m1", "role": "assistant", "parts": [{"type": "step-start"}, *tools], **more}


APPROVED = part_of("approval-responded", approval={"id": "a1", "approved": True})
REFUSED = part_of("approval-responded", approval={"id": "a1", "approved": False})
ASKED = part_of("approval-requested", approval={"id": "a1"})


@pytest.mark.parametrize("sdk", ["any", "6", "7"])
def test_a_call_that_the_page_denied_is_denied_before_the_next_step(sdk: str) -> None:
    out = send([p.Text("Well.")], sdk, continues=continued(REFUSED))
    assert out[1:5] == [
        ToolOutputDeniedChunk("c1"),
        StartStepChunk(),
        TextStartChunk("1"),
        TextDeltaChunk("1", "Well."),
    ]


@pytest.mark.parametrize("outcome", [p.ToolResult("c1", "no"), p.ToolError("c1", "no"), p.ToolDenied("c1", "no")])
def test_whatever_an_agent_reports_for_a_call_that_the_page_denied_is_the_denial(outcome: Part) -> None:
    assert send([outcome], continues=continued(REFUSED))[1] == ToolOutputDeniedChunk("c1")


def test_an_interim_result_of_a_call_that_the_page_denied_is_dropped() -> None:
    stream = MessageStream(sdk="7", continues=continued(REFUSED))
    assert stream.send(p.ToolResult("c1", 1, preliminary=True)) == [StartChunk("m1")]


def test_a_result_ends_the_step_of_the_continued_message() -> None:
    out = send([p.ToolResult("c1", 1), p.Text("Done.")], continues=continued(APPROVED))
    assert out[1:4] == [ToolOutputAvailableChunk("c1", 1), StartStepChunk(), TextStartChunk("1")]


def test_text_beside_a_call_that_an_earlier_turn_left_open_stays_in_its_step() -> None:
    message = continued(APPROVED, part_of("input-available", "loc"))
    out = send([p.ToolResult("c1", 1), p.Text("Done.")], continues=message)
    assert out[1:] == [ToolOutputAvailableChunk("c1", 1), *text("1", "Done."), FinishChunk("tool-calls")]


def test_a_denied_call_that_another_stream_says_to_run_itself_is_no_second_call() -> None:
    message = continued(part_of("output-denied", approval={"id": "a1", "approved": False}, providerExecuted=True))
    again = p.ToolCall(
        "c1", "rm", {}, provider_executed=False, provider_metadata={"usechat": {"providerExecuted": True}}
    )
    new_chunks = send([again, p.ApprovalRequest("a2", "c1")], continues=message)
    assert [
        chunk for chunk in new_chunks if isinstance(chunk, ToolInputAvailableChunk | ToolApprovalRequestChunk)
    ] == []


def test_a_call_that_the_page_has_left_open_stays_in_one_step_with_the_next_question() -> None:
    message = continued(part_of("input-available", "run"), {"type": "step-start"}, part_of("input-available", "asked"))
    stream = MessageStream(sdk="7", continues=message)
    new_chunks = [
        chunk
        for part in (p.ToolResult("run", 1), p.Step(leaves_calls=True), p.ToolCall("again", "ask", {}))
        for chunk in stream.send(part)
    ]
    assert [type(chunk) for chunk in [*new_chunks, *stream.close()]] == [
        StartChunk,
        ToolOutputAvailableChunk,
        ToolInputAvailableChunk,
        FinishChunk,
    ], "the page posts when both are answered"


def test_a_call_that_the_page_was_asked_about_is_left_by_the_next_question() -> None:
    question = {"approvalId": "a1", "toolCallId": "run", "toolName": "rm", "input": {}}
    asked = {**part_of("output-available", "a1", output={"approved": True}), "type": "tool-approval", "input": question}
    stream = MessageStream(sdk="7", continues=continued(part_of("input-available", "run"), asked))
    new_chunks = [*stream.send(p.Step(leaves_calls=True)), *stream.send(p.ToolCall("q", "ask", {}))]
    assert [type(chunk) for chunk in new_chunks] == [StartChunk, StartStepChunk, ToolInputAvailableChunk]


def test_an_open_call_of_an_earlier_step_holds_no_step() -> None:
    message = continued(part_of("input-available", "loc"), {"type": "step-start"}, {"type": "text", "text": "a"})
    out = send([p.ToolCall("c2", "t", lane="x"), p.Text("b", lane="y"), p.ToolResult("c2", 1)], continues=message)
    assert out[-4:] == [FinishStepChunk(), StartStepChunk(), FinishStepChunk(), FinishChunk("tool-calls", {})]


def test_text_behind_results_of_the_continued_step_is_followed_by_a_step() -> None:
    message = continued(part_of("output-available", "c0", output=1), ASKED)
    parts: list[Part] = [p.ApprovalResponse("a1", True), p.Text("b"), p.ToolResult("c1", 1)]
    assert send(parts, continues=message)[-4:] == [
        ToolOutputAvailableChunk("c1", 1),
        StartStepChunk(),
        FinishStepChunk(),
        FinishChunk("stop", {}),
    ]


OUTCOMES: list[Part] = [
    p.ToolResult("c1", 1),
    p.ToolResult("c1", 1, preliminary=True),
    p.ToolError("c1", "failed"),
    p.ToolInputError("c1", "t", "bad"),
    p.ToolDenied("c1", "no"),
]


@pytest.mark.parametrize("outcome", [*OUTCOMES, p.ApprovalResponse("a1", True), p.ApprovalResponse("a1", False)])
@pytest.mark.parametrize("sdk", ["any", "6"])
@pytest.mark.parametrize("ending", [p.Finish(), p.Error("It broke."), p.Abort()])
def test_a_request_of_an_earlier_turn_stays_open_where_the_page_cannot_be_told_the_answer(
    outcome: Part, sdk: str, ending: Part
) -> None:
    stream = MessageStream(sdk=sdk, continues=continued(ASKED))
    out = stream.send(outcome) + stream.send(ending)
    assert not any(hasattr(chunk, "tool_call_id") for chunk in out)
    assert [(call.wire_id, call.state, call.approved) for call in stream.waiting_calls] == [
        ("c1", "approval-requested", None)
    ]


@pytest.mark.parametrize(
    "outcome",
    [
        p.ToolResult("c1", 1),
        p.ToolError("c1", "failed"),
        p.ToolDenied("c1", "no"),
        p.ApprovalResponse("a2", True),
        p.ApprovalResponse("a2", False),
    ],
)
@pytest.mark.parametrize("sdk", ["any", "6"])
def test_a_no_that_is_asked_again_and_then_decided_stays_a_no_where_the_page_cannot_be_told(
    outcome: Part, sdk: str
) -> None:
    parts: list[Part] = [p.ApprovalRequest("a2", "c1"), outcome]
    about_calls = [chunk for chunk in send(parts, sdk, continues=continued(REFUSED)) if hasattr(chunk, "tool_call_id")]
    assert about_calls == [ToolOutputDeniedChunk("c1")]


def test_a_no_that_is_asked_again_and_then_denied_is_a_denial() -> None:
    parts: list[Part] = [p.ApprovalRequest("a2", "c1"), p.ToolDenied("c1", "no")]
    assert send(parts, "7", continues=continued(REFUSED))[1:4] == [
        ToolApprovalRequestChunk("a2", "c1"),
        ToolApprovalResponseChunk("a2", False, "no"),
        ToolOutputDeniedChunk("c1"),
    ]


@pytest.mark.parametrize("ending", [p.Error("It broke."), p.Abort()])
def test_a_no_that_was_to_be_asked_again_stays_a_no_if_the_turn_breaks_off(ending: Part) -> None:
    out = send([p.ApprovalRequest("a2", "c1"), ending], "6", continues=continued(REFUSED))
    assert out[1] == ToolOutputDeniedChunk("c1")


def test_a_no_that_is_asked_again_waits_again() -> None:
    out = send([p.ApprovalRequest("a2", "c1"), p.Text("Well?")], "6", continues=continued(REFUSED))
    assert out[-2:] == [ToolApprovalRequestChunk("a2", "c1"), FinishChunk("tool-calls")]


def test_a_preliminary_result_that_contradicts_the_pages_no_is_forgotten() -> None:
    refused = part_of("output-available", output=1, preliminary=True, approval={"id": "a1", "approved": False})
    assert send([], "7", continues=continued(refused))[-1] == FinishChunk("stop", {})


def test_a_step_of_the_continued_message_is_not_reset() -> None:
    stream = MessageStream(sdk="7", continues=continued(ASKED))
    assert stream.send(p.Text("a"))[-1] == TextDeltaChunk("1", "a")
    assert stream.send(p.ResetStep()) == [TextEndChunk("1")]
    assert stream.downgraded == {"reset-step": 1}


def test_a_denial_after_a_yes_that_the_page_shows_is_an_error() -> None:
    parts: list[Part] = [p.ApprovalRequest("a2", "c1"), p.ToolDenied("c1")]
    out = send(parts, "6", continues=continued(APPROVED))
    assert out[1] == ToolOutputErrorChunk("c1", "The tool call was denied.")


def test_only_calls_of_the_continued_message_are_marked_as_restored() -> None:
    stream = MessageStream(sdk="7", continues=continued(part_of("input-available", "loc")))
    stream.send(p.ToolCall("c2", "t"))
    assert [(call.wire_id, call.restored) for call in stream.waiting_calls] == [("loc", True), ("c2", False)]


def test_an_answer_to_a_request_that_was_replaced_is_dropped() -> None:
    stream = MessageStream(sdk="7", continues=continued(ASKED))
    stream.send(p.ApprovalRequest("a2", "c1"))
    assert stream.send(p.ApprovalResponse("a1", True)) == []
    assert stream.send(p.ApprovalResponse("a2", True)) == [ToolApprovalResponseChunk("a2", True)]


def test_a_call_that_is_asked_about_again_waits_again() -> None:
    stream = MessageStream(sdk="7", continues=continued(APPROVED))
    assert stream.send(p.ApprovalRequest("a2", "c1"))[1:] == [ToolApprovalRequestChunk("a2", "c1")]
    assert stream.close() == [FinishChunk("tool-calls")]
    [call] = stream.waiting_calls
    assert (call.approval_id, call.was_requested) == ("a2", True)


@pytest.mark.parametrize("metadata", ["a text", 5, True, ["a"]])
@pytest.mark.parametrize("sdk", ["any", "7"])
def test_no_metadata_is_sent_on_top_of_metadata_that_is_no_object(sdk: str, metadata: Any) -> None:
    message = continued({"type": "text", "text": "a"}, metadata=metadata)
    stream = MessageStream(sdk=sdk, continues=message)
    out = stream.send(p.Start(metadata={"a": 1})) + stream.send(p.Metadata({"b": 1}))
    out += stream.send(p.Finish(metadata={"c": 1}))
    assert out == [
        StartChunk("m1"),
        StartStepChunk(),
        TextStartChunk("1"),
        TextEndChunk("1"),
        FinishStepChunk(),
        FinishChunk(None if sdk == "any" else "stop"),
    ]
    assert stream.downgraded["message-metadata"] == 3


def test_a_stop_shows_its_empty_step_where_no_metadata_can() -> None:
    message = continued(part_of("input-available"), metadata="a text")
    assert send([p.Abort()], continues=message)[2:] == [
        StartStepChunk(),
        TextStartChunk("1"),
        TextEndChunk("1"),
        FinishStepChunk(),
        AbortChunk(),
        FinishChunk("other"),
    ]


@pytest.mark.parametrize(
    ("state", "approved"),
    [("output-available", True), ("output-error", True), ("output-denied", False)],
)
def test_the_state_of_a_call_says_what_was_answered_if_its_approval_does_not(state: str, approved: bool) -> None:
    part = {"type": "tool-rm", "toolCallId": "c1", "state": state, "input": {}, "approval": {"id": "a1"}}
    assert call_of(part).approved is approved


def test_a_call_whose_input_was_refused_takes_no_result() -> None:
    refused = {"type": "tool-t", "toolCallId": "c1", "state": "output-error", "rawInput": {}, "errorText": "bad"}
    failed = {"type": "tool-t", "toolCallId": "c2", "state": "output-error", "input": {}, "errorText": "bad"}
    stream = MessageStream(sdk="7", continues={"id": "m1", "parts": [refused, failed]})
    assert stream.send(p.ToolResult("c1", 1)) == [StartChunk("m1")]
    assert stream.send(p.ToolResult("c2", 1)) == [ToolOutputAvailableChunk("c2", 1)]


def test_a_call_that_the_provider_runs_is_known_as_such() -> None:
    part = {"type": "tool-t", "toolCallId": "c1", "state": "input-available", "input": {}, "providerExecuted": True}
    stream = MessageStream(sdk="7", continues={"id": "m1", "parts": [part]})
    assert stream.waiting_calls == []


def test_an_input_that_is_cut_off_fails_in_the_step_that_it_began_in() -> None:
    waiting = {"type": "tool-t", "toolCallId": "c1", "state": "input-available", "input": {}}
    parts: list[Part] = [p.ToolInputStart("c2", "t"), p.ToolError("c1", "no")]
    assert [type(chunk) for chunk in send(parts, continues={"id": "m1", "parts": [waiting]})] == [
        StartChunk,
        ToolInputStartChunk,
        ToolOutputErrorChunk,
        ToolInputErrorChunk,
        StartStepChunk,
        FinishStepChunk,
        FinishChunk,
    ]


def test_an_answer_finds_its_call_although_an_earlier_one_has_the_approval_id() -> None:
    approval = {"id": "a1", "approved": True}
    earlier = {"type": "tool-t", "toolCallId": "c1", "state": "output-error", "input": {}, "errorText": "x"}
    stream = MessageStream(sdk="7", continues={"id": "m1", "parts": [earlier | {"approval": approval}]})
    stream.send(p.ApprovalRequest("a1", "c2"))
    assert stream.send(p.ApprovalResponse("a1", True)) == [
        ToolApprovalRequestChunk("c2-approval", "c2", is_automatic=True),
        ToolApprovalResponseChunk("c2-approval", True),
    ]


def test_a_tool_called_approval_does_not_change_the_answer_that_a_call_shows() -> None:
    denied = {"type": "tool-rm", "toolCallId": "c1", "state": "approval-responded", "input": {}}
    question = {"type": "tool-approval", "toolCallId": "q1", "state": "output-available", "output": {"approved": True}}
    tools = [
        denied | {"approval": {"id": "a1", "approved": False}},
        question | {"input": {"approvalId": "a1", "toolCallId": "c1"}},
    ]
    stream = MessageStream(sdk="7", continues={"id": "m1", "parts": tools})
    assert stream.settle() == [StartChunk("m1"), ToolOutputDeniedChunk("c1")]


def test_an_input_that_was_cut_off_in_an_earlier_step_fails() -> None:
    cut = {"type": "tool-rm", "toolCallId": "c1", "state": "input-streaming", "input": {}}
    message = {"id": "m1", "role": "assistant", "parts": [cut, {"type": "step-start"}, {"type": "text", "text": "Hm"}]}
    stream = MessageStream(message_id="m1", sdk="7", continues=message)
    chunks = [*stream.send(p.Text("Well.")), *stream.close()]
    assert [
        chunk.tool_call_id for chunk in chunks if isinstance(chunk, ToolOutputErrorChunk | ToolInputErrorChunk)
    ] == ["c1"]
