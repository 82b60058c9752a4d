"""A body becomes frames, as the client reads it, and notes for people."""

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.stream_strategies import mutated_bodies
from usechat.check.frames import Body, Frame, Place, PrototypeKey, Unreadable
from usechat.errors import CannotJudge


def frames(data: bytes) -> list[Frame]:
    return list(Body([data]).frames())


def read(data: bytes) -> Body:
    body = Body([data])
    list(body.frames())
    return body


def test_frames_have_numbers_lines_and_values() -> None:
    data = b": hello\n\nevent: x\ndata: 1\n\n\ndata: [1,\ndata: 2]\n\ndata: [DONE]\n\n"
    assert frames(data) == [
        Frame(1, 3, "1", 1),
        Frame(2, 7, "[1,\n2]", [1, 2]),
        Frame(3, 10, "[DONE]"),
    ]


def test_events_have_the_place_where_they_end() -> None:
    data = b": hello\n\nevent: x\ndata: 1\n\n\ndata: [1,\ndata: 2]\n\ndata: [DONE]\n\n"
    assert list(Body([data]).events()) == [(1, 3, "1", 27), (2, 7, "[1,\n2]", 48), (3, 10, "[DONE]", 62)]


@settings(max_examples=200)
@given(body=mutated_bodies, cuts=st.lists(st.integers(0, 2_000), max_size=6))
def test_a_body_may_be_cut_anywhere(body: bytes, cuts: list[int]) -> None:
    places = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    whole = Body([body])
    cut = Body([body[begin:end] for begin, end in itertools.pairwise(places)])
    assert list(whole.events()) == list(cut.events())
    assert vars(whole) | {"_pieces": None} == vars(cut) | {"_pieces": None}


def test_the_end_mark_is_recognized() -> None:
    assert [frame.is_done for frame in frames(b"data: [DONE]\n\ndata: 1\n\n")] == [True, False]


def test_lines_may_end_with_crlf() -> None:
    assert frames(b"data: 1\r\n\r\ndata: 2\r\n\r\n") == [Frame(1, 1, "1", 1), Frame(2, 3, "2", 2)]


def test_lines_may_end_with_cr_but_the_last_event_is_lost() -> None:
    body = Body([b"data: 1\r\rdata: 2\r\r"])
    assert list(body.frames()) == [Frame(1, 1, "1", 1)]
    assert (body.has_carriage_returns_alone, body.lost) == (True, "2")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"data:\n\n", Unreadable("UC103", "the event has no data")),
        (b"data\n\n", Unreadable("UC103", "the event has no data")),
        (b"data: [done]\n\n", Unreadable("UC104", "'[done]' is not the end mark")),
        (b"data: [DONE] \n\n", Unreadable("UC104", "'[DONE] ' is not the end mark")),
        (b"data: [NaN]\n\n", Unreadable("UC105", "NaN is not JSON")),
        (b"data: -Infinity\n\n", Unreadable("UC105", "-Infinity is not JSON")),
        (b"data: {}\ndata: {}\ndata: [DONE]\n\n", Unreadable("UC102", "3 chunks stand in one event")),
        (b"data: {}\ndata: x\n\n", Unreadable("UC101", "the event is not JSON: Extra data: line 2 column 1 (char 3)")),
        (b"data: hi\n\n", Unreadable("UC101", "the event is not JSON: Expecting value: line 1 column 1 (char 0)")),
    ],
)
def test_events_that_are_not_json(data: bytes, expected: Unreadable) -> None:
    assert [frame.unreadable for frame in frames(data)] == [expected]


@pytest.mark.parametrize(
    ("text", "value", "rounded"),
    [
        ("1", 1, False),
        ("9007199254740991", 2**53 - 1, False),
        ("9007199254740993", 2.0**53, True),
        ("18014398509481984", 2.0**54, False),
        ("123456789012345680000", 1.2345678901234568e20, False),
        ("-1234567890123456789", -1.2345678901234568e18, True),
        ("9" * 5000, float("inf"), True),
        ("1e999", float("inf"), False),
        ("1.0", 1.0, False),
    ],
)
def test_numbers_are_those_of_javascript(text: str, value: Any, rounded: bool) -> None:
    data = f"data: {text}\n\n".encode()
    assert frames(data) == [Frame(1, 1, text, value, has_rounded_number=rounded)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"__proto__": 1}', PrototypeKey.FORBIDDEN),
        ('[{"a": {"\\u005f_proto__": 1}}]', PrototypeKey.FORBIDDEN),
        ('{"constructor": {"prototype": 1}}', PrototypeKey.FORBIDDEN),
        ('{"constructor": null}', PrototypeKey.NULL_CONSTRUCTOR),
        ('{"constructor": {"name": 1}, "prototype": 2, "x": "__proto__"}', None),
    ],
)
def test_keys_that_reach_for_a_prototype(text: str, expected: PrototypeKey | None) -> None:
    assert [frame.prototype_key for frame in frames(f"data: {text}\n\n".encode())] == [expected]


