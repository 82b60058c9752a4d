"""What a release does not know is told in another way, or left out."""

import pytest

from tests.protocol.stream.sending import SUNNY, SUNNY_CHUNK, WEATHER, WEATHER_CHUNK, body, send, text
from usechat.parts import Part
from usechat.protocol.chunks import (
    Chunk,
    DataChunk,
    ErrorChunk,
    FileChunk,
    FinishChunk,
    FinishStepChunk,
    MessageMetadataChunk,
    StartStepChunk,
    TextDeltaChunk,
    TextEndChunk,
    TextStartChunk,
    ToolApprovalRequestChunk,
    ToolInputAvailableChunk,
    ToolInputDeltaChunk,
    ToolInputStartChunk,
    ToolOutputAvailableChunk,
    ToolOutputErrorChunk,
)
from usechat.protocol.stream import MessageStream

# Parts are written `p.Text`, chunks by their bare names.
import usechat.parts as p  # isort: skip


@pytest.mark.parametrize(
    ("sdk", "parts", "expected", "downgraded"),
    [
        pytest.param(
            "any",
            [WEATHER, p.ApprovalRequest("a1", "c1", "why")],
            [StartStepChunk(), WEATHER_CHUNK, ToolApprovalRequestChunk("a1", "c1")],
            {"tool-approval-request.reason": 1, "finish.finishReason": 1},
            id="any-sends-native-approval-requests",
        ),
        pytest.param(
            "any",
            [WEATHER, p.ApprovalRequest("a1", "c1"), p.ApprovalResponse("a1", False), p.ToolDenied("c1")],
            [StartStepChunk(), WEATHER_CHUNK, ToolOutputErrorChunk("c1", "The tool call was denied.")],
            {"tool-approval-response": 1, "tool-output-denied": 1, "finish.finishReason": 1},
            id="any-sees-a-denial-within-the-turn-as-a-tool-error",
        ),
        pytest.param(
            "any",
            [WEATHER, p.ApprovalRequest("a0", "c1"), p.Text("b", lane="b"), p.ApprovalRequest("a1", "c1")],
            [StartStepChunk(), WEATHER_CHUNK, *text("1", "b"), ToolApprovalRequestChunk("a1", "c1")],
            {"finish.finishReason": 1},
            id="any-is-asked-at-the-end-of-the-turn-and-once",
        ),
        pytest.param(
            "any",
            [WEATHER, p.ApprovalRequest("a1", "c1"), p.ApprovalResponse("a1", True, "ok"), SUNNY],
            [StartStepChunk(), WEATHER_CHUNK, SUNNY_CHUNK],
            {"tool-approval-response": 1, "finish.finishReason": 1},
            id="any-is-not-asked-for-an-approval-that-is-answered-in-the-turn",
        ),
        pytest.param(
            "6",
            [WEATHER, p.ApprovalRequest("a1", "c1"), SUNNY],
            [StartStepChunk(), WEATHER_CHUNK, SUNNY_CHUNK],
            {"tool-approval-response": 1},
            id="6-is-not-asked-for-an-approval-of-a-tool-that-ran-in-the-turn",
        ),
        pytest.param(
            "5",
            [
                WEATHER,
                p.ApprovalRequest("a1", "c1", "why"),
                p.ToolCall("c2", "t"),
                p.ApprovalRequest("c1", "c2"),
                p.Step(),
                p.Text("a"),
            ],
            [
                StartStepChunk(),
                WEATHER_CHUNK,
                ToolInputAvailableChunk("c2", "t", None),
                *text("1", "a"),
                FinishStepChunk(),
                StartStepChunk(),
                ToolInputAvailableChunk(
                    "a1",
                    "approval",
                    {
                        "approvalId": "a1",
                        "toolCallId": "c1",
                        "toolName": "weather",
                        "input": {"city": "Paris"},
                        "reason": "why",
                    },
                ),
                ToolInputAvailableChunk(
                    "c1-2", "approval", {"approvalId": "c1", "toolCallId": "c2", "toolName": "t", "input": None}
                ),
            ],
            {"tool-approval-request": 2},
            id="approvals-become-client-side-tools-at-the-end",
        ),
        pytest.param(
            "5",
            [
                p.ToolInputStart("c1", "t"),
                p.ToolInputDelta("c1", '{"a":1}'),
                p.ToolInputStart("c2", "t", lane="y"),
                p.ApprovalRequest("a0", "c1"),
                p.ApprovalRequest("a1", "c1"),
                p.ToolCall("c2", "t", {}, lane="y"),
                p.ToolResult("c2", 2, lane="y"),
            ],
            [
                StartStepChunk(),
                ToolInputStartChunk("c1", "t"),
                ToolInputDeltaChunk("c1", '{"a":1}'),
                ToolInputStartChunk("c2", "t"),
                ToolInputAvailableChunk("c1", "t", {"a": 1}),
                ToolInputAvailableChunk("c2", "t", {}),
                ToolOutputAvailableChunk("c2", 2),
                FinishStepChunk(),
                StartStepChunk(),
                ToolInputAvailableChunk(
                    "a1", "approval", {"approvalId": "a1", "toolCallId": "c1", "toolName": "t", "input": {"a": 1}}
                ),
            ],
            {"tool-approval-request": 2},
            id="a-streamed-input-is-completed-before-its-approval-is-asked-for-once",
        ),
        pytest.param(
            "5",
            [WEATHER, p.ApprovalRequest("a1", "c1"), p.ApprovalResponse("a1", True, "ok"), SUNNY],
            [StartStepChunk(), WEATHER_CHUNK, SUNNY_CHUNK],
            {"tool-approval-request": 1, "tool-approval-response": 1},
            id="an-approval-that-is-answered-in-the-turn-is-not-asked-for",
        ),
        pytest.param(
            "5",
            [WEATHER, p.ApprovalRequest("a1", "c1"), p.ApprovalResponse("a1", False)],
            [StartStepChunk(), WEATHER_CHUNK, ToolOutputErrorChunk("c1", "The tool call was denied.")],
            {"tool-approval-request": 1, "tool-approval-response": 1, "tool-output-denied": 1},
            id="5-sees-a-denial-as-a-tool-error",
        ),
        pytest.param(
            "6",
            [WEATHER, p.ApprovalRequest("a1", "c1", is_automatic=True), p.ApprovalResponse("a1", True), SUNNY],
            [StartStepChunk(), WEATHER_CHUNK, SUNNY_CHUNK],
            {"tool-approval-request.isAutomatic": 1, "tool-approval-response": 1},
            id="6-sees-no-automatic-approvals",
        ),
        pytest.param(
            "6",
            [WEATHER, p.ApprovalRequest("a1", "c1"), p.ApprovalResponse("a1", False), p.ToolDenied("c1")],
            [StartStepChunk(), WEATHER_CHUNK, ToolOutputErrorChunk("c1", "The tool call was denied.")],
            {"tool-approval-response": 1, "tool-output-denied": 1},
            id="6-sees-a-denial-within-the-turn-as-a-tool-error",
        ),
        pytest.param(
            "6",
            [WEATHER, p.ApprovalRequest("a1", "c1", is_automatic=True), p.ApprovalResponse("a1", False)],
            [StartStepChunk(), WEATHER_CHUNK, ToolOutputErrorChunk("c1", "The tool call was denied.")],
            {"tool-approval-request.isAutomatic": 1, "tool-approval-response": 1, "tool-output-denied": 1},
            id="6-sees-an-automatic-denial-as-a-tool-error",
        ),
        pytest.param(
            "5",
            [WEATHER, p.ApprovalRequest("a1", "c1"), SUNNY],
            [StartStepChunk(), WEATHER_CHUNK, SUNNY_CHUNK],
            {"tool-approval-request": 1, "tool-approval-response": 1},
            id="a-tool-that-answers-needs-no-approval-any-more",
        ),
        pytest.param(
            "6",
            [WEATHER, p.ToolDenied("c1", "No.")],
            [StartStepChunk(), WEATHER_CHUNK, ToolOutputErrorChunk("c1", "The tool call was denied. No.")],
            {"tool-output-denied": 1},
            id="6-sees-a-denial-without-a-question-as-a-tool-error",
        ),
        pytest.param(
            "any",
            [WEATHER, p.ToolDenied("c1")],
            [StartStepChunk(), WEATHER_CHUNK, ToolOutputErrorChunk("c1", "The tool call was denied.")],
            {"tool-output-denied": 1, "finish.finishReason": 1},
            id="denied-becomes-a-tool-error",
        ),
        pytest.param(
            "any",
            [p.ToolInputError("c1", "t", "Bad input.", {"a": 1}, dynamic=True)],
            [
                StartStepChunk(),
                ToolInputAvailableChunk("c1", "t", {"a": 1}, dynamic=True),
                ToolOutputErrorChunk("c1", "Bad input.", dynamic=True),
            ],
            {"tool-input-error": 1, "finish.finishReason": 1},
            id="an-input-error-becomes-a-call-and-its-failure",
        ),
        pytest.param(
            "any",
            [WEATHER, p.ToolResult("c1", 1, preliminary=True), p.ToolResult("c1", 2, preliminary=True)],
            [StartStepChunk(), WEATHER_CHUNK, ToolOutputAvailableChunk("c1", 2)],
            {"tool-output-available.preliminary": 2, "finish.finishReason": 1},
            id="interim-results-wait-for-the-end",
        ),
        pytest.param(
            "6",
            [p.Custom("a.b"), p.Custom("a.c", {"p": {}}), p.ReasoningFile("data:,x", "text/plain")],
            [
                DataChunk("data-custom", {"kind": "a.b"}),
                DataChunk("data-custom", {"kind": "a.c", "providerMetadata": {"p": {}}}),
                StartStepChunk(),
                FileChunk("data:,x", "text/plain"),
            ],
            {"custom": 2, "reasoning-file": 1},
            id="custom-becomes-data-and-reasoning-file-a-file",
        ),
        pytest.param(
            "7.0.60",
            [p.Text("a"), p.ResetStep(), p.Text("b"), p.SteeringMessage("u2", ())],
            [
                StartStepChunk(),
                *text("1", "a"),
                FinishStepChunk(),
                StartStepChunk(),
                TextStartChunk("2"),
                TextDeltaChunk("2", "b"),
                DataChunk("data-steering-message", {"id": "u2", "parts": []}),
                TextEndChunk("2"),
            ],
            {"reset-step": 1, "steering-message": 1},
            id="a-reset-becomes-a-step",
        ),
        pytest.param(
            "5",
            [p.ToolCall("c1", "t", {}, title="T", tool_metadata={"a": 1})],
            [StartStepChunk(), ToolInputAvailableChunk("c1", "t", {})],
            {"tool-input-available.title": 1, "tool-input-available.toolMetadata": 1},
            id="unknown-fields-are-left-out-and-counted",
        ),
        pytest.param(
            "6.0.0",
            [WEATHER, p.ApprovalRequest("a1", "c1", "why", signature="s", input_schema_input={"a": 1})],
            [StartStepChunk(), WEATHER_CHUNK, ToolApprovalRequestChunk("a1", "c1")],
            {
                "tool-approval-request.reason": 1,
                "tool-approval-request.signature": 1,
                "tool-approval-request.inputSchemaInput": 1,
            },
            id="approval-decorations-are-left-out-and-counted",
        ),
    ],
)
def test_downgrades(sdk: str, parts: list[Part], expected: list[Chunk], downgraded: dict[str, int]) -> None:
    assert body(parts, sdk) == expected
    stream = MessageStream(message_id="m1", sdk=sdk)
    for part in parts:
        stream.send(part)
    stream.close()
    assert stream.downgraded == downgraded


