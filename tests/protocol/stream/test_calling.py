"""How a stream is called: ids, wrong parts, endings, and what it tells of itself."""

import time
from typing import Any

import pytest

from tests.protocol.stream.sending import SUNNY, WEATHER, body, send, text
from usechat.check import check_bytes
from usechat.errors import LocalProtocolError, UnknownRelease
from usechat.parts import Part
from usechat.protocol.chunks import (
    ErrorChunk,
    FinishChunk,
    FinishStepChunk,
    MessageMetadataChunk,
    ReasoningDeltaChunk,
    ReasoningEndChunk,
    ReasoningStartChunk,
    StartChunk,
    StartStepChunk,
    TextDeltaChunk,
    TextStartChunk,
    ToolApprovalRequestChunk,
    ToolApprovalResponseChunk,
    ToolInputAvailableChunk,
    ToolOutputDeniedChunk,
)
from usechat.protocol.sse import FrameStream
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
    parts: list[Part] = [p.Text("", id="turn-1"), p.Text("a", id="ignored"), p.BlockEnd(), p.Text("b")]
    assert body(parts)[1:] == [*text("turn-1", "a"), *text("1", "b")]


def test_no_two_blocks_have_the_same_id() -> None:
    parts: list[Part] = [p.Text("a", id="1", lane="x"), p.Text("b", id="1", lane="y"), p.Text("c", lane="z")]
    started = [chunk.id for chunk in body(parts) if isinstance(chunk, TextStartChunk)]
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
        ("hello", "expected a part of usechat.parts, not str; wrap it: Text"),
        (None, "expected a part of usechat.parts, not NoneType"),
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


def test_ids_that_new_id_repeats_are_skipped() -> None:
    ids = iter(["x", "x", "y", "x", "y", "z"])
    stream = MessageStream(message_id="m1", sdk="7", new_id=lambda: next(ids))
    opened = [stream.send(p.Text("a", lane=lane))[-2] for lane in ("1", "2", "3")]
    assert opened == [TextStartChunk("x"), TextStartChunk("y"), TextStartChunk("z")]


def test_a_new_id_that_makes_no_new_ids_is_refused() -> None:
    stream = MessageStream(message_id="m1", sdk="7", new_id=lambda: "x")
    stream.send(p.Text("a", lane="1"))
    with pytest.raises(LocalProtocolError, match="new_id returned 1000 ids that this message has already"):
        stream.send(p.Text("a", lane="2"))


def test_numbers_that_a_source_took_are_skipped() -> None:
    stream = MessageStream(message_id="m1", sdk="7")
    opened = [stream.send(p.Text("a", id=block_id, lane=str(block_id)))[-2] for block_id in ("1", "2", None)]
    assert opened == [TextStartChunk("1"), TextStartChunk("2"), TextStartChunk("3")]


def test_an_empty_message_id_of_a_source_names_nothing() -> None:
    stream = MessageStream(message_id="m1", sdk="7")
    assert stream.send(p.Start("")) == [StartChunk("m1")]
    with pytest.raises(LocalProtocolError, match="the stream has no message id"):
        MessageStream(sdk="7").send(p.Start(""))


@pytest.mark.parametrize("part", [p.Text("a", lane=[]), p.Reasoning("a", lane={})])  # type: ignore[arg-type]
def test_a_lane_that_is_no_text_is_refused(part: Part) -> None:
    stream = MessageStream(message_id="m1", sdk="7")
    for sender in (stream, FrameStream(stream)):
        with pytest.raises(LocalProtocolError, match=r"\.lane must be a str, not (list|dict)"):
            sender.send(part)
    assert stream.send(p.Text("a"))[-1] == TextDeltaChunk("1", "a")


def test_what_is_written_as_deep_as_possible_can_be_checked() -> None:
    value: Any = 1
    for _ in range(200):
        value = {"a": value}
    parts: list[Part] = [p.Data("x", value), p.ToolCall("c1", "t", value), p.Text("a", {"p": value}), p.Metadata(value)]
    frames = FrameStream(MessageStream(message_id="m1", sdk="7"))
    body = b"".join(map(frames.send, parts)) + frames.close()
    assert check_bytes(body, sdks=["7"])["ok"]


