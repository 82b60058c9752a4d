"""Content that stands by itself: sources, files, data, metadata."""

import pytest

from tests.protocol.stream.sending import SUNNY, SUNNY_CHUNK, WEATHER, WEATHER_CHUNK, body, text
from usechat.parts import Part
from usechat.protocol.chunks import (
    Chunk,
    CustomChunk,
    DataChunk,
    FileChunk,
    MessageMetadataChunk,
    ReasoningFileChunk,
    ResetStepChunk,
    SourceDocumentChunk,
    SourceUrlChunk,
    StartStepChunk,
    SteeringMessageChunk,
    TextDeltaChunk,
    TextEndChunk,
    TextStartChunk,
    ToolInputAvailableChunk,
)

# Parts are written `p.Text`, chunks by their bare names.
import usechat.parts as p  # isort: skip

PAGE = p.SourceUrl("s1", "https://example.com", "Example", {"p": {}})

CITATION = {"source": {"type": "source", "sourceType": "url", "id": "s1", "url": "https://example.com"}}


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        pytest.param(
            [p.Text("a"), PAGE, p.Text("b")],
            [
                StartStepChunk(),
                TextStartChunk("1"),
                TextDeltaChunk("1", "a"),
                SourceUrlChunk("s1", "https://example.com", "Example", {"p": {}}),
                TextDeltaChunk("1", "b"),
                TextEndChunk("1"),
            ],
            id="a-source-does-not-tear-the-text",
        ),
        pytest.param(
            [p.SourceDocument("s2", "text/plain", "Notes", "notes.txt")],
            [StartStepChunk(), SourceDocumentChunk("s2", "text/plain", "Notes", "notes.txt")],
            id="a-document",
        ),
        pytest.param(
            [p.Text("a"), p.File("data:,x", "text/plain"), p.Text("b")],
            [StartStepChunk(), *text("1", "a"), FileChunk("data:,x", "text/plain"), *text("2", "b")],
            id="a-file-stands-between-texts",
        ),
        pytest.param(
            [p.ReasoningFile("data:,x", "text/plain"), p.Custom("openai.thing", {"openai": {"a": 1}})],
            [
                StartStepChunk(),
                ReasoningFileChunk("data:,x", "text/plain"),
                CustomChunk("openai.thing", {"openai": {"a": 1}}),
            ],
            id="what-only-7-knows",
        ),
        pytest.param(
            [p.Data("progress", {"done": 1}, "d1"), p.Data("toast", "hi", transient=True)],
            [
                DataChunk("data-progress", {"done": 1}, "d1"),
                DataChunk("data-toast", "hi", transient=True),
                StartStepChunk(),
            ],
            id="data-needs-no-step",
        ),
        pytest.param(
            [p.SteeringMessage("u2", ({"type": "text", "text": "wait"},)), p.SteeringMessage("u3", ({"type": "odd"},))],
            [
                StartStepChunk(),
                SteeringMessageChunk("u2", [{"type": "text", "text": "wait"}]),
                DataChunk("data-steering-message", {"id": "u3", "parts": [{"type": "odd"}]}),
            ],
            id="a-steering-message-that-clients-would-refuse-is-data",
        ),
        pytest.param(
            [p.SteeringMessage("u2", (5, {"type": "text", "text": "a", "providerMetadata": {}}))],  # type: ignore[arg-type]
            [
                DataChunk(
                    "data-steering-message",
                    {"id": "u2", "parts": [5, {"type": "text", "text": "a", "providerMetadata": {}}]},
                ),
                StartStepChunk(),
            ],
            id="so-is-one-whose-parts-are-no-objects",
        ),
        pytest.param(
            [p.Text("a"), p.BlockEnd(citations=(CITATION,)), p.Text("b"), p.BlockEnd(citations=({"source": 1},))],
            [
                StartStepChunk(),
                TextStartChunk("1"),
                TextDeltaChunk("1", "a"),
                TextEndChunk("1", [CITATION]),
                TextStartChunk("2"),
                TextDeltaChunk("2", "b"),
                DataChunk("data-citations", {"citations": [{"source": 1}]}),
                TextEndChunk("2"),
            ],
            id="citations-that-clients-would-refuse-are-data",
        ),
        pytest.param(
            [p.Text("a"), p.BlockEnd(citations=({**CITATION, "startIndex": 0, "endIndex": 1, "citedText": "a"},))],
            [
                StartStepChunk(),
                TextStartChunk("1"),
                TextDeltaChunk("1", "a"),
                TextEndChunk("1", [{**CITATION, "startIndex": 0, "endIndex": 1, "citedText": "a"}]),
            ],
            id="citations-with-places",
        ),
        pytest.param(
            [p.Text("a"), p.BlockEnd(citations=({**CITATION, "startIndex": 2**60},))],
            [
                StartStepChunk(),
                TextStartChunk("1"),
                TextDeltaChunk("1", "a"),
                DataChunk("data-citations", {"citations": [{**CITATION, "startIndex": 2**60}]}),
                TextEndChunk("1"),
            ],
            id="places-that-are-no-safe-integers-are-data",
        ),
        pytest.param(
            [p.Metadata({"model": "m"}), p.Metadata({})],
            [MessageMetadataChunk({"model": "m"}), StartStepChunk()],
            id="metadata",
        ),
        pytest.param(
            [p.ResetStep(), p.Text("a"), WEATHER, p.ResetStep(), p.Text("b"), SUNNY],
            [
                StartStepChunk(),
                *text("1", "a"),
                WEATHER_CHUNK,
                ResetStepChunk(),
                *text("2", "b"),
                ToolInputAvailableChunk("c1", "unknown", {}),
                SUNNY_CHUNK,
            ],
            id="a-reset-step-forgets-its-calls",
        ),
    ],
)
def test_other_content(parts: list[Part], expected: list[Chunk]) -> None:
    assert body(parts) == expected
