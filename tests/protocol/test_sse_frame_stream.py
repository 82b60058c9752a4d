"""Parts to bytes: the same frames as stream and encoder give, whichever way they take."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.part_strategies import any_part, endings
from usechat import parts
from usechat.parts import Part
from usechat.protocol.sse import DONE, FrameStream, encode_frame
from usechat.protocol.stream import MessageStream

ids = st.sampled_from(["1", '%"}', "%b", "\ud83d"])


def test_a_turn_in_bytes() -> None:
    frames = FrameStream(MessageStream(message_id="m1", sdk="7"))
    assert frames.send(parts.Text("Hel")) == (
        b'data: {"type":"start","messageId":"m1"}\n\n'
        b'data: {"type":"start-step"}\n\n'
        b'data: {"type":"text-start","id":"1"}\n\n'
        b'data: {"type":"text-delta","id":"1","delta":"Hel"}\n\n'
    )
    assert frames.send(parts.Text("lo\n")) == b'data: {"type":"text-delta","id":"1","delta":"lo\\n"}\n\n'
    assert frames.send(parts.Text("\ud83d")) == b'data: {"type":"text-delta","id":"1","delta":"\\ud83d"}\n\n'
    assert frames.close() == (
        b'data: {"type":"text-end","id":"1"}\n\n'
        b'data: {"type":"finish-step"}\n\n'
        b'data: {"type":"finish","finishReason":"stop"}\n\n'
        b"data: [DONE]\n\n"
    )
    assert (frames.close(), frames.fail("late"), frames.send(parts.Text("late"))) == (b"", b"", b"")


def test_a_failure_ends_the_bytes_too() -> None:
    frames = FrameStream(MessageStream(message_id="m1", sdk="7"))
    assert frames.fail("No luck.").endswith(
        b'data: {"type":"error","errorText":"No luck."}\n\n'
        b'data: {"type":"finish","finishReason":"error"}\n\n'
        b"data: [DONE]\n\n"
    )


def delta(block: str, text: str, kind: str = "text", **more: Any) -> bytes:
    chunk = {"type": f"{kind}-delta", "id": block, "delta": text, **more}
    return f"data: {json.dumps(chunk, separators=(',', ':'))}\n\n".encode()


@pytest.mark.parametrize("kind", [parts.Text, parts.Reasoning])
def test_metadata_that_a_block_has_already_is_not_repeated(kind: type[parts.Text | parts.Reasoning]) -> None:
    name = "text" if kind is parts.Text else "reasoning"
    frames = FrameStream(MessageStream(message_id="m1", sdk="7"))
    metadata = {"openai": {"itemId": "x"}}
    assert frames.send(kind("a", metadata)).endswith(delta("1", "a", name))
    for same in (metadata, {"openai": {"itemId": "x"}}, None, metadata):
        assert frames.send(kind("b", same)) == delta("1", "b", name)
    other = {"openai": {"itemId": "y"}}
    assert frames.send(kind("c", other)) == delta("1", "c", name, providerMetadata=other)
    assert frames.send(kind("d", other)) == delta("1", "d", name)
    assert frames.send(kind("e", metadata)) == delta("1", "e", name, providerMetadata=metadata)
    assert frames.send(kind("f")) == delta("1", "f", name)


class Incomparable:
    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth value of an array is ambiguous")

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return "array"


def test_metadata_that_cannot_be_compared_is_sent_again() -> None:
    frames = FrameStream(MessageStream(message_id="m1", sdk="7"))
    same = {"p": {"v": Incomparable()}}
    frames.send(parts.Text("a", same))
    assert frames.send(parts.Text("b", same)) == delta("1", "b")
    other = {"p": {"v": Incomparable()}}
    assert frames.send(parts.Text("c", other)) == delta("1", "c", providerMetadata={"p": {"v": "[Incomparable]"}})


def test_text_of_another_lane_does_not_take_over_the_next_text() -> None:
    frames = FrameStream(MessageStream(message_id="m1", sdk="7"))
    for part in (parts.ToolResult("c1", 1, lane="c"), parts.ToolInputStart("c2", "t", lane="c")):
        frames.send(part)
    assert frames.send(parts.Text("PLANNER", lane="p")).endswith(delta("1", "PLANNER"))
    frames.send(parts.ToolCall("c2", "t", {}, lane="c"))
    assert frames.send(parts.Text("CODER", lane="c")).endswith(delta("2", "CODER"))


@pytest.mark.parametrize("lanes", ["abab", "baba"])
def test_lanes_that_take_turns_keep_their_blocks(lanes: str) -> None:
    frames = FrameStream(MessageStream(message_id="m1", sdk="7"))
    blocks = {lanes[0]: "1", lanes[1]: "2"}
    for lane in lanes[:2]:
        frames.send(parts.Text("so", lane=lane))
    assert [frames.send(parts.Text("x", lane=lane)) for lane in lanes] == [delta(blocks[lane], "x") for lane in lanes]


def test_settling_writes_what_the_stream_settles() -> None:
    frames = FrameStream(MessageStream(message_id="m1", sdk="7"))
    frames.send(parts.Text("Hel"))
    assert frames.settle() == b'data: {"type":"text-end","id":"1"}\n\n'
    assert frames.settle() == b""
    assert frames.send(parts.Text("lo")).endswith(delta("2", "lo"))


_metadata = st.sampled_from([None, {"p": {"a": 1}}, {"p": {"a": 2}}])
_lanes = st.sampled_from(["", "x"])
_text = st.builds(parts.Text, st.text(max_size=3), _metadata, lane=_lanes) | st.builds(
    parts.Reasoning, st.text(max_size=3), _metadata, lane=_lanes
)


@settings(max_examples=300)
@given(st.lists(any_part | _text, max_size=12), st.lists(endings), ids, st.booleans())
def test_the_short_way_writes_what_the_long_way_writes(
    source_parts: list[Part], ended: list[Part], block_id: str, event_names: bool
) -> None:
    def new_stream() -> MessageStream:
        numbers = iter(range(100))
        return MessageStream(message_id="m1", new_id=lambda: f"{block_id}{next(numbers)}")

    frames = FrameStream(new_stream(), event_names=event_names)
    body = b"".join([frames.send(part) for part in [*source_parts, *ended]]) + frames.close()
    stream = new_stream()
    chunks = [chunk for part in [*source_parts, *ended] for chunk in stream.send(part)] + stream.close()
    assert body == b"".join([encode_frame(chunk, event_names=event_names) for chunk in chunks]) + DONE
