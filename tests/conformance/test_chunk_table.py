"""Our table of chunks is that of the npm packages: a type or key that a release adds fails here, with its name.

`python -m scripts.newest_releases` makes the same comparison with what is published today. To take a release up: add it
to `node/package.json` (`"ai-7.0.200": "npm:ai@7.0.200"`) and to `RELEASES` in `judge.py`, make it the `NEWEST` of its
major in `usechat.protocol.releases`, and run `make conformance`.
"""

import json
from pathlib import Path

import pytest

from tests.chunk_strategies import legal_chunk
from tests.conformance.judge import ALL_RELEASES, RELEASES, Judge
from tests.conformance.published import published_schema
from usechat.protocol.releases import CHUNKS, FINISH_REASONS, MAJORS, NEWEST, STRICT_UNTIL, release
from usechat.protocol.schema import chunk_fields, is_strict, is_without_effect

every_release = pytest.mark.parametrize("name", ALL_RELEASES)
PACKAGES = Path(__file__).parent / "node" / "node_modules"
RELICS = ("reasoning", "reasoning-part-finish")
"""In the schema of 5.0.0, sent by nobody."""
ANYTHING = {"messageMetadata", "input", "output", "data", "approvalDescriptor", "inputSchemaInput"}
"""Keys for which every value is right."""


@every_release
def test_the_types_and_keys_are_those_of_the_package(name: str) -> None:
    published = published_schema(PACKAGES / f"ai-{name}")
    ours = {
        chunk_type: set(fields)
        for chunk_type in (*CHUNKS, *RELICS)
        if (fields := chunk_fields(chunk_type, release(name))) is not None
    }
    new_types = set(published) - set(ours)
    assert new_types == set(), f"ai {name} has chunk types that usechat does not know: {sorted(new_types)}"
    new_keys = {f"{kind}.{key}" for kind in published for key in published[kind] - ours[kind]}
    assert new_keys == set(), f"ai {name} has keys that usechat does not know: {sorted(new_keys)}"
    assert ours == published


@every_release
def test_the_types_are_those_that_the_client_names_when_it_rejects_one(judge: Judge, name: str) -> None:
    [result] = judge.schema(name, [{"type": "no-such-type"}])
    assert result["error"] is not None
    issues = json.loads(result["error"]["message"].partition("Error message: ")[2])
    named = {value for variant in issues[0]["errors"] for issue in variant for value in issue.get("values", [])}
    ours = {kind for kind in (*CHUNKS, *RELICS) if kind != "data" and chunk_fields(kind, release(name)) is not None}
    assert named == ours


@every_release
def test_known_keys_reject_a_wrong_value_and_unknown_ones_do_not(judge: Judge, name: str) -> None:
    """What the source text says is also what the schema does: every key is tried with a value that fits none."""
    published = published_schema(PACKAGES / f"ai-{name}")
    keys = sorted({key for fields in published.values() for key in fields} - ANYTHING)
    probes = [(chunk_type, key) for chunk_type in published for key in [*keys, "unknown"]]
    named = {"data": "data-"}
    legal = {chunk_type: legal_chunk(named.get(chunk_type, chunk_type), optional=False) for chunk_type in published}
    chunks = [legal[chunk_type] | {key: [1]} for chunk_type, key in probes]
    for (chunk_type, key), result in zip(probes, judge.schema(name, chunks), strict=True):
        is_known = key in published[chunk_type]
        assert result["accepted"] is not (is_known or is_strict(release(name))), (chunk_type, key)


@every_release
def test_the_finish_reasons_are_those_of_the_client(judge: Judge, name: str) -> None:
    chunks = [{"type": "finish", "finishReason": reason} for reason in FINISH_REASONS]
    accepted = {
        chunk["finishReason"]
        for chunk, result in zip(chunks, judge.schema(name, chunks), strict=True)
        if result["accepted"]
    }
    knows_reasons = "finishReason" in (chunk_fields("finish", release(name)) or ())
    ours = {reason for reason, since in FINISH_REASONS.items() if since.includes(release(name))}
    assert accepted == (ours if knows_reasons else set())


def test_the_releases_of_the_table_are_those_that_judge() -> None:
    assert {str(major): str(NEWEST[major]) for major in MAJORS} == {
        major: names[-1] for major, names in RELEASES.items()
    }
    assert {str(major): str(STRICT_UNTIL[major]) for major in MAJORS} == {
        major: names[1] for major, names in RELEASES.items()
    }


def test_relics_are_ignored_by_the_reader(judge: Judge) -> None:
    assert all(is_without_effect(kind, release("5.0.0")) for kind in RELICS)
    chunks = [{"type": "reasoning", "text": "x"}, {"type": "reasoning-part-finish"}]
    assert [result["accepted"] for result in judge.schema("5.0.0", chunks)] == [True, True]
    assert [result["accepted"] for result in judge.schema("5.0.216", chunks)] == [False, False]
