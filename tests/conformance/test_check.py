"""`usechat check` gives the verdict of the real clients, on good and on broken streams."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broken_streams import ROWS, Row
from tests.conformance.judge import ALL_RELEASES, RELEASES, Chat, ChatResult, Judge
from tests.stream_strategies import body_of, chunk_lists, mutated_bodies, mutated_chunk_lists
from usechat.check import Capture, Report, check_capture
from usechat.check.judging import CLIENT_ID
from usechat.values import json_text

CAPTURES = sorted((Path(__file__).parent.parent / "fixtures" / "captures").iterdir())
every_release = pytest.mark.parametrize("release", ALL_RELEASES)
BATCH = 20
USER = {"id": "u", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
UNCLEAR_CALLS = {"UC410", "UC415", "UC416"}
"""Text that goes on, and calls that share an id, keep the client from sending again."""


def assert_same(judge: Judge, release: str, captures: list[Capture]) -> list[Report]:
    cases = [Chat(capture.body, status=capture.status) for capture in captures]
    reports = [check_capture(capture, [release]) for capture in captures]
    for capture, report, result in zip(captures, reports, judge.chat(release, cases), strict=True):
        verdict = report.verdicts[release]
        context = (release, capture.status, capture.body, verdict, result["error"])
        assert verdict.status == result["status"], context
        assert as_shown(verdict.message) == as_shown(result["message"]), context
        assert_same_error(verdict.error, result, context)
    return reports


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
def test_a_row_for_each_behaviour(judge: Judge, release: str) -> None:
    assert_same(judge, release, [Capture(name=row.name, body=row.body, status=row.status) for row in ROWS])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_each_behaviour_is_explained(row: Row) -> None:
    report = check_capture(Capture(name=row.name, body=row.body, status=row.status), ["any"])
    assert next((problem.rule.id for problem in report.problems), None) == row.rule


def fuzz(judge: Judge, release: str, bodies: st.SearchStrategy[bytes], *, examples: int) -> Counter[str]:
    """Compare many generated bodies and return how often each rule was broken."""
    reach: Counter[str] = Counter()

    @settings(max_examples=examples)
    @given(st.lists(bodies, min_size=BATCH, max_size=BATCH))
    def compare(batch: list[bytes]) -> None:
        for report in assert_same(judge, release, [Capture(name="", body=body) for body in batch]):
            reach.update({problem.rule.id for problem in report.problems})

    compare()
    return reach


@every_release
def test_streams(judge: Judge, release: str) -> None:
    fuzz(judge, release, chunk_lists.map(body_of), examples=20)


@every_release
def test_streams_with_spoilt_chunks(judge: Judge, release: str) -> None:
    reach = fuzz(judge, release, mutated_chunk_lists.map(body_of), examples=40)
    everywhere = {"UC201", "UC202", "UC203", "UC205", "UC206", "UC207", "UC301", "UC302", "UC304", "UC305", "UC308"}
    somewhere = {"5": {"UC204", "UC303", "UC306"}, "6": {"UC204", "UC303"}, "7": {"UC307"}}
    assert everywhere | somewhere[release[0]] <= set(reach)


@every_release
def test_streams_with_spoilt_bytes(judge: Judge, release: str) -> None:
    reach = fuzz(judge, release, mutated_bodies, examples=25)
    assert {"UC101", "UC103", "UC107", "UC110", "UC111"} <= set(reach)


@pytest.mark.parametrize("release", [releases[-1] for releases in RELEASES.values()])
@settings(max_examples=60)
@given(streams=st.lists(chunk_lists | mutated_chunk_lists, min_size=BATCH, max_size=BATCH))
def test_who_sends_a_chat_again_without_end_is_warned(judge: Judge, release: str, streams: list[list[Any]]) -> None:
    reports = [check_capture(Capture(name="", body=body_of(stream)), [release]) for stream in streams]
    shown = [report for report in reports if report.ok and report.verdicts[release].message is not None]
    histories = [[USER, report.verdicts[release].message] for report in shown]
    for report, result in zip(shown, judge.complete(release, histories), strict=True):
        rules = {problem.rule.id for problem in report.problems}
        if result["toolCalls"] and report.verdicts[release].status == "ready":
            assert rules & {"UC412", "UC421"}
        if "UC421" in rules and not rules & UNCLEAR_CALLS:
            assert result["toolCalls"]
