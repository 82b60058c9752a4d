"""Whole streams, one row per behaviour: parts in, chunks out."""

import pytest

from tests.protocol.stream.sending import STOP, WEATHER, WEATHER_CHUNK, send
from usechat.parts import Part
from usechat.protocol.chunks import (
    AbortChunk,
    Chunk,
    ErrorChunk,
    FinishChunk,
    FinishStepChunk,
    MessageMetadataChunk,
    StartChunk,
    StartStepChunk,
    TextDeltaChunk,
    TextEndChunk,
    TextStartChunk,
    ToolOutputErrorChunk,
)
from usechat.protocol.stream import STOPPED, UNFINISHED

# Parts are written `p.Text`, chunks by their bare names.
import usechat.parts as p  # isort: skip


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        pytest.param(
            [], [StartChunk("m1"), StartStepChunk(), FinishStepChunk(), FinishChunk("stop", {})], id="empty-turn"
        ),
        pytest.param(
            [p.Text("Hel"), p.Text("lo")],
            [
                StartChunk("m1"),
                StartStepChunk(),
                TextStartChunk("1"),
                TextDeltaChunk("1", "Hel"),
                TextDeltaChunk("1", "lo"),
                TextEndChunk("1"),
                FinishStepChunk(),
                STOP,
            ],
            id="text-merges-into-one-block",
        ),
        pytest.param(
            [p.Text("a"), p.Finish("length", usage={"outputTokens": 3}, metadata={"model": "m"})],
            [
                StartChunk("m1"),
                StartStepChunk(),
                TextStartChunk("1"),
                TextDeltaChunk("1", "a"),
                TextEndChunk("1"),
                FinishStepChunk(),
                FinishChunk("length", {"usage": {"outputTokens": 3}, "model": "m"}),
            ],
            id="finish-carries-reason-usage-and-metadata",
        ),
        pytest.param(
            [p.Text("a"), WEATHER, p.Error("No luck.", usage={"outputTokens": 3})],
            [
                StartChunk("m1"),
                StartStepChunk(),
                TextStartChunk("1"),
                TextDeltaChunk("1", "a"),
                TextEndChunk("1"),
                WEATHER_CHUNK,
                ToolOutputErrorChunk("c1", UNFINISHED),
                MessageMetadataChunk({"usage": {"outputTokens": 3}}),
                ErrorChunk("No luck."),
                FinishChunk("error"),
            ],
            id="failure-settles-tools-and-tells-metadata-before-the-error",
        ),
        pytest.param(
            [p.Error("No luck.")],
            [StartChunk("m1"), ErrorChunk("No luck."), FinishChunk("error")],
            id="failure-before-anything",
        ),
        pytest.param(
            [p.Text("a"), p.Abort("user")],
            [
                StartChunk("m1"),
                StartStepChunk(),
                TextStartChunk("1"),
                TextDeltaChunk("1", "a"),
                TextEndChunk("1"),
                FinishStepChunk(),
                AbortChunk("user"),
                FinishChunk("other"),
            ],
            id="stop",
        ),
        pytest.param(
            [WEATHER, p.Abort()],
            [
                StartChunk("m1"),
                StartStepChunk(),
                WEATHER_CHUNK,
                ToolOutputErrorChunk("c1", STOPPED),
                FinishStepChunk(),
                StartStepChunk(),
                FinishStepChunk(),
                AbortChunk(),
                FinishChunk("other", {}),
            ],
            id="stop-with-tools-ends-in-an-empty-step-so-that-no-client-posts-again",
        ),
        pytest.param([p.Abort()], [StartChunk("m1"), AbortChunk(), FinishChunk("other")], id="stop-before-anything"),
        pytest.param(
            [p.Start("turn-9", {"model": "m"}), p.Text("a")],
            [
                StartChunk("turn-9", {"model": "m"}),
                StartStepChunk(),
                TextStartChunk("1"),
                TextDeltaChunk("1", "a"),
                TextEndChunk("1"),
                FinishStepChunk(),
                STOP,
            ],
            id="start-names-the-message",
        ),
        pytest.param(
            [p.Text("a"), p.Start("late", {"model": "m"}), p.Start("later")],
            [
                StartChunk("m1"),
                StartStepChunk(),
                TextStartChunk("1"),
                TextDeltaChunk("1", "a"),
                MessageMetadataChunk({"model": "m"}),
                TextEndChunk("1"),
                FinishStepChunk(),
                STOP,
            ],
            id="late-start-keeps-its-metadata-alone",
        ),
        pytest.param(
            [p.Finish(), p.Text("late"), p.Error("late"), p.Finish()],
            [StartChunk("m1"), StartStepChunk(), FinishStepChunk(), FinishChunk("stop", {})],
            id="nothing-after-the-end",
        ),
    ],
)
def test_whole_streams(parts: list[Part], expected: list[Chunk]) -> None:
    assert send(parts) == expected
