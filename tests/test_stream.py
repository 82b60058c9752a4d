"""Parts in, chunks out: one row per behaviour, then what holds for any parts at all."""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.part_strategies import LANES, any_part, continued_messages, endings, part_lists
from usechat import chunks
from usechat.chunks import (
    Abort,
    Chunk,
    Custom,
    Data,
    Error,
    File,
    Finish,
    FinishStep,
    MessageMetadata,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningFile,
    ReasoningStart,
    ResetStep,
    SourceDocument,
    SourceUrl,
    Start,
    StartStep,
    SteeringMessage,
    TextDelta,
    TextEnd,
    TextStart,
    ToolApprovalRequest,
    ToolApprovalResponse,
    ToolInputAvailable,
    ToolInputDelta,
    ToolInputError,
    ToolInputStart,
    ToolOutputAvailable,
    ToolOutputDenied,
    ToolOutputError,
)
from usechat.dialects import CHUNKS, dialect
from usechat.errors import LocalProtocolError, UnknownRelease
from usechat.message import MessageBuilder
from usechat.parts import Part
from usechat.stream import BROKEN_OFF, STOPPED, MessageStream

# Parts are written `p.Text`, chunks by their bare names.
import usechat.parts as p  # isort: skip

STOP = Finish("stop")
TOOL_CALLS = Finish("tool-calls")


def send(sent: list[Part], sdk: str = "7", **options: Any) -> list[Chunk]:
    """Return all chunks of a stream, ended well unless the parts end it."""
    stream = MessageStream(message_id="m1", sdk=sdk, **options)
    out = [chunk for part in sent for chunk in stream.send(part)]
    return out + stream.close()


def body(sent: list[Part], sdk: str = "7", **options: Any) -> list[Chunk]:
    """Return what stands between `start` and the last `finish-step` or `error`."""
    out = send(sent, sdk, **options)
    assert out[0] == Start("m1")
    endings_at = [index for index, chunk in enumerate(out) if isinstance(chunk, FinishStep | Error)]
    return out[1 : endings_at[-1]]


