"""Which JSON values are legal chunks, and why others are not; `conformance/test_schema.py` asks the real packages."""

from typing import Any

import pytest

from tests.chunk_strategies import LEGAL_VALUES, legal_chunk
from usechat.protocol.releases import NEWEST, release
from usechat.protocol.schema import Flaw, FlawKind, chunk_fields, flaws, is_alike, is_strict, is_without_effect

RELICS = {"reasoning", "reasoning-part-finish"}
SOURCE = {"type": "source", "sourceType": "url", "id": "s", "url": "u"}
DOCUMENT = {"type": "source", "sourceType": "document", "id": "s", "mediaType": "m", "title": "t"}


def citing(citation: Any) -> dict[str, Any]:
    return {"type": "text-end", "id": "t", "citations": [citation]}


def steering(part: Any) -> dict[str, Any]:
    return {"type": "steering-message", "id": "u", "parts": [part]}


def found(chunk: Any, sdk: str = "7") -> list[tuple[str, str]]:
    return [(flaw.kind.name, flaw.path) for flaw in flaws(chunk, release(sdk))]


@pytest.mark.parametrize("chunk_type", sorted(set(LEGAL_VALUES) - RELICS))
def test_the_newest_release_accepts_every_chunk_with_all_its_keys(chunk_type: str) -> None:
    assert flaws(legal_chunk(chunk_type), NEWEST[7]) == []


@pytest.mark.parametrize(
    ("chunk", "expected"),
    [
        ([], [("NOT_AN_OBJECT", "$")]),
        ({}, [("NO_TYPE", "$.type")]),
        ({"type": 5}, [("NO_TYPE", "$.type")]),
        ({"type": "step-start"}, [("UNKNOWN_TYPE", "$.type")]),
        ({"type": "data", "data": 1}, [("UNKNOWN_TYPE", "$.type")]),
        ({"type": "error", "error": "x"}, [("MISSING_KEY", "$.errorText")]),
        ({"type": "data-x"}, [("MISSING_KEY", "$.data")]),
        (
            {"type": "data-x", "data": None, "id": 1, "transient": "no"},
            [("WRONG_TYPE", "$.id"), ("WRONG_TYPE", "$.transient")],
        ),
        ({"type": "start", "messageId": None}, [("NULL", "$.messageId")]),
        ({"type": "start", "messageMetadata": None}, []),
        ({"type": "tool-output-available", "toolCallId": "c", "output": None}, []),
        ({"type": "text-delta", "id": 1, "delta": 2}, [("WRONG_TYPE", "$.id"), ("WRONG_TYPE", "$.delta")]),
        ({"type": "text-start", "id": "t", "providerMetadata": []}, [("WRONG_TYPE", "$.providerMetadata")]),
        (
            {"type": "text-start", "id": "t", "providerMetadata": {"p": 1}},
            [("PROVIDER_METADATA", "$.providerMetadata.p")],
        ),
        ({"type": "text-start", "id": "t", "providerMetadata": {"p": {"a": [1, {"b": None}]}}}, []),
        (
            {"type": "text-start", "id": "t", "providerMetadata": {"p": {"a": [{"b": float("inf")}]}}},
            [("WRONG_TYPE", "$.providerMetadata.p")],
        ),
        ({**legal_chunk("tool-output-error"), "toolMetadata": 1}, [("WRONG_TYPE", "$.toolMetadata")]),
        ({"type": "finish", "finishReason": "end_turn"}, [("FINISH_REASON", "$.finishReason")]),
        ({"type": "finish", "finishReason": 1}, [("WRONG_TYPE", "$.finishReason")]),
        ({**legal_chunk("tool-input-start"), "inputEncoding": "xml"}, [("WRONG_TYPE", "$.inputEncoding")]),
        ({"type": "text-end", "id": "t", "citations": {}}, [("WRONG_TYPE", "$.citations")]),
        (citing({"source": SOURCE, "startIndex": 0, "endIndex": 2.0, "citedText": "x"}), []),
        (citing({"source": DOCUMENT, "startIndex": 0.5}), [("WRONG_TYPE", "$.citations[0].startIndex")]),
        (citing({"source": SOURCE, "endIndex": True}), [("WRONG_TYPE", "$.citations[0].endIndex")]),
        (citing({"source": SOURCE, "endIndex": -1}), [("WRONG_TYPE", "$.citations[0].endIndex")]),
        (citing({"source": SOURCE, "endIndex": 2**53 - 1}), []),
        (citing({"source": SOURCE, "endIndex": 2**53}), [("WRONG_TYPE", "$.citations[0].endIndex")]),
        (citing(1), [("WRONG_TYPE", "$.citations[0]")]),
        (citing({"source": 1}), [("WRONG_TYPE", "$.citations[0].source")]),
        (citing({}), [("MISSING_KEY", "$.citations[0].source")]),
        *(
            (
                citing({"source": {key: value for key, value in source.items() if key != missing}}),
                [("MISSING_KEY", f"$.citations[0].source.{missing}")],
            )
            for source in (SOURCE, DOCUMENT)
            for missing in source
            if missing != "sourceType"
        ),
        (citing({"source": {}}), [("NULL", "$.citations[0].source.sourceType")]),
        (steering({"type": "file", "mediaType": "m", "url": "u", "providerReference": {"p": "x"}}), []),
        (steering({"type": "file"}), [("MISSING_KEY", "$.parts[0].mediaType"), ("MISSING_KEY", "$.parts[0].url")]),
        (
            steering({"type": "file", "mediaType": "m", "url": "u", "providerReference": {"p": 1}}),
            [("WRONG_TYPE", "$.parts[0].providerReference.p")],
        ),
        (
            steering({"type": "file", "mediaType": "m", "url": "u", "providerReference": []}),
            [("WRONG_TYPE", "$.parts[0].providerReference")],
        ),
        (steering({"type": "step-start"}), [("WRONG_TYPE", "$.parts[0].type")]),
    ],
)
def test_what_the_newest_release_rejects(chunk: Any, expected: list[tuple[str, str]]) -> None:
    assert found(chunk) == expected


