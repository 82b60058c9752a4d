"""Whole streams, one row per behaviour: parts in, chunks out."""

import pytest

from tests.stream.sending import STOP, WEATHER, WEATHER_CHUNK, send
from usechat.chunks import (
    Abort,
    Chunk,
    Error,
    Finish,
    FinishStep,
    MessageMetadata,
    Start,
    StartStep,
    TextDelta,
    TextEnd,
    TextStart,
    ToolOutputError,
)
from usechat.parts import Part
from usechat.stream import BROKEN_OFF, STOPPED

# Parts are written `p.Text`, chunks by their bare names.
import usechat.parts as p  # isort: skip


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