WEATHER = p.ToolCall("c1", "weather", {"city": "Paris"})
WEATHER_CHUNK = ToolInputAvailable("c1", "weather", {"city": "Paris"})
SUNNY = p.ToolResult("c1", "sunny")
SUNNY_CHUNK = ToolOutputAvailable("c1", "sunny")


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        pytest.param([], [Start("m1"), StartStep(), FinishStep(), Finish("stop", {})], id="empty-turn"),
        pytest.param(
            [p.Text("Hel"), p.Text("lo")],
            [
                Start("m1"),
                StartStep(),
                TextStart("1"),
                TextDelta("1", "Hel"),
                TextDelta("1", "lo"),
                TextEnd("1"),
                FinishStep(),
                STOP,
            ],
            id="text-merges-into-one-block",
        ),
        pytest.param(
            [p.Text("a"), p.Finish("length", usage={"outputTokens": 3}, metadata={"model": "m"})],
            [
                Start("m1"),
                StartStep(),
                TextStart("1"),
                TextDelta("1", "a"),
                TextEnd("1"),
                FinishStep(),
                Finish("length", {"usage": {"outputTokens": 3}, "model": "m"}),
            ],
            id="finish-carries-reason-usage-and-metadata",
        ),
        pytest.param(
            [p.Text("a"), WEATHER, p.Error("No luck.", usage={"outputTokens": 3})],
            [
                Start("m1"),
                StartStep(),
                TextStart("1"),
                TextDelta("1", "a"),
                TextEnd("1"),
                WEATHER_CHUNK,
                ToolOutputError("c1", BROKEN_OFF),
                MessageMetadata({"usage": {"outputTokens": 3}}),
                Error("No luck."),
                Finish("error"),
            ],
            id="failure-settles-tools-and-tells-metadata-before-the-error",
        ),
        pytest.param(
            [p.Error("No luck.")],
            [Start("m1"), Error("No luck."), Finish("error")],
            id="failure-before-anything",
        ),
        pytest.param(
            [p.Text("a"), p.Abort("user")],
            [
                Start("m1"),
                StartStep(),
                TextStart("1"),
                TextDelta("1", "a"),
                TextEnd("1"),
                FinishStep(),
                Abort("user"),
                Finish("other"),
            ],
            id="stop",
        ),
        pytest.param(
            [WEATHER, p.Abort()],
            [
                Start("m1"),
                StartStep(),
                WEATHER_CHUNK,
                ToolOutputError("c1", STOPPED),
                FinishStep(),
                StartStep(),
                FinishStep(),
                Abort(),
                Finish("other", {}),
            ],
            id="stop-with-tools-ends-in-an-empty-step-so-that-no-client-posts-again",
        ),
        pytest.param([p.Abort()], [Start("m1"), Abort(), Finish("other")], id="stop-before-anything"),
        pytest.param(
            [p.Start("turn-9", {"model": "m"}), p.Text("a")],
            [
                Start("turn-9", {"model": "m"}),
                StartStep(),
                TextStart("1"),
                TextDelta("1", "a"),
                TextEnd("1"),
                FinishStep(),
                STOP,
            ],
            id="start-names-the-message",
        ),
        pytest.param(
            [p.Text("a"), p.Start("late", {"model": "m"}), p.Start("later")],
            [
                Start("m1"),
                StartStep(),
                TextStart("1"),
                TextDelta("1", "a"),
                MessageMetadata({"model": "m"}),
                TextEnd("1"),
                FinishStep(),
                STOP,
            ],
            id="late-start-keeps-its-metadata-alone",
        ),
        pytest.param(
            [p.Finish(), p.Text("late"), p.Error("late"), p.Finish()],
            [Start("m1"), StartStep(), FinishStep(), Finish("stop", {})],
            id="nothing-after-the-end",
        ),
    ],
)
def test_whole_streams(sent: list[Part], expected: list[Chunk]) -> None:
    assert send(sent) == expected


def text(block_id: str, *deltas: str) -> list[Chunk]:
    return [TextStart(block_id), *[TextDelta(block_id, delta) for delta in deltas], TextEnd(block_id)]


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


