"""Blocks and steps: what opens, what closes, and what a lane is."""

import pytest

from tests.protocol.stream.sending import SUNNY, SUNNY_CHUNK, WEATHER, WEATHER_CHUNK, body, text
from usechat.parts import Part
from usechat.protocol.chunks import (
    Chunk,
    FinishStepChunk,
    ReasoningDeltaChunk,
    ReasoningEndChunk,
    ReasoningStartChunk,
    StartStepChunk,
    TextDeltaChunk,
    TextEndChunk,
    TextStartChunk,
    ToolInputAvailableChunk,
    ToolInputDeltaChunk,
    ToolInputErrorChunk,
    ToolInputStartChunk,
    ToolOutputAvailableChunk,
)

# Parts are written `p.Text`, chunks by their bare names.
import usechat.parts as p  # isort: skip


@pytest.mark.parametrize(
    ("sent", "expected"),
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
            [StartStepChunk(), WEATHER_CHUNK, FinishStepChunk(), StartStepChunk(), SUNNY_CHUNK, *text("1", "b")],
            id="a-late-result-belongs-to-the-step-of-its-call",
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
                ToolInputDeltaChunk("c2", "{}"),
                ToolInputAvailableChunk("c2", "t", {}),
                FinishStepChunk(),
                StartStepChunk(),
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
                StartStepChunk(),
                TextStartChunk("1"),
                TextDeltaChunk("1", "a"),
                ToolInputStartChunk("c2", "t"),
                ToolInputAvailableChunk("c2", "t", None),
                TextEndChunk("1"),
                FinishStepChunk(),
                StartStepChunk(),
                ToolInputAvailableChunk("c1", "t", None),
                ToolOutputAvailableChunk("c1", 5),
                FinishStepChunk(),
                StartStepChunk(),
                TextStartChunk("2"),
                TextDeltaChunk("2", "b"),
                ToolOutputAvailableChunk("c2", 6),
                TextEndChunk("2"),
            ],
            id="a-lane-that-waits-keeps-its-order",
        ),
        pytest.param(
            [WEATHER, p.ToolResult("c1", 1, preliminary=True), p.Text("b")],
            [
                StartStepChunk(),
                WEATHER_CHUNK,
                ToolOutputAvailableChunk("c1", 1, preliminary=True),
                FinishStepChunk(),
                StartStepChunk(),
                *text("1", "b"),
                ToolOutputAvailableChunk("c1", 1),
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
                ToolInputErrorChunk("c2", "t", {}, "The tool call was cut off before its input was complete."),
                FinishStepChunk(),
                StartStepChunk(),
                *text("1", "b"),
            ],
            id="an-input-never-completed-is-cut-off-and-nothing-that-waits-is-lost",
        ),
    ],
)
def test_blocks_and_steps(sent: list[Part], expected: list[Chunk]) -> None:
    assert body(sent) == expected
