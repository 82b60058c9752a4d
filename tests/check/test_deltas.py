"""Deltas that follow each other are taken as one, and the report is the same as one by one."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.check.streams import CALL, FINISH, START, STEP, stream, text, turn
from tests.stream_strategies import body_of, chunk_lists, mutated_chunk_lists
from usechat.check import Capture, Report, check_capture
from usechat.check.deltas import DeltaRun
from usechat.protocol.chunks import ReasoningDeltaChunk, TextDeltaChunk, TextEndChunk, ToolInputDeltaChunk

HELLO = '{"type":"text-delta","id":"1","delta":"Hello"}'
BEGIN, DELTA, END = text("1", "x")
INPUT_START = {"type": "tool-input-start", **CALL}
INPUT_DELTA = {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": "x"}


def begun(frame_text: str = HELLO, chunk: Any = None) -> DeltaRun:
    run = DeltaRun()
    run.begin(frame_text, TextDeltaChunk("1", "Hello") if chunk is None else chunk)
    return run


@pytest.mark.parametrize(
    ("first", "chunk", "then", "expected"),
    [
        (HELLO, TextDeltaChunk("1", "Hello"), HELLO.replace("Hello", "\\n é"), TextDeltaChunk("1", "\n é")),
        (
            '{"type": "reasoning-delta", "id": "", "delta": "a"}',
            ReasoningDeltaChunk("", "a"),
            '{"type": "reasoning-delta", "id": "", "delta": "b" }',
            ReasoningDeltaChunk("", "b"),
        ),
        (
            '{"type":"tool-input-delta","toolCallId":"c","inputTextDelta":"{"}',
            ToolInputDeltaChunk("c", "{"),
            '{"type":"tool-input-delta","toolCallId":"c","inputTextDelta":"}"}',
            ToolInputDeltaChunk("c", "}"),
        ),
    ],
)
def test_deltas_of_one_block_become_one(first: str, chunk: Any, then: str, expected: Any) -> None:
    run = begun(first, chunk)
    assert run.continues(then)
    assert run.end() == expected
    assert run.end() is None


@pytest.mark.parametrize(
    "other",
    [
        HELLO.replace('"1"', '"2"'),
        HELLO.replace("text-delta", "reasoning-delta"),
        HELLO.replace('"}', '","extra":1}'),
        HELLO.replace('"Hello"', "5"),
        HELLO.replace("Hello", "\\"),
        HELLO.replace("Hello", "\x01"),
        HELLO.replace("Hello", "\\ud83d"),
        HELLO + " ",
        HELLO + "}",
        HELLO[:-1],
        "[DONE]",
        "",
    ],
)
def test_everything_else_is_read_by_itself(other: str) -> None:
    run = begun()
    assert not run.continues(other)
    assert run.end() is None


def test_nothing_continues_what_is_no_delta_or_holds_no_text() -> None:
    assert not begun('{"type":"text-end","id":"1"}', TextEndChunk("1")).continues('{"type":"text-end","id":"1"}')
    assert not begun(HELLO.replace("Hello", ""), TextDeltaChunk("1", "")).continues(HELLO)
    other_order = '{"delta":"Hello","type":"text-delta","id":"1"}'
    assert not begun(other_order).continues(other_order)


def test_a_run_does_not_grow_without_end() -> None:
    run = begun()
    long = HELLO.replace("Hello", "x" * 600_000)
    assert [run.continues(long) for _ in range(3)] == [True, True, False]


def reversed_keys(chunks: list[Any]) -> list[Any]:
    """Return the same chunks, written so that no delta looks like one."""
    return [dict(reversed(chunk.items())) if isinstance(chunk, dict) else chunk for chunk in chunks]


def seen(report: Report) -> Any:
    problems = [(one.rule.id, one.what, one.frame, one.line, one.more, one.sdks) for one in report.problems]
    verdicts = {name: (verdict.ok, verdict.status, verdict.message) for name, verdict in report.verdicts.items()}
    return sorted(problems, key=str), verdicts, report.frame_count


def more_deltas(chunks: list[Any]) -> list[Any]:
    """Repeat every chunk that could be one of many."""
    return [again for chunk in chunks for again in [chunk] * (3 if "delta" in str(chunk) else 1)]


@given(chunks=st.one_of(chunk_lists, mutated_chunk_lists).map(more_deltas))
def test_a_report_is_the_same_delta_by_delta(chunks: list[Any]) -> None:
    together = check_capture(Capture(name="-", body=body_of(chunks)), ["any"])
    one_by_one = check_capture(Capture(name="-", body=body_of(reversed_keys(chunks))), ["any"])
    assert seen(together) == seen(one_by_one)


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        pytest.param([START, *[DELTA] * 4, FINISH], [("UC301", 2, 3)], id="never-opened"),
        pytest.param([START, BEGIN, *[DELTA] * 3, END, FINISH, BEGIN, DELTA, DELTA, END], [("UC408", 8, 3)], id="late"),
        pytest.param(
            [START, BEGIN, DELTA, *STEP, INPUT_START, DELTA | {"delta": ""}, DELTA, DELTA, END],
            [("UC407", None, 0), ("UC411", 5, 0), ("UC413", 7, 1)],
            id="above-the-tool",
        ),
        pytest.param(
            [START, INPUT_START, INPUT_DELTA, INPUT_DELTA, *STEP, INPUT_DELTA, INPUT_DELTA, FINISH],
            [("UC411", 2, 0), ("UC423", 6, 0)],
            id="input-in-another-step",
        ),
    ],
)
def test_each_frame_with_a_problem_counts(chunks: list[Any], expected: list[Any]) -> None:
    report = check_capture(Capture(name="-", body=stream(*chunks)), ["7"])
    assert [(one.rule.id, one.frame, one.more) for one in report.problems] == expected


def test_frames_of_a_run_are_counted() -> None:
    assert check_capture(Capture(name="-", body=turn(BEGIN, *[DELTA] * 50, END))).frame_count == 55
