"""The benchmark of workflows measures both ways, and its report adds up. Nothing is timed."""

from bench.machine import Circumstances
from bench.temporal import QUICK, WITH, WITHOUT, Delays, TemporalResults, measure, report


def test_both_ways_are_measured() -> None:
    delays = measure(QUICK).delays
    assert list(delays) == [WITHOUT, WITH]
    assert all(0 < each.p50 <= each.p99 and 0 < each.first <= each.turn for each in delays.values())


def test_the_report_says_what_temporal_adds() -> None:
    delays = {WITHOUT: Delays(1.0, 2.0, 5.0, 6.0), WITH: Delays(101.0, 302.0, 305.0, 1106.0)}
    made = Circumstances("2030-01-02", "a machine", "a Python", {"temporalio": "1"})
    text = report(TemporalResults(made, 0.9, delays))
    assert "- met: a delta is at the page within 500 ms more, median: 100 ms" in text
    assert "- MISSED: a turn of one word takes at most 1000 ms more, median: 1100 ms" in text
    assert "The machine was busy (load 0.9): run it again." in text
    last = [cell.strip() for cell in text.splitlines()[-1].strip("|").split("|")]
    assert last == ["added", "100.0", "300.0", "300.0", "1100.0"]
