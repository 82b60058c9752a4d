"""Bindings: what `{{ … }}` becomes."""

import asyncio
import json
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usechat.open_harness.errors import ExpressionFailed
from usechat.open_harness.flow.expressions import Scope, binding_problems, evaluate, resolve

VALUES: dict[str, Any] = {
    "flow": {"input": {"message": "hi", "files": []}},
    "state": {"count": 3, "ratio": 0.5, "on": True, "none": None},
    "a": {"text": "A", "list": [1, 2], "object": {"x": 1}},
    "my-node": {"text": "dash"},
}
SCOPE = Scope(VALUES, {"iteration": 2, "first": False})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain", "plain"),
        ("", ""),
        ("{{ flow.input.message }}", "hi"),
        ("  {{ a.list }}  ", [1, 2]),
        ("{{ a.object }}", {"x": 1}),
        ("{{ state.count }}", 3),
        ("{{ state.on }}", True),
        ("{{ state.none }}", None),
        ("{{ missing.path }}", None),
        ("{{ `my-node`.text }}", "dash"),
        ("{{ $iteration }}", 2),
        ("{{ $first }}", False),
        ("{{ state.count > 2 ? 'many' : 'few' }}", "many"),
        ('{{ {"text": a.text, "n": {"m": 1}} }}', {"text": "A", "n": {"m": 1}}),
        ("{{ '}}' }}", "}}"),
        ("{{ $count(a.list) }}", 2),
        ("a {{ a.text }} b {{ state.count }}", "a A b 3"),
        ("{{ a.text }}{{ a.text }}", "AA"),
        ("x{{ missing }}y", "xy"),
        ("x {{ a.list }} {{ a.object }} {{ state.on }} {{ state.ratio }}", 'x [1,2] {"x":1} true 0.5'),
        ("{{ }}", ""),
        ("not { a } binding }}", "not { a } binding }}"),
        ("{{ never ends", "{{ never ends"),
    ],
)
async def test_a_text_becomes_its_value(text: str, value: Any) -> None:
    assert await resolve(text, SCOPE) == value


async def test_bindings_are_found_at_any_depth_and_other_values_stay() -> None:
    given_value = {"list": ["{{ a.text }}", {"deep": "{{ state.count }}"}], "number": 1, "none": None, "on": True}
    assert await resolve(given_value, SCOPE) == {"list": ["A", {"deep": 3}], "number": 1, "none": None, "on": True}


@pytest.mark.parametrize("missing", ["{{ missing.path }}", "{{ $lookup(a, 'missing') }}"], ids=["path", "function"])
async def test_a_binding_that_leads_to_nothing_is_absent_and_one_to_null_is_null(missing: str) -> None:
    fields = {"gone": missing, "null": "{{ state.none }}", "deep": {"gone": missing}, "list": [missing, 1]}
    assert await resolve(fields, SCOPE) == {"null": None, "deep": {}, "list": [None, 1]}


async def test_null_of_a_function_is_null() -> None:
    assert await resolve({"null": "{{ $lookup(state, 'none') }}"}, SCOPE) == {"null": None}


async def test_a_binding_that_fails_tells_where() -> None:
    with pytest.raises(ExpressionFailed, match=r"^input\.prompt\.1: the expression .+ failed: "):
        await resolve({"prompt": ["ok", "{{ $number('x') }}"]}, SCOPE, ("input",))


@pytest.mark.parametrize("text", ["{{ a. }}", "{{ (1 }}", "hello {{ 'open }} there", "{{ a {{ b }}", "{{ a }", "{{ a"])
def test_a_binding_that_is_not_jsonata_is_a_problem(text: str) -> None:
    assert [place for place, _ in binding_problems({"x": [text]}, ("input",))] == [("input", "x", 0)]


async def test_what_a_user_wrote_is_never_evaluated() -> None:
    scope = Scope({"flow": {"input": {"message": "{{ state.secret }}"}}, "state": {"secret": "s"}})
    assert await resolve("say {{ flow.input.message }}", scope) == "say {{ state.secret }}"


async def test_an_expression_that_never_ends_is_stopped() -> None:
    with pytest.raises(ExpressionFailed):
        await evaluate("($f := function($n) { $f($n + 1) + 1 }; $f(1))", SCOPE)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(string.printable, max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(string.ascii_letters, max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(json_values)
def test_a_value_that_is_only_a_binding_keeps_its_type_and_a_mixed_one_is_its_json(value: Any) -> None:
    scope = Scope({"a": {"value": value}})
    assert asyncio.run(resolve("{{ a.value }}", scope)) == value
    text = asyncio.run(resolve("<{{ a.value }}>", scope))[1:-1]
    expected = "" if value is None else value
    assert (text if isinstance(expected, str) else json.loads(text)) == expected


@given(st.text(max_size=40))
def test_any_text_is_resolved_or_refused_and_without_braces_it_stays(text: str) -> None:
    try:
        resolved = asyncio.run(resolve(text, SCOPE))
    except ExpressionFailed:
        assert "{{" in text
    else:
        assert "{{" in text or resolved == text
