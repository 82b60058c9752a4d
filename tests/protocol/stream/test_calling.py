"""How a stream is called: ids, wrong parts, endings, and what it tells of itself."""

from typing import Any

import pytest

from tests.protocol.stream.sending import SUNNY, WEATHER, body, send, text
from usechat.errors import LocalProtocolError, UnknownRelease
from usechat.parts import Part
from usechat.protocol.chunks import (
    ErrorChunk,
    FinishChunk,
    MessageMetadataChunk,
    ReasoningDeltaChunk,
    ReasoningEndChunk,
    ReasoningStartChunk,
    StartChunk,
    TextStartChunk,
)
from usechat.protocol.stream import MessageStream

# Parts are written `p.Text`, chunks by their bare names.
import usechat.parts as p  # isort: skip


def test_block_ids_come_from_the_caller() -> None:
    ids = iter(["turn-1", "b", "c"])
    assert body([p.Text("a"), p.Reasoning("b")], new_id=ids.__next__)[1:] == [
        *text("turn-1", "a"),
        ReasoningStartChunk("b"),
        ReasoningDeltaChunk("b", "b"),
        ReasoningEndChunk("b"),
    ]


def test_a_text_names_the_block_that_it_opens() -> None:
    sent: list[Part] = [p.Text("", id="turn-1"), p.Text("a", id="ignored"), p.BlockEnd(), p.Text("b")]
    assert body(sent)[1:] == [*text("turn-1", "a"), *text("1", "b")]


def test_no_two_blocks_have_the_same_id() -> None:
    sent: list[Part] = [p.Text("a", id="1", lane="x"), p.Text("b", id="1", lane="y"), p.Text("c", lane="z")]
    started = [chunk.id for chunk in body(sent) if isinstance(chunk, TextStartChunk)]
    assert started == ["1", "2", "3"]


def test_a_stream_without_a_message_id_is_refused_until_it_has_one() -> None:
    stream = MessageStream()
    for _ in range(2):
        with pytest.raises(LocalProtocolError, match="give MessageStream"):
            stream.send(p.Text("a"))
    assert stream.send(p.Start("m2")) == [StartChunk("m2")]
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
        assert any(isinstance(chunk, MessageMetadataChunk | FinishChunk) and chunk.message_metadata for chunk in out)


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
    assert stream.fail("x") == [StartChunk("m1"), ErrorChunk("x"), FinishChunk("error")]
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


def test_the_source_finds_its_call_by_its_own_id_whatever_the_wire_calls_it() -> None:
    stream = MessageStream(message_id="m1", sdk="7")
    for part in (WEATHER, SUNNY, WEATHER):
        stream.send(part)
    call = stream.call_meant_by("c1")
    assert call is not None
    assert (call.wire_id, call.settled) == ("c1-2", False)
    assert stream.call_meant_by("c9") is None
