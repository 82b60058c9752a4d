"""The benchmark of flows measures what it says. Nothing is judged by the clock."""

import pytest

from bench.machine import Circumstances
from bench.open_harness import (
    LISTS,
    QUICK,
    Calls,
    Delay,
    FlowResults,
    Items,
    goals,
    measure_calls,
    measure_delays,
    measure_items,
    report,
)
from bench.rounds import Figure

pytestmark = pytest.mark.once


def results(p50: float, longest: float, peak: int) -> FlowResults:
    return FlowResults(
        Circumstances("2030-01-02", "a machine", "a Python", {"uvicorn": "1"}),
        0.0,
        [Delay("here", kind, 1, p50, 2 * p50) for kind in ("text", "thinking")],
        [Calls(50, Figure(1000, 900), 1000), Calls(800, Figure(longest, longest), peak)],
        [
            Items(way, count, Figure(each, each))
            for way in LISTS
            for count, each in ((100, 250_000.0), (10_000, 250 * longest))
        ],
    )


def test_every_delta_of_every_chat_arrives_both_ways() -> None:
    delays = measure_delays(QUICK)
    assert [(delay.way, delay.kind, delay.chats) for delay in delays] == [
        (way, kind, chats) for way in ("here", "remote") for kind in ("text", "thinking") for chats in (1, 2)
    ]
    assert all(0 < delay.p50 <= delay.p99 for delay in delays)


def test_flows_of_all_lengths_are_measured() -> None:
    calls = measure_calls(QUICK)
    assert [each.count for each in calls] == [5, 20]
    assert all(each.time.median > 0 and each.peak > 0 for each in calls)


def test_lists_of_all_lengths_are_measured() -> None:
    items = measure_items(QUICK)
    assert [(each.way, each.count) for each in items] == [(way, count) for way in LISTS for count in (2, 5)]
    assert all(each.time.median > 0 for each in items)


def test_the_goals_are_judged() -> None:
    assert [goal.met for goal in goals(results(20.0, 1100, 500_000))] == [True] * (4 + 2 * len(LISTS))
    assert [goal.met for goal in goals(results(101.0, 1300, 5_000_000))] == [False] * (4 + 2 * len(LISTS))


def test_the_report_names_ways_and_figures() -> None:
    text = report(results(20.0, 1100, 500_000))
    assert "| text, in the server's process" in text
    assert "2030-01-02, a machine, a Python; uvicorn 1." in text
    assert "busy" not in text
