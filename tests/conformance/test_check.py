"""`usechat check` gives the verdict of the real clients, on good and on broken streams."""

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broken_streams import ROWS, Row
from tests.conformance.judge import ALL_RELEASES, RELEASES, Chat, ChatResult, Judge
from tests.stream_strategies import (
    body_of,
    chunk_lists,
    interleaved_tools,
    mutated_bodies,
    mutated_chunk_lists,
    one_of_each_mistake,
    one_of_each_response,
    one_of_each_unreadable_event,
)
from usechat.check import RULES, Capture, Report, check_capture
from usechat.check.verdict import CLIENT_ID
from usechat.protocol.values import json_text

CAPTURES = sorted((Path(__file__).parent.parent / "fixtures" / "captures").iterdir())
every_release = pytest.mark.parametrize("release", ALL_RELEASES)
every_major = pytest.mark.parametrize("major", RELEASES)
Case = TypeVar("Case")
Batches: TypeAlias = st.SearchStrategy[list[Capture]]
BATCH = 20
USER = {"id": "u", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
UNCLEAR_CALLS = {"UC410", "UC415", "UC416"}
"""Text that goes on, and calls that share an id, keep the client from sending again."""


def assert_same(judge: Judge, release: str, captures: list[Capture]) -> list[Report]:
    cases = [
        Chat(capture.body, status=capture.status, breaks=capture.is_broken or capture.has_false_encoding)
        for capture in captures
    ]
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
    value = json.loads(json_text(message))
    return value | {"id": None} if message["id"].startswith(("client-", CLIENT_ID)) else value


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
    # "any" makes an exception for approvals; AI SDK 5, which has none, is judged because it is named.
    report = check_capture(Capture(name=row.name, body=row.body, status=row.status), ["any", "5"])
    assert next((problem.rule.id for problem in report.problems), None) == row.rule


def fuzz(judge: Judge, major: str, batches: Batches, *, examples: int) -> Counter[str]:
    """Compare generated responses with the first, the last strict and the newest release of a major.

    Returns in how many of them each rule was broken, and by which type of chunk.
    """
    reach: Counter[str] = Counter()
    for release in RELEASES[major]:
        reach += fuzz_release(judge, release, batches, examples=examples)
    return reach


def fuzz_release(judge: Judge, release: str, batches: Batches, *, examples: int) -> Counter[str]:
    reach: Counter[str] = Counter()

    @settings(max_examples=examples)
    @given(batches)
    def compare(batch: list[Capture]) -> None:
        for report in assert_same(judge, release, batch):
            reach.update({problem.rule.id for problem in report.problems})
            reach.update({f"{problem.rule.id} {type_in(problem.chunk)}" for problem in report.problems})

    compare()
    return reach


def type_in(chunk: Any) -> Any:
    return chunk.get("type") if isinstance(chunk, dict) else None


def as_captures(streams: Iterable[list[Any] | bytes]) -> list[Capture]:
    bodies = [stream if isinstance(stream, bytes) else body_of(stream) for stream in streams]
    return [Capture(name="", body=body) for body in bodies]


def batches_of(cases: st.SearchStrategy[Case]) -> st.SearchStrategy[list[Case]]:
    return st.lists(cases, min_size=BATCH, max_size=BATCH)


def rarely_met(reach: Counter[str], expected: set[str]) -> dict[str, int]:
    return {name: reach[name] for name in sorted(expected) if reach[name] < 20}


UNKNOWN: Final = {"5": {"UC307"}, "6": {"UC306", "UC307"}, "7": {"UC306"}}
"""Rules that no release of a major can break: 5 and 6 know no approval responses, 6 and 7 find either kind of call."""

FAILURES: Final = {
    "UC301 text-delta", "UC301 text-end", "UC301 reasoning-delta", "UC301 reasoning-end", "UC302 text-delta",
    "UC303 text-delta", "UC304 tool-input-delta", "UC305 tool-output-available", "UC305 tool-output-error",
}  # fmt: skip
"""Chunks without their prerequisite, as every major refuses them."""

FAILURES_OF: Final = {
    "5": {"UC204 tool-approval-request", "UC204 tool-output-denied", "UC204 tool-approval-response"},
    "6": {"UC305 tool-approval-request", "UC305 tool-output-denied", "UC204 tool-approval-response"},
    "7": {"UC305 tool-approval-request", "UC305 tool-output-denied", "UC307 tool-approval-response"},
}


def errors_of(group: str) -> set[str]:
    return {rule.id for rule in RULES.values() if rule.severity == "error" and rule.id.startswith(group)}


@pytest.mark.hypothesis
@every_major
def test_streams(judge: Judge, major: str) -> None:
    fuzz(judge, major, batches_of(chunk_lists).map(as_captures), examples=20)


@pytest.mark.hypothesis
@every_major
def test_streams_with_steps_between_the_chunks_of_a_call(judge: Judge, major: str) -> None:
    fuzz(judge, major, batches_of(interleaved_tools).map(as_captures), examples=20)


@pytest.mark.hypothesis
@every_major
def test_streams_with_spoilt_chunks(judge: Judge, major: str) -> None:
    reach = fuzz(judge, major, batches_of(mutated_chunk_lists).map(as_captures), examples=30)
    reach += fuzz(judge, major, one_of_each_mistake.map(as_captures), examples=25)
    rules = (errors_of("UC2") | errors_of("UC3")) - UNKNOWN[major]
    assert rarely_met(reach, rules | FAILURES | FAILURES_OF[major]) == {}
    assert UNKNOWN[major] & set(reach) == set()


@pytest.mark.hypothesis
@every_major
def test_streams_with_spoilt_bytes(judge: Judge, major: str) -> None:
    reach = fuzz(judge, major, batches_of(mutated_bodies).map(as_captures), examples=20)
    reach += fuzz(judge, major, one_of_each_unreadable_event.map(as_captures), examples=20)
    assert rarely_met(reach, errors_of("UC1")) == {}
    assert {"UC107", "UC110", "UC111"} <= set(reach)


@pytest.mark.hypothesis
@every_major
def test_responses_that_are_no_stream_or_are_cut(judge: Judge, major: str) -> None:
    reach = fuzz(judge, major, one_of_each_response, examples=20)
    assert rarely_met(reach, errors_of("UC0")) == {}


def test_every_error_is_looked_for() -> None:
    assert errors_of("UC") == errors_of("UC0") | errors_of("UC1") | errors_of("UC2") | errors_of("UC3")


@pytest.mark.parametrize("release", [releases[-1] for releases in RELEASES.values()])
@settings(max_examples=60)
@given(streams=st.lists(chunk_lists | mutated_chunk_lists, min_size=BATCH, max_size=BATCH))
def test_who_sends_a_chat_again_without_end_is_warned(judge: Judge, release: str, streams: list[list[Any]]) -> None:
    reports = [check_capture(Capture(name="", body=body_of(stream)), [release]) for stream in streams]
    candidates = [report for report in reports if report.ok and report.verdicts[release].message is not None]
    histories = [[USER, report.verdicts[release].message] for report in candidates]
    for report, result in zip(candidates, judge.complete(release, histories), strict=True):
        rules = {problem.rule.id for problem in report.problems}
        if result["toolCalls"] and report.verdicts[release].status == "ready":
            assert rules & {"UC412", "UC421"}
        if rules & {"UC412", "UC421"} and not rules & UNCLEAR_CALLS:
            assert result["toolCalls"]


LEFT_BEHIND: Final = {"UC411", "UC415", "UC416", "UC423", "UC424"}
"""The rules for calls that may leave a part in the state input-streaming."""


@every_release
def test_a_tool_part_that_is_left_behind_is_warned_of(judge: Judge, release: str) -> None:
    counts: Counter[str] = Counter()

    @settings(max_examples=30)
    @given(streams=batches_of(interleaved_tools))
    def compare(streams: list[list[Any]]) -> None:
        captures = as_captures(streams)
        results = judge.chat(release, [Chat(capture.body) for capture in captures])
        for capture, result in zip(captures, results, strict=True):
            if result["status"] != "ready":
                continue
            parts = result["message"]["parts"] if result["message"] else []
            rules = {problem.rule.id for problem in check_capture(capture, [release]).problems}
            is_left = any(part.get("state") == "input-streaming" for part in parts)
            assert not is_left or rules & LEFT_BEHIND, (capture.body, parts)
            assert is_left or "UC424" not in rules, (capture.body, parts)
            counts.update(rules)

    compare()
    assert counts["UC424"] >= 5 or release in FIND_CALLS_ANYWHERE, counts


FIND_CALLS_ANYWHERE: Final = {"5.0.0", "5.0.216", "6.0.0", "6.0.230", "7.0.0", "7.0.31"}
"""The releases in which an input goes on in another step, so that nothing is left behind."""


def waits(part: Any, *, for_page: bool) -> bool:
    match part.get("state"):
        case "approval-requested":
            return not part["approval"].get("isAutomatic")
        case "input-available":
            return for_page and not part.get("providerExecuted")
        case _:
            return False


def answered(part: Any) -> Any:
    """Return the part after the user has answered and the page has run its tool."""
    if not waits(part, for_page=True):
        return part
    if part["state"] == "input-available":
        return part | {"state": "output-available", "output": 1}
    return part | {"state": "approval-responded", "approval": part["approval"] | {"approved": True}}


@pytest.mark.parametrize("release", [releases[-1] for releases in RELEASES.values()])
def test_an_answer_that_no_page_sends_is_warned_of(judge: Judge, release: str) -> None:
    counts: Counter[bool] = Counter()

    @settings(max_examples=60)
    @given(streams=batches_of(interleaved_tools))
    def compare(streams: list[list[Any]]) -> None:
        reports = [check_capture(capture, [release]) for capture in as_captures(streams)]
        asking: list[tuple[Report, list[Any]]] = []
        for report, stream in zip(reports, streams, strict=True):
            verdict = report.verdicts[release]
            for_page = {"type": "finish", "finishReason": "tool-calls"} in stream
            parts = verdict.message["parts"] if verdict.message else []
            rules = {problem.rule.id for problem in report.problems}
            is_asked = any(waits(part, for_page=for_page) for part in parts)
            if is_asked and report.ok and verdict.status == "ready" and {"type": "abort"} not in stream:
                asking.append((report, [USER, verdict.message | {"parts": list(map(answered, parts))}]))
            else:
                assert "UC425" not in rules
        for (report, history), result in zip(asking, judge.complete(release, [one[1] for one in asking]), strict=True):
            is_sent = bool(result["toolCalls"] or result["approvals"])
            rules = {problem.rule.id for problem in report.problems}
            assert ("UC425" in rules) is not is_sent, (history, rules)
            counts[is_sent] += 1

    compare()
    assert min(counts[True], counts[False]) >= 20, counts
