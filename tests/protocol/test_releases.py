from typing import get_args

import msgspec
import pytest

from usechat.errors import UnknownRelease
from usechat.protocol import chunks
from usechat.protocol.chunks import CHUNK_TYPES, Chunk, FinishReason
from usechat.protocol.releases import (
    CHUNKS,
    FINISH_REASONS,
    MAJORS,
    NEWEST,
    PARTS,
    READER,
    STRICT_UNTIL,
    Release,
    holds,
    reads,
    release,
    releases_for,
)

EVERY_FIELD = [(chunk_type, field) for chunk_type, row in CHUNKS.items() for field in row.fields]


def test_the_table_has_a_row_for_every_chunk_type() -> None:
    assert set(CHUNKS) == {*CHUNK_TYPES, "data"}


@pytest.mark.parametrize(("chunk_type", "field"), EVERY_FIELD)
def test_the_table_names_optional_fields_that_exist(chunk_type: str, field: str) -> None:
    optional = {item.encode_name for item in msgspec.structs.fields(CHUNK_TYPES[chunk_type]) if not item.required}
    assert field in optional


@pytest.mark.parametrize(("chunk_type", "field"), EVERY_FIELD)
def test_a_field_is_not_older_than_its_chunk(chunk_type: str, field: str) -> None:
    row = CHUNKS[chunk_type]
    for chunk_since, field_since in zip(row.since, row.fields[field], strict=True):
        assert field_since is None or (chunk_since is not None and field_since >= chunk_since)


def test_the_table_has_a_row_for_every_finish_reason() -> None:
    assert set(FINISH_REASONS) == set(get_args(FinishReason))


def test_every_major_has_its_landmarks() -> None:
    assert set(NEWEST) == set(STRICT_UNTIL) == set(MAJORS)
    assert all(STRICT_UNTIL[major] < NEWEST[major] for major in MAJORS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5", NEWEST[5]),
        ("6", NEWEST[6]),
        ("7", NEWEST[7]),
        ("6.0.150", Release(6, 0, 150)),
        ("7.1.0", Release(7, 1, 0)),
    ],
)
def test_a_release_is_read(text: str, expected: Release) -> None:
    assert release(text) == expected


def test_a_release_is_written_as_npm_writes_it() -> None:
    assert str(release("6.0.150")) == "6.0.150"


@pytest.mark.parametrize(
    "text", ["", "4", "8", "any", "6.0", "6.0.x", "v6.0.1", "6.0.1 ", "6.0.1-beta.1", "6.0.999999"]
)
def test_what_is_no_release_is_refused(text: str) -> None:
    with pytest.raises(UnknownRelease) as caught:
        release(text)
    assert str(caught.value) == (
        f"{text!r} is not an AI SDK release; give 5, 6 or 7 for the newest of that major, or one such as 6.0.150"
    )


def test_a_setting_that_names_no_release_is_refused_with_all_that_would_do() -> None:
    with pytest.raises(UnknownRelease, match=r"^'latest' is not .* 6\.0\.150, or any for what every release accepts$"):
        releases_for("latest")


@pytest.mark.parametrize(
    ("sdk", "chunk_type", "field", "expected"),
    [
        ("any", "text-delta", None, True),
        ("any", "data", None, True),
        ("any", "tool-input-error", None, False),
        ("any", "tool-approval-request", None, True),
        ("any", "tool-approval-request", "signature", False),
        ("any", "tool-output-denied", None, True),
        ("any", "tool-approval-response", None, False),
        ("any", "finish", "finishReason", False),
        ("any", "finish", "messageMetadata", True),
        ("any", "tool-output-available", "preliminary", False),
        ("any", "tool-input-available", "providerMetadata", True),
        ("5", "tool-input-error", None, True),
        ("5", "tool-approval-request", None, False),
        ("5", "abort", "reason", False),
        ("5.0.6", "tool-input-error", None, False),
        ("5.0.7", "tool-input-error", None, True),
        ("5.0.91", "finish", "finishReason", False),
        ("5.0.92", "finish", "finishReason", True),
        ("6", "tool-approval-request", None, True),
        ("6", "tool-approval-response", None, False),
        ("6.0.14", "abort", "reason", False),
        ("6.0.15", "abort", "reason", True),
        ("6.1.0", "abort", "reason", True),
        ("7", "steering-message", None, True),
        ("7.0.162", "steering-message", None, False),
        ("7.0.163", "steering-message", None, True),
        ("7.1.0", "steering-message", None, True),
    ],
)
def test_a_set_of_releases_knows_what_all_of_them_know(
    sdk: str, chunk_type: str, field: str | None, expected: bool
) -> None:
    assert releases_for(sdk).knows(chunk_type, field) is expected


def test_any_is_the_first_release_of_every_major() -> None:
    assert releases_for("any").releases == (Release(5, 0, 0), Release(6, 0, 0), Release(7, 0, 0))
    assert repr(releases_for("any")) == "releases_for('any')"


@pytest.mark.parametrize(
    ("sdk", "chunk", "expected"),
    [
        ("5", chunks.ToolInputStartChunk("c", "t", title="T", dynamic=True), ["title"]),
        ("6", chunks.ToolInputStartChunk("c", "t", title="T", dynamic=True), []),
        ("any", chunks.ToolInputStartChunk("c", "t", title="T", provider_metadata={}), ["provider_metadata", "title"]),
        ("any", chunks.ToolInputStartChunk("c", "t"), []),
        ("any", chunks.FinishChunk("stop", {}), ["finish_reason"]),
        ("any", chunks.DataChunk("data-x", 1, extra={"more": 1}), []),
        ("6.0.0", chunks.ToolApprovalRequestChunk("a", "c"), []),
        ("6.0.0", chunks.ToolApprovalRequestChunk("a", "c", input_schema_input=None), ["input_schema_input"]),
        ("5", chunks.CustomChunk("k"), ["kind"]),
    ],
)
def test_fields_with_a_value_that_some_release_does_not_know_are_named(
    sdk: str, chunk: Chunk, expected: list[str]
) -> None:
    assert [field.name for field in releases_for(sdk).unknown_fields(chunk)] == expected


@pytest.mark.parametrize(
    ("sdk", "reason", "expected"),
    [
        ("any", "stop", "stop"),
        ("any", "unknown", "other"),
        ("5", "unknown", "unknown"),
        ("6", "unknown", "other"),
        ("7", "interrupted", "interrupted"),
        ("7.0.148", "interrupted", "other"),
        ("6", "end_turn", "other"),
    ],
)
def test_a_finish_reason_is_folded_into_one_that_is_accepted(sdk: str, reason: str, expected: str) -> None:
    assert releases_for(sdk).finish_reason(reason) == expected


@pytest.mark.parametrize("behaviour", READER)
@pytest.mark.parametrize("major", MAJORS)
def test_a_reader_has_a_behaviour_from_its_release_on(major: int, behaviour: str) -> None:
    first = READER[behaviour][major - 5]
    assert reads(NEWEST[major], behaviour) is (first is not None)
    if first:
        assert not reads(Release(major, 0, first - 1), behaviour)
        assert reads(Release(major, 0, first), behaviour)


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("major", MAJORS)
def test_messages_hold_a_part_or_key_from_its_release_on(major: int, name: str) -> None:
    first = PARTS[name][major - 5]
    assert holds(NEWEST[major], name) is (first is not None)
    if first:
        assert not holds(Release(major, 0, first - 1), name)
        assert holds(Release(major, 0, first), name)


def test_messages_of_every_release_hold_what_has_no_row() -> None:
    assert all(holds(Release(major, 0, 0), "text") for major in MAJORS)
