import array
import collections
import dataclasses
import datetime
import decimal
import enum
import json
import math
import pathlib
import sys
import traceback
import types
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from usechat.errors import InvalidJSON
from usechat.protocol.chunks import TextDeltaChunk
from usechat.protocol.values import (
    MAXIMUM_DEPTH,
    READABLE_DEPTH,
    TOO_DEEP,
    encodable,
    has_finite_numbers,
    has_more_values,
    is_deeper,
    is_ordinary,
    json_kind,
    json_object,
    json_text,
    json_value,
    parse_json,
    read_json,
)

UTC = datetime.UTC


class Colour(enum.Enum):
    RED = "red"
    NESTED = (1, 2)


class Level(enum.IntEnum):
    HIGH = 3


class Text(str):
    __slots__ = ()


class Number(int):
    def __int__(self) -> NoReturn:
        raise RuntimeError


class Ratio(float):
    def __float__(self) -> NoReturn:
        raise RuntimeError


class Moment(datetime.datetime):
    pass


class Span(datetime.timedelta):
    pass


class Price(decimal.Decimal):
    pass


@dataclasses.dataclass
class Point:
    x: int
    next: object = None


class Tagged(msgspec.Struct, tag="tagged", rename="camel"):
    first_name: str
    absent: object = msgspec.UNSET


class Untagged(msgspec.Struct):
    name: str


class Model:
    """Shaped like a pydantic model."""

    def model_dump(self, *, mode: str, by_alias: bool) -> dict[str, object]:
        return {"mode": mode, "byAlias": by_alias}


class BrokenModel:
    def model_dump(self, **_options: object) -> NoReturn:
        raise RuntimeError

    def __str__(self) -> str:
        return "broken"


class Array:
    """Shaped like a numpy array."""

    def tolist(self) -> list[object]:
        return [1, Level.HIGH]


class ArrayOfItself:
    def tolist(self) -> "ArrayOfItself":
        return ArrayOfItself()


class Unprintable:
    def __str__(self) -> NoReturn:
        raise RuntimeError


class PrintsSubclass:
    def __str__(self) -> str:
        return Text("text")


class LyingClass:
    @property  # type: ignore[misc]
    def __class__(self) -> NoReturn:  # type: ignore[override]
        raise RuntimeError

    def __str__(self) -> str:
        return "lying"


class Proxy:
    """Has every attribute, as mocks and remote objects do."""

    def __getattr__(self, name: str) -> Callable[..., object]:
        return lambda *_values, **_options: self

    def __str__(self) -> str:
        return "proxy"


