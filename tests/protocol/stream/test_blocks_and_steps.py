"""Blocks and steps: what opens, what closes, and what a lane is."""

import pytest

from tests.protocol.stream.sending import SUNNY, SUNNY_CHUNK, WEATHER, WEATHER_CHUNK, body, text
from usechat.parts import Part
from usechat.protocol.chunks import (
    Chunk,
    DataChunk,
    FinishStepChunk,
    ReasoningDeltaChunk,
    ReasoningEndChunk,
    ReasoningStartChunk,
    StartStepChunk,
    TextDeltaChunk,
    TextEndChunk,
    TextStartChunk,
    ToolApprovalRequestChunk,
    ToolInputAvailableChunk,
    ToolInputDeltaChunk,
    ToolInputErrorChunk,
    ToolInputStartChunk,
    ToolOutputAvailableChunk,
)

# Parts are written `p.Text`, chunks by their bare names.
import usechat.parts as p  # isort: skip


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        pytest.param([p.Text("")], [StartStepChunk(), *text("1")], id="empty-text-opens-a-block"),
        pytest.param(
            [p.Text("a"), p.BlockEnd(), p.BlockEnd(), p.Text("b")],
            [StartStepChunk(), *text("1", "a"), *text("2", "b")],
            id="block-end-separates-blocks",
        ),
        pytest.param(
            [p.Reasoning("r"), p.Text("a"), p.Reasoning("s")],
            [
                StartStepChunk(),
                ReasoningStartChunk("1"),
                ReasoningDeltaChunk("1", "r"),
                ReasoningEndChunk("1"),
                *text("2", "a"),
                ReasoningStartChunk("3"),
                ReasoningDeltaChunk("3", "s"),
                ReasoningEndChunk("3"),
            ],
            id="reasoning-and-text-close-each-other",
        ),
        pytest.param(
            [p.Text("a", {"p": {"node": 1}}), p.Text(""), p.Text("b", {"p": {"node": 1}})],
            [
                StartStepChunk(),
                TextStartChunk("1", {"p": {"node": 1}}),
                TextDeltaChunk("1", "a"),
                TextDeltaChunk("1", "b"),
                TextEndChunk("1"),
            ],
            id="a-part-without-metadata-says-nothing-about-it",
        ),
        pytest.param(
            [
                p.Text("a", {"p": {"node": 1}}),
                p.Text("b", {"p": {"node": 1}}),
                p.Text("c", {"p": {"node": 2}}),
                p.Text("d"),
                p.BlockEnd({"p": {"end": True}}),
            ],
            [
                StartStepChunk(),
                TextStartChunk("1", {"p": {"node": 1}}),
                TextDeltaChunk("1", "a"),
                TextDeltaChunk("1", "b"),
                TextDeltaChunk("1", "c", {"p": {"node": 2}}),
                TextDeltaChunk("1", "d"),
                TextEndChunk("1", None, {"p": {"end": True}}),
            ],
            id="provider-metadata-is-sent-when-it-changes",
        ),
        pytest.param(
            [
                p.Reasoning("r", {"p": {"a": 1}}),
                p.Reasoning("s", {"p": {"a": 2}}),
                p.BlockEnd({"p": {"signature": "x"}}),
            ],
            [
                StartStepChunk(),
                ReasoningStartChunk("1", {"p": {"a": 1}}),
                ReasoningDeltaChunk("1", "r"),
                ReasoningDeltaChunk("1", "s", {"p": {"a": 2}}),
                ReasoningEndChunk("1", {"p": {"signature": "x"}}),
            ],
            id="reasoning-ends-with-its-signature",
        ),
        pytest.param(
            [p.Text("a", lane="x"), p.Text("b", lane="y"), p.Text("c", lane="x")],
            [
                StartStepChunk(),
                TextStartChunk("1"),
                TextDeltaChunk("1", "a"),
                TextStartChunk("2"),
                TextDeltaChunk("2", "b"),
                TextDeltaChunk("1", "c"),
                TextEndChunk("1"),
                TextEndChunk("2"),
            ],
            id="lanes-interleave",
        ),
        pytest.param(
            [p.Text("a", lane="x"), p.Text("b", lane="y"), p.Step(lane="z"), p.Text("c", lane="x")],
            [
                StartStepChunk(),
                TextStartChunk("1"),
                TextDeltaChunk("1", "a"),
                TextStartChunk("2"),
                TextDeltaChunk("2", "b"),
                TextEndChunk("1"),
                TextEndChunk("2"),
                FinishStepChunk(),
                StartStepChunk(),
                *text("3", "c"),
            ],
            id="a-step-closes-all-lanes-and-they-reopen-under-fresh-ids",
        ),
        pytest.param(
            [p.Step(), p.Step(), p.Text("a"), p.Step(), p.Step()],
            [StartStepChunk(), *text("1", "a"), FinishStepChunk(), StartStepChunk()],
            id="empty-steps-are-one-step",
        ),
        pytest.param(
            [p.Text("a"), WEATHER, SUNNY, p.Text("b")],
            [
                StartStepChunk(),
                *text("1", "a"),
                WEATHER_CHUNK,
                SUNNY_CHUNK,
                FinishStepChunk(),
                StartStepChunk(),
                *text("2", "b"),
            ],
            id="text-after-a-result-gets-its-own-step",
        ),
        pytest.param(
            [
                p.Text("a", lane="x"),
                p.ToolCall("c1", "t", lane="y"),
                p.ToolResult("c1", 1, lane="y"),
                p.Text("b", lane="x"),
            ],
            [
                StartStepChunk(),
                TextStartChunk("1"),
                TextDeltaChunk("1", "a"),
                ToolInputAvailableChunk("c1", "t", None),
                ToolOutputAvailableChunk("c1", 1),
                TextDeltaChunk("1", "b"),
                TextEndChunk("1"),
                FinishStepChunk(),
                StartStepChunk(),
            ],
            id="text-beside-a-finished-tool-is-not-torn-but-followed-by-a-step",
        ),
        pytest.param(
            [WEATHER, p.Step(), SUNNY, p.Text("b")],
            [StartStepChunk(), WEATHER_CHUNK, SUNNY_CHUNK, FinishStepChunk(), StartStepChunk(), *text("1", "b")],
            id="no-step-begins-while-a-call-has-no-outcome",
        ),
        pytest.param(
            [p.Text("a", lane="x"), p.ToolResult("c1", 1, lane="y"), p.ToolCall("c2", "ask", lane="y")],
            [
                StartStepChunk(),
                TextStartChunk("1"),
                TextDeltaChunk("1", "a"),
                ToolInputAvailableChunk("c1", "unknown", {}),
                ToolOutputAvailableChunk("c1", 1),
                ToolInputAvailableChunk("c2", "ask", None),
                TextEndChunk("1"),
            ],
            id="no-step-follows-a-call-that-the-client-must-answer",
        ),
        pytest.param(
            [
                p.ToolInputStart("c2", "t", lane="y"),
                p.ToolResult("c1", 1, lane="x"),
                p.Text("b", lane="x"),
                p.Text("c", lane="x"),
                p.ToolInputDelta("c2", "{}", lane="y"),
                p.ToolCall("c2", "t", {}, lane="y"),
            ],
            [
                StartStepChunk(),
                ToolInputStartChunk("c2", "t"),
                ToolInputAvailableChunk("c1", "unknown", {}),
                ToolOutputAvailableChunk("c1", 1),
                TextStartChunk("1"),
                TextDeltaChunk("1", "b"),
                TextDeltaChunk("1", "c"),
                ToolInputDeltaChunk("c2", "{}"),
                ToolInputAvailableChunk("c2", "t", {}),
                TextEndChunk("1"),
            ],
            id="text-behind-a-result-goes-on-in-the-step-while-an-input-is-streamed",
        ),
        pytest.param(
            [
                p.Text("a", lane="x"),
                p.ToolInputStart("c2", "t", lane="y"),
                p.Step(lane="x"),
                p.ToolCall("c1", "t", lane="x"),
                p.ToolResult("c1", 5, lane="x"),
                p.Text("b", lane="x"),
                p.ToolCall("c2", "t", lane="y"),
                p.ToolResult("c2", 6, lane="y"),
            ],
            [
                StartStepChunk(),
                TextStartChunk("1"),
                TextDeltaChunk("1", "a"),
                ToolInputStartChunk("c2", "t"),
                TextEndChunk("1"),
                ToolInputAvailableChunk("c1", "t", None),
                ToolOutputAvailableChunk("c1", 5),
                TextStartChunk("2"),
                TextDeltaChunk("2", "b"),
                ToolInputAvailableChunk("c2", "t", None),
                ToolOutputAvailableChunk("c2", 6),
                TextEndChunk("2"),
                FinishStepChunk(),
                StartStepChunk(),
            ],
            id="a-step-that-cannot-begin-ends-the-text-of-its-lane",
        ),
        pytest.param(
            [WEATHER, p.ToolResult("c1", 1, preliminary=True), p.Text("b")],
            [
                StartStepChunk(),
                WEATHER_CHUNK,
                ToolOutputAvailableChunk("c1", 1, preliminary=True),
                *text("1", "b"),
                ToolOutputAvailableChunk("c1", 1),
                FinishStepChunk(),
                StartStepChunk(),
            ],
            id="an-interim-result-alone-becomes-final-behind-the-text",
        ),
        pytest.param(
            [p.ToolInputStart("c1", "t"), p.Text("a"), p.BlockEnd()],
            [
                StartStepChunk(),
                ToolInputStartChunk("c1", "t"),
                *text("1", "a"),
                ToolInputErrorChunk("c1", "t", {}, "The tool call was cut off before its input was complete."),
                FinishStepChunk(),
                StartStepChunk(),
            ],
            id="text-beside-a-call-that-is-settled-late-is-followed-by-a-step",
        ),
        pytest.param(
            [p.ToolInputStart("c2", "t"), p.Step(), p.Text("b")],
            [
                StartStepChunk(),
                ToolInputStartChunk("c2", "t"),
                TextStartChunk("1"),
                TextDeltaChunk("1", "b"),
                ToolInputErrorChunk("c2", "t", {}, "The tool call was cut off before its input was complete."),
                TextEndChunk("1"),
                FinishStepChunk(),
                StartStepChunk(),
            ],
            id="an-input-never-completed-is-cut-off-at-the-end",
        ),
        pytest.param(
            [
                p.ToolCall("loc", "locate"),
                p.Step(),
                p.ToolCall("c1", "t", lane="a"),
                p.Text("b", lane="b"),
                p.ToolResult("c1", 1, lane="a"),
            ],
            [
                StartStepChunk(),
                ToolInputAvailableChunk("loc", "locate", None),
                ToolInputAvailableChunk("c1", "t", None),
                TextStartChunk("1"),
                TextDeltaChunk("1", "b"),
                ToolOutputAvailableChunk("c1", 1),
                TextEndChunk("1"),
            ],
            id="a-call-that-the-client-must-answer-stays-in-the-last-step",
        ),
        pytest.param(
            [
                p.ToolCall("c1", "t", lane="a"),
                p.ApprovalRequest("a1", "c1", lane="a"),
                p.ToolCall("c2", "t", lane="b"),
                p.ToolResult("c2", 1, lane="b"),
                p.Text("b", lane="b"),
                p.Step(lane="c"),
                p.Text("c", lane="c"),
            ],
            [
                StartStepChunk(),
                ToolInputAvailableChunk("c1", "t", None),
                ToolApprovalRequestChunk("a1", "c1"),
                ToolInputAvailableChunk("c2", "t", None),
                ToolOutputAvailableChunk("c2", 1),
                TextStartChunk("1"),
                TextDeltaChunk("1", "b"),
                TextStartChunk("2"),
                TextDeltaChunk("2", "c"),
                TextEndChunk("1"),
                TextEndChunk("2"),
            ],
            id="a-call-whose-approval-is-pending-stays-in-the-last-step",
        ),
        pytest.param(
            [p.Text("a"), p.Step(), p.Data("x", 1, transient=True), p.Data("y", 2), p.Text("b")],
            [
                StartStepChunk(),
                *text("1", "a"),
                FinishStepChunk(),
                DataChunk("data-x", 1, transient=True),
                StartStepChunk(),
                DataChunk("data-y", 2),
                *text("2", "b"),
            ],
            id="a-step-begins-with-its-first-content",
        ),
    ],
)
def test_blocks_and_steps(parts: list[Part], expected: list[Chunk]) -> None:
    assert body(parts) == expected


def test_a_call_of_the_provider_behind_the_result_of_another_tool_begins_a_step() -> None:
    own: list[Part] = [p.ToolCall("c1", "t", {}), p.ToolResult("c1", 1)]
    first, second = (p.ToolCall(name, "search", {}, provider_executed=True) for name in ("p1", "p2"))
    steps = [
        [chunk for chunk in body([*parts, p.Finish()]) if isinstance(chunk, StartStepChunk)]
        for parts in ([*own, first], [first, *own], [first, p.ToolResult("p1", 1), second], [*own, *own])
    ]
    assert [len(starts) for starts in steps] == [2, 1, 1, 1]


def test_a_step_that_cannot_be_reset_ends_and_the_next_begins_with_its_first_content() -> None:
    assert body([p.Text("a"), p.ResetStep(), p.Error("It broke.")], "6") == [
        StartStepChunk(),
        *text("1", "a"),
        FinishStepChunk(),
    ]
