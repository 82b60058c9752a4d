"""The decoders see in any bytes exactly what the real clients see."""

import itertools
import json
from collections.abc import Sequence
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.chunk_strategies import mutated_chunks
from tests.conformance.judge import ALL_RELEASES, RELEASES, Chat, ChatResult, Judge
from usechat.errors import InvalidChunk, RemoteProtocolError
from usechat.protocol import chunks
from usechat.protocol.chunks import Chunk, TextDeltaChunk, decode_chunk, type_of
from usechat.protocol.sse import DONE, KEEP_ALIVE, STREAM_OPEN, ChunkDecoder, encode_frame

every_release = pytest.mark.parametrize("release", ALL_RELEASES)
BATCH = 5
MARK = b"\xef\xbb\xbf"
MARK_ENCODED_TWICE = "\u00ef\u00bb\u00bf".encode()


def pieces_of(body: bytes, splits: Sequence[int]) -> list[bytes]:
    return [body[start:end] for start, end in itertools.pairwise([0, *splits, len(body)])]


def seen_by_us(body: bytes, splits: Sequence[int]) -> tuple[list[Any], str | None]:
    """Return the payloads of the data chunks, and the client's name of the error that ended the stream."""
    decoder = ChunkDecoder()
    received: list[Chunk] = []
    error_name = None
    try:
        for piece in pieces_of(body, splits):
            received += decoder.receive(piece)
        decoder.close()
    except RemoteProtocolError as error:
        error_name = "AI_TypeValidationError" if isinstance(error, InvalidChunk) else "AI_JSONParseError"
    return [chunk.data for chunk in received if isinstance(chunk, chunks.DataChunk)], error_name


def seen_by_client(result: ChatResult) -> tuple[list[Any], str | None]:
    return [part["data"] for part in result["data"]], result["error"] and result["error"]["name"]


_UTF8: Final = (
    b"a",
    b" ",
    b"\xc3\xa9",
    b"\xe2\x82\xac",
    b"\xf0\x9f\x98\x80",
    b"\xe2\x80\xa8",
    b"\xc2\x85",
    b"\xef\xbb\xbf",
)
# Stray and missing continuation bytes, overlong forms, a surrogate, beyond Unicode.
_NOT_UTF8: Final = (
    b"\xff", b"\x80", b"\xc3", b"\xe2\x82", b"\xf0\x9f", b"\xf0\x9f\x98", b"\xc0\xaf", b"\xe0\x80\xaf", b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
)  # fmt: skip
_ESCAPES: Final = (b"\\u00e9", b"\\ud83d", b"\\ud83d\\ude00", b"\\n")
_text = st.lists(st.sampled_from(_UTF8 + _NOT_UTF8 + _ESCAPES), max_size=4).map(b"".join)
_chunk = _text.map(lambda text: b'{"type":"data-x","transient":true,"data":"' + text + b'"}')
_data = st.one_of(
    _chunk,
    _chunk,
    _chunk,
    _chunk.map(lambda chunk: chunk.replace(b",", b",\ndata:")),
    _chunk.map(lambda chunk: chunk.replace(b",", b",\r\n: comment\r\ndata:  ")),
    st.just(b"[DONE]"),
)
_broken_data = st.one_of(
    _chunk.map(lambda chunk: chunk.replace(b'":"', b'":"\ndata:')),
    st.sampled_from(
        [b"[DONE] ", b"[done]", b" [DONE]", b"", b"NaN", b"{}", b"[]", b"null", b'{"type":"ping"}', b"\x0b{}"]
    ),
)
_data_line = st.builds(
    lambda field, data: field + data, st.sampled_from([b"data:", b"data: ", b"data:", b"data: "]), _data
)
_broken_line = st.builds(lambda field, data: field + data, st.sampled_from([b"data:", b"data: "]), _broken_data)
_OTHER_LINES: Final = (
    b"event: error", b"event:", b"id: 7", b"id: \x00", b"retry: 10", b"retry: x", b": comment", b":", b"unknown: 1",
    b" data: {}", b"Data: {}", b"datas: {}", b"data : {}", b"\xef\xbb\xbfdata: {}", b'0:"v4"', b"<html>", b"\xff",
)  # fmt: skip
_other_line = st.sampled_from(_OTHER_LINES)
_end = st.sampled_from([b"\n", b"\n", b"\n", b"\r\n", b"\r"])


