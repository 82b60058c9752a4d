"""Frames kept in short: whatever was written, what is read out makes the same message."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usechat.protocol import chunks
from usechat.protocol.chunks import Chunk
from usechat.protocol.reframing import shorten
from usechat.protocol.sse import DONE, ChunkDecoder, Restorer, ShortenedFrames, encode_frame, has_ending

IDS = st.sampled_from(["1", "2", 'a"b', "\\", "\n\n", "é"])
TEXTS = st.text() | st.sampled_from(
    ['"}', '"}\n\n', 'data: {"type":"text-delta","id":"1","delta":"', "\\", "\N{GRINNING FACE}"]
)
METADATA = st.none() | st.just({"openai": {"itemId": "x"}})
CHUNKS: st.SearchStrategy[Chunk] = st.one_of(
    st.builds(chunks.TextStartChunk, IDS),
    st.builds(chunks.TextDeltaChunk, IDS, TEXTS, METADATA),
    st.builds(chunks.TextDeltaChunk, st.just("1"), TEXTS),
    st.builds(chunks.TextEndChunk, IDS),
    st.builds(chunks.ReasoningDeltaChunk, IDS, TEXTS, METADATA),
    st.builds(chunks.ToolInputDeltaChunk, IDS, TEXTS),
    st.builds(chunks.ErrorChunk, TEXTS),
    st.builds(lambda data: chunks.DataChunk("data-news", data), TEXTS),
)


def kept(pieces: list[bytes]) -> bytes:
    shortened = ShortenedFrames()
    for piece in pieces:
        shortened.add(piece)
    assert len(shortened) == len(bytes(shortened))
    return bytes(shortened)


def deltas(*texts: str, block: str = "1", event_names: bool = False) -> list[bytes]:
    return [encode_frame(chunks.TextDeltaChunk(block, text), event_names=event_names) for text in texts]


@given(st.lists(st.lists(CHUNKS, min_size=1, max_size=5)), st.booleans())
def test_nothing_is_lost_or_changed(pieces: list[list[Chunk]], event_names: bool) -> None:
    frames = [b"".join(encode_frame(chunk, event_names=event_names) for chunk in piece) for piece in pieces]
    assert shorten(kept(frames)) == shorten(b"".join(frames))


@given(st.lists(CHUNKS))
def test_only_deltas_that_follow_each_other_are_joined(stream: list[Chunk]) -> None:
    merged_stream: list[Chunk] = []
    for chunk in stream:
        last = merged_stream[-1] if merged_stream else None
        if (
            isinstance(chunk, chunks.TextDeltaChunk | chunks.ReasoningDeltaChunk)
            and isinstance(last, chunks.TextDeltaChunk | chunks.ReasoningDeltaChunk)
            and type(last) is type(chunk)
            and last.id == chunk.id
            and last.provider_metadata is chunk.provider_metadata is None
        ):
            merged_stream[-1] = type(chunk)(chunk.id, last.delta + chunk.delta)
        else:
            merged_stream.append(chunk)
    frames = kept([encode_frame(chunk) for chunk in stream])
    assert ChunkDecoder().receive(frames) == ChunkDecoder().receive(
        b"".join(encode_frame(chunk) for chunk in merged_stream)
    )


@pytest.mark.parametrize("event_names", [False, True])
@pytest.mark.parametrize("at_once", [False, True])
def test_the_deltas_of_a_block_become_one(event_names: bool, at_once: bool) -> None:
    frames = deltas("How ", 'do "you"', "\n do?", event_names=event_names)
    pieces = [b"".join(frames)] if at_once else frames
    assert kept(pieces) == deltas('How do "you"\n do?', event_names=event_names)[0]


def test_deltas_of_several_blocks_that_come_at_once_stay_apart() -> None:
    first, second = deltas("a", "c")
    (other,) = deltas("b", block="2")
    assert kept([first + other, second]) == first + other + second


def test_an_ending_stays_behind_them() -> None:
    assert kept([*deltas("a", "b"), DONE]) == deltas("ab")[0] + DONE


@pytest.mark.parametrize("at_once", [False, True])
def test_no_frame_becomes_too_large_to_be_read(at_once: bool) -> None:
    frames = deltas(*["x" * 10_000] * 20)
    stream = ChunkDecoder().receive(kept([b"".join(frames)] if at_once else frames))
    assert [len(chunk.delta) for chunk in stream if isinstance(chunk, chunks.TextDeltaChunk)] == [
        60_000,
        60_000,
        60_000,
        20_000,
    ]


def test_what_is_no_frame_is_kept_too() -> None:
    assert kept([b"a", b"\n\n\n\nb"]) == b"a\n\n\n\nb"


def test_whole_frames_are_read_from_a_place_on() -> None:
    first, second = encode_frame(chunks.ErrorChunk("one")), encode_frame(chunks.ErrorChunk("two"))
    shortened = ShortenedFrames()
    shortened.add(first + second)
    both = len(first + second)
    assert shortened.read(0, both) == first + second
    assert shortened.read(0, both - 1) == first
    assert shortened.read(0, 1) == first, "at least one frame"
    assert shortened.read(len(first), 1) == second
    assert shortened.read(both, 1) == b""


def test_a_place_behind_the_start_changes_nothing_about_how_much_is_read() -> None:
    frames = [encode_frame(chunks.ErrorChunk(text)) for text in ("one", "two", "three", "four")]
    shortened = ShortenedFrames()
    shortened.add(b"".join(frames))
    first, second, third, fourth = frames
    assert shortened.read(len(first), len(second)) == second
    assert shortened.read(len(first), len(second + third)) == second + third
    assert shortened.read(len(first), 1000) == second + third + fourth


def test_nothing_is_added_to_a_frame_that_was_read() -> None:
    shortened = ShortenedFrames()
    frames = deltas("a", "b", "c")
    shortened.add(frames[0])
    shortened.add(frames[1])
    (merged,) = deltas("ab")
    assert shortened.read(0, 1000) == merged
    shortened.add(frames[2])
    assert shortened.read(len(merged), 1000) == frames[2]


def test_a_last_frame_that_was_not_read_still_grows() -> None:
    shortened = ShortenedFrames()
    error = encode_frame(chunks.ErrorChunk("one"))
    frames = deltas("a", "b")
    shortened.add(error)
    shortened.add(frames[0])
    assert shortened.read(0, len(error)) == error
    shortened.add(frames[1])
    assert shortened.read(len(error), 1000) == deltas("ab")[0]


@given(st.lists(st.tuples(st.lists(CHUNKS, min_size=1, max_size=5), st.booleans())), st.booleans(), st.integers(1, 300))
def test_what_was_written_is_restored_exactly(
    pieces: list[tuple[list[Chunk], bool]], event_names: bool, size: int
) -> None:
    shortened, restorer = ShortenedFrames(), Restorer()
    written, restored, place = b"", b"", 0
    for stream, reads in pieces:
        frames = b"".join(encode_frame(chunk, event_names=event_names) for chunk in stream)
        shortened.add(frames)
        written += frames
        while reads and (new := shortened.read(place, size)):
            place += len(new)
            restored += restorer.restore(new, shortened.cuts)
    rest = shortened.read(place, 10**9)
    assert restored + restorer.restore(rest, shortened.cuts) == written


def test_the_cuts_take_about_a_byte_for_each_delta() -> None:
    shortened = ShortenedFrames()
    for number in range(20_000):
        shortened.add(deltas(f"word {number} ")[0])
    assert len(shortened.cuts) < 20_100


def test_deltas_that_were_merged_are_each_alone_again() -> None:
    frames = [*deltas("a", "b", "c"), *deltas("d", "e", block="2"), DONE]
    shortened = ShortenedFrames()
    shortened.add(b"".join(frames))
    assert Restorer().restore(bytes(shortened), shortened.cuts) == b"".join(frames)


@pytest.mark.parametrize(
    ("chunk", "ends"), [(chunks.FinishChunk(), True), (chunks.ErrorChunk("no"), True), (chunks.AbortChunk(), False)]
)
def test_a_client_expects_nothing_behind_a_finish_or_an_error(chunk: Chunk, ends: bool) -> None:
    assert has_ending(deltas("a")[0] + encode_frame(chunk) + DONE) is ends
