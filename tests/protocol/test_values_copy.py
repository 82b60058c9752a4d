from datetime import UTC, datetime
from typing import Any

import pytest

from usechat.protocol.values import plain_json


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        2**70,
        1.5,
        "",
        "\ud83d",
        [],
        {},
        {"a": [1, {"b": None}]},
        {"constructor": None, "__proto__": [1.5, {"__proto__": 2}]},
    ],
)
def test_json_is_copied_as_it_is(value: Any) -> None:
    copied = plain_json(value)
    assert (copied, type(copied)) == (value, type(value))


def test_the_copy_is_deep() -> None:
    value = {"a": [1, {"b": 2}]}
    copied = plain_json(value)
    value["a"].append(3)
    assert copied == {"a": [1, {"b": 2}]}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00Z"),
        ([float("nan"), float("inf")], [None, None]),
        ({"a": (1, 2)}, {"a": [1, 2]}),
        ({1: "x"}, {"1": "x"}),
    ],
)
def test_what_is_no_json_is_converted_as_when_it_is_sent(value: Any, expected: Any) -> None:
    assert plain_json(value) == expected


def test_a_value_within_itself_has_an_end() -> None:
    value: list[Any] = []
    value.append(value)
    assert "nested too deeply" in str(plain_json(value))
