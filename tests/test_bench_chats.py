"""The benchmark of stored chats measures databases of two sizes, and its report adds up. Nothing is timed."""

import pytest

from bench.chats import OPERATIONS, QUICK, WITHOUT, ChatsResults, measure, report
from bench.machine import Circumstances
from bench.rounds import Figure

pytestmark = pytest.mark.once

MADE = Circumstances("2030-01-02", "a machine", "a Python", {"sqlalchemy": "2"})


def test_every_operation_is_measured_in_both_databases_at_both_sizes() -> None:
    results = measure(QUICK)
    sizes = [count * QUICK.length for count in QUICK.chats]
    assert {
        name: {each: sorted(times_by_size) for each, times_by_size in figures.items()}
        for name, figures in results.operations.items()
    } == {name: dict.fromkeys(OPERATIONS, sizes) for name in ("SQLite", "PostgreSQL")}
    assert list(results.answers) == [WITHOUT, "in memory", "SQLite", "PostgreSQL"]
    assert list(results.calls) == ["in memory", "SQLite", "PostgreSQL"]
    assert all(figure.best > 0 for figure in [*results.answers.values(), *results.calls.values()])


def test_the_report_judges_how_an_operation_grows() -> None:
    figures = {
        "open": {1_000: Figure(1.2e6, 1e6), 100_000: Figure(1.44e6, 1e6)},
        "list": {1_000: Figure(2e6, 1e6), 100_000: Figure(2.6e6, 1e6)},
    }
    answers = {WITHOUT: Figure(3e6, 2e6), "SQLite": Figure(8.5e6, 8e6)}
    text = report(ChatsResults(MADE, 0.6, {"SQLite": figures}, answers, {"SQLite": Figure(1.8e6, 1.5e6)}))
    assert "- met: SQLite: open within 1.25x from 1,000 to 100,000 messages: 1.20x" in text
    assert "- MISSED: SQLite: list within 1.25x from 1,000 to 100,000 messages: 1.30x" in text
    assert "- met: SQLite: open takes at most 1.5 ms with 100,000 messages: 1.44 ms" in text
    assert "- MISSED: SQLite: list takes at most 1.5 ms with 100,000 messages: 2.60 ms" in text
    assert "An answer takes 3.0 ms without chats. Storing it adds 5.5 ms SQLite." in text
    assert "Other processes took 60% of the machine: run it again." in text
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    assert ["SQLite", "8.50", "8.00", "5.50"] in rows
    assert rows[-1] == ["SQLite", "1.80", "1.50"]
    assert "- met: SQLite: a tool call is stored within 2 ms: 1.80 ms" in text