@pytest.mark.parametrize(
    ("sdk", "reason", "expected"),
    [
        ("any", "length", FinishChunk(None, {"finishReason": "length"})),
        ("any", "unknown", FinishChunk(None, {"finishReason": "other"})),
        ("5", "unknown", FinishChunk("unknown")),
        ("5.0.91", "stop", FinishChunk(None, {"finishReason": "stop"})),
        ("6", "unknown", FinishChunk("other")),
        ("7", "interrupted", FinishChunk("interrupted")),
        ("7.0.148", "interrupted", FinishChunk("other")),
        ("7", "end_turn", FinishChunk("other")),
    ],
)
def test_finish_reasons_are_folded_into_what_the_client_knows(sdk: str, reason: str, expected: Chunk) -> None:
    assert send([p.Text("a"), p.Finish(reason)], sdk)[-1] == expected


def test_any_tells_the_reason_of_a_failure_as_metadata_before_the_error() -> None:
    assert send([p.Error("x")], "any")[1:] == [
        MessageMetadataChunk({"finishReason": "error"}),
        ErrorChunk("x"),
        FinishChunk(),
    ]


def test_reasoning_can_be_hidden() -> None:
    parts: list[Part] = [p.Reasoning("r"), p.Text("a"), p.ReasoningFile("data:,x", "text/plain")]
    assert body(parts, send_reasoning=False) == [StartStepChunk(), *text("1", "a")]