@pytest.mark.parametrize("levels", [129, 100_000])
def test_what_is_nested_too_deeply_is_not_judged(levels: int) -> None:
    with pytest.raises(CannotJudge, match="frame 2 is nested in more than 128 levels"):
        frames(b"data: 1\n\ndata: " + b"[" * levels + b"]" * levels + b"\n\n")


def test_deep_events_that_are_not_json_are_read() -> None:
    assert frames(b"data: x\ndata: " + b"[" * 100_000 + b"\n\n")[0].unreadable is not None


def test_flat_values_may_be_long() -> None:
    assert len(frames(b"data: [" + b"[]," * 200 + b"[]]\n\n")[0].value) == 201


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"data: 1\n\n", []),
        (b"\xef\xbb\xbfdata: 1\n\n", []),
        (b"data\nid\nretry: 1\nevent\n:\n\n", []),
        (b'data: 1\n\n{"a":1}\nData: x\n', [(3, '{"a":1}'), (4, "Data: x")]),
        (b"data: 1\rnope\r\rdata: 2\r\r", [(1, "nope")]),
        (b"x\n" * 99, [(number, "x") for number in range(1, 11)]),
    ],
)
def test_lines_that_no_client_reads(data: bytes, expected: list[tuple[int, str]]) -> None:
    assert read(data).ignored_lines == expected


def test_bytes_that_are_not_utf_8() -> None:
    body = Body(["data: é\n".encode() + b"\ndata: \xe9\n\n" * 20])
    assert [frame.text for frame in body.frames()][:2] == ["é", "\ufffd"]
    assert body.invalid_lines == list(range(3, 33, 3))


@pytest.mark.parametrize(
    ("data", "lost"),
    [
        (b"data: 1\n\n", ""),
        (b"data: 1\n\ndata: 2\n", "2"),
        (b"data: 1\n\ndata: 2", "2"),
        (b"data: 1\n\ndata: 2\ndata:3", "2\n3"),
        (b"data: 1\n\ndata: 2\nid: 3", "2"),
        (b"data: 1\n\n: x\n", ""),
        (b"data: 1\n\nx", ""),
    ],
)
def test_the_event_that_is_lost(data: bytes, lost: str) -> None:
    assert read(data).lost == lost


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(b'{"data":[' + b"{}," * 500_010 + b"0]}", id="objects"),
        pytest.param(b"[" + b"1," * 1_000_011 + b"1", id="not-even-json"),
    ],
)
def test_more_values_in_an_event_than_memory_is_good_for_are_not_judged(frame: bytes) -> None:
    with pytest.raises(CannotJudge, match="frame 2 holds more than 1000000 values"):
        frames(b'data: {"type":"start"}\n\ndata: ' + frame + b"\n\n")


def test_a_long_chunk_is_shown_shortened() -> None:
    [frame] = frames(b'data: {"data": "' + b"x" * 9_000 + b'"}\n\n')
    assert frame.place == Place(1, 1, '{"data":"' + "x" * 1_991 + "…")


def test_a_chunk_that_is_long_for_its_spaces_is_shown_whole() -> None:
    [frame] = frames(b'data: {"data":' + b" " * 3_000 + b"1}\n\n")
    assert frame.place == Place(1, 1, {"data": 1})


def test_a_long_event_that_is_not_json_is_shown_shortened() -> None:
    [frame] = frames(b"data: " + b"x" * 9_000 + b"\n\n")
    assert frame.place == Place(1, 1, "x" * 2_000 + "…")


@pytest.mark.parametrize(
    ("data", "what"),
    [
        pytest.param(b"data: 1\n\n:" + b"x" * 17_000_000, "line 3", id="a-line"),
        pytest.param(b"data: 1\n\ndata: " + b"x" * 17_000_000 + b"\n\n", "frame 2", id="a-line-of-one-piece"),
        pytest.param(b"data: 1\n\n" + (b"data: " + b"x" * 93 + b"\n") * 180_000, "frame 2", id="many-lines"),
    ],
)
def test_an_event_that_is_longer_than_memory_is_good_for_is_not_judged(data: bytes, what: str) -> None:
    with pytest.raises(CannotJudge, match=f"^{what} is longer than 16777216 bytes, which is more than usechat judges$"):
        frames(data)


def test_comments_without_blank_lines_have_no_limit() -> None:
    assert len(frames((b": " + b"x" * 97 + b"\n") * 180_000 + b"data: 1\n\n")) == 1


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(b'{"type":"text-delta","id":"1","delta":"' + b"[a, {b, " * 300_000 + b'"}', id="a-long-text"),
        pytest.param(b'{"delta":"' + b'\\",\\\\,' * 300_000 + b'"}', id="a-text-of-escapes"),
    ],
)
def test_a_text_is_one_value_whatever_it_says(frame: bytes) -> None:
    [read] = Body([b"data: " + frame + b"\n\n"]).frames()
    assert read.unreadable is None


def test_a_long_stream_of_usual_chunks_has_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("usechat.check.frames._MAXIMUM_VALUES", 1_000)
    body = b'data: {"type":"finish","a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"h":8}\n\n' * 1_200
    assert sum(1 for _ in Body([body]).frames()) == 1_200
