"""`MessageBuilder` gives the same message and fails with the same words as the reader of each release."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings

from tests.conformance.judge import RELEASES, Chat, Judge, Read
from tests.conformance.strategies import FAILING_TYPES, Case, cases, for_release, known_types, reach
from usechat.errors import StreamFailed, UIMessageStreamError
from usechat.protocol.chunks import chunk_from_json
from usechat.protocol.message import MessageBuilder
from usechat.protocol.releases import CHUNKS, Release, release
from usechat.protocol.states import ToolState
from usechat.protocol.ui_messages import UIMessage

every_major = pytest.mark.parametrize("major", RELEASES)
USER = {"id": "user-1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}


class Outcome(NamedTuple):
    message: UIMessage
    is_shown: bool
    finish_reason: str | None
    received: Sequence[Any]
    error: StreamFailed | UIMessageStreamError | None


def read_by_us(stream: Sequence[Any], name: str, message: Any, message_id: str) -> Outcome:
    builder = MessageBuilder(sdk=name, message_id=message_id, message=message)
    received: list[Any] = []
    error: StreamFailed | UIMessageStreamError | None = None
    for chunk in stream:
        try:
            builder.receive(chunk_from_json(chunk))
        except (StreamFailed, UIMessageStreamError) as raised:
            error = raised
            break
        received.append(chunk)
    return Outcome(builder.message, builder.shown, builder.finish_reason, received, error)


def as_javascript(value: Any) -> Any:
    """Return a value with its numbers as JavaScript has them; `True` and `1` stay apart."""
    if isinstance(value, dict):
        return {key: as_javascript(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_javascript(item) for item in value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return float(value) if math.isfinite(value) else None


def same(ours: Any, theirs: Any) -> bool:
    return json.dumps(as_javascript(ours), sort_keys=True) == json.dumps(as_javascript(theirs), sort_keys=True)


def body_of(stream: Sequence[Any]) -> bytes:
    return b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in stream)


def check_chat(judge: Judge, name: str, case: Case) -> Counter[str]:
    """Compare with the whole client, which sees only what its schema lets through; return what occurred."""
    stream = for_release(case.chunks, release(name))
    (result,) = judge.chat(name, [Chat(body_of(stream), messages=[USER] + ([case.message] if case.message else []))])
    ours = read_by_us(stream, name, case.message, "client-1")
    report = (name, stream, case.message, ours, result)
    assert (ours.error and str(ours.error)) == (result["error"] and result["error"]["message"]), report
    assert ours.is_shown is (result["message"] is not None), report
    if result["live"] is not None and result["live"]["role"] == "assistant":
        assert same(ours.message, result["live"]), report
    finish = result["finish"] or {}
    assert ours.finish_reason == finish.get("finishReason", ours.finish_reason), report
    return reach(case, ours.received, ours.error)


def expected_reach(releases: Sequence[Release]) -> set[str]:
    rows = {row for row, chunk in CHUNKS.items() if any(chunk.since.includes(one) for one in releases)}
    states = set(ToolState) - {ToolState.ABSENT}
    if "tool-approval-response" not in rows:
        states -= {ToolState.APPROVAL_RESPONDED}
    if "tool-output-denied" not in rows:
        states -= {ToolState.APPROVAL_REQUESTED, ToolState.OUTPUT_DENIED}
    return (
        {f"chunk {row}" for row in rows - {"error"}}
        | {f"state {state}" for state in states}
        | {f"failure {chunk_type}" for chunk_type in FAILING_TYPES if chunk_type in rows}
        | {"failure message-metadata", "continuation", "continuation with an open call"}
    )


@every_major
def test_the_message_and_the_failure_are_those_of_the_client(judge: Judge, major: str) -> None:
    counted: Counter[str] = Counter()

    @settings(max_examples=2000)
    @given(cases)
    def check(case: Case) -> None:
        for name in RELEASES[major]:
            counted.update(check_chat(judge, name, case))

    check()
    expected = expected_reach([release(name) for name in RELEASES[major]])
    assert {thing: counted[thing] for thing in expected if counted[thing] < 20} == {}


FLUSH = {"type": "source-url", "sourceId": "flush", "url": "u"}
"""A chunk after which every reader gives a snapshot."""


@every_major
@settings(max_examples=500)
@given(case=cases)
def test_keys_that_a_reader_does_not_know_make_no_difference(judge: Judge, major: str, case: Case) -> None:
    """Compare with the reader alone. It gets every key, also those that the schema of an old release refuses.

    It stops at no `error` chunk, and takes a `start` with another id for a new message, so that neither is here.
    """
    for name in RELEASES[major]:
        chunks = known_types(case.chunks, release(name))
        stream = [*(chunk for chunk in chunks if chunk["type"] not in ("start", "error")), FLUSH]
        (result,) = judge.read(name, [Read(stream, message=case.message)])
        ours = read_by_us(stream, name, case.message, "")
        report = (name, stream, case.message, ours, result)
        assert (ours.error and str(ours.error)) == (result["error"] and result["error"]["message"]), report
        assert ours.error is not None or same(ours.message, result["message"]), report
