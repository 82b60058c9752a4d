"""Our own frames as bytes: cut between frames, and taken apart into the JSON of their chunks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.part_strategies import part_lists
from usechat.parts import Part
from usechat.protocol.chunks import FinishChunk, FinishStepChunk, StartChunk, TextDeltaChunk, encode_chunk
from usechat.protocol.sse import (
    DONE,
    KEEP_ALIVE,
    STREAM_OPEN,
    chunks_json,
    encode_frame,
    encode_frames,
    end_of_first_frame,
    end_of_last_frame,
    end_of_piece,
    ends_step,
    pieces_of,
    take_frames,
)
from usechat.protocol.stream import MessageStream

DELTA = TextDeltaChunk("1", 'data: "[DONE]"')


@pytest.mark.parametrize(
    ("frames", "size", "expected"),
    [
        (b"", 4, []),
        (b"a\n\nb\n\n", 1, [b"a\n\n", b"b\n\n"]),
        (b"a\n\nb\n\n", 3, [b"a\n\n", b"b\n\n"]),
        (b"a\n\nb\n\nc\n\n", 4, [b"a\n\nb\n\n", b"c\n\n"]),
        (b"a\n\nb\n\n", 100, [b"a\n\nb\n\n"]),
        (b"a\nb\n\nc\n\n", 2, [b"a\nb\n\n", b"c\n\n"]),
    ],
)
def test_frames_are_cut_between_frames(frames: bytes, size: int, expected: list[bytes]) -> None:
    assert list(pieces_of(frames, size)) == expected


@pytest.mark.parametrize(("size", "end", "expected"), [(0, 9, 6), (3, 9, 6), (4, 9, 9), (4, 8, 8), (3, 5, 5)])
def test_a_piece_ends_with_a_frame_or_where_the_bytes_end(size: int, end: int, expected: int) -> None:
    assert end_of_piece(bytearray(b"a\n\nb\n\nc\n\n"), 3, size, end) == expected


@pytest.mark.parametrize(
    ("received", "frames", "rest"),
    [(b"", [], b""), (b"a\n", [], b"a\n"), (b"a\n\n", [b"a\n\n"], b""), (b"a\n\nb\n\nc", [b"a\n\n", b"b\n\n"], b"c")],
)
def test_complete_frames_are_taken_and_the_rest_stays(received: bytes, frames: list[bytes], rest: bytes) -> None:
    buffer = bytearray(received)
    assert (take_frames(buffer), bytes(buffer)) == (frames, rest)


@pytest.mark.parametrize("event_names", [False, True])
def test_done_follows_a_finish_at_the_end(event_names: bool) -> None:
    delta, finish = (encode_frame(chunk, event_names=event_names) for chunk in (DELTA, FinishChunk()))
    assert encode_frames([], event_names=event_names) == b""
    assert encode_frames([DELTA], event_names=event_names) == delta
    assert encode_frames([DELTA, FinishChunk()], event_names=event_names) == delta + finish + DONE


@given(part_lists, st.booleans())
def test_the_json_of_the_chunks_is_taken_out_as_it_was_written(parts: list[Part], event_names: bool) -> None:
    stream = MessageStream(message_id="m1", sdk="7")
    chunks = [DELTA, *(chunk for part in parts for chunk in stream.send(part)), *stream.close()]
    frames = encode_frames(chunks, event_names=event_names)
    assert chunks_json(STREAM_OPEN + KEEP_ALIVE + frames) == [encode_chunk(chunk) for chunk in chunks]


def test_the_json_of_a_chunk_is_returned_whatever_it_is() -> None:
    assert chunks_json(b'data: 1\n\n: comment\n\ndata: "a"\n\ndata: {}\n\ndata: [DONE]\n\n') == [b"1", b'"a"', b"{}"]


def test_the_ends_of_the_first_and_of_the_last_whole_frame_are_found() -> None:
    one, two = encode_frame(StartChunk()), encode_frame(FinishStepChunk())
    assert [end_of_first_frame(frames) for frames in (b"", one[:-1], one, one + two)] == [0, 0, len(one), len(one)]
    assert [end_of_last_frame(frames) for frames in (b"", one[:-1], one, one + two + b"data")] == [
        *(0, 0, len(one)),
        len(one + two),
    ]
    assert (ends_step(one), ends_step(one + two)) == (False, True)


def test_frames_have_no_names_unless_they_are_asked_for() -> None:
    assert encode_frames([FinishChunk()]) == b'data: {"type":"finish"}\n\n' + DONE
