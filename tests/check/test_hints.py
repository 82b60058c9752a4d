"""Well-known wrong names, and the right ones."""

from typing import Any

import pytest

from usechat.check.hints import fix_for, fix_for_unknown_key, fix_for_unreadable
from usechat.protocol.releases import release
from usechat.protocol.schema import flaws


def fixes(chunk: Any, sdk: str = "7") -> list[str | None]:
    return [fix_for(flaw, chunk) for flaw in flaws(chunk, release(sdk))]


@pytest.mark.parametrize(
    ("chunk_type", "suggestion"),
    [
        ("step-start", "start-step"),
        ("message-start", "start"),
        ("tool-call", "tool-input-available"),
        ("tool_result", "tool-output-available"),
        ("textDelta", "text-delta"),
        ("text_delta", "text-delta"),
        ("TEXT_MESSAGE_CONTENT", "text-delta"),
        ("data", "data-<name>"),
        ("text-detla", "text-delta"),
    ],
)
def test_a_wrong_type_has_a_right_one(chunk_type: str, suggestion: str) -> None:
    assert fixes({"type": chunk_type}) == [f'Send "{suggestion}" instead.']


@pytest.mark.parametrize(("chunk_type", "start"), [("ping", "To keep the connection alive"), ("quux", None)])
def test_other_unknown_types(chunk_type: str, start: str | None) -> None:
    [fix] = fixes({"type": chunk_type})
    assert fix is None if start is None else fix is not None and fix.startswith(start)


@pytest.mark.parametrize(
    ("chunk", "fix"),
    [
        ({"type": "error", "error": "x"}, "Rename the key 'error' to 'errorText'."),
        ({"type": "error", "error_text": "x"}, "Rename the key 'error_text' to 'errorText'."),
        ({"type": "error"}, None),
        ({"type": "text-delta", "id": "t", "text": "x"}, "Rename the key 'text' to 'delta'."),
        ({"type": "tool-input-delta", "toolCallId": "c", "delta": "x"}, "Rename the key 'delta' to 'inputTextDelta'."),
        ({"type": "file", "url": "u", "mimeType": "m"}, "Rename the key 'mimeType' to 'mediaType'."),
        ({"type": "data-x", "status": "x"}, "Put the payload under the key 'data'."),
        ({"type": "data-x"}, None),
        ({"type": "steering-message", "id": "u", "parts": [{"type": "text"}]}, None),
        ({"type": "text-start", "id": 1}, "Send 'id' as a string."),
        ({"type": "text-start", "id": None}, None),
        ({"type": "text-start", "id": "t", "providerMetadata": {"p": 1}}, None),
        ({"type": "finish", "finishReason": "end_turn"}, 'Send "stop" instead.'),
        ({"type": "finish", "finishReason": "TOOL_CALLS"}, 'Send "tool-calls" instead.'),
        ({"type": "finish", "finishReason": "quux"}, None),
    ],
)
def test_a_wrong_value_has_a_remedy(chunk: dict[str, Any], fix: str | None) -> None:
    assert fixes(chunk) == [fix]


def test_a_number_that_is_too_large_has_none() -> None:
    assert fixes({"type": "text-start", "id": "t", "providerMetadata": {"p": {"a": float("inf")}}}) == [None]


def test_a_type_that_is_too_new_has_a_substitute() -> None:
    assert fixes({"type": "custom", "kind": "x"}, "6") == ["Send a data-* chunk instead."]


@pytest.mark.parametrize(
    ("chunk", "key", "fix"),
    [
        ({"type": "start", "id": "m"}, "id", "Rename the key 'id' to 'messageId'."),
        ({"type": "start", "id": "m", "messageId": "m"}, "id", None),
        (
            {"type": "finish", "finish_reason": "stop"},
            "finish_reason",
            "Rename the key 'finish_reason' to 'finishReason'.",
        ),
        ({"type": "finish", "usage": {}}, "usage", None),
        ({"type": "data-x", "data": 1, "status": 2}, "status", "Put 'status' under the key 'data'."),
    ],
)
def test_an_unknown_key_may_stand_for_a_known_one(chunk: dict[str, Any], key: str, fix: str | None) -> None:
    assert fix_for_unknown_key(chunk, key) == fix


def test_an_unknown_key_in_a_strict_release() -> None:
    assert fixes({"type": "start", "id": "m"}, "5.0.0") == ["Rename the key 'id' to 'messageId'."]


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("{'type': 'start'}", "This is how Python prints a dict"),
        ('0:"Hello"', "This is the data stream of AI SDK 4"),
        ("Hello", "Plain text is not a chunk"),
        ('{"type":', None),
    ],
)
def test_data_that_is_not_json_shows_how_it_was_produced(text: str, start: str | None) -> None:
    fix = fix_for_unreadable(text)
    assert fix is None if start is None else fix is not None and fix.startswith(start)
