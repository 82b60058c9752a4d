"""Tool calls and approvals."""

import pytest

from tests.protocol.stream.sending import SUNNY, SUNNY_CHUNK, WEATHER, WEATHER_CHUNK, body
from usechat.parts import Part
from usechat.protocol.chunks import (
    Chunk,
    StartStepChunk,
    ToolApprovalRequestChunk,
    ToolApprovalResponseChunk,
    ToolInputAvailableChunk,
    ToolInputDeltaChunk,
    ToolInputErrorChunk,
    ToolInputStartChunk,
    ToolOutputAvailableChunk,
    ToolOutputDeniedChunk,
    ToolOutputErrorChunk,
)
from usechat.protocol.stream import UNFINISHED

# Parts are written `p.Text`, chunks by their bare names.
import usechat.parts as p  # isort: skip


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        pytest.param(
            [
                p.ToolInputStart("c1", "t", True, True, {"p": {}}, {"m": 1}, "Title", "json"),
                p.ToolInputDelta("c1", '{"a":'),
                p.ToolInputDelta("c1", "1}"),
                p.ToolCall("c1", "t", {"a": 1}, True, True, {"p": {}}, {"m": 1}, "Title"),
                p.ToolResult("c1", 2, provider_executed=True, provider_metadata={"p": {}}, tool_metadata={"m": 2}),
            ],
            [
                ToolInputStartChunk("c1", "t", "json", True, {"p": {}}, {"m": 1}, True, "Title"),
                ToolInputDeltaChunk("c1", '{"a":'),
                ToolInputDeltaChunk("c1", "1}"),
                ToolInputAvailableChunk("c1", "t", {"a": 1}, True, {"p": {}}, {"m": 1}, True, "Title"),
                ToolOutputAvailableChunk("c1", 2, True, {"p": {}}, {"m": 2}, None, True),
            ],
            id="a-whole-dynamic-call",
        ),
        pytest.param(
            [p.ToolInputDelta("c1", '{"a":1}'), p.ToolResult("c1", 2), p.ToolInputDelta("c1", "late")],
            [
                ToolInputStartChunk("c1", "unknown"),
                ToolInputDeltaChunk("c1", '{"a":1}'),
                ToolInputAvailableChunk("c1", "unknown", {"a": 1}),
                ToolOutputAvailableChunk("c1", 2),
            ],
            id="a-result-completes-the-input-that-was-streamed",
        ),
        pytest.param(
            [
                p.ToolInputStart("c1", "t", input_encoding="text"),
                p.ToolInputDelta("c1", "SELECT 1"),
                p.ToolError("c1", "no"),
            ],
            [
                ToolInputStartChunk("c1", "t", "text"),
                ToolInputDeltaChunk("c1", "SELECT 1"),
                ToolInputAvailableChunk("c1", "t", "SELECT 1"),
                ToolOutputErrorChunk("c1", "no"),
            ],
            id="a-text-input-stays-text",
        ),
        pytest.param(
            [p.ToolInputStart("c1", "t"), p.ToolInputDelta("c1", '{"a'), p.ToolResult("c1")],
            [
                ToolInputStartChunk("c1", "t"),
                ToolInputDeltaChunk("c1", '{"a'),
                ToolInputAvailableChunk("c1", "t", '{"a'),
                ToolOutputAvailableChunk("c1", None),
            ],
            id="an-input-that-is-no-json-stays-text",
        ),
        pytest.param(
            [p.ToolResult("c9", {"a": 1}, tool_name="search", dynamic=True)],
            [
                ToolInputAvailableChunk("c9", "search", {}, dynamic=True),
                ToolOutputAvailableChunk("c9", {"a": 1}, dynamic=True),
            ],
            id="a-result-without-a-call-gets-its-call",
        ),
        pytest.param(
            [WEATHER, WEATHER, p.ToolInputStart("c1", "weather"), SUNNY],
            [WEATHER_CHUNK, SUNNY_CHUNK],
            id="a-call-told-twice-is-one-call",
        ),
        pytest.param(
            [WEATHER, SUNNY, WEATHER, p.ToolResult("c1", "rainy"), p.ToolInputStart("c1", "weather")],
            [
                WEATHER_CHUNK,
                SUNNY_CHUNK,
                ToolInputAvailableChunk("c1-2", "weather", {"city": "Paris"}),
                ToolOutputAvailableChunk("c1-2", "rainy"),
                ToolInputStartChunk("c1-3", "weather"),
                ToolInputErrorChunk("c1-3", "weather", {}, "The tool call was cut off before its input was complete."),
            ],
            id="a-reused-id-is-a-new-call",
        ),
        pytest.param(
            [WEATHER, SUNNY, p.ToolResult("c1", "rainy"), p.ToolResult("c1", "late", preliminary=True)],
            [WEATHER_CHUNK, SUNNY_CHUNK, ToolOutputAvailableChunk("c1", "rainy")],
            id="a-second-result-replaces-and-interim-ones-come-too-late",
        ),
        pytest.param(
            [WEATHER, p.ToolResult("c1", 1, preliminary=True), p.ToolResult("c1", 2, preliminary=True)],
            [
                WEATHER_CHUNK,
                ToolOutputAvailableChunk("c1", 1, preliminary=True),
                ToolOutputAvailableChunk("c1", 2, preliminary=True),
                ToolOutputAvailableChunk("c1", 2),
            ],
            id="the-last-interim-result-becomes-final-at-the-end",
        ),
        pytest.param(
            [p.ToolInputError("c1", "t", "Bad input.", {"a": 1}, title="T")],
            [ToolInputErrorChunk("c1", "t", {"a": 1}, "Bad input.", title="T")],
            id="an-input-error",
        ),
        pytest.param(
            [WEATHER, p.ToolInputError("c1", "t", "Bad input.")],
            [WEATHER_CHUNK, ToolOutputErrorChunk("c1", "Bad input.")],
            id="an-input-error-after-the-input-is-a-failed-tool",
        ),
        pytest.param(
            [WEATHER, p.ApprovalRequest("a1", "c1", "why", False, "sig", {"d": 1}, {"i": 1})],
            [WEATHER_CHUNK, ToolApprovalRequestChunk("a1", "c1", {"d": 1}, {"i": 1}, "why", None, "sig")],
            id="an-approval-request",
        ),
        pytest.param(
            [WEATHER, p.ApprovalRequest("a1", "c1", is_automatic=True), p.ApprovalResponse("a1", True, "ok"), SUNNY],
            [
                WEATHER_CHUNK,
                ToolApprovalRequestChunk("a1", "c1", is_automatic=True),
                ToolApprovalResponseChunk("a1", True, "ok"),
                SUNNY_CHUNK,
            ],
            id="an-automatic-approval",
        ),
        pytest.param(
            [WEATHER, p.ApprovalRequest("a1", "c1"), SUNNY],
            [WEATHER_CHUNK, ToolApprovalRequestChunk("a1", "c1"), ToolApprovalResponseChunk("a1", True), SUNNY_CHUNK],
            id="a-tool-that-answers-was-approved",
        ),
        pytest.param(
            [WEATHER, p.ApprovalRequest("a1", "c1"), p.ToolDenied("c1", "No.")],
            [
                WEATHER_CHUNK,
                ToolApprovalRequestChunk("a1", "c1"),
                ToolApprovalResponseChunk("a1", False, "No."),
                ToolOutputDeniedChunk("c1"),
            ],
            id="a-denial-answers-the-approval",
        ),
        pytest.param(
            [WEATHER, p.ToolDenied("c1", "No.")],
            [
                WEATHER_CHUNK,
                ToolApprovalRequestChunk("c1-approval", "c1", is_automatic=True),
                ToolApprovalResponseChunk("c1-approval", False, "No."),
                ToolOutputDeniedChunk("c1"),
            ],
            id="a-denial-without-a-question",
        ),
        pytest.param(
            [SUNNY, p.ApprovalRequest("a1", "c1"), p.ApprovalResponse("a9", True)],
            [ToolInputAvailableChunk("c1", "unknown", {}), SUNNY_CHUNK],
            id="late-requests-and-answers-to-nothing-say-nothing",
        ),
        pytest.param(
            [WEATHER, p.ApprovalRequest("a1", "c1"), p.ApprovalResponse("a1", True), p.ApprovalResponse("a1", False)],
            [
                WEATHER_CHUNK,
                ToolApprovalRequestChunk("a1", "c1"),
                ToolApprovalResponseChunk("a1", True),
                ToolOutputErrorChunk("c1", "The approved tool call gave no result."),
            ],
            id="an-approved-call-without-a-result-is-settled",
        ),
        pytest.param(
            [WEATHER, p.ApprovalRequest("a1", "c1"), p.ApprovalResponse("a1", False)],
            [
                WEATHER_CHUNK,
                ToolApprovalRequestChunk("a1", "c1"),
                ToolApprovalResponseChunk("a1", False),
                ToolOutputDeniedChunk("c1"),
            ],
            id="a-refused-call-is-denied-at-the-end",
        ),
        pytest.param(
            [WEATHER, p.ApprovalRequest("a1", "c1"), p.Error("x")],
            [WEATHER_CHUNK, ToolApprovalRequestChunk("a1", "c1")],
            id="a-pending-approval-survives-a-failure",
        ),
        pytest.param(
            [WEATHER, p.ApprovalRequest("a1", "c1"), p.ApprovalResponse("a1", False), p.Error("x")],
            [
                WEATHER_CHUNK,
                ToolApprovalRequestChunk("a1", "c1"),
                ToolApprovalResponseChunk("a1", False),
                ToolOutputDeniedChunk("c1"),
            ],
            id="a-refused-call-is-denied-at-a-failure",
        ),
    ],
)
def test_tools(parts: list[Part], expected: list[Chunk]) -> None:
    assert body(parts) == [StartStepChunk(), *expected]


@pytest.mark.parametrize("sdk", ["any", "6"])
def test_a_call_whose_approval_was_not_asked_for_yet_fails_with_the_turn(sdk: str) -> None:
    out = body([WEATHER, p.ApprovalRequest("a1", "c1"), p.Error("x")], sdk)
    assert ToolOutputErrorChunk("c1", UNFINISHED) in out
    assert not any(isinstance(chunk, ToolApprovalRequestChunk) for chunk in out)


@pytest.mark.parametrize("sdk", ["6", "7"])
def test_an_approval_that_comes_before_its_call_begins_no_step(sdk: str) -> None:
    out = body([p.Text("a"), p.ApprovalRequest("a1", "c1", tool_name="delete")], sdk)
    assert [chunk for chunk in out if isinstance(chunk, StartStepChunk)] == [StartStepChunk()]
    assert isinstance(out[-1], ToolApprovalRequestChunk)
