"""What a release does not know is told in another way, or left out."""

import pytest

from tests.stream.sending import SUNNY, SUNNY_CHUNK, WEATHER, WEATHER_CHUNK, body, send, text
from usechat.chunks import (
    Chunk,
    Data,
    Error,
    File,
    Finish,
    FinishStep,
    MessageMetadata,
    StartStep,
    TextDelta,
    TextEnd,
    TextStart,
    ToolApprovalRequest,
    ToolInputAvailable,
    ToolOutputAvailable,
    ToolOutputDenied,
    ToolOutputError,
)
from usechat.parts import Part
from usechat.stream import MessageStream

# Parts are written `p.Text`, chunks by their bare names.
import usechat.parts as p  # isort: skip


@pytest.mark.parametrize(
    ("sdk", "sent", "expected", "downgraded"),
    [
        pytest.param(
            "any",
            [WEATHER, p.ApprovalRequest("a1", "c1", "why"), p.ApprovalRequest("c1", "c1")],
            [
                StartStep(),
                WEATHER_CHUNK,
                FinishStep(),
                StartStep(),
                ToolInputAvailable(
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
                ToolInputAvailable(
                    "c1-2",
                    "approval",
                    {"approvalId": "c1", "toolCallId": "c1", "toolName": "weather", "input": {"city": "Paris"}},
                ),
            ],
            {"tool-approval-request": 2, "finish.finishReason": 1},
            id="approval-becomes-a-client-side-tool",
        ),
        pytest.param(
            "5",
            [WEATHER, p.ApprovalRequest("a1", "c1"), p.ApprovalResponse("a1", True, "ok"), SUNNY],
            [
                StartStep(),
                WEATHER_CHUNK,
                FinishStep(),
                StartStep(),
                ToolInputAvailable(
                    "a1",
                    "approval",
                    {"approvalId": "a1", "toolCallId": "c1", "toolName": "weather", "input": {"city": "Paris"}},
                ),
                ToolOutputAvailable("a1", {"approved": True, "reason": "ok"}),
                SUNNY_CHUNK,
            ],
            {"tool-approval-request": 1},
            id="its-answer-is-the-output-of-that-tool",
        ),
        pytest.param(
            "6",
            [WEATHER, p.ApprovalRequest("a1", "c1", is_automatic=True), p.ApprovalResponse("a1", True), SUNNY],
            [StartStep(), WEATHER_CHUNK, SUNNY_CHUNK],
            {"tool-approval-request.isAutomatic": 1, "tool-approval-response": 1},
            id="6-sees-no-automatic-approvals",
        ),
        pytest.param(
            "6",
            [WEATHER, p.ApprovalRequest("a1", "c1"), p.ApprovalResponse("a1", False), p.ToolDenied("c1")],
            [StartStep(), WEATHER_CHUNK, ToolApprovalRequest("a1", "c1"), ToolOutputDenied("c1")],
            {"tool-approval-response": 1},
            id="6-sees-the-denial-alone",
        ),
        pytest.param(
            "6",
            [WEATHER, p.ApprovalRequest("a1", "c1", is_automatic=True), p.ApprovalResponse("a1", False)],
            [StartStep(), WEATHER_CHUNK, ToolOutputError("c1", "The tool call was denied.")],
            {"tool-approval-request.isAutomatic": 1, "tool-approval-response": 1, "tool-output-denied": 1},
            id="6-sees-an-automatic-denial-as-a-tool-error",
        ),
        pytest.param(
            "5",
            [WEATHER, p.ApprovalRequest("a1", "c1"), SUNNY],
            [
                StartStep(),
                WEATHER_CHUNK,
                FinishStep(),
                StartStep(),
                ToolInputAvailable(
                    "a1",
                    "approval",
                    {"approvalId": "a1", "toolCallId": "c1", "toolName": "weather", "input": {"city": "Paris"}},
                ),
                ToolOutputAvailable("a1", {"approved": True}),
                SUNNY_CHUNK,
            ],
            {"tool-approval-request": 1},
            id="a-tool-that-answers-closes-the-question",
        ),
        pytest.param(
            "6",
            [WEATHER, p.ToolDenied("c1", "No.")],
            [StartStep(), WEATHER_CHUNK, ToolOutputError("c1", "The tool call was denied. No.")],
            {"tool-output-denied": 1},
            id="6-sees-a-denial-without-a-question-as-a-tool-error",
        ),
        pytest.param(
            "any",
            [WEATHER, p.ToolDenied("c1")],
            [StartStep(), WEATHER_CHUNK, ToolOutputError("c1", "The tool call was denied.")],
            {"tool-output-denied": 1, "finish.finishReason": 1},
            id="denied-becomes-a-tool-error",
        ),
        pytest.param(
            "any",
            [p.ToolInputError("c1", "t", "Bad input.", {"a": 1}, dynamic=True)],
            [
                StartStep(),
                ToolInputAvailable("c1", "t", {"a": 1}, dynamic=True),
                ToolOutputError("c1", "Bad input.", dynamic=True),
            ],
            {"tool-input-error": 1, "finish.finishReason": 1},
            id="an-input-error-becomes-a-call-and-its-failure",
        ),
        pytest.param(
            "any",
            [WEATHER, p.ToolResult("c1", 1, preliminary=True), p.ToolResult("c1", 2, preliminary=True)],
            [StartStep(), WEATHER_CHUNK, ToolOutputAvailable("c1", 2)],
            {"tool-output-available.preliminary": 2, "finish.finishReason": 1},
            id="interim-results-wait-for-the-end",
        ),
        pytest.param(
            "6",
            [p.Custom("a.b"), p.Custom("a.c", {"p": {}}), p.ReasoningFile("data:,x", "text/plain")],
            [
                Data("data-custom", {"kind": "a.b"}),
                Data("data-custom", {"kind": "a.c", "providerMetadata": {"p": {}}}),
                StartStep(),
                File("data:,x", "text/plain"),
            ],
            {"custom": 2, "reasoning-file": 1},
            id="custom-becomes-data-and-reasoning-file-a-file",
        ),
        pytest.param(
            "7.0.60",
            [p.Text("a"), p.ResetStep(), p.Text("b"), p.SteeringMessage("u2", ())],
            [
                StartStep(),
                *text("1", "a"),
                FinishStep(),
                StartStep(),
                TextStart("2"),
                TextDelta("2", "b"),
                Data("data-steering-message", {"id": "u2", "parts": []}),
                TextEnd("2"),
            ],
            {"reset-step": 1, "steering-message": 1},
            id="a-reset-becomes-a-step",
        ),
        pytest.param(
            "5",
            [p.ToolCall("c1", "t", {}, title="T", tool_metadata={"a": 1})],
            [StartStep(), ToolInputAvailable("c1", "t", {})],
            {"tool-input-available.title": 1, "tool-input-available.toolMetadata": 1},
            id="unknown-fields-are-left-out-and-counted",
        ),
        pytest.param(
            "6.0.0",
            [WEATHER, p.ApprovalRequest("a1", "c1", "why", signature="s", input_schema_input={"a": 1})],
            [StartStep(), WEATHER_CHUNK, ToolApprovalRequest("a1", "c1")],
            {
                "tool-approval-request.reason": 1,
                "tool-approval-request.signature": 1,
                "tool-approval-request.inputSchemaInput": 1,
            },
            id="approval-decorations-are-left-out-and-counted",
        ),
    ],
)
def test_downgrades(sdk: str, sent: list[Part], expected: list[Chunk], downgraded: dict[str, int]) -> None:
    assert body(sent, sdk) == expected
    stream = MessageStream(message_id="m1", sdk=sdk)
    for part in sent:
        stream.send(part)
    stream.close()
    assert stream.downgraded == downgraded


@pytest.mark.parametrize(
    ("sdk", "reason", "expected"),
    [
        ("any", "length", Finish(None, {"finishReason": "length"})),
        ("any", "unknown", Finish(None, {"finishReason": "other"})),
        ("5", "unknown", Finish("unknown")),
        ("5.0.91", "stop", Finish(None, {"finishReason": "stop"})),
        ("6", "unknown", Finish("other")),
        ("7", "interrupted", Finish("interrupted")),
        ("7.0.148", "interrupted", Finish("other")),
        ("7", "end_turn", Finish("other")),
    ],
)
def test_finish_reasons_are_folded_into_what_the_client_knows(sdk: str, reason: str, expected: Chunk) -> None:
    assert send([p.Text("a"), p.Finish(reason)], sdk)[-1] == expected


def test_any_tells_the_reason_of_a_failure_as_metadata_before_the_error() -> None:
    assert send([p.Error("x")], "any")[1:] == [MessageMetadata({"finishReason": "error"}), Error("x"), Finish()]


def test_reasoning_can_be_hidden() -> None:
    sent: list[Part] = [p.Reasoning("r"), p.Text("a"), p.ReasoningFile("data:,x", "text/plain")]
    assert body(sent, send_reasoning=False) == [StartStep(), *text("1", "a")]


def test_hidden_steps_leave_the_step_after_a_tool_result() -> None:
    sent: list[Part] = [p.Step(), p.Text("a"), p.Step(), p.Text("b"), WEATHER, SUNNY, p.Text("c")]
    assert body(sent, send_steps=False) == [
        StartStep(),
        *text("1", "a", "b"),
        WEATHER_CHUNK,
        SUNNY_CHUNK,
        FinishStep(),
        StartStep(),
        *text("2", "c"),
    ]