def test_hidden_steps_leave_the_step_after_a_tool_result() -> None:
    parts: list[Part] = [p.Step(), p.Text("a"), p.Step(), p.Text("b"), WEATHER, SUNNY, p.Text("c")]
    expected = [*text("1", "a", "b"), WEATHER_CHUNK, SUNNY_CHUNK, StartStepChunk(), *text("2", "c")]
    assert body(parts, send_steps=False) == expected
    assert body([p.Start(steps=False), *parts]) == expected


def test_the_message_of_an_agent_that_hides_steps_has_none() -> None:
    parts: list[Part] = [p.Step(), p.Text("a"), p.Step(), p.Data("x", 1), p.Text("b"), p.Finish()]
    kinds = [type(chunk) for chunk in send([p.Start(steps=False), *parts], "any")]
    assert not {StartStepChunk, FinishStepChunk} & set(kinds)
    assert not {StartStepChunk, FinishStepChunk} & {type(chunk) for chunk in send(parts, "any", send_steps=False)}


def test_an_attempt_that_failed_ends_where_no_step_can_be_reset() -> None:
    parts: list[Part] = [p.Text("a"), p.ResetStep(), p.Text("b")]
    assert body(parts, sdk="7", send_steps=False) == [*text("1", "a"), StartStepChunk(), *text("2", "b")]
