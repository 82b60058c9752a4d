"""Content that stands by itself: sources, files, data, metadata."""

import pytest

from tests.stream.sending import SUNNY, SUNNY_CHUNK, WEATHER, WEATHER_CHUNK, body, text
from usechat.chunks import (
    Chunk,
    Custom,
    Data,
    File,
    MessageMetadata,
    ReasoningFile,
    ResetStep,
    SourceDocument,
    SourceUrl,
    StartStep,
    SteeringMessage,
    TextDelta,
    TextEnd,
    TextStart,
    ToolInputAvailable,
)
from usechat.parts import Part

# Parts are written `p.Text`, chunks by their bare names.
import usechat.parts as p  # isort: skip

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
