"""`validate_messages` takes, strips and refuses exactly what the AI SDK's own validation does."""

from collections.abc import Sequence
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance.judge import ALL_RELEASES, Judge
from tests.conformance.strategies import Case, cases, for_release
from tests.conformance.test_message_builder import read_by_us, same
from usechat.errors import InvalidMessages
from usechat.protocol.releases import release
from usechat.protocol.validation import validate_messages

VALIDATING = tuple(name for name in ALL_RELEASES if name != "5.0.0")
"""The releases that can validate."""

every_release = pytest.mark.parametrize("name", VALIDATING)
Json = Any

JUNK: Final[tuple[Json, ...]] = (
    None, True, False, 0, 1.5, "", "x", "streaming", "text", [], [{}], {}, {"p": {}}, {"p": 1}, {"id": "a"},
    {"id": "a", "approved": True}, {"id": "a", "approved": False, "reason": "r"},
)  # fmt: skip
_SOURCE: Final = {"type": "source", "sourceType": "url", "id": "s", "url": "u"}
_PROVIDER: Final = {"providerMetadata": {"openai": {"k": None}}}
_APPROVAL: Final = {"id": "a", "signature": "s", "requestReason": "q", "isAutomatic": True, "descriptor": None}
_TOOL: Final = {
    "toolCallId": "c", "title": "T", "toolMetadata": {"a": 1}, "providerExecuted": True,
    "callProviderMetadata": {"p": {}}, "toolName": "t",
}  # fmt: skip
PARTS: Final[tuple[dict[str, Json], ...]] = (
    {"type": "text", "text": "x", "state": "done", "citations": [{"source": _SOURCE, "startIndex": 0}], **_PROVIDER},
    {"type": "reasoning", "text": "x", "id": "r", "state": "streaming", **_PROVIDER},
    {"type": "step-start"},
    {"type": "file", "mediaType": "a/b", "url": "u", "filename": "f", "providerReference": {"p": "r"}, **_PROVIDER},
    {"type": "reasoning-file", "mediaType": "a/b", "url": "u", **_PROVIDER},
    {"type": "source-url", "sourceId": "s", "url": "u", "title": "t", **_PROVIDER},
    {"type": "source-document", "sourceId": "s", "mediaType": "a/b", "title": "t", "filename": "f", **_PROVIDER},
    {"type": "custom", "kind": "k", **_PROVIDER},
    {"type": "steering-message", "id": "u", "parts": [{"type": "text", "text": "x", "more": 1}]},
    {"type": "data-x", "id": "d", "data": {"a": 1}, "transient": False},
    {"type": "data-", "data": None},
    *(
        {"type": part_type, "state": state, **_TOOL, **keys}
        for part_type in ("tool-t", "dynamic-tool")
        for state, keys in (
            ("input-streaming", {"input": {}, "rawInput": "{", "inputEncoding": "json"}),
            ("input-available", {"input": {}}),
            ("approval-requested", {"input": {}, "approval": _APPROVAL}),
            ("approval-responded", {"input": {}, "approval": _APPROVAL | {"approved": False, "reason": "r"}}),
            ("output-available", {"input": {}, "output": 1, "preliminary": True, "resultProviderMetadata": {"p": {}}}),
            ("output-available", {"input": {}, "output": 1, "approval": _APPROVAL | {"approved": True}}),
            ("output-error", {"rawInput": 1, "errorText": "e", "approval": {"id": "a", "approved": True}}),
            ("output-error", {"input": 1, "errorText": "e"}),
            ("output-denied", {"input": {}, "approval": {"id": "a", "approved": False, "inputSchemaInput": 1}}),
        )
    ),
)  # fmt: skip
FOREIGN_KEYS: Final = ("input", "output", "errorText", "rawInput", "approval", "preliminary", "dynamic", "unknown")


