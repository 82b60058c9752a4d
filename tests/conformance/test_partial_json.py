"""`parse_partial_json` shows what `parsePartialJson` of each release shows."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance.judge import ALL_RELEASES, Judge
from tests.conformance.test_message_builder import same
from usechat.protocol.partial_json import UNDEFINED, parse_partial_json
from usechat.protocol.releases import release

BATCH = 20
every_release = pytest.mark.parametrize("name", ALL_RELEASES)

# No key needs an escape: Node 24.19 can take one key for another then. After JSON.parse('{"k\\\\":1}') it reads the
# key of '{"k\\t":1}' as a backslash after k.
keys = st.text(st.sampled_from("abé😀\u2028{}[],: "), max_size=3)
texts = st.text(st.sampled_from('ab"\\/\n\té😀\u2028{}[],: '), max_size=5)
values = st.recursive(
    st.sampled_from([None, True, False, 0, -1, 1.5, 1e-7, -0.25, 1e21]) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def _unfinished(draw: st.DrawFn) -> str:
    """Beginnings of JSON texts, some with characters put in, overwritten or taken out."""
    value = draw(values)
    text = json.dumps(value, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, None, 1])))
    text = text[: draw(st.integers(0, len(text)))]
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        place = draw(st.integers(0, len(text)))
        put_in = draw(st.sampled_from(["", *'{}[],:"\\u0eE-+.tfnrax 19\x01N']))
        text = text[:place] + put_in + text[place + draw(st.integers(0, 1)) :]
    return text


def assert_same(judge: Judge, name: str, unfinished: list[str]) -> None:
    for text, result in zip(unfinished, judge.partial_json(name, unfinished), strict=True):
        value: Any = parse_partial_json(text, release(name))
        assert (value is UNDEFINED) is ("value" not in result), (text, value, result)
        assert value is UNDEFINED or same(value, result["value"]), (text, value, result)


@every_release
@settings(max_examples=100)
@given(unfinished=st.lists(_unfinished(), min_size=BATCH, max_size=BATCH))
def test_beginnings_and_mutations_of_json(judge: Judge, name: str, unfinished: list[str]) -> None:
    assert_same(judge, name, unfinished)


@every_release
def test_every_beginning_of_a_text_with_everything_in_it(judge: Judge, name: str) -> None:
    text = r'{"a":["x\u00e9\n\ud83d\ude00",-1.5e-3,true,{"b":null,"":[]}, [ ], {} ],"cd":{"e":false},"f":"\\"} '
    assert_same(judge, name, [text[:length] for length in range(len(text) + 1)])
