import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usechat.protocol.partial_json import UNDEFINED, parse_partial_json
from usechat.protocol.releases import release

values = st.recursive(
    st.none() | st.booleans() | st.integers(-1000, 1000) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *[(text, UNDEFINED) for text in ("", "  ", "-", "abc", "[trx", "NaN", "[1 2", "xx{", '{"__proto__":1')],
        *[(text, {}) for text in ("{", '{"', '{"a', '{"a"', '{"a":', '{"a":-', '{"\\u00', "{x", "{}")],
        *[(text, {"a": 1}) for text in ('{"a":1', '{"a":1,', '{"a":1,"b', '{"a":1,"b":', '{"a":1}x', '{"a":1.')],
        *[(text, {"a": True}) for text in ('{"a":t', '{"a":tr', '{"a":true', '{"a":true,', '{"a":true }')],
        *[(text, {"a": "x"}) for text in ('{"a":"x', '{"a":"x\\', '{"a":"x"', '{"a":"x\\u00')],
        *[(text, [1]) for text in ("[1", "[1,", "[1,-", "[1]", "[1}", "[1 ", "[1e")],
        *[(text, []) for text in ("[", "[-", "[x", "[ ", "[]")],
        ("tru", True),
        ("f", False),
        ("nullx", None),
        ('"abc', "abc"),
        ('"a\\n', "a\n"),
        ('"\\u00e', ""),
        ('"\\u00e9', "é"),
        ('"\\u00zze9', UNDEFINED),
        ('"\\ud83d\\ud', "\ud83d"),
        ("1.5e-", 1.5),
        ("12", 12),
        ("12 x", 12),
        ("12,3", 12),
        ('{"a":[1,{"b":[', {"a": [1, {"b": []}]}),
        ('{"a":[1],"b":{"c":2},"d":f', {"a": [1], "b": {"c": 2}, "d": False}),
        ("[n,", UNDEFINED),
        ('{"a" "x":"x', UNDEFINED),
        ('[null,"x"', [None, "x"]),
        ('["x" 1', UNDEFINED),
        ('{"a":1]', {"a": 1}),
        ("{} {", {}),
    ],
)
def test_the_newest_release_shows(text: str, expected: Any) -> None:
    value = parse_partial_json(text, release("7"))
    assert (value, type(value)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("sdk", "half_escape", "first_item"),
    [
        ("5", UNDEFINED, UNDEFINED),
        ("6.0.207", UNDEFINED, UNDEFINED),
        ("6.0.208", {"a": "x"}, UNDEFINED),
        ("7.0.157", {"a": "x"}, UNDEFINED),
        ("7.0.158", {"a": "x"}, {"a": []}),
    ],
)
def test_older_releases_show_less(sdk: str, half_escape: Any, first_item: Any) -> None:
    assert parse_partial_json('{"a":"x\\u00', release(sdk)) == half_escape
    assert parse_partial_json('{"a":[-', release(sdk)) == first_item
    assert parse_partial_json('{"a":[y', release(sdk)) == first_item


@given(value=values, sdk=st.sampled_from(["5", "6", "7"]))
def test_complete_json_is_what_it_says(value: Any, sdk: str) -> None:
    assert parse_partial_json(json.dumps(value), release(sdk)) == value


@given(value=st.dictionaries(st.text("ab", max_size=2), values, max_size=4), data=st.data())
def test_the_beginning_of_an_object_shows_the_beginning_of_its_keys(value: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(value)
    beginning = parse_partial_json(text[: data.draw(st.integers(1, len(text)))], release("7"))
    assert list(beginning) == list(value)[: len(beginning)]


def test_a_long_text_is_completed() -> None:
    text = "".join(["[", ", ".join(map(str, range(1000)))])
    assert parse_partial_json(text, release("7")) == list(range(1000))