class BrokenMapping(Mapping[str, object]):
    def __getitem__(self, key: str) -> NoReturn:
        raise RuntimeError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(["key"])

    def __len__(self) -> int:
        return 1

    def __str__(self) -> str:
        return "broken"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (7, 7),
        ("text", "text"),
        ("\ud800", "\ud800"),
        (1.5, 1.5),
        (1.0, 1),
        (-0.0, 0),
        (1e300, 1e300),
        (2.0**53, 2.0**53),
        (math.nan, None),
        (math.inf, None),
        (-math.inf, None),
        (10**308, 10**308),
        (10**309, None),
        (-(10**5000), None),
        (Text("text"), "text"),
        (Number(3), 3),
        (Ratio(1.5), 1.5),
        (Colour.RED, "red"),
        (Colour.NESTED, [1, 2]),
        (Level.HIGH, 3),
        ((1, [2.0]), [1, [2]]),
        ({3}, [3]),
        (frozenset({3}), [3]),
        (range(2), [0, 1]),
        (collections.deque([1]), [1]),
        (array.array("i", [1, 2]), [1, 2]),
        ({"a": 1}.keys(), ["a"]),
        ({"a": 1}.values(), [1]),
        (types.MappingProxyType({"a": (1,)}), {"a": [1]}),
        (collections.OrderedDict(a=1), {"a": 1}),
        (datetime.date(2026, 2, 3), "2026-02-03"),
        (datetime.time(1, 2, 3, tzinfo=UTC), "01:02:03Z"),
        (datetime.datetime(2026, 2, 3, 4, 5, 6, 7), "2026-02-03T04:05:06.000007"),
        (datetime.datetime(2026, 2, 3, tzinfo=UTC), "2026-02-03T00:00:00Z"),
        (Moment(2026, 2, 3, tzinfo=datetime.timezone(datetime.timedelta(hours=1))), "2026-02-03T00:00:00+01:00"),
        (datetime.timedelta(days=1, seconds=2), "P1DT2S"),
        (Span(3), "P3D"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (decimal.Decimal("1.50"), "1.50"),
        (Price("sNaN"), "sNaN"),
        (collections.UserString("text"), "text"),
        (pathlib.PurePosixPath("a/b"), "a/b"),
        (b"\xff\x00", "/wA="),
        (bytearray(b"abc"), "YWJj"),
        (memoryview(b"abcdef")[::2], "YWNl"),
        (Point(1, Point(2)), {"x": 1, "next": {"x": 2, "next": None}}),
        (Tagged("Ada"), {"type": "tagged", "firstName": "Ada"}),
        (Tagged("Ada", 1), {"type": "tagged", "firstName": "Ada", "absent": 1}),
        (Untagged("Ada"), {"name": "Ada"}),
        (TextDeltaChunk("t", "x"), {"type": "text-delta", "id": "t", "delta": "x", "providerMetadata": None}),
        (Model(), {"mode": "json", "byAlias": True}),
        (BrokenModel(), "[BrokenModel]"),
        (Array(), [1, 3]),
        (Point, "[type]"),
        (Model, "[type]"),
        (1j, "[complex]"),
        (Unprintable(), "[Unprintable]"),
        (PrintsSubclass(), "[PrintsSubclass]"),
        (LyingClass(), "[LyingClass]"),
        (Proxy(), "[Proxy]"),
        (BrokenMapping(), "[BrokenMapping]"),
        ([BrokenMapping(), 1], ["[BrokenMapping]", 1]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_becomes_plain_json(value: object, expected: object) -> None:
    converted = json_value(value)
    assert converted == expected
    assert type(converted) is type(expected)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("a", "a"),
        (Text("a"), "a"),
        (None, "null"),
        (True, "true"),
        (1, "1"),
        (1.0, "1"),
        (1e-7, "1e-7"),
        (math.nan, "null"),
        ((1, "x"), '[1,"x"]'),
        (b"x", "eA=="),
        (Colour.RED, "red"),
        (datetime.date(2026, 2, 3), "2026-02-03"),
    ],
)
def test_a_key_becomes_text(key: object, expected: str) -> None:
    (converted,) = json_value({key: 1})
    assert (converted, type(converted)) == (expected, str)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"__proto__": 1}, {"__proto___": 1}),
        ({"constructor": None}, {"constructor_": None}),
        ({"constructor": {"prototype": 1}}, {"constructor_": {"prototype": 1}}),
        ({"constructor": {"other": 1}}, {"constructor": {"other": 1}}),
        ({"constructor": "x", "prototype": 1}, {"constructor": "x", "prototype": 1}),
        ([{"a": {"__proto__": None}}], [{"a": {"__proto___": None}}]),
    ],
)
def test_keys_that_clients_refuse_are_renamed(value: object, expected: object) -> None:
    assert json_value(value) == expected


def nested(levels: int, innermost: object = 1) -> Any:
    value = innermost
    for _ in range(levels):
        value = {"a": [value]}
    return value


def test_what_is_nested_too_deeply_is_cut() -> None:
    half = MAXIMUM_DEPTH // 2
    assert json_value(nested(half)) == nested(half)
    assert json_value(nested(half + 1)) == nested(half, TOO_DEEP)
    assert json_value([nested(half)]) == [nested(half - 1, {"a": TOO_DEEP})]


def test_what_contains_itself_is_cut_at_once() -> None:
    items: list[object] = []
    items += [items, {"again": items}]
    point = Point(1)
    point.next = [point]
    assert json_value(items) == [TOO_DEEP, {"again": TOO_DEEP}]
    assert json_value(point) == {"x": 1, "next": [TOO_DEEP]}


def test_what_stands_in_two_places_is_written_twice() -> None:
    shared = {"a": 1}
    assert json_value([shared, shared]) == [{"a": 1}, {"a": 1}]


def test_an_array_of_itself_ends() -> None:
    assert isinstance(json_value([ArrayOfItself()])[0], str)


def test_a_stack_that_is_nearly_full_is_no_failure() -> None:
    def within(levels: int) -> Any:
        return json_value([1, {"a": [2]}]) if levels == 0 else within(levels - 1)

    room = sys.getrecursionlimit() - len(list(traceback.walk_stack(None)))
    results = (within(levels) for levels in range(room - 60, room))
    assert next(result for result in results if result != [1, {"a": [2]}]) == TOO_DEEP


