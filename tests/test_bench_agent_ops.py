"""The benchmark of the gateway measures what it says. Nothing is timed."""

import re
from pathlib import Path

import pytest

from bench.agent_ops.measure import QUICK, Figures, Rate, Way, measure
from bench.agent_ops.report import AgentOpsResults, goals, report
from bench.machine import Circumstances

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[1]


def figures(bare: Way, gateway: Way, *rates: Rate) -> Figures:
    return Figures(100, [(bare, gateway)], list(rates))


def test_both_ways_carry_deltas_and_a_rate_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENABLE_AI_SDK_ADAPTER", "false")
    measurement = measure(QUICK)
    [(bare, gateway)] = measurement.rounds
    assert min(bare.frames, gateway.frames) > 0
    assert [(rate.per_second, rate.complete) for rate in measurement.rates] == [(20, True)]


def test_the_difference_of_the_ways_is_judged() -> None:
    rates = [Rate(50, 5, 20, complete=True), Rate(100, 9, 180, complete=True), Rate(200, 9, 20, complete=False)]
    judged = goals(figures(Way(1000, 0.1, 1.0), Way(1000, 0.35, 5.5), *rates))
    assert [(goal.measured, goal.met) for goal in judged] == [
        ("0.25 ms", True),
        ("4.50 ms", True),
        ("100 requests/s, p99 180 ms", True),
    ]
    judged = goals(figures(Way(1000, 0.1, 1.0), Way(1000, 0.5, 7.0), Rate(50, 5, 201, complete=True)))
    assert [(goal.measured, goal.met) for goal in judged] == [("0.40 ms", False), ("6.00 ms", False), ("none", False)]


def test_the_report_shows_every_round_and_every_rate() -> None:
    measurement = figures(Way(3000, 0.1, 1.0), Way(3000, 0.35, 5.5), Rate(50, 5, 20, complete=True))
    page = report(AgentOpsResults(Circumstances("2030-01-02", "a machine", "a Python", {}), 3.0, measurement))
    assert "The machine was busy (a load of 3.0 before the run): run it again." in page
    assert "| bare WebSocket, round 1 |  3,000 |   0.10 |   1.00 |" in page
    assert "| gateway, round 1        |  3,000 |   0.35 |   5.50 |" in page
    assert "| 50         |    5.0 |   20.0 |  yes |" in page


def test_the_specification_has_the_figures_of_the_last_measurement() -> None:
    """After a new measurement, write its date and figures into the rows of the page."""
    text = (ROOT / "bench" / "results" / "agent-ops.md").read_text(encoding="utf-8")
    [date] = re.findall(r"^(\d{4}-\d\d-\d\d), ", text, re.MULTILINE)
    [added] = re.findall(r"added per frame at 100 streams, p99 under 5 ms: (.+)$", text, re.MULTILINE)
    [rate] = re.findall(r"first frame's p99 under 200 ms: (.+)$", text, re.MULTILINE)
    page = (ROOT / "docs" / "specification.md").read_text(encoding="utf-8")
    assert f"measured on {date} beside the bare session server: {added};" in page
    assert f"measured on {date}: {rate})" in page