@pytest.mark.parametrize(
    ("sdk", "chunk", "expected"),
    [
        ("5", {"type": "custom", "kind": "a.b"}, [("UNSUPPORTED_TYPE", "$.type")]),
        ("7.0.69", {"type": "reset-step"}, [("UNSUPPORTED_TYPE", "$.type")]),
        ("5.0.6", legal_chunk("tool-input-error", optional=False), [("UNSUPPORTED_TYPE", "$.type")]),
        ("5.0.0", {"type": "finish", "finishReason": "stop"}, [("UNSUPPORTED_KEY", "$.finishReason")]),
        ("5.0.216", {"type": "start", "extra": 1}, [("UNKNOWN_KEY", "$.extra")]),
        ("5.0.217", {"type": "start", "extra": 1}, []),
        ("5", {"type": "abort", "reason": 5}, []),
        ("6", {"type": "abort", "reason": 5}, [("WRONG_TYPE", "$.reason")]),
        ("5", {"type": "finish", "finishReason": "unknown"}, []),
        ("6", {"type": "finish", "finishReason": "unknown"}, [("FINISH_REASON", "$.finishReason")]),
        ("7.0.148", {"type": "finish", "finishReason": "interrupted"}, [("FINISH_REASON", "$.finishReason")]),
        ("5.0.51", {"type": "reasoning", "text": "x"}, []),
        ("5.0.51", {"type": "reasoning"}, [("MISSING_KEY", "$.text")]),
        ("5.0.52", {"type": "reasoning", "text": "x"}, [("UNKNOWN_TYPE", "$.type")]),
    ],
)
def test_releases_differ(sdk: str, chunk: Any, expected: list[tuple[str, str]]) -> None:
    assert found(chunk, sdk) == expected


