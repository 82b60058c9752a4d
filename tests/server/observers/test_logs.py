"""Structured logs: what a line holds, and what never gets into one."""

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.external_agents import needs_agents_here
from tests.server.metrics_page import ask
from usechat.runs.run import RunInfo, RunState
from usechat.server import ChatApp
from usechat.server.observers.logs import JsonFormatter, LoggingObserver
from usechat.turn import Turn


class Lines(logging.Handler):
    """Keeps lines as a log file would hold them."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonFormatter())
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@contextmanager
def logged(name: str | None = None, level: int = logging.INFO) -> Iterator[list[str]]:
    logger, handler = logging.getLogger(name), Lines()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        yield handler.lines
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)


def line_of(text: str, *values: object, extra: dict[str, Any] | None = None, error: bool = False) -> Any:
    """Return the line of a record made at the beginning of 2026."""
    record = logging.LogRecord(
        "usechat.server", logging.ERROR, "x.py", 1, text, values, sys.exc_info() if error else None
    )
    record.created = 1767225600.25
    vars(record).update(extra or {})
    line = JsonFormatter().format(record)
    assert "\n" not in line
    return json.loads(line)


def test_a_line_holds_time_level_logger_and_text() -> None:
    assert line_of("two\nlines of %s \udc80", "text") == {
        "time": "2026-01-01T00:00:00.250+00:00",
        "level": "error",
        "logger": "usechat.server",
        "text": "two\nlines of text \udc80",
    }


def test_a_line_holds_the_ids_and_nothing_else_of_extra() -> None:
    line = line_of("x", extra={"chat_id": "c1", "run_id": "r1", "reference": "ab12", "messages": ["secret"]})
    assert {key: line[key] for key in line if key not in ("time", "level", "logger", "text")} == {
        "chat_id": "c1",
        "run_id": "r1",
        "reference": "ab12",
    }


def test_a_line_holds_the_whole_trace() -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        line = line_of("failed", error=True)
    assert line["exception"].startswith("Traceback")
    assert line["exception"].endswith("ValueError: broken")


@needs_agents_here("a worker reports the end of a run to its observer after the store, so the page may see it first")
async def test_a_turn_is_logged_with_its_ids_and_reference_but_never_with_what_was_said() -> None:
    async def agent(turn: Turn) -> Any:
        yield turn.text.upper()
        raise ValueError("broken")

    with logged(level=logging.DEBUG) as lines:
        body = (await ask(ChatApp(agent), "POST", "/api/chat", text="rose")).text
    assert "ROSE" in body
    assert [line for line in lines if "rose" in line.lower()] == []
    failure, ending = [line for text in lines if (line := json.loads(text))["logger"] == "usechat.server"]
    assert (failure["level"], failure["chat_id"]) == ("error", "c1")
    assert f"Reference: {failure['reference']}" in body
    assert (ending["level"], ending["chat_id"], ending["state"]) == ("info", "c1", "failed")
    assert ending["run_id"] == failure["run_id"]
    assert ending["seconds"] >= 0


def test_the_log_says_how_a_run_ended() -> None:
    with logged("usechat.server") as lines:
        LoggingObserver().run_ended(RunInfo("r1", "c1", "m1", "7", state=RunState.STOPPED), 1.23456)
    [line] = map(json.loads, lines)
    assert line["text"] == "run r1 of chat c1 stopped after 1.235 s"
    assert (line["chat_id"], line["run_id"], line["state"], line["seconds"]) == ("c1", "r1", "stopped", 1.235)


@pytest.mark.parametrize(("kinds", "named"), [(["a", "b", "a"], ["a", "b"]), (["x" * 200], ["x" * 100])])
def test_the_log_names_unknown_kinds_once(kinds: list[str], named: list[str]) -> None:
    observer = LoggingObserver()
    with logged("usechat.server") as lines:
        for kind in kinds:
            observer.event_unknown(kind)
    assert [json.loads(line)["kind"] for line in lines] == named


def test_the_log_is_not_filled_by_kinds_without_end() -> None:
    observer = LoggingObserver()
    with logged("usechat.server") as lines:
        for number in range(1000):
            observer.event_unknown(f"kind {number}")
    assert len(lines) == 100


def test_the_log_tells_of_a_source_that_cannot_be_reached() -> None:
    with logged("usechat.server") as lines:
        LoggingObserver().source_unreachable()
    assert [json.loads(line)["text"] for line in lines] == ["an upstream connection could not be opened"]
