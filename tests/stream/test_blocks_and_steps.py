"""Blocks and steps: what opens, what closes, and what a lane is."""

import pytest

from tests.stream.sending import SUNNY, SUNNY_CHUNK, WEATHER, WEATHER_CHUNK, body, text
from usechat.chunks import (
    Chunk,
    FinishStep,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    StartStep,
    TextDelta,
    TextEnd,
    TextStart,
    ToolInputAvailable,
    ToolInputDelta,
    ToolInputError,
    ToolInputStart,
    ToolOutputAvailable,
)
from usechat.parts import Part

# Parts are written `p.Text`, chunks by their bare names.
import usechat.parts as p  # isort: skip


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        pytest.param([p.Text("")], [StartStep(), *text("1")], id="empty-text-opens-a-block"),
        pytest.param(
            [p.Text("a"), p.BlockEnd(), p.BlockEnd(), p.Text("b")],
            [StartStep(), *text("1", "a"), *text("2", "b")],
            id="block-end-separates-blocks",
        ),
        pytest.param(
            [p.Reasoning("r"), p.Text("a"), p.Reasoning("s")],
            [
                StartStep(),
                ReasoningStart("1"),
                ReasoningDelta("1", "r"),
                ReasoningEnd("1"),
                *text("2", "a"),
                ReasoningStart("3"),
                ReasoningDelta("3", "s"),
                ReasoningEnd("3"),
            ],
            id="reasoning-and-text-close-each-other",
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
                StartStep(),
                TextStart("1", {"p": {"node": 1}}),
                TextDelta("1", "a"),
                TextDelta("1", "b"),
                TextDelta("1", "c", {"p": {"node": 2}}),
                TextDelta("1", "d"),
                TextEnd("1", None, {"p": {"end": True}}),
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
                StartStep(),
                ReasoningStart("1", {"p": {"a": 1}}),
                ReasoningDelta("1", "r"),
                ReasoningDelta("1", "s", {"p": {"a": 2}}),
                ReasoningEnd("1", {"p": {"signature": "x"}}),
            ],
            id="reasoning-ends-with-its-signature",
        ),
        pytest.param(
            [p.Text("a", lane="x"), p.Text("b", lane="y"), p.Text("c", lane="x")],
            [
                StartStep(),
                TextStart("1"),
                TextDelta("1", "a"),
                TextStart("2"),
                TextDelta("2", "b"),
                TextDelta("1", "c"),
                TextEnd("1"),
                TextEnd("2"),
            ],
            id="lanes-interleave",
        ),
        pytest.param(
            [p.Text("a", lane="x"), p.Text("b", lane="y"), p.Step(lane="z"), p.Text("c", lane="x")],
            [
                StartStep(),
                TextStart("1"),
                TextDelta("1", "a"),
                TextStart("2"),
                TextDelta("2", "b"),
                TextEnd("1"),
                TextEnd("2"),
                FinishStep(),
                StartStep(),
                *text("3", "c"),
            ],
            id="a-step-closes-all-lanes-and-they-reopen-under-fresh-ids",
        ),
        pytest.param(
            [p.Step(), p.Step(), p.Text("a"), p.Step(), p.Step()],
            [StartStep(), *text("1", "a"), FinishStep(), StartStep()],
            id="empty-steps-are-one-step",
        ),
        pytest.param(
            [p.Text("a"), WEATHER, SUNNY, p.Text("b")],
            [
                StartStep(),
                *text("1", "a"),
                WEATHER_CHUNK,
                SUNNY_CHUNK,
                FinishStep(),
                StartStep(),
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
                StartStep(),
                TextStart("1"),
                TextDelta("1", "a"),
                ToolInputAvailable("c1", "t", None),
                ToolOutputAvailable("c1", 1),
                TextDelta("1", "b"),
                TextEnd("1"),
                FinishStep(),
                StartStep(),
            ],
            id="text-beside-a-finished-tool-is-not-torn-but-followed-by-a-step",
        ),
        pytest.param(
            [WEATHER, p.Step(), SUNNY, p.Text("b")],
            [StartStep(), WEATHER_CHUNK, FinishStep(), StartStep(), SUNNY_CHUNK, *text("1", "b")],
            id="a-late-result-belongs-to-the-step-of-its-call",
        ),
        pytest.param(
            [p.Text("a", lane="x"), p.ToolResult("c1", 1, lane="y"), p.ToolCall("c2", "ask", lane="y")],
            [
                StartStep(),
                TextStart("1"),
                TextDelta("1", "a"),
                ToolInputAvailable("c1", "unknown", {}),
                ToolOutputAvailable("c1", 1),
                ToolInputAvailable("c2", "ask", None),
                TextEnd("1"),
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
                StartStep(),
                ToolInputStart("c2", "t"),
                ToolInputAvailable("c1", "unknown", {}),
                ToolOutputAvailable("c1", 1),
                ToolInputDelta("c2", "{}"),
                ToolInputAvailable("c2", "t", {}),
                FinishStep(),
                StartStep(),
                *text("1", "b", "c"),
            ],
            id="a-step-waits-until-a-streamed-input-is-complete",
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
                StartStep(),
                TextStart("1"),
                TextDelta("1", "a"),
                ToolInputStart("c2", "t"),
                ToolInputAvailable("c2", "t", None),
                TextEnd("1"),
                FinishStep(),
                StartStep(),
                ToolInputAvailable("c1", "t", None),
                ToolOutputAvailable("c1", 5),
                FinishStep(),
                StartStep(),
                TextStart("2"),
                TextDelta("2", "b"),
                ToolOutputAvailable("c2", 6),
                TextEnd("2"),
            ],
            id="a-lane-that-waits-keeps-its-order",
        ),
        pytest.param(
            [WEATHER, p.ToolResult("c1", 1, preliminary=True), p.Text("b")],
            [
                StartStep(),
                WEATHER_CHUNK,
                ToolOutputAvailable("c1", 1, preliminary=True),
                FinishStep(),
                StartStep(),
                *text("1", "b"),
                ToolOutputAvailable("c1", 1),
            ],
            id="an-interim-result-alone-becomes-final-behind-the-text",
        ),
        pytest.param(
            [p.ToolInputStart("c1", "t"), p.Text("a"), p.BlockEnd()],
            [
                StartStep(),
                ToolInputStart("c1", "t"),
                *text("1", "a"),
                ToolInputError("c1", "t", {}, "The tool call was cut off before its input was complete."),
                FinishStep(),
                StartStep(),
            ],
            id="text-beside-a-call-that-is-settled-late-is-followed-by-a-step",
        ),
        pytest.param(
            [p.ToolInputStart("c2", "t"), p.Step(), p.Text("b")],
            [
                StartStep(),
                ToolInputStart("c2", "t"),
                ToolInputError("c2", "t", {}, "The tool call was cut off before its input was complete."),
                FinishStep(),
                StartStep(),
                *text("1", "b"),
            ],
            id="an-input-never-completed-is-cut-off-and-nothing-that-waits-is-lost",
        ),
    ],
)
def test_blocks_and_steps(sent: list[Part], expected: list[Chunk]) -> None:
    assert body(sent) == expected
