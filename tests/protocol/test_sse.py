import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.protocol.test_chunks import any_chunk
from usechat.errors import (
    InvalidChunk,
    InvalidFrame,
    InvalidJSON,
    LocalProtocolError,
    RemoteProtocolError,
    UnknownChunkType,
)
from usechat.protocol import chunks
from usechat.protocol.chunks import Chunk, TextDeltaChunk, encode_chunk
from usechat.protocol.sse import DONE, KEEP_ALIVE, STREAM_OPEN, ChunkDecoder, Event, EventDecoder, encode_frame


class Text(str):
    __slots__ = ()


def events_of(*pieces: bytes, maximum: int = 1000) -> list[Event]:
    decoder = EventDecoder(maximum_event_bytes=maximum)
    return [event for piece in pieces for event in decoder.receive(piece)]


def data_of(*pieces: bytes) -> list[str]:
    return [event.data for event in events_of(*pieces)]


def cut(data: bytes, offsets: Iterable[int]) -> list[bytes]:
    bounds = [0, *sorted(offsets), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(bounds)]


def one_by_one(data: bytes) -> list[bytes]:
    return [data[index : index + 1] for index in range(len(data))]


# Frames


@pytest.mark.parametrize(
    ("chunk", "frame"),
    [
        (chunks.StartStepChunk(), 'data: {"type":"start-step"}\n\n'),
        (TextDeltaChunk("t", "Hé"), 'data: {"type":"text-delta","id":"t","delta":"Hé"}\n\n'),
        (TextDeltaChunk("t", "a\nb\r\u2028"), 'data: {"type":"text-delta","id":"t","delta":"a\\nb\\r\u2028"}\n\n'),
        (TextDeltaChunk("50%b%", "%s"), 'data: {"type":"text-delta","id":"50%b%","delta":"%s"}\n\n'),
        (TextDeltaChunk('"', ""), 'data: {"type":"text-delta","id":"\\"","delta":""}\n\n'),
        (TextDeltaChunk("t", "\ud83d"), 'data: {"type":"text-delta","id":"t","delta":"\\ud83d"}\n\n'),
        (TextDeltaChunk("\ud83d", "x"), 'data: {"type":"text-delta","id":"\\ud83d","delta":"x"}\n\n'),
        (TextDeltaChunk("t", Text("x")), 'data: {"type":"text-delta","id":"t","delta":"x"}\n\n'),
        (
            TextDeltaChunk("t", "x", {"p": {}}),
            'data: {"type":"text-delta","id":"t","delta":"x","providerMetadata":{"p":{}}}\n\n',
        ),
        (chunks.DataChunk("data-a\n\nb", "\n"), 'data: {"type":"data-a\\n\\nb","data":"\\n"}\n\n'),
    ],
)
def test_a_chunk_is_one_frame(chunk: Chunk, frame: str) -> None:
    assert [encode_frame(chunk).decode() for _ in range(2)] == [frame, frame]


@pytest.mark.parametrize(
    ("chunk", "name"),
    [
        (chunks.StartChunk("m"), b"message-start"),
        (chunks.FinishChunk(), b"message-finish"),
        (chunks.StartStepChunk(), b"start-step"),
        (TextDeltaChunk("t", "x"), b"text-delta"),
        (chunks.DataChunk("data-a\r\n\nevil: 1", 1), b"data-a   evil: 1"),
        (chunks.DataChunk("data-\ud800é", 1), "data-?é".encode()),
    ],
)
def test_a_frame_may_carry_its_name(chunk: Chunk, name: bytes) -> None:
    frame = encode_frame(chunk, event_names=True)
    assert frame == b"event: " + name + b"\n" + encode_frame(chunk)
    assert [event.name for event in events_of(frame)] == [name.decode()]


def test_more_blocks_than_are_remembered_are_no_problem() -> None:
    for number in range(3000):
        frame = encode_frame(TextDeltaChunk(f"block-{number}", "x"))
        assert frame == b"data: " + encode_chunk(TextDeltaChunk(f"block-{number}", "x")) + b"\n\n"


def test_the_constants_are_what_the_sdk_writes() -> None:
    assert (DONE, STREAM_OPEN, KEEP_ALIVE) == (b"data: [DONE]\n\n", b": stream-open\n\n", b": keep-alive\n\n")
    assert events_of(STREAM_OPEN, KEEP_ALIVE, DONE) == [Event("[DONE]", None, 1)]