@pytest.mark.parametrize(
    ("sent", "expected"),
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
                ToolInputStart("c1", "t", "json", True, {"p": {}}, {"m": 1}, True, "Title"),
                ToolInputDelta("c1", '{"a":'),
                ToolInputDelta("c1", "1}"),
                ToolInputAvailable("c1", "t", {"a": 1}, True, {"p": {}}, {"m": 1}, True, "Title"),
                ToolOutputAvailable("c1", 2, True, {"p": {}}, {"m": 2}, None, True),
            ],
            id="a-whole-dynamic-call",
        ),
        pytest.param(
            [p.ToolInputDelta("c1", '{"a":1}'), p.ToolResult("c1", 2), p.ToolInputDelta("c1", "late")],
            [
                ToolInputStart("c1", "unknown"),
                ToolInputDelta("c1", '{"a":1}'),
                ToolInputAvailable("c1", "unknown", {"a": 1}),
                ToolOutputAvailable("c1", 2),
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
                ToolInputStart("c1", "t", "text"),
                ToolInputDelta("c1", "SELECT 1"),
                ToolInputAvailable("c1", "t", "SELECT 1"),
                ToolOutputError("c1", "no"),
            ],
            id="a-text-input-stays-text",
        ),
        pytest.param(
            [p.ToolInputStart("c1", "t"), p.ToolInputDelta("c1", '{"a'), p.ToolResult("c1")],
            [
                ToolInputStart("c1", "t"),
                ToolInputDelta("c1", '{"a'),
                ToolInputAvailable("c1", "t", '{"a'),
                ToolOutputAvailable("c1", None),
            ],
            id="an-input-that-is-no-json-stays-text",
        ),
        pytest.param(
            [p.ToolResult("c9", {"a": 1}, tool_name="search", dynamic=True)],
            [ToolInputAvailable("c9", "search", {}, dynamic=True), ToolOutputAvailable("c9", {"a": 1}, dynamic=True)],
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
                ToolInputAvailable("c1-2", "weather", {"city": "Paris"}),
                ToolOutputAvailable("c1-2", "rainy"),
                ToolInputStart("c1-3", "weather"),
                ToolInputError("c1-3", "weather", {}, "The tool call was cut off before its input was complete."),
            ],
            id="a-reused-id-is-a-new-call",
        ),
        pytest.param(
            [WEATHER, SUNNY, p.ToolResult("c1", "rainy"), p.ToolResult("c1", "late", preliminary=True)],
            [WEATHER_CHUNK, SUNNY_CHUNK, ToolOutputAvailable("c1", "rainy")],
            id="a-second-result-replaces-and-interim-ones-come-too-late",
        ),
        pytest.param(
            [WEATHER, p.ToolResult("c1", 1, preliminary=True), p.ToolResult("c1", 2, preliminary=True)],
            [
                WEATHER_CHUNK,
                ToolOutputAvailable("c1", 1, preliminary=True),
                ToolOutputAvailable("c1", 2, preliminary=True),
                ToolOutputAvailable("c1", 2),
            ],
            id="the-last-interim-result-becomes-final-at-the-end",
        ),
        pytest.param(
            [p.ToolInputError("c1", "t", "Bad input.", {"a": 1}, title="T")],
            [ToolInputError("c1", "t", {"a": 1}, "Bad input.", title="T")],
            id="an-input-error",
        ),
        pytest.param(
            [WEATHER, p.ToolInputError("c1", "t", "Bad input.")],
            [WEATHER_CHUNK, ToolOutputError("c1", "Bad input.")],
            id="an-input-error-after-the-input-is-a-failed-tool",
        ),
        pytest.param(
            [WEATHER, p.ApprovalRequest("a1", "c1", "why", False, "sig", {"d": 1}, {"i": 1})],
            [WEATHER_CHUNK, ToolApprovalRequest("a1", "c1", {"d": 1}, {"i": 1}, "why", None, "sig")],
            id="an-approval-request",
        ),
        pytest.param(
            [WEATHER, p.ApprovalRequest("a1", "c1", is_automatic=True), p.ApprovalResponse("a1", True, "ok"), SUNNY],
            [
                WEATHER_CHUNK,
                ToolApprovalRequest("a1", "c1", is_automatic=True),
                ToolApprovalResponse("a1", True, "ok"),
                SUNNY_CHUNK,
            ],
            id="an-automatic-approval",
        ),
        pytest.param(
            [WEATHER, p.ApprovalRequest("a1", "c1"), SUNNY],
            [WEATHER_CHUNK, ToolApprovalRequest("a1", "c1"), ToolApprovalResponse("a1", True), SUNNY_CHUNK],
            id="a-tool-that-answers-was-approved",
        ),
        pytest.param(
            [WEATHER, p.ApprovalRequest("a1", "c1"), p.ToolDenied("c1", "No.")],
            [
                WEATHER_CHUNK,
                ToolApprovalRequest("a1", "c1"),
                ToolApprovalResponse("a1", False, "No."),
                ToolOutputDenied("c1"),
            ],
            id="a-denial-answers-the-approval",
        ),
        pytest.param(
            [WEATHER, p.ToolDenied("c1", "No.")],
            [
                WEATHER_CHUNK,
                ToolApprovalRequest("c1-approval", "c1", is_automatic=True),
                ToolApprovalResponse("c1-approval", False, "No."),
                ToolOutputDenied("c1"),
            ],
            id="a-denial-without-a-question",
        ),
        pytest.param(
            [SUNNY, p.ApprovalRequest("a1", "c1"), p.ApprovalResponse("a9", True)],
            [ToolInputAvailable("c1", "unknown", {}), SUNNY_CHUNK],
            id="late-requests-and-answers-to-nothing-say-nothing",
        ),
        pytest.param(
            [WEATHER, p.ApprovalRequest("a1", "c1"), p.ApprovalResponse("a1", True), p.ApprovalResponse("a1", False)],
            [
                WEATHER_CHUNK,
                ToolApprovalRequest("a1", "c1"),
                ToolApprovalResponse("a1", True),
                ToolOutputError("c1", "The approved tool call gave no result."),
            ],
            id="an-approved-call-without-a-result-is-settled",
        ),
        pytest.param(
            [WEATHER, p.ApprovalRequest("a1", "c1"), p.ApprovalResponse("a1", False)],
            [
                WEATHER_CHUNK,
                ToolApprovalRequest("a1", "c1"),
                ToolApprovalResponse("a1", False),
                ToolOutputDenied("c1"),
            ],
            id="a-refused-call-is-denied-at-the-end",
        ),
        pytest.param(
            [WEATHER, p.ApprovalRequest("a1", "c1"), p.Error("x")],
            [WEATHER_CHUNK, ToolApprovalRequest("a1", "c1")],
            id="a-pending-approval-survives-a-failure",
        ),
        pytest.param(
            [WEATHER, p.ApprovalRequest("a1", "c1"), p.ApprovalResponse("a1", False), p.Error("x")],
            [WEATHER_CHUNK, ToolApprovalRequest("a1", "c1"), ToolApprovalResponse("a1", False), ToolOutputDenied("c1")],
            id="a-refused-call-is-denied-at-a-failure",
        ),
    ],
)
def test_tools(sent: list[Part], expected: list[Chunk]) -> None:
    assert body(sent) == [StartStep(), *expected]


