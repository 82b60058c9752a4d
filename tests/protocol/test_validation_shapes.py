"""The shapes of messages: what is kept, what is stripped, and what is refused with which words."""

from typing import Any

import pytest

from usechat.errors import InvalidMessages
from usechat.protocol.releases import release
from usechat.protocol.validation import clean_message

Json = Any
SOURCE = {"type": "source", "sourceType": "url", "id": "s", "url": "u"}
DOCUMENT = {"type": "source", "sourceType": "document", "id": "s", "mediaType": "a/b", "title": "t"}
TOOL = {"type": "tool-t", "toolCallId": "c", "input": 1}
DYNAMIC = TOOL | {"type": "dynamic-tool", "toolName": "t"}
EVERY_SDK = ["5", "6", "7"]


def message(*parts: Json) -> Json:
    return {"id": "m", "role": "assistant", "parts": list(parts)}


def clean(part: Json, sdk: str = "7") -> Json:
    return clean_message(message(part), "messages[0]", release(sdk))["parts"][0]


def refusal(value: Json, sdk: str = "7") -> InvalidMessages:
    with pytest.raises(InvalidMessages) as raised:
        clean_message(value, "messages[0]", release(sdk))
    return raised.value


@pytest.mark.parametrize("sdk", EVERY_SDK)
@pytest.mark.parametrize(
    "part",
    [
        {"type": "text", "text": "x", "state": "done", "providerMetadata": {"p": {"k": None}}},
        {"type": "reasoning", "text": "x", "id": "r", "state": "streaming"},
        {"type": "step-start"},
        {"type": "file", "mediaType": "a/b", "url": "u", "filename": "f"},
        {"type": "source-url", "sourceId": "s", "url": "u", "title": "t"},
        {"type": "source-document", "sourceId": "s", "mediaType": "a/b", "title": "t", "filename": "f"},
        {"type": "data-x", "id": "d", "data": None},
        TOOL | {"state": "input-streaming", "rawInput": "{", "providerExecuted": True},
        TOOL | {"state": "input-available", "callProviderMetadata": {}},
        TOOL | {"state": "approval-requested", "approval": {"id": "a"}},
        TOOL | {"state": "approval-responded", "approval": {"id": "a", "approved": False, "reason": "no"}},
        TOOL | {"state": "output-available", "output": None, "preliminary": True},
        TOOL | {"state": "output-available", "output": None, "approval": {"id": "a", "approved": True}},
        TOOL | {"state": "output-error", "errorText": "e", "rawInput": 5},
        TOOL | {"state": "output-denied", "approval": {"id": "a", "approved": False}},
        {"type": "tool-t", "toolCallId": "c", "state": "output-error", "errorText": "e"},
        DYNAMIC | {"state": "input-available", "dynamic": False},
    ],
)
def test_legal_parts_are_kept_without_unknown_keys(part: Json, sdk: str) -> None:
    assert clean(part | {"unknown": 1}, sdk) == part


@pytest.mark.parametrize(
    ("sdk", "part", "stripped"),
    [
        ("7.0.137", {"type": "text", "text": "", "citations": []}, "citations"),
        ("5.0.233", {"type": "reasoning", "text": "", "id": "r"}, "id"),
        ("6", {"type": "file", "mediaType": "a/b", "url": "u", "providerReference": {"p": "r"}}, "providerReference"),
        ("6", TOOL | {"state": "input-available", "title": "T"}, "title"),
        ("5", TOOL | {"state": "input-available", "toolMetadata": {"m": 1}}, "toolMetadata"),
        ("6.0.307", TOOL | {"state": "input-streaming", "inputEncoding": "json"}, "inputEncoding"),
        (
            "5",
            TOOL | {"state": "output-error", "errorText": "e", "resultProviderMetadata": {}},
            "resultProviderMetadata",
        ),
        ("6.0.20", TOOL | {"state": "output-error", "errorText": "e", "rawInput": 1}, "rawInput"),
        ("7.0.128", DYNAMIC | {"state": "input-available", "dynamic": False}, "dynamic"),
        ("5", DYNAMIC | {"state": "input-available", "approval": {"id": "a"}}, "approval"),
    ],
)
def test_keys_of_newer_releases_are_stripped(sdk: str, part: Json, stripped: str) -> None:
    assert clean(part, sdk) == {key: value for key, value in part.items() if key != stripped}


def test_the_newest_release_keeps_all_there_is() -> None:
    citations = [{"source": SOURCE, "startIndex": 0, "endIndex": 3.0, "citedText": "x"}, {"source": DOCUMENT}]
    assert clean({"type": "text", "text": "", "citations": citations}) == {
        "type": "text",
        "text": "",
        "citations": citations,
    }
    approval = {"id": "a", "requestReason": "r", "isAutomatic": True, "signature": "s", "descriptor": 1}
    question = TOOL | {"state": "approval-requested", "approval": approval | {"inputSchemaInput": None}}
    assert clean(question) == question
    steering = {"type": "steering-message", "id": "u", "parts": [{"type": "text", "text": "x"}]}
    assert clean(steering | {"parts": [{"type": "text", "text": "x", "state": "done"}]}) == steering


