"""The replay of a run: compact frames, the older ones in a file. Readers notice nothing of the file."""

import logging
import tempfile
from typing import Any

import pytest

from usechat.protocol.chunks import TextDeltaChunk
from usechat.protocol.sse import ChunkDecoder, ShortenedFrames, encode_frame
from usechat.runs.replay import Replay

TOOL = b'data: {"type":"data-file","data":"%s"}\n\n'


def delta(text: str) -> bytes:
    return encode_frame(TextDeltaChunk(id="1", delta=text))


def read_all(replay: Replay, size: int) -> list[bytes]:
    place, pieces = 0, list[bytes]()
    while piece := replay.read(place, size):
        pieces.append(piece)
        place += len(piece)
    return pieces


def text_of(frames: bytes) -> str:
    return "".join(chunk.delta for chunk in ChunkDecoder().receive(frames) if isinstance(chunk, TextDeltaChunk))


def filled(in_memory: int, frames: list[bytes]) -> Replay:
    replay = Replay(in_memory)
    for frame in frames:
        replay.add(frame)
    return replay


@pytest.mark.parametrize("in_memory", [0, 1, 100, 700, 10**6])
@pytest.mark.parametrize("size", [1, 90, 300, 10**6])
def test_what_is_read_is_what_was_added_wherever_it_is(in_memory: int, size: int) -> None:
    frames = [delta(f"{number} ") if number % 10 else TOOL % (b"%d" % number) for number in range(200)]
    replay = filled(in_memory, frames)
    pieces = read_all(replay, size)
    assert b"".join(pieces) == bytes(replay)
    assert text_of(bytes(replay)) == "".join(f"{number} " for number in range(200) if number % 10)
    assert bytes(replay).count(b"data-file") == 20
    assert all(piece.endswith(b"\n\n") for piece in pieces), "pieces are whole frames"
    assert all(len(piece) <= size or piece.count(b"\n\n") == 1 for piece in pieces)


def test_a_frame_larger_than_a_piece_is_read_whole_from_the_file() -> None:
    large = TOOL % (b"x" * 2_500_000)
    replay = filled(1000, [delta("before"), large, delta("after" * 1000), delta("end")])
    assert large in read_all(replay, 1000)


def test_a_reader_goes_on_where_it_was_when_frames_move_to_the_file() -> None:
    replay = filled(500, [delta("a" * 100)])
    first = replay.read(0, 1000)
    for _ in range(20):
        replay.add(delta("b" * 100))
    rest, place = b"", len(first)
    while piece := replay.read(place, 1000):
        rest += piece
        place += len(piece)
    assert text_of(first + rest) == "a" * 100 + "b" * 2000


@pytest.mark.parametrize(("spare", "file_count"), [(0, 0), (-1, 1)])
def test_frames_that_just_fit_into_memory_stay_there(
    monkeypatch: pytest.MonkeyPatch, spare: int, file_count: int
) -> None:
    files: list[Any] = []
    make = tempfile.TemporaryFile

    def making(**options: Any) -> Any:
        files.append(make(**options))
        return files[-1]

    monkeypatch.setattr(tempfile, "TemporaryFile", making)
    filled(len(delta("a")) + spare, [delta("a")])
    assert len(files) == file_count


def test_frames_stay_in_memory_if_no_file_can_be_written(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(**_: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    replay = filled(1000, [delta("x" * 100) for _ in range(30)])
    assert text_of(bytes(replay)) == "x" * 3000
    assert text_of(b"".join(read_all(replay, 500))) == "x" * 3000
    messages = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(messages) == 2, "it is tried again at twice the size, not for every frame"
    assert "No space left on device" in messages[0]


def test_the_length_of_shortened_frames_is_that_of_their_bytes() -> None:
    frames = ShortenedFrames()
    frames.add(delta("one ") + delta("two"))
    assert len(frames) == len(bytes(frames)) > 0