PAGE = p.SourceUrl("s1", "https://example.com", "Example", {"p": {}})
CITATION = {"source": {"type": "source", "sourceType": "url", "id": "s1", "url": "https://example.com"}}


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        pytest.param(
            [p.Text("a"), PAGE, p.Text("b")],
            [
                StartStep(),
                TextStart("1"),
                TextDelta("1", "a"),
                SourceUrl("s1", "https://example.com", "Example", {"p": {}}),
                TextDelta("1", "b"),
                TextEnd("1"),
            ],
            id="a-source-does-not-tear-the-text",
        ),
        pytest.param(
            [p.SourceDocument("s2", "text/plain", "Notes", "notes.txt")],
            [StartStep(), SourceDocument("s2", "text/plain", "Notes", "notes.txt")],
            id="a-document",
        ),
        pytest.param(
            [p.Text("a"), p.File("data:,x", "text/plain"), p.Text("b")],
            [StartStep(), *text("1", "a"), File("data:,x", "text/plain"), *text("2", "b")],
            id="a-file-stands-between-texts",
        ),
        pytest.param(
            [p.ReasoningFile("data:,x", "text/plain"), p.Custom("openai.thing", {"openai": {"a": 1}})],
            [StartStep(), ReasoningFile("data:,x", "text/plain"), Custom("openai.thing", {"openai": {"a": 1}})],
            id="what-only-7-knows",
        ),
        pytest.param(
            [p.Data("progress", {"done": 1}, "d1"), p.Data("toast", "hi", transient=True)],
            [Data("data-progress", {"done": 1}, "d1"), Data("data-toast", "hi", transient=True), StartStep()],
            id="data-needs-no-step",
        ),
        pytest.param(
            [p.SteeringMessage("u2", ({"type": "text", "text": "wait"},)), p.SteeringMessage("u3", ({"type": "odd"},))],
            [
                StartStep(),
                SteeringMessage("u2", [{"type": "text", "text": "wait"}]),
                Data("data-steering-message", {"id": "u3", "parts": [{"type": "odd"}]}),
            ],
            id="a-steering-message-that-clients-would-refuse-is-data",
        ),
        pytest.param(
            [p.SteeringMessage("u2", (5, {"type": "text", "text": "a", "providerMetadata": {}}))],  # type: ignore[arg-type]
            [
                Data(
                    "data-steering-message",
                    {"id": "u2", "parts": [5, {"type": "text", "text": "a", "providerMetadata": {}}]},
                ),
                StartStep(),
            ],
            id="so-is-one-whose-parts-are-no-objects",
        ),
        pytest.param(
            [p.Text("a"), p.BlockEnd(citations=(CITATION,)), p.Text("b"), p.BlockEnd(citations=({"source": 1},))],
            [
                StartStep(),
                TextStart("1"),
                TextDelta("1", "a"),
                TextEnd("1", [CITATION]),
                TextStart("2"),
                TextDelta("2", "b"),
                Data("data-citations", {"citations": [{"source": 1}]}),
                TextEnd("2"),
            ],
            id="citations-that-clients-would-refuse-are-data",
        ),
        pytest.param(
            [p.Text("a"), p.BlockEnd(citations=({**CITATION, "startIndex": 0, "endIndex": 1, "citedText": "a"},))],
            [
                StartStep(),
                TextStart("1"),
                TextDelta("1", "a"),
                TextEnd("1", [{**CITATION, "startIndex": 0, "endIndex": 1, "citedText": "a"}]),
            ],
            id="citations-with-places",
        ),
        pytest.param(
            [p.Text("a"), p.BlockEnd(citations=({**CITATION, "startIndex": 2**60},))],
            [
                StartStep(),
                TextStart("1"),
                TextDelta("1", "a"),
                Data("data-citations", {"citations": [{**CITATION, "startIndex": 2**60}]}),
                TextEnd("1"),
            ],
            id="places-that-are-no-safe-integers-are-data",
        ),
        pytest.param(
            [p.Metadata({"model": "m"}), p.Metadata({})],
            [MessageMetadata({"model": "m"}), StartStep()],
            id="metadata",
        ),
        pytest.param(
            [p.ResetStep(), p.Text("a"), WEATHER, p.ResetStep(), p.Text("b"), SUNNY],
            [
                StartStep(),
                *text("1", "a"),
                WEATHER_CHUNK,
                ResetStep(),
                *text("2", "b"),
                ToolInputAvailable("c1", "unknown", {}),
                SUNNY_CHUNK,
            ],
            id="a-reset-step-forgets-its-calls",
        ),
    ],
)
def test_other_content(sent: list[Part], expected: list[Chunk]) -> None:
    assert body(sent) == expected


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


