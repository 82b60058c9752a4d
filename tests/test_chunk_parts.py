"""Chunks back to parts: every chunk says something, and a stream that is cut short says so."""

import pytest

from tests.chunk_strategies import legal_chunk
from usechat import chunks, parts
from usechat.chunk_parts import BROKE_OFF, ChunkReader, parts_from_chunk
from usechat.chunks import CHUNK_TYPES, Chunk, chunk_from_json
from usechat.parts import Part

METADATA = {"p": {"a": 1}}


@pytest.mark.parametrize(
    ("chunk", "expected"),
    [
        (chunks.Start("m1", {"a": 1}), [parts.Start("m1", {"a": 1})]),
        (chunks.StartStep(), [parts.Step()]),
        (chunks.FinishStep(), []),
        (chunks.TextStart("1", METADATA), [parts.Text("", METADATA, lane="text 1")]),
        (chunks.TextDelta("1", "a"), [parts.Text("a", lane="text 1")]),
        (chunks.TextEnd("1", [{"source": 1}]), [parts.BlockEnd(None, ({"source": 1},), lane="text 1")]),
        (chunks.ReasoningDelta("1", "a"), [parts.Reasoning("a", lane="reasoning 1")]),
        (chunks.ReasoningEnd("1", METADATA), [parts.BlockEnd(METADATA, lane="reasoning 1")]),
        (chunks.ToolInputDelta("c1", "{"), [parts.ToolInputDelta("c1", "{")]),
        (chunks.ToolInputAvailable("c1", "t", 1, dynamic=True), [parts.ToolCall("c1", "t", 1, True)]),
        (chunks.ToolOutputAvailable("c1", 2, preliminary=True), [parts.ToolResult("c1", 2, True)]),
        (chunks.ToolOutputDenied("c1"), [parts.ToolDenied("c1")]),
        (chunks.ToolApprovalRequest("a1", "c1"), [parts.ApprovalRequest("a1", "c1")]),
        (
            chunks.ToolApprovalRequest("a1", "c1", {"d": 1}, {"i": 1}, "why", True, "sig"),
            [parts.ApprovalRequest("a1", "c1", "why", True, "sig", {"d": 1}, {"i": 1})],
        ),
        (chunks.Data("data-x", 1, "d1", True), [parts.Data("x", 1, "d1", True)]),
        (chunks.Data("data-x", 1), [parts.Data("x", 1)]),
        (chunks.Finish("length", {"a": 1}), [parts.Finish("length", metadata={"a": 1})]),
        (chunks.Error("no"), [parts.Error("no")]),
    ],
)
def test_what_a_chunk_says(chunk: Chunk, expected: list[Part]) -> None:
    assert parts_from_chunk(chunk) == expected


@pytest.mark.parametrize("chunk_type", CHUNK_TYPES)
def test_every_chunk_type_can_be_read(chunk_type: str) -> None:
    assert isinstance(parts_from_chunk(chunk_from_json(legal_chunk(chunk_type))), list)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param([chunks.Finish("stop")], [parts.Finish("stop")], id="a-good-end"),
        pytest.param([chunks.Error("no"), chunks.Finish()], [parts.Error("no"), parts.Finish()], id="a-failure"),
        pytest.param(
            [chunks.Abort("user"), chunks.Finish(None, {"a": 1})],
            [parts.Abort("user", metadata={"a": 1})],
            id="a-stop-with-its-metadata",
        ),
        pytest.param([chunks.Abort("user")], [parts.Abort("user")], id="a-stop-without-finish"),
        pytest.param([chunks.Start("m1")], [parts.Start("m1"), parts.Error(BROKE_OFF)], id="cut-short"),
    ],
)
def test_endings(found: list[Chunk], expected: list[Part]) -> None:
    reader = ChunkReader()
    assert [part for chunk in found for part in reader.read(chunk)] + reader.close() == expected