anything: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(st.characters()),
        st.binary(max_size=8),
        st.complex_numbers(),
        st.fractions(),
        st.decimals(),
        st.dates(),
        st.times(timezones=st.timezones()),
        st.datetimes(timezones=st.none() | st.timezones()),
        st.timedeltas(),
        st.uuids(),
        st.sampled_from(
            [Colour.RED, Level.HIGH, Unprintable(), Proxy(), BrokenMapping(), Array(), Model(), Point, ...]
        ),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.builds(Point, st.integers(), inner),
        st.dictionaries(st.text(max_size=3) | st.sampled_from(["__proto__", "constructor"]), inner, max_size=3),
        st.dictionaries(st.none() | st.integers() | st.floats() | st.dates(), inner, max_size=3),
        st.builds(collections.deque, st.lists(inner, max_size=2)),
    ),
    max_leaves=8,
)


@given(anything)
def test_any_value_becomes_json_that_reads_back_as_itself(value: object) -> None:
    converted = json_value(value)
    assert json_value(converted) == converted
    assert json_text(parse_json(json_text(converted))) == json_text(converted)
    assert json.loads(json.dumps(converted, allow_nan=False)) == converted


@pytest.mark.parametrize(
    ("value", "expected"),
    [({"a": 1.0}, {"a": 1}), ([1], {"value": [1]}), (None, {"value": None}), (Point(1), {"x": 1, "next": None})],
)
def test_a_json_object_is_made_of_anything(value: object, expected: dict[str, object]) -> None:
    assert json_object(value) == expected


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (12, "12"),
        (2**70, "1180591620717411303424"),
        (0.0, "0"),
        (-0.0, "0"),
        (1.0, "1"),
        (-1.5, "-1.5"),
        (0.1, "0.1"),
        (0.0625, "0.0625"),
        (0.00125, "0.00125"),
        (0.000001, "0.000001"),
        (0.0000001, "1e-7"),
        (-1.5e-9, "-1.5e-9"),
        (123456.789, "123456.789"),
        (1e20, "100000000000000000000"),
        (1.5e20, "150000000000000000000"),
        (1e21, "1e+21"),
        (1.25e21, "1.25e+21"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (5e-324, "5e-324"),
        (math.nan, "null"),
        (math.inf, "null"),
        ("é\u2028\x7f/", '"é\u2028\x7f/"'),
        ('"\\\b\f\n\r\t\x01', '"\\"\\\\\\b\\f\\n\\r\\t\\u0001"'),
        ("a\ud83d", '"a\\ud83d"'),
        ("\ude00\x1f\n", '"\\ude00\\u001f\\n"'),
        ("😀", '"😀"'),
        ({"a": [1, {}], "\udfff": []}, '{"a":[1,{}],"\\udfff":[]}'),
    ],
)
def test_json_text_is_that_of_javascript(value: object, text: str) -> None:
    assert json_text(value) == text


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (None, "null"),
        (False, "a boolean"),
        ("", "a string"),
        (0, "a number"),
        (0.5, "a number"),
        ({}, "an object"),
        ([], "an array"),
        (1j, "a Python complex"),
    ],
)
def test_the_kind_of_a_value_has_a_name(value: object, name: str) -> None:
    assert json_kind(value) == name


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        (" [1, 2.5] ", [1, 2.5]),
        ('{"a":1,"a":2}', {"a": 2}),
        ('"\\ud800"', "\ud800"),
        ("1e400", math.inf),
        ("9" * 399, int("9" * 399)),
        ("9" * 400, math.inf),
        ("9" * 5000, math.inf),
        ("9007199254740993", 9007199254740993),
        ('{"constructor":null}', {"constructor": None}),
        ('{"constructor":{"name":1}}', {"constructor": {"name": 1}}),
        ('{"a":"__proto__","b":"constructor"}', {"a": "__proto__", "b": "constructor"}),
        ('[{"a":"\\u0041"}]', [{"a": "A"}]),
    ],
)
def test_json_is_parsed(text: str, value: object) -> None:
    assert parse_json(text) == value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON: Expecting value: line 1 column 1 (char 0)"),
        ("{", "not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("[NaN]", "not JSON: NaN is not a JSON value; write null"),
        ("-Infinity", "not JSON: -Infinity is not a JSON value; write null"),
        ('{"__proto__":1}', "the keys __proto__ and constructor.prototype are forbidden"),
        ('[{"\\u005f_proto__":1}]', "the keys __proto__ and constructor.prototype are forbidden"),
        ('{"a":[{"constructor":{"prototype":1}}]}', "the keys __proto__ and constructor.prototype are forbidden"),
        ("[" * 100_000, "not JSON: nested too deeply"),
        ("[" * 129 + "]" * 129, "nested too deeply: more than 128 levels"),
    ],
)
def test_what_no_client_parses_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidJSON) as caught:
        parse_json(text)
    assert str(caught.value) == reason


