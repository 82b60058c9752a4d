"""Chunks back to parts: every chunk says something, and a stream that is cut short says so."""

import pytest

from tests.chunk_strategies import legal_chunk
from usechat import parts
from usechat.parts import Part
from usechat.protocol import chunks
from usechat.protocol.chunks import CHUNK_TYPES, Chunk, chunk_from_json
from usechat.protocol.reframing import INCOMPLETE, ChunkReader, parts_from_chunk

METADATA = {"p": {"a": 1}}


@pytest.mark.parametrize(
    ("chunk", "expected"),
    [
        (chunks.StartChunk("m1", {"a": 1}), [parts.Start("m1", {"a": 1})]),
        (chunks.StartStepChunk(), [parts.Step()]),
        (chunks.FinishStepChunk(), []),
        (chunks.TextStartChunk("1", METADATA), [parts.Text("", METADATA, lane="text 1")]),
        (chunks.TextDeltaChunk("1", "a"), [parts.Text("a", lane="text 1")]),
        (chunks.TextEndChunk("1", [{"source": 1}]), [parts.BlockEnd(None, ({"source": 1},), lane="text 1")]),
        (chunks.ReasoningDeltaChunk("1", "a"), [parts.Reasoning("a", lane="reasoning 1")]),
        (chunks.ReasoningEndChunk("1", METADATA), [parts.BlockEnd(METADATA, lane="reasoning 1")]),
        (chunks.ToolInputDeltaChunk("c1", "{"), [parts.ToolInputDelta("c1", "{")]),
        (chunks.ToolInputAvailableChunk("c1", "t", 1, dynamic=True), [parts.ToolCall("c1", "t", 1, True)]),
        (chunks.ToolOutputAvailableChunk("c1", 2, preliminary=True), [parts.ToolResult("c1", 2, True)]),
        (chunks.ToolOutputDeniedChunk("c1"), [parts.ToolDenied("c1")]),
        (chunks.ToolApprovalRequestChunk("a1", "c1"), [parts.ApprovalRequest("a1", "c1")]),
        (
            chunks.ToolApprovalRequestChunk("a1", "c1", {"d": 1}, {"i": 1}, "why", True, "sig"),
            [parts.ApprovalRequest("a1", "c1", "why", True, "sig", {"d": 1}, {"i": 1})],
        ),
        (chunks.DataChunk("data-x", 1, "d1", True), [parts.Data("x", 1, "d1", True)]),
        (chunks.DataChunk("data-x", 1), [parts.Data("x", 1)]),
        (chunks.FinishChunk("length", {"a": 1}), [parts.Finish("length", metadata={"a": 1})]),
        (chunks.ErrorChunk("no"), [parts.Error("no")]),
    ],
)
def test_what_a_chunk_says(chunk: Chunk, expected: list[Part]) -> None:
    assert parts_from_chunk(chunk) == expected


@pytest.mark.parametrize("chunk_type", CHUNK_TYPES)
def test_every_chunk_type_can_be_read(chunk_type: str) -> None:
    assert isinstance(parts_from_chunk(chunk_from_json(legal_chunk(chunk_type))), list)


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        pytest.param([chunks.FinishChunk("stop")], [parts.Finish("stop")], id="a-good-end"),
        pytest.param(
            [chunks.ErrorChunk("no"), chunks.FinishChunk()], [parts.Error("no"), parts.Finish()], id="a-failure"
        ),
        pytest.param(
            [chunks.AbortChunk("user"), chunks.FinishChunk(None, {"a": 1})],
            [parts.Abort("user", metadata={"a": 1})],
            id="a-stop-with-its-metadata",
        ),
        pytest.param([chunks.AbortChunk("user")], [parts.Abort("user")], id="a-stop-without-finish"),
        pytest.param([chunks.StartChunk("m1")], [parts.Start("m1"), parts.Error(INCOMPLETE)], id="cut-short"),
    ],
)
def test_endings(stream: list[Chunk], expected: list[Part]) -> None:
    reader = ChunkReader()
    assert [part for chunk in stream for part in reader.feed(chunk)] + reader.close() == expected