def test_block_ids_come_from_the_caller() -> None:
    ids = iter(["turn-1", "b", "c"])
    assert body([p.Text("a"), p.Reasoning("b")], new_id=ids.__next__)[1:] == [
        *text("turn-1", "a"),
        ReasoningStart("b"),
        ReasoningDelta("b", "b"),
        ReasoningEnd("b"),
    ]


def test_a_stream_without_a_message_id_is_refused_until_it_has_one() -> None:
    stream = MessageStream()
    for _ in range(2):
        with pytest.raises(LocalProtocolError, match="give MessageStream"):
            stream.send(p.Text("a"))
    assert stream.send(p.Start("m2")) == [Start("m2")]
    with pytest.raises(LocalProtocolError, match="give MessageStream"):
        MessageStream(message_id=7).send(p.Text("a"))  # type: ignore[arg-type]


class Model:
    """Something with fields that is no mapping."""

    def model_dump(self, **_options: Any) -> dict[str, Any]:
        return {"model": "m"}


@pytest.mark.parametrize("metadata", [Model(), ["a"], 5])
def test_metadata_of_an_ending_may_be_anything(metadata: Any) -> None:
    for ending in (p.Finish(metadata=metadata), p.Error("x", metadata=metadata), p.Abort(metadata=metadata)):
        out = send([p.Text("a"), ending])
        assert any(isinstance(chunk, MessageMetadata | Finish) and chunk.message_metadata for chunk in out)


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (p.Text(None), "Text.text must be a str, not NoneType"),  # type: ignore[arg-type]
        (p.Text(5), "Text.text must be a str, not int"),  # type: ignore[arg-type]
        (p.ToolCall("c1", None), "ToolCall.tool_name must be a str, not NoneType"),  # type: ignore[arg-type]
        (p.Data("x", 1, 7), "Data.id must be a str, not int"),  # type: ignore[arg-type]
        (p.ToolCall("c", "t", provider_executed=1), "provider_executed must be a bool, not int"),  # type: ignore[arg-type]
        (p.ApprovalResponse("a", 1), "ApprovalResponse.approved must be a bool, not int"),  # type: ignore[arg-type]
        (p.ToolInputStart("c", "t", input_encoding="xml"), "must be 'json' or 'text'"),  # type: ignore[arg-type]
        (p.BlockEnd(citations=5), "BlockEnd.citations must be a tuple of mappings"),  # type: ignore[arg-type]
        (p.SteeringMessage("u", 5), "SteeringMessage.parts must be a tuple of mappings"),  # type: ignore[arg-type]
        ("hello", "a part of usechat.parts is wanted, not str; wrap it: Text"),
        (None, "a part of usechat.parts is wanted, not NoneType"),
    ],
)
def test_what_is_no_part_or_has_a_field_of_the_wrong_type_is_refused(part: Part, text: str) -> None:
    stream = MessageStream(message_id="m1")
    stream.send(p.Text("a"))
    with pytest.raises(LocalProtocolError, match=text):
        stream.send(part)