# Events


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", []),
        (b"\n\n\r\n", []),
        (b"data: a\n\ndata: b\n\n", ["a", "b"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", ["a", "b"]),
        (b"data: a\r\rdata: b\r\r", ["a"]),
        (b"data: a\r\rdata: b\r\r:", ["a", "b"]),
        (b"data: a\n\r\ndata: b\r\n\n", ["a", "b"]),
        (b"data:a\n\n", ["a"]),
        (b"data:  a \n\n", [" a "]),
        (b"data:\ta\n\n", ["\ta"]),
        (b"data:\n\n", [""]),
        (b"data: \n\n", [""]),
        (b"data\n\n", [""]),
        (b"data\ndata\n\n", ["\n"]),
        (b"data: a\ndata: b\n\n", ["a\nb"]),
        (b"data: a\n: comment\nid: 1\nretry: 2\nunknown: 3\ndata: b\n\n", ["a\nb"]),
        (b"data: a:b\n\n", ["a:b"]),
        (b" data: a\n\n", []),
        (b"Data: a\n\n", []),
        (b"datas: a\n\n", []),
        (b"data : a\n\n", []),
        (b":data: a\n\n", []),
        (b"event: x\n\n", []),
        (b"data: a\n", []),
        (b"data: a\n\ndata: b", ["a"]),
        (b'{"type":"start"}\n\n', []),
        (b'0:"hello"\n', []),
        (b"<html>\n\n</html>\n\n", []),
        (b"data: a\x00b\n\n", ["a\x00b"]),
        ("data: a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\n\n".encode(), ["a\u2028b\u2029c\x85d\x0be\x0cf\x1cg"]),
        (b"\xef\xbb\xbfdata: a\n\n", ["a"]),
        (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n", []),
        ("\u00ef\u00bb\u00bfdata: a\n\n".encode(), ["a"]),
        (b"\n\xef\xbb\xbfdata: a\n\n", []),
        (b"data: \xef\xbb\xbfa\n\n", ["\ufeffa"]),
        (b"data: \xff\xe2\x82\n\n", ["\ufffd\ufffd"]),
        (b"data: \xf0\x9f\x98\x80\xed\xa0\x80\n\n", ["😀\ufffd\ufffd\ufffd"]),
    ],
)
def test_events_are_those_that_clients_see_in_any_split(body: bytes, expected: list[str]) -> None:
    assert data_of(body) == expected
    assert data_of(*one_by_one(body)) == expected
    for offset in range(len(body)):
        assert data_of(body[:offset], b"", body[offset:]) == expected


def test_events_carry_their_name_and_number() -> None:
    body = b"data: a\n\nevent: x\nevent: \xff y\ndata: b\n\nevent:\ndata: c\n\nevent: lost\n\ndata: d\n\n"
    assert events_of(body) == [
        Event("a", None, 1),
        Event("b", "\ufffd y", 2),
        Event("c", None, 3),
        Event("d", None, 4),
    ]


@pytest.mark.parametrize("field", [b"a", b"eve", b"events", b"id", b"Event"])
def test_no_other_field_names_an_event(field: bytes) -> None:
    assert events_of(field + b": x\ndata: a\n\n") == [Event("a", None, 1)]


def test_an_event_is_there_as_soon_as_its_blank_line_is() -> None:
    decoder = EventDecoder()
    assert decoder.receive(b"data: a\n") == []
    assert decoder.receive(b"\n") == [Event("a")]
    assert decoder.receive(b"data: b\r\r") == []
    assert decoder.receive(b"d") == [Event("b", None, 2)]


@pytest.mark.parametrize(
    ("body", "left"),
    [
        (b"", ""),
        (b"data: a\n\n", ""),
        (b"data: a\n\n: keep-alive\n\n", ""),
        (b"data: a\n\nevent: x\n", ""),
        (b"data: a", "data: a"),
        (b"data: a\n", "a"),
        (b"data: a\r\r", "a"),
        (b"data: a\ndata: b\nda", "a\nb\nda"),
        (b"data: \xe2\x82", "data: \ufffd"),
    ],
)
def test_what_was_left_unfinished_is_told(body: bytes, left: str) -> None:
    decoder = EventDecoder()
    decoder.receive(body)
    assert decoder.close() == left


lines = st.sampled_from(
    [
        b"data: a",
        b"data:\xc3\xa9",
        b"data",
        b"event: x",
        b"id: 1",
        b"retry: 1",
        b": c",
        b"",
        b"x",
        b"\xe2\x82\xac",
        b"\xef\xbb\xbf",
    ]
)
bodies = st.lists(st.tuples(lines, st.sampled_from([b"\n", b"\n", b"\r\n", b"\r", b""]))).map(
    lambda pairs: b"".join(itertools.chain.from_iterable(pairs))
)


@st.composite
def split_bodies(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    body = draw(bodies | st.binary())
    return body, cut(body, draw(st.lists(st.integers(0, len(body)))))


def outcome(pieces: Sequence[bytes], maximum: int) -> tuple[list[Event], str]:
    """Return the events and how the stream ended."""
    decoder = EventDecoder(maximum_event_bytes=maximum)
    events: list[Event] = []
    try:
        for piece in pieces:
            events += decoder.receive(piece)
        return events, decoder.close()
    except InvalidFrame as error:
        return events, str(error)


@given(split_bodies(), st.integers(0, 30))
def test_the_split_makes_no_difference(split: tuple[bytes, list[bytes]], maximum: int) -> None:
    body, pieces = split
    assert outcome(pieces, maximum) == outcome([body], maximum)


def test_a_name_belongs_to_the_event_whose_data_comes_in_the_next_piece() -> None:
    pieces = (b"data: 1\n\n", b"event: ping\n", b"data: 2\n\n", b"data: 3\n\n")
    assert events_of(*pieces) == [Event("1"), Event("2", "ping", 2), Event("3", None, 3)]


# Limits


@pytest.mark.parametrize(
    ("body", "maximum"),
    [
        (b"data: 12345\n\n", 11),
        (b"data: 12345\r\n\r\n", 11),
        (b"data: 1\ndata: 2\n\n", 14),
        (b": 345678901", 11),
        (b"data: 1\n: 34567\n\n", 14),
    ],
)
def test_an_event_within_the_limit_is_read(body: bytes, maximum: int) -> None:
    for pieces in ([body], one_by_one(body)):
        events_of(*pieces, maximum=maximum)


@pytest.mark.parametrize(
    ("body", "maximum"),
    [
        (b"data: 12345\n\n", 10),
        (b"data: 12345", 10),
        (b"data: 1\ndata: 2\n\n", 13),
        (b"data\n" * 10, 39),
        (b": 34567890\n", 9),
        (b"data: 1\n: 34567\n\n", 13),
    ],
)
def test_an_event_over_the_limit_is_refused(body: bytes, maximum: int) -> None:
    for pieces in ([body], one_by_one(body)):
        with pytest.raises(InvalidFrame) as caught:
            events_of(*pieces, maximum=maximum)
        assert str(caught.value) == (
            f"frame 1: an event of more than {maximum} bytes; send less in one chunk,"
            " or read with a larger maximum_event_bytes"
        )


@pytest.mark.parametrize(("size", "is_read"), [(19, True), (20, True), (21, False), (1000, False)])
def test_the_limit_holds_for_an_event_that_comes_in_one_piece_after_others(size: int, is_read: bool) -> None:
    decoder = EventDecoder(maximum_event_bytes=20)
    assert [event.data for event in decoder.receive(b"data: 1\n\n")] == ["1"]
    event = b"data: ".ljust(size, b"x")
    if is_read:
        assert [event.data for event in decoder.receive(event + b"\n\n")] == ["x" * (size - 6)]
    else:
        with pytest.raises(InvalidFrame, match="frame 2: an event of more than 20 bytes"):
            decoder.receive(event + b"\n\n")


def test_what_came_before_an_event_over_the_limit_is_not_lost() -> None:
    decoder = EventDecoder(maximum_event_bytes=10)
    assert decoder.receive(b"data: a\n\ndata: 123456789\n\ndata: b\n\n") == [Event("a")]
    for _ in range(2):
        with pytest.raises(InvalidFrame, match=r"^frame 2: "):
            decoder.receive(b"data: c\n\n")
    with pytest.raises(InvalidFrame, match=r"^frame 2: "):
        decoder.close()


def test_small_events_without_end_are_no_problem_for_the_limit() -> None:
    assert len(events_of(*[b": comment\ndata: 1\n\n"] * 1000, maximum=10)) == 1000


# Chunks


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bytes_of_every_kind_are_read(kind: type) -> None:
    decoder = EventDecoder()
    assert [event.data for _ in range(2) for event in decoder.receive(kind(b"data: 1\n\n"))] == ["1", "1"]
    assert ChunkDecoder().receive(kind(b'data: {"type":"finish"}\n\n')) == [chunks.FinishChunk()]


@pytest.mark.parametrize("decoder", [EventDecoder(), ChunkDecoder()])
@pytest.mark.parametrize("data", ["data: 1\n\n", None, 1])
def test_what_is_no_bytes_is_refused(decoder: EventDecoder | ChunkDecoder, data: Any) -> None:
    with pytest.raises(LocalProtocolError, match=rf"accepts bytes, not {type(data).__name__}; encode a text as UTF-8"):
        decoder.receive(data)


def test_chunks_are_read_and_done_is_skipped() -> None:
    decoder = ChunkDecoder()
    body = STREAM_OPEN + encode_frame(chunks.StartChunk("m")) + DONE + encode_frame(chunks.DataChunk("data-x", 1))
    assert decoder.receive(body + b"data: [DO") == [chunks.StartChunk("m"), chunks.DataChunk("data-x", 1)]
    assert decoder.close() == "data: [DO"


@pytest.mark.parametrize(
    ("data", "error", "text"),
    [
        (b"", InvalidJSON, "frame 2: not JSON: Expecting value: line 1 column 1 (char 0): ''"),
        (b"[DONE] ", InvalidJSON, "frame 2: not JSON: Expecting value: line 1 column 2 (char 1): '[DONE] '"),
        (b"[done]", InvalidJSON, "frame 2: not JSON: Expecting value: line 1 column 2 (char 1): '[done]'"),
        (
            b'{"a":' + b" " * 200,
            InvalidJSON,
            'frame 2: not JSON: Expecting value: line 1 column 206 (char 205): \'{"a":' + " " * 75 + "'",
        ),
        (b"[]", InvalidChunk, "frame 2: a chunk is a JSON object, not an array"),
        (b'{"type":"text-start"}', InvalidChunk, "frame 2: text-start: the key 'id' is missing"),
        (b'{"type":"ping"}', UnknownChunkType, "frame 2: no AI SDK release knows the chunk type 'ping'"),
    ],
)
def test_an_illegal_frame_is_refused_by_its_number(data: bytes, error: type[RemoteProtocolError], text: str) -> None:
    decoder = ChunkDecoder()
    assert decoder.receive(encode_frame(chunks.StartStepChunk()) + b"data: ") == [chunks.StartStepChunk()]
    for _ in range(2):
        with pytest.raises(error) as caught:
            decoder.receive(data + b"\n\n")
        assert str(caught.value) == text
    with pytest.raises(error):
        decoder.close()


def test_what_came_before_an_illegal_frame_is_not_lost() -> None:
    decoder = ChunkDecoder()
    good = encode_frame(chunks.StartStepChunk())
    assert decoder.receive(good + good + b"data: {}\n\n" + good) == [chunks.StartStepChunk()] * 2
    with pytest.raises(InvalidChunk, match=r"^frame 3: "):
        decoder.receive(b"")


def test_a_chunk_over_the_limit_is_refused() -> None:
    decoder = ChunkDecoder(maximum_event_bytes=20)
    with pytest.raises(InvalidFrame):
        decoder.receive(encode_frame(chunks.StartStepChunk()))


@given(st.lists(any_chunk, max_size=4), st.booleans(), st.data())
def test_every_chunk_survives_the_wire_in_any_split(
    stream: list[Chunk], event_names: bool, data: st.DataObject
) -> None:
    body = b"".join(encode_frame(chunk, event_names=event_names) for chunk in stream) + DONE
    decoder = ChunkDecoder()
    pieces = cut(body, data.draw(st.lists(st.integers(0, len(body)))))
    assert [chunk for piece in pieces for chunk in decoder.receive(piece)] == stream
    assert decoder.close() == ""


@given(st.text(st.characters()), st.text(st.characters()))
def test_the_quick_way_writes_what_the_careful_way_writes(block_id: str, delta: str) -> None:
    chunk = TextDeltaChunk(block_id, delta)
    expected = b"data: " + encode_chunk(chunk) + b"\n\n"
    assert [encode_frame(chunk) for _ in range(2)] == [expected, expected]