@pytest.mark.parametrize(
    ("chunk", "sdk", "text"),
    [
        (None, "7", "a chunk is a JSON object, not null"),
        ("x" * 99, "7", f'a chunk is a JSON object, not the string "{"x" * 39}…"'),
        ("x" * 40, "7", f'a chunk is a JSON object, not the string "{"x" * 40}"'),
        ("x" * 41, "7", f'a chunk is a JSON object, not the string "{"x" * 39}…"'),
        ("", "7", "a chunk is a JSON object, not the empty string"),
        (1e999, "7", "a chunk is a JSON object, not a number too large for JavaScript"),
        ({}, "7", "the key 'type' is missing"),
        ({"type": True}, "7", "'type' must be a string, not true"),
        ({"type": False}, "7", "'type' must be a string, not false"),
        ({"type": "tool-input-error"}, "5.0.0",
         'the chunk type "tool-input-error" came with AI SDK 5.0.7, 6.0.0 and 7.0.0'),
        ({"type": "custom"}, "6", 'the chunk type "custom" came with AI SDK 7.0.0'),
        ({"type": "abort", "reason": ""}, "5.0.0", "the key 'reason' came with AI SDK 6.0.15 and 7.0.0"),
        ({"type": "abort", "x": ""}, "5.0.0", "the key 'x' is unknown"),
        ({"type": "abort", "reason": {}}, "7", "'reason' must be a string, not an object"),
        ({"type": "error", "errorText": []}, "7", "'errorText' must be a string, not an array"),
        (legal_chunk("file") | {"providerMetadata": {"p": 1.5}}, "7",
         "'providerMetadata' must hold one object per provider; under \"p\" is the number 1.5"),
    ],
)  # fmt: skip
def test_a_flaw_says_what_is_wrong(chunk: Any, sdk: str, text: str) -> None:
    assert flaws(chunk, release(sdk))[0].text == text


def test_a_flaw_of_type_says_what_was_expected() -> None:
    expected = Flaw(FlawKind.WRONG_TYPE, "$.errorText", "'errorText' must be a string, not the number 1", "a string")
    assert flaws({"type": "error", "errorText": 1}, NEWEST[7]) == [expected]


def test_the_keys_that_a_release_knows() -> None:
    assert chunk_fields("abort", release("5")) == frozenset()
    assert chunk_fields("abort", release("7")) == frozenset({"reason"})
    assert chunk_fields("data", release("7")) == frozenset({"data", "id", "transient"})
    assert chunk_fields("custom", release("6")) is None


@pytest.mark.parametrize(
    ("sdk", "strict"), [("5.0.216", True), ("5.0.217", False), ("6.0.230", True), ("7.0.32", False)]
)
def test_strict_releases(sdk: str, strict: bool) -> None:
    assert is_strict(release(sdk)) is strict


def test_relics_are_accepted_and_ignored_by_the_first_releases() -> None:
    assert is_without_effect("reasoning-part-finish", release("5.0.0"))
    assert not is_without_effect("reasoning-part-finish", release("5.0.52"))
    assert not is_without_effect("text-start", release("5.0.0"))


@pytest.mark.parametrize(
    ("chunk", "sdk", "alike"),
    [
        ({"type": "text-start", "id": "t"}, "5.0.0", True),
        ({"type": "data-x", "data": 1}, "5.0.0", True),
        ({"type": "start-step"}, "5.0.0", True),
        ({"type": "abort", "reason": "x"}, "5", False),
        ({"type": "custom", "kind": "x"}, "6", False),
        ({"type": "finish"}, "7", False),
    ],
)
def test_releases_that_judge_a_chunk_as_the_newest_does(chunk: dict[str, Any], sdk: str, alike: bool) -> None:
    assert is_alike(chunk, release(sdk)) is alike