def test_an_unknown_release_is_refused() -> None:
    with pytest.raises(UnknownRelease, match="any"):
        MessageStream(message_id="m1", sdk="4")


def test_fail_and_close_end_the_stream_once() -> None:
    stream = MessageStream(message_id="m1", sdk="7")
    assert stream.fail("x") == [Start("m1"), Error("x"), Finish("error")]
    assert (stream.fail("y"), stream.close(), stream.ending) == ([], [], p.Error("x"))


def test_a_stream_tells_whether_it_waits_for_the_client() -> None:
    stream = MessageStream(message_id="m1", sdk="7")
    stream.send(WEATHER)
    [call] = stream.waiting_calls
    assert (call.wire_id, call.name, call.input, call.approval_id) == ("c1", "weather", {"city": "Paris"}, None)
    stream.send(SUNNY)
    assert stream.waiting_calls == []


def test_a_question_is_not_a_call_of_its_own() -> None:
    stream = MessageStream(message_id="m1", sdk="any")
    stream.send(WEATHER)
    stream.send(p.ApprovalRequest("a1", "c1"))
    assert [(call.wire_id, call.approval_id) for call in stream.waiting_calls] == [("c1", "a1")]


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


def continue_with(*sent: Part, sdk: str = "7") -> list[Chunk]:
    stream = MessageStream(message_id="ignored", sdk=sdk, continues=CONTINUED)
    out = [chunk for part in sent for chunk in stream.send(part)]
    assert out[0] == Start("assistant-1")
    return out[1:]


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        pytest.param([SUNNY], [SUNNY_CHUNK], id="an-output-needs-no-step"),
        pytest.param(
            [p.ToolResult("c2", 1), p.Text("Done.")],
            [
                ToolOutputAvailable("c2", 1, dynamic=True),
                StartStep(),
                TextStart("1"),
                TextDelta("1", "Done."),
            ],
            id="text-gets-its-step-and-dynamic-is-remembered",
        ),
        pytest.param([p.ToolResult("c3", 1)], [ToolOutputAvailable("c3", 1)], id="an-approved-tool-answers"),
        pytest.param([p.ToolDenied("c4")], [ToolOutputDenied("c4")], id="a-refused-tool-is-denied"),
        pytest.param([WEATHER], [], id="a-known-call-is-not-told-again"),
        pytest.param(
            [p.ToolCall("c8", "t", 1)], [StartStep(), ToolInputAvailable("c8-2", "t", 1)], id="a-finished-id-is-new"
        ),
        pytest.param([p.Start("other")], [], id="the-id-stays"),
        pytest.param(
            [p.ApprovalResponse("a9", True)], [ToolOutputAvailable("a9", {"approved": True})], id="an-earlier-question"
        ),
        pytest.param(
            [p.Finish()],
            [
                ToolOutputError("c3", "The approved tool call gave no result."),
                ToolOutputDenied("c4"),
                ToolOutputAvailable("c7", 1),
                StartStep(),
                FinishStep(),
                Finish("tool-calls", {}),
            ],
            id="what-was-answered-is-settled-at-the-end",
        ),
    ],
)
def test_continuations(sent: list[Part], expected: list[Chunk]) -> None:
    assert continue_with(*sent) == expected


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
    assert out[0] == Start("m1")


