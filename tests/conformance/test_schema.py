"""`usechat.protocol.schema` accepts and rejects exactly what the schemas in the npm packages do."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.chunk_strategies import CITATIONS, JUNK, LEGAL_VALUES, STEERING_PARTS, legal_chunk, mutated_chunks
from tests.conformance.judge import ALL_RELEASES, Judge
from usechat.protocol.releases import release
from usechat.protocol.schema import flaws

every_release = pytest.mark.parametrize("name", ALL_RELEASES)
BATCH = 25
KINDS: tuple[Any, ...] = (None, True, 1, "x", [], {}, {"p": 1}, {"p": {}})
"""A value of each kind."""


def assert_same(judge: Judge, name: str, chunks: Sequence[Any]) -> None:
    for chunk, result in zip(chunks, judge.schema(name, chunks), strict=True):
        problems = flaws(chunk, release(name))
        assert (problems == []) is result["accepted"], (chunk, problems, result["error"])


@every_release
def test_every_key_of_every_type_with_every_kind_of_value(judge: Judge, name: str) -> None:
    chunks: list[Any] = [*JUNK, {}, {"type": "data", "data": 1}, *({"type": value} for value in JUNK)]
    for chunk_type in LEGAL_VALUES:
        whole = legal_chunk(chunk_type)
        least = legal_chunk(chunk_type, optional=False)
        chunks += [whole, least, least | {"unknown": 1}]
        chunks += [{other: value for other, value in whole.items() if other != key} for key in whole]
        chunks += [least | {key: value} for key in whole if key != "type" for value in (*KINDS, whole[key])]
    assert_same(judge, name, chunks)


@every_release
@settings(max_examples=40)
@given(data=st.data())
def test_mutated_chunks(judge: Judge, name: str, data: st.DataObject) -> None:
    assert_same(judge, name, data.draw(st.lists(mutated_chunks, min_size=BATCH, max_size=BATCH)))


@every_release
@settings(max_examples=20)
@given(citations=st.lists(CITATIONS, min_size=BATCH, max_size=BATCH), parts=st.lists(STEERING_PARTS, min_size=BATCH))
def test_citations_and_steering_parts(judge: Judge, name: str, citations: list[Any], parts: list[Any]) -> None:
    chunks = [{"type": "text-end", "id": "t", "citations": [citation]} for citation in citations]
    assert_same(judge, name, chunks + [{"type": "steering-message", "id": "s", "parts": [part]} for part in parts])
