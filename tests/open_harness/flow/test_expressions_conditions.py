"""Conditions: JSONata texts and the operator form."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usechat.open_harness.flow.expressions import Scope, condition_problems, holds

SCOPE = Scope(
    {"a": {"n": 1, "on": True, "text": "x", "list": [], "object": {}, "zero": 0, "deep": {"list": [1, {"y": 2}]}}}
)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (None, True),
        ("a.n = 1", True),
        ("a.n = 2", False),
        ("missing", False),
        ("$exists(a.text)", True),
        ("a.zero", False),
        ("''", False),
        ("a.list", True),
        ("a.object", True),
        ("$not(a.on)", False),
        ({"equals": {"var": "a.n", "value": 1}}, True),
        ({"equals": {"var": "a.n", "value": 1.0}}, True),
        ({"equals": {"var": "a.n", "value": True}}, False),
        ({"equals": {"var": "a.on", "value": 1}}, False),
        ({"equals": {"var": "a.deep", "value": {"list": [1, {"y": 2}]}}}, True),
        ({"equals": {"var": "a.deep", "value": {"list": [1, {"y": 3}]}}}, False),
        ({"equals": {"var": "missing", "value": None}}, False),
        ({"not": {"equals": {"var": "missing", "value": None}}}, True),
        ({"and": []}, True),
        ({"or": []}, False),
        ({"and": ["a.n = 1", {"equals": {"var": "a.text", "value": "x"}}]}, True),
    ],
)
async def test_a_condition_holds_or_not(condition: Any, expected: bool) -> None:
    assert await holds(condition, SCOPE) is expected


@pytest.mark.parametrize(
    ("condition", "place"),
    [
        ("a.", ()),
        (7, ()),
        ({}, ()),
        ({"equals": {}, "not": {}}, ()),
        ({"xor": []}, ()),
        ({"equals": "a"}, ("equals",)),
        ({"equals": {"var": "a"}}, ("equals",)),
        ({"equals": {"var": "a.", "value": 1}}, ("equals", "var")),
        ({"and": "a"}, ("and",)),
        ({"or": ["a", {"not": {"equals": {"var": 1, "value": 1}}}]}, ("or", 1, "not", "equals")),
    ],
)
def test_a_condition_that_cannot_be_read_is_a_problem_with_its_place(condition: Any, place: tuple[Any, ...]) -> None:
    assert [where for where, _ in condition_problems(condition, ())] == [place]


leaves = st.booleans().map(lambda value: {"equals": {"var": "yes", "value": value}})
trees = st.recursive(
    leaves,
    lambda inner: (
        st.builds(lambda item: {"not": item}, inner)
        | st.builds(lambda name, items: {name: items}, st.sampled_from(["and", "or"]), st.lists(inner, max_size=3))
    ),
)


def meaning(condition: Mapping[str, Any]) -> bool:
    ((operator, operand),) = condition.items()
    if operator == "equals":
        return bool(operand["value"])
    if operator == "not":
        return not meaning(operand)
    values = [meaning(item) for item in operand]
    return all(values) if operator == "and" else any(values)


def as_jsonata(condition: Mapping[str, Any]) -> str:
    ((operator, operand),) = condition.items()
    if operator == "equals":
        return f"(yes = {str(operand['value']).lower()})"
    if operator == "not":
        return f"$not({as_jsonata(operand)})"
    neutral = "true" if operator == "and" else "false"
    return "(" + f" {operator} ".join([neutral, *map(as_jsonata, operand)]) + ")"


@given(trees)
def test_the_operator_form_means_what_its_words_say_and_what_the_same_jsonata_says(condition: dict[str, Any]) -> None:
    scope = Scope({"yes": True})
    assert list(condition_problems(condition, ())) == []
    assert asyncio.run(holds(condition, scope)) is meaning(condition)
    assert asyncio.run(holds(as_jsonata(condition), scope)) is meaning(condition)