@pytest.mark.parametrize(
    ("part", "path", "text"),
    [
        (5, "", " must be an object, not 5"),
        ({}, ".type", ".type must be a string, not null"),
        ({"type": "text"}, ".text", ".text is missing"),
        ({"type": "text", "text": None}, ".text", ".text must be a string, not null"),
        ({"type": "text", "text": "", "state": "x"}, ".state", '.state must be "streaming" or "done", not "x"'),
        ({"type": "text", "text": "", "citations": {}}, ".citations", ".citations must be an array, not an object"),
        ({"type": "data-x"}, ".data", ".data is missing"),
        (
            {"type": "file", "mediaType": "a/b", "url": "u", "providerMetadata": {"p": []}},
            ".providerMetadata.p",
            ".providerMetadata.p must be an object, not an array",
        ),
        (TOOL | {"state": "input-available", "output": None}, ".output", ".output must be absent in this state"),
        (TOOL | {"state": "output-available"}, ".output", ".output is missing"),
        (
            TOOL | {"state": "output-denied", "approval": {"id": "a"}},
            ".approval.approved",
            ".approval.approved is missing",
        ),
        (
            TOOL | {"state": "output-available", "output": 1, "approval": {"id": "a", "approved": False}},
            ".approval.approved",
            ".approval.approved must be true, not false",
        ),
        (
            TOOL | {"state": "input-streaming", "inputEncoding": 0},
            ".inputEncoding",
            '.inputEncoding must be "json" or "text", not 0',
        ),
        (
            {"type": "text", "text": "", "citations": [{"source": SOURCE | {"sourceType": "x"}}]},
            ".citations[0].source.sourceType",
            '.citations[0].source.sourceType must be "url" or "document", not "x"',
        ),
    ],
)
def test_a_refusal_says_what_is_wrong_and_what_would_be_right(part: Json, path: str, text: str) -> None:
    error = refusal(message({"type": "step-start"}, part))
    assert error.path == f"messages[0].parts[1]{path}"
    assert str(error) == f"messages[0].parts[1]{text}"


@pytest.mark.parametrize("index", [-1, 0.5, 2**53, True, "0", None])
def test_an_index_is_a_whole_number(index: Json) -> None:
    part = {"type": "text", "text": "", "citations": [{"source": SOURCE, "startIndex": index}]}
    assert "must be a whole number from 0 on" in str(refusal(message(part)))


@pytest.mark.parametrize(("part", "count"), [(TOOL, 7), (DYNAMIC, 4)])
def test_an_unknown_state_is_told_the_known_ones(part: Json, count: int) -> None:
    error = refusal(message(part | {"state": "done"}), "5")
    assert error.path == "messages[0].parts[0].state"
    assert str(error).count(" or ") == count - 1


@pytest.mark.parametrize("sdk", ["5", "6"])
def test_a_part_that_only_other_releases_know_is_refused(sdk: str) -> None:
    error = refusal(message({"type": "custom", "kind": "k"}), sdk)
    assert error.path == "messages[0].parts[0].type"
    assert f'AI SDK {release(sdk)} knows no parts of type "custom"; it knows text, ' in str(error)
    assert "data-NAME" in str(error)


@pytest.mark.parametrize(
    ("sdk", "legal"), [("5.0.249", False), ("5.0.250", True), ("6.0.181", False), ("6.0.182", True)]
)
def test_older_releases_want_the_input_of_a_failed_call(sdk: str, legal: bool) -> None:
    part = {"type": "tool-t", "toolCallId": "c", "state": "output-error", "errorText": "e"}
    if legal:
        assert clean(part, sdk) == part
    else:
        assert refusal(message(part), sdk).path == "messages[0].parts[0].input"


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("text", "messages[0]"),
        ({"role": "user", "parts": []}, "messages[0].id"),
        ({"id": "m", "role": "tool", "parts": []}, "messages[0].role"),
        ({"id": "m", "role": "user", "parts": {}}, "messages[0].parts"),
        ({"id": "m", "role": "user", "parts": []}, "messages[0].parts"),
        ({"id": "m", "role": "system", "parts": []}, "messages[0].parts"),
    ],
)
def test_a_message_needs_an_id_a_role_and_parts(value: Json, path: str) -> None:
    assert refusal(value).path == path


@pytest.mark.parametrize(("sdk", "legal"), [("7.0.26", False), ("7.0.27", True)])
def test_an_assistant_message_may_be_empty_in_newer_releases(sdk: str, legal: bool) -> None:
    if legal:
        assert clean_message(message(), "messages[0]", release(sdk)) == message()
    else:
        assert refusal(message(), sdk).path == "messages[0].parts"


def test_metadata_is_kept_and_other_keys_are_not() -> None:
    cleaned = message() | {"metadata": None}
    assert clean_message(cleaned | {"createdAt": 1}, "messages[0]", release("7")) == cleaned