def test_whatever_is_written_can_be_read_within_a_chunk() -> None:
    value = json_value(nested(1000))
    assert READABLE_DEPTH > MAXIMUM_DEPTH
    assert parse_json(json_text({"data": value})) == {"data": value}


def test_plain_reading_knows_no_prototypes() -> None:
    assert read_json('{"__proto__":1}') == {"__proto__": 1}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[" * 128 + "]" * 128, True),
        ("[" * 128 + " " * 128 + "]" * 128, True),
        ("[" * 129 + "]" * 129, False),
        ("[" + "{}," * 200 + "{}]", False),
        ('{"a":"' + "x" * 1000 + '"}', True),
        ('{"a":"__proto__"}', False),
        ('{"constructor":1}', False),
        ('{"a":"\\u0041"}', False),
        ('{"a":"\\u4e2d"}', True),
    ],
)
def test_ordinary_text_is_shallow_and_harmless(text: str, expected: bool) -> None:
    assert is_ordinary(text) is expected


@pytest.mark.parametrize(
    ("value", "levels", "expected"),
    [
        (1, 0, False),
        ([], 0, True),
        ([], 1, False),
        ({"a": [1]}, 1, True),
        ({"a": [1]}, 2, False),
        ([{}, [[]]], 2, True),
    ],
)
def test_depth_is_counted_in_objects_and_arrays(value: object, levels: int, expected: bool) -> None:
    assert is_deeper(value, levels) is expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, True),
        ({"a": [True, 1, -1.5, "1e999", {}]}, True),
        (1.7976931348623157e308, True),
        (-int(1.7976931348623157e308), True),
        (math.inf, False),
        ([-math.inf], False),
        ({"a": [{"b": math.nan}]}, False),
        (10**309, False),
        ([1, -(10**309)], False),
    ],
)
def test_numbers_that_no_reader_gets_back_are_found(value: object, expected: bool) -> None:
    assert has_finite_numbers(value) is expected


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("[]", 1),
        ("[1,2]", 2),
        ('{"a":1,"b":[{}]}', 4),
        (r'"a,b[{\"\\"', 0),
        (r'["\\",",,,,","\"[[[["]', 3),
    ],
)
def test_values_are_counted_without_reading_them(text: str, count: int) -> None:
    assert not has_more_values(text.encode(), count + 1)
    assert has_more_values(text.encode(), count)
    assert has_more_values(text.encode(), count - 1)


def test_thousands_of_values_are_counted() -> None:
    text = b"[" + b"1," * 4999 + b"1]"
    assert [has_more_values(text, limit) for limit in (4000, 5000, 5001)] == [True, True, False]


def test_strings_alone_can_be_too_many_values() -> None:
    assert has_more_values(b'["",' * 10, 2)


class Incomparable:
    """Such as a numpy array: a comparison raises."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, _other: object) -> bool:
        raise ValueError("ambiguous")


class Holder(msgspec.Struct):
    held: object


def test_a_field_that_cannot_be_compared_does_not_hide_its_struct() -> None:
    assert json_value(Holder(Incomparable())) == {"held": "[Incomparable]"}


@pytest.mark.parametrize("sign", [1, -1])
def test_integers_that_no_double_holds_are_null(sign: int) -> None:
    largest = int(sys.float_info.max)
    assert [json_value(sign * number) for number in (largest, largest + 1)] == [sign * largest, None]


@pytest.mark.parametrize(("quotes", "has_more"), [(44, False), (46, True)])
def test_many_strings_are_many_values_whatever_they_hold(quotes: int, has_more: bool) -> None:
    assert has_more_values(b'","' * (quotes // 2), 10) is has_more


@pytest.mark.parametrize(
    ("value", "result"),
    [
        ("whole \U0001f600", "whole \U0001f600"),
        ("half \ud83d", "half \ufffd"),
        ("\ud83d\ude00", "\U0001f600"),
        (["\ude00", {"half": "\ud83d", "number": 1}], ["\ufffd", {"half": "\ufffd", "number": 1}]),
        (None, None),
    ],
)
def test_half_an_emoji_is_replaced_for_encoders(value: object, result: object) -> None:
    assert encodable(value) == result