def assert_same(judge: Judge, name: str, histories: Sequence[Json]) -> None:
    for messages, result in zip(histories, judge.validate(name, histories), strict=True):
        try:
            ours: Json = validate_messages(messages, sdk=name)
            error = None
        except InvalidMessages as refused:
            ours = None
            error = refused
        assert (error is None) is result["ok"], (name, messages, error, result["error"])
        assert same(ours, result["messages"]), (name, messages, ours, result["messages"])


def history(*parts: Json) -> Json:
    return [{"id": "m", "role": "assistant", "parts": list(parts)}]


@every_release
def test_every_key_of_every_part(judge: Judge, name: str) -> None:
    histories = [history(part) for part in PARTS]
    for part in PARTS:
        histories += [history({other: item for other, item in part.items() if other != key}) for key in part]
        histories += [history(part | {key: value}) for key in part for value in (None, "x")]
        histories += [history(part | {key: False}) for key in FOREIGN_KEYS if key not in part]
    assert_same(judge, name, histories)


@every_release
@settings(max_examples=20)
@given(
    parts=st.lists(
        st.builds(
            lambda part, *changes: part | dict(changes),
            st.sampled_from(PARTS),
            *[st.tuples(st.sampled_from(FOREIGN_KEYS), st.sampled_from(JUNK))] * 2,
        ),
        min_size=10,
        max_size=10,
    )
)
def test_any_keys_in_any_part(judge: Judge, name: str, parts: list[Json]) -> None:
    assert_same(judge, name, [history(part) for part in parts])


@every_release
def test_citations_approvals_and_steering_messages_within(judge: Judge, name: str) -> None:
    few: tuple[Json, ...] = (None, True, 0, "x", {})
    citations: list[Json] = [
        {"source": _SOURCE | {"extra": 1}, key: value} for key in ("startIndex", "citedText") for value in few
    ]
    citations += [{"source": _SOURCE | {key: value}} for key in (*_SOURCE, "mediaType", "title") for value in few]
    citations += [{"source": {"type": "source", "sourceType": "document", "id": "s", "mediaType": "a", "title": "t"}}]
    citations += [{"source": _SOURCE, "endIndex": value} for value in (-1, 2**53, 2**53 - 1, 3.0, 0.5)]
    steering = [
        {"type": kind, "text": "x", "mediaType": "a", "url": "u", "n": 1} for kind in ("text", "file", "data-x")
    ]
    approvals = [_APPROVAL | {"approved": True, key: value} for key in (*_APPROVAL, "reason", "n") for value in few]
    tool = {"type": "tool-t", "toolCallId": "c", "state": "approval-responded", "input": 1}
    histories = [history({"type": "text", "text": "", "citations": [citation]}) for citation in citations]
    histories += [history({"type": "steering-message", "id": "s", "parts": [part]}) for part in [*steering, *JUNK]]
    histories += [history(tool | {"approval": approval}) for approval in approvals]
    assert_same(judge, name, histories)


@every_release
def test_the_message_around_the_parts(judge: Judge, name: str) -> None:
    message = {"id": "m", "role": "user", "metadata": None, "createdAt": 1, "parts": [{"type": "text", "text": "x"}]}
    histories: list[Json] = [[], *([value] for value in JUNK), *(value for value in JUNK if value is not None)]
    histories += [[{other: item for other, item in message.items() if other != key}] for key in message]
    others: tuple[Json, ...] = (None, 1, "x", "system", "assistant", [], [{}])
    histories += [[message | {key: value}] for key in message for value in others]
    histories += [[message, {"id": "n", "role": role, "parts": []}] for role in ("system", "user", "assistant")]
    assert_same(judge, name, histories)


@every_release
@settings(max_examples=40)
@given(batch=st.lists(cases, min_size=5, max_size=5))
def test_messages_that_streams_made(judge: Judge, name: str, batch: list[Case]) -> None:
    histories = [
        [read_by_us(for_release(case.chunks, release(name)), name, case.message, "m").message] for case in batch
    ]
    assert_same(judge, name, histories)