def test_the_last_part_of_an_id_is_the_one_that_is_spoken_of() -> None:
    twice: list[dict[str, Any]] = [
        {"type": "tool-t", "toolCallId": "c1", "state": state, "input": {}}
        for state in ("output-available", "input-available")
    ]
    out = send([p.Error("x")], continues={"id": "m1", "parts": twice})
    assert [chunk for chunk in out if isinstance(chunk, ToolOutputError)] == [ToolOutputError("c1", BROKEN_OFF)]


def test_a_refused_call_is_a_tool_error_where_denials_are_unknown() -> None:
    assert ToolOutputError("c4", "The tool call was denied.") in continue_with(p.Finish(), sdk="any")


# What holds for any parts


def run(sent: list[Part], sdk: str, continues: dict[str, Any] | None) -> list[Chunk]:
    stream = MessageStream(message_id="m1", sdk=sdk, continues=continues)
    return [chunk for part in sent for chunk in stream.send(part)] + stream.close()


sdks = st.sampled_from(["any", "5", "6", "7", "5.0.0", "6.0.150", "7.0.31"])
continuations = st.none() | continued_messages(approvals=True)


@settings(max_examples=300)
@given(part_lists, sdks, continuations)
def test_there_is_one_start_and_one_ending(sent: list[Part], sdk: str, continues: dict[str, Any] | None) -> None:
    out = run(sent, sdk, continues)
    kinds = [type(chunk) for chunk in out]
    assert kinds[0] is Start
    assert kinds[-1] is Finish
    assert [kinds.count(kind) for kind in (Start, Finish)] == [1, 1]
    assert kinds.count(Error) + kinds.count(Abort) <= 1
    match kinds[-2]:
        case chunks.Error:
            assert isinstance(next(part for part in sent if isinstance(part, p.Error | p.Abort | p.Finish)), p.Error)
        case chunks.Abort:
            assert isinstance(next(part for part in sent if isinstance(part, p.Error | p.Abort | p.Finish)), p.Abort)
        case last:
            assert last is FinishStep