@pytest.mark.parametrize("first", [p.ToolDenied("c1"), p.ToolInputError("c1", "t", "bad")])
@pytest.mark.parametrize("later", [p.ToolResult("c1", 1), p.ToolError("c1", "x"), p.ToolDenied("c1")])
def test_an_outcome_that_contradicts_the_one_before_is_dropped(first: Part, later: Part) -> None:
    stream = MessageStream(message_id="m1", sdk="7")
    stream.send(first)
    assert stream.send(later) == []


def test_a_failed_turn_leaves_no_step_that_the_page_does_not_see() -> None:
    assert send([p.Text("a"), p.Step(), p.Error("x")])[-3:] == [
        FinishStepChunk(),
        ErrorChunk("x"),
        FinishChunk("error"),
    ]


def test_a_denial_beside_an_open_call_is_left_open_so_that_the_page_posts_its_answer() -> None:
    parts: list[Part] = [p.ToolCall("loc", "locate"), p.ToolDenied("c1", "no")]
    assert [type(chunk) for chunk in send(parts)][-5:] == [
        ToolInputAvailableChunk,
        ToolApprovalRequestChunk,
        ToolApprovalResponseChunk,
        FinishStepChunk,
        FinishChunk,
    ]


def test_a_step_can_leave_calls_that_the_source_runs_itself_but_no_input_that_is_streamed() -> None:
    question: list[Part] = [p.Step(leaves_calls=True), p.ToolCall("q", "ask"), p.ApprovalRequest("a", "q")]
    steps = [FinishStepChunk(), StartStepChunk(), ToolInputAvailableChunk("q", "ask", None)]
    assert send([p.ToolCall("c1", "t"), *question])[3:6] == steps
    assert send([p.ToolInputStart("c1", "t"), *question])[3] == steps[2]


def test_a_call_behind_a_denied_one_has_a_step_of_its_own() -> None:
    out = send([p.ToolDenied("c1"), p.ToolCall("loc", "locate")])
    assert out[-6:-2] == [
        ToolOutputDeniedChunk("c1"),
        FinishStepChunk(),
        StartStepChunk(),
        ToolInputAvailableChunk("loc", "locate", None),
    ]


def test_the_waiting_calls_of_thousands_of_approvals_take_linear_time() -> None:
    stream = MessageStream(message_id="m1", sdk="5")
    for number in range(20_000):
        stream.send(p.ApprovalRequest(f"a{number}", f"c{number}"))
    stream.close()
    before = time.process_time()
    assert len(stream.waiting_calls) == 20_000
    assert time.process_time() - before < 1  # a quadratic search takes several seconds


def test_thousands_of_steps_that_are_begun_again_behind_thousands_of_calls_take_linear_time() -> None:
    stream = MessageStream(message_id="m1", sdk="7")
    for number in range(10_000):
        stream.send(p.ToolCall(f"c{number}", "t", {}))
        stream.send(p.ToolResult(f"c{number}", 1))
    stream.send(p.Step())
    before = time.process_time()
    for _ in range(10_000):
        stream.send(p.Text("a"))
        stream.send(p.ResetStep())
    assert time.process_time() - before < 3  # a look at every call takes over 10 seconds


@pytest.mark.parametrize("other", ["a", "c1-approval"])
def test_a_request_whose_id_another_one_took_is_made_anew_to_be_answered(other: str) -> None:
    parts: list[Part] = [
        p.ToolCall("c1", "t", {}),
        p.ToolCall("c2", "t", {}),
        p.ToolCall("c3", "t", {}),
        p.ApprovalRequest(other, "c3"),
        p.ApprovalRequest("a", "c1"),
        p.ApprovalRequest("a", "c2"),
        p.ToolDenied("c1"),
    ]
    own = "c1-approval" if other == "a" else "c1-approval-2"
    assert body(parts, sdk="7")[-2:] == [
        ToolApprovalRequestChunk(own, "c1", is_automatic=True),
        ToolApprovalResponseChunk(own, approved=False),
    ], "7 finds one call by an id; the denial follows when no other call of the step is open"