def _event(before: list[bytes], data: bytes, after: list[bytes], ends: list[bytes]) -> bytes:
    lines = [*before, data, *after, b""]
    return b"".join(line + end for line, end in zip(lines, itertools.cycle(ends)))


def _events(data_line: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    others = st.lists(_other_line, max_size=2)
    return st.builds(_event, others, data_line, others, st.lists(_end, min_size=1, max_size=3))


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, list[int]]:
    body = draw(st.sampled_from([b"", b"", MARK, MARK_ENCODED_TWICE, b"\n", b"\r", STREAM_OPEN]))
    body += b"".join(draw(st.lists(_events(_data_line), min_size=1, max_size=5)))
    body += draw(st.sampled_from([b"", b"", b"", KEEP_ALIVE]) | _events(_broken_line))
    if draw(st.booleans()):
        body += b"".join(draw(st.lists(_events(_data_line), max_size=2)))
    if draw(st.booleans()):
        # Half a character after a final CR would be such a sensitive split, made by TextDecoderStream.
        body = body[: draw(st.integers(0, len(body)))].rstrip(bytes(range(0x80, 0x100)))
    return body, draw(st.lists(st.integers(0, len(body)), max_size=6).map(sorted))


def without_sensitive_splits(body: bytes, splits: list[int]) -> list[int]:
    """Leave out the splits for which the client itself loses an event; ours sees what the client sees without them.

    A CR at the end of what has arrived is held back until the next character is seen. eventsource-parser looks at that
    character only together with a later line end, which the last one has not. It drops a byte order mark that was
    encoded twice only if it comes in one piece; and if a mark comes in pieces, Node drops one after it, too.
    """
    if body.startswith((MARK_ENCODED_TWICE, MARK + MARK)):
        splits = [split for split in splits if split >= 6]
    last_return, last_feed = body.rfind(b"\r"), body.rfind(b"\n")
    return [split for split in splits if split <= last_return] if last_feed < last_return < len(body) - 1 else splits


@every_release
@settings(max_examples=40)
@given(bodies=st.lists(streams(), min_size=BATCH, max_size=BATCH))
def test_any_bytes_are_read_as_the_client_reads_them(
    judge: Judge, release: str, bodies: list[tuple[bytes, list[int]]]
) -> None:
    cases = [Chat(body, splits=without_sensitive_splits(body, splits)) for body, splits in bodies]
    for (body, splits), result in zip(bodies, judge.chat(release, cases), strict=True):
        assert seen_by_us(body, splits) == seen_by_client(result), (body, splits)


@every_release
def test_every_kind_of_frame_we_write_is_read(judge: Judge, release: str) -> None:
    texts = ["", "plain", "\n\r\n\n", "data: x", "\u2028\u2029\x85\x0b\x0c", "\ud83d", "😀", "\x00\x7f", '"\\', "%b%%"]
    stream: list[Chunk] = [
        chunks.StartChunk("m"),
        chunks.TextStartChunk("50%"),
        *[TextDeltaChunk("50%", text) for text in texts],
    ]
    stream += [chunks.DataChunk("data-a\n\nb", texts, transient=True), chunks.TextEndChunk("50%"), chunks.FinishChunk()]
    for event_names in (False, True):
        frames = [encode_frame(chunk, event_names=event_names) for chunk in stream]
        result = judge.chat(release, [Chat(STREAM_OPEN + KEEP_ALIVE.join(frames) + DONE)])[0]
        assert result["error"] is None
        assert result["message"]["parts"] == [{"type": "text", "text": "".join(texts), "state": "done"}]
        assert result["data"] == [{"type": "data-a\n\nb", "data": texts, "transient": True}]


@settings(max_examples=40)
@given(values=st.lists(mutated_chunks, min_size=BATCH, max_size=BATCH))
def test_what_the_newest_client_accepts_is_never_refused(judge: Judge, values: list[Any]) -> None:
    for value, result in zip(values, judge.schema(RELEASES["7"][-1], values), strict=True):
        if result["accepted"]:
            assert type_of(decode_chunk(json.dumps(value))) == value["type"]
