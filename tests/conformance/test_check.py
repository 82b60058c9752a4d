"""`usechat check` gives the verdict of the real clients, on good and on broken streams."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance.judge import ALL_RELEASES, Chat, ChatResult, Judge
from tests.stream_strategies import body_of, chunk_lists, mutated_bodies, mutated_chunk_lists
from usechat.check import Capture, check_capture
from usechat.check.judging import CLIENT_ID
from usechat.values import json_text

CAPTURES = sorted((Path(__file__).parent.parent / "fixtures" / "captures").iterdir())
every_release = pytest.mark.parametrize("release", ALL_RELEASES)
BATCH = 20


def assert_same(judge: Judge, release: str, captures: list[Capture]) -> None:
    cases = [Chat(capture.body, status=capture.status) for capture in captures]
    for capture, result in zip(captures, judge.chat(release, cases), strict=True):
        verdict = check_capture(capture, [release]).verdicts[release]
        context = (release, capture.status, capture.body, verdict, result["error"])
        assert verdict.status == result["status"], context
        assert as_shown(verdict.message) == as_shown(result["message"]), context
        assert_same_error(verdict.error, result, context)


def as_shown(message: Any) -> Any:
    """Return the message as JSON gives it, without the name that a client made up."""
    if message is None:
        return None
    written = json.loads(json_text(message))
    return written | {"id": None} if message["id"].startswith(("client-", CLIENT_ID)) else written


def assert_same_error(error: str | None, result: ChatResult, context: object) -> None:
    expected = result["error"] and result["error"]["message"]
    if expected is None or error is None:
        assert error == expected, context
    elif expected.startswith(("Type validation failed", "JSON parsing failed")):
        assert error.partition("\nError message:")[0] == expected.partition("\nError message:")[0], context
    else:
        assert error == expected, context


@every_release
def test_captures(judge: Judge, release: str) -> None:
    assert_same(judge, release, [Capture(name=path.name, body=path.read_bytes()) for path in CAPTURES])


@every_release
@settings(max_examples=15)
@given(streams=st.lists(chunk_lists, min_size=BATCH, max_size=BATCH))
def test_streams(judge: Judge, release: str, streams: list[list[Any]]) -> None:
    assert_same(judge, release, [Capture(name="", body=body_of(stream)) for stream in streams])


@every_release
@settings(max_examples=20)
@given(streams=st.lists(mutated_chunk_lists, min_size=BATCH, max_size=BATCH))
def test_streams_with_spoilt_chunks(judge: Judge, release: str, streams: list[list[Any]]) -> None:
    assert_same(judge, release, [Capture(name="", body=body_of(stream)) for stream in streams])


@every_release
@settings(max_examples=20)
@given(bodies=st.lists(mutated_bodies, min_size=BATCH, max_size=BATCH))
def test_streams_with_spoilt_bytes(judge: Judge, release: str, bodies: list[bytes]) -> None:
    assert_same(judge, release, [Capture(name="", body=body) for body in bodies])