@settings(max_examples=300)
@given(part_lists, sdks, continuations)
def test_steps_alternate_and_hold_all_blocks(sent: list[Part], sdk: str, continues: dict[str, Any] | None) -> None:
    open_step, after_output = False, False
    open_blocks, seen_blocks, calls_in_step = set[str](), set[str](), set[str]()
    for chunk in run(sent, sdk, continues):
        match chunk:
            case StartStep():
                assert not open_step
                open_step, after_output = True, False
                calls_in_step.clear()
            case FinishStep() | Finish():
                assert open_step or isinstance(chunk, Finish)
                assert open_blocks == set()
                open_step = False
            case ResetStep():
                assert open_blocks == set()
                after_output = False
            case TextStart() | ReasoningStart():
                assert open_step
                assert not after_output, "text after a tool result makes the client post for ever"
                assert chunk.id not in seen_blocks, "ids are fresh"
                open_blocks.add(chunk.id)
                seen_blocks.add(chunk.id)
            case TextDelta() | ReasoningDelta():
                assert chunk.id in open_blocks
            case TextEnd() | ReasoningEnd():
                open_blocks.remove(chunk.id)
            case ToolInputStart() | ToolInputAvailable():
                calls_in_step.add(chunk.tool_call_id)
            case ToolInputError():
                after_output = True
            case ToolOutputAvailable() | ToolOutputError() | ToolOutputDenied():
                after_output = after_output or chunk.tool_call_id in calls_in_step


@settings(max_examples=300)
@given(part_lists, sdks, continuations)
def test_every_chunk_and_field_is_known_to_the_client(
    sent: list[Part], sdk: str, continues: dict[str, Any] | None
) -> None:
    spoken = dialect(sdk)
    for chunk in run(sent, sdk, continues):
        if not isinstance(chunk, Data):
            chunk_type = chunks.type_of(chunk)
            assert spoken.knows(chunk_type)
            for key in chunks.chunk_to_json(chunk):
                assert key == "type" or key not in CHUNKS[chunk_type].fields or spoken.knows(chunk_type, key)


@settings(max_examples=300)
@given(st.lists(any_part.filter(lambda part: not isinstance(part, p.ResetStep)), max_size=20), endings, sdks)
def test_nothing_that_is_said_is_lost_doubled_or_reordered_in_its_lane(
    sent: list[Part], ending: Part, sdk: str
) -> None:
    tokens: dict[str, list[str]] = {lane: [] for lane in LANES}
    told: list[Part] = []
    for number, part in enumerate(sent):
        if isinstance(part, p.Text):
            tokens[part.lane].append(f"<{number}>")
            told.append(p.Text(f"<{number}>", part.provider_metadata, lane=part.lane))
        else:
            told.append(part)
    stream = MessageStream(message_id="m1", sdk=sdk)
    builder = MessageBuilder(sdk="7" if sdk == "any" else sdk)
    for chunk in [chunk for part in [*told, ending] for chunk in stream.send(part)]:
        if isinstance(chunk, Error):
            break
        builder.receive(chunk)
    message: Any = builder.message
    page = "".join(part["text"] for part in message["parts"] if part["type"] == "text")
    shown = re.findall("<[0-9]+>", page)
    assert sorted(shown) == sorted(token for lane in tokens.values() for token in lane)
    for lane in tokens.values():
        assert [token for token in shown if token in lane] == lane


@settings(max_examples=300)
@given(part_lists, sdks)
def test_no_tool_is_left_half_said(sent: list[Part], sdk: str) -> None:
    state: dict[str, str] = {}
    out = run(sent, sdk, None)
    for chunk in out:
        match chunk:
            case ToolInputStart() | ToolInputDelta():
                state[chunk.tool_call_id] = "streaming"
            case ToolInputAvailable():
                state[chunk.tool_call_id] = "waiting"
            case ToolOutputAvailable(preliminary=True):
                state[chunk.tool_call_id] = "interim"
            case ToolOutputAvailable() | ToolOutputError() | ToolOutputDenied() | ToolInputError():
                state[chunk.tool_call_id] = "settled"
            case ToolApprovalRequest():
                state[chunk.tool_call_id] = "asked"
            case ResetStep():
                state.clear()
    allowed = {"settled", "waiting", "asked"} if isinstance(out[-2], FinishStep) else {"settled", "asked"}
    assert set(state.values()) <= allowed
