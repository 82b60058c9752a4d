from typing import Any

import pytest

from usechat.protocol.message import merge_metadata
from usechat.protocol.releases import release


@pytest.mark.parametrize(
    ("base", "override", "expected"),
    [
        pytest.param({"a": 1}, {"b": 2}, {"a": 1, "b": 2}, id="keys-join"),
        pytest.param({"a": 1}, {"a": None}, {"a": None}, id="null-replaces"),
        pytest.param({"a": {"x": 1, "y": 1}}, {"a": {"y": 2}}, {"a": {"x": 1, "y": 2}}, id="objects-merge-deeply"),
        pytest.param({"a": {"x": 1}}, {"a": [1]}, {"a": [1]}, id="an-array-replaces-an-object"),
        pytest.param({"a": [1, 2]}, {"a": [3]}, {"a": [3]}, id="arrays-replace"),
        pytest.param({"a": [1]}, {"a": {"x": 1}}, {"a": {"x": 1}}, id="an-object-replaces-an-array"),
        pytest.param([1, 2], [3], {"0": 3, "1": 2}, id="arrays-at-the-root-become-an-object"),
        pytest.param(
            {"a": 1}, "x😀", {"a": 1, "0": "x", "1": "\ud83d", "2": "\ude00"}, id="a-text-goes-by-utf-16-unit"
        ),
        pytest.param({"a": 1}, 7, {"a": 1}, id="a-number-has-no-keys"),
        pytest.param("ab", {}, {"0": "a", "1": "b"}, id="nothing-merges-into-a-text"),
        pytest.param(7, False, {}, id="nothing-merges-into-a-number"),
    ],
)
def test_merging(base: Any, override: Any, expected: Any) -> None:
    assert merge_metadata(base, override, release("7")) == expected


def test_what_is_merged_is_left_as_it_is() -> None:
    base, override = {"a": {"x": 1}}, {"a": {"y": 2}}
    merge_metadata(base, override, release("7"))
    assert (base, override) == ({"a": {"x": 1}}, {"a": {"y": 2}})


@pytest.mark.parametrize(
    ("sdk", "expected"),
    [("5.0.180", {"constructor": 1, "a": {"prototype": 2}}), ("5.0.181", {"a": {}}), ("7.0.0", {"a": {}})],
)
def test_keys_of_prototypes_are_skipped_by_newer_releases(sdk: str, expected: Any) -> None:
    assert merge_metadata({"a": {}}, {"constructor": 1, "a": {"prototype": 2}}, release(sdk)) == expected


@pytest.mark.parametrize(
    ("base", "override", "text"),
    [
        ("abc", {"b": 1, "a": 2}, "Cannot use 'in' operator to search for 'b' in abc"),
        ("abc", {"b": 1, "10": 1, "9": 2, "09": 3}, "Cannot use 'in' operator to search for '9' in abc"),
        ("abc", {"b": 1, "10": 1}, "Cannot use 'in' operator to search for '10' in abc"),
        (
            "abc",
            {"b": 1, "09": 1, "00": 1, "\N{ARABIC-INDIC DIGIT ONE}": 1},
            "Cannot use 'in' operator to search for 'b' in abc",
        ),
        ("abc", {"b": 1, "4294967294": 1}, "Cannot use 'in' operator to search for '4294967294' in abc"),
        ("abc", {"b": 1, "4294967295": 1}, "Cannot use 'in' operator to search for 'b' in abc"),
        ("abc", {"b": 1, "9" * 5000: 1}, "Cannot use 'in' operator to search for 'b' in abc"),
        (1e21, ["x"], "Cannot use 'in' operator to search for '0' in 1e+21"),
        (True, "x", "Cannot use 'in' operator to search for '0' in true"),
    ],
)
def test_a_text_number_or_boolean_cannot_be_merged_into(base: Any, override: Any, text: str) -> None:
    with pytest.raises(TypeError) as raised:
        merge_metadata(base, override, release("7"))
    assert str(raised.value) == text
