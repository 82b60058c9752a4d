"""The report of a run as Markdown: tables, goals and circumstances."""

import statistics
from typing import Final

import msgspec

from bench.agent_ops.measure import SLOW, Figures
from bench.machine import Circumstances
from bench.report import table
from bench.results import Goal

BUSY: Final = 0.5
"""The load average above which the figures are not reliable."""


class AgentOpsResults(msgspec.Struct, frozen=True):
    """One run; ``load`` is the load average of the machine before it."""

    circumstances: Circumstances
    load: float
    figures: Figures


def goals(figures: Figures) -> list[Goal]:
    """Return the goals, and whether the run met them."""
    p50 = statistics.median(gateway.p50 - bare.p50 for bare, gateway in figures.rounds)
    p99 = statistics.median(gateway.p99 - bare.p99 for bare, gateway in figures.rounds)
    highest = figures.highest
    rate = "none" if highest is None else f"{highest.per_second:.0f} requests/s, p99 {highest.p99:.0f} ms"
    at = f"added per frame at {figures.streams} streams"
    return [
        Goal(f"{at}, p50 under 0.3 ms", f"{p50:.2f} ms", p50 < 0.3),
        Goal(f"{at}, p99 under 5 ms", f"{p99:.2f} ms", p99 < 5),
        Goal(f"highest rate with the first frame's p99 under {SLOW:.0f} ms", rate, highest is not None),
    ]


def summary(results: AgentOpsResults) -> str:
    """Return the summary for the README."""
    judged = [f"- {'met' if goal.met else 'MISSED'}: {goal.text}: {goal.measured}" for goal in goals(results.figures)]
    return "\n\n".join([made_with(results), "\n".join(judged)])


def report(results: AgentOpsResults) -> str:
    """Return the whole report."""
    figures = results.figures
    ways = [
        [f"{name}, round {number}", f"{way.frames:,}", f"{way.p50:.2f}", f"{way.p99:.2f}"]
        for number, pair in enumerate(figures.rounds, start=1)
        for name, way in zip(("bare WebSocket", "gateway"), pair, strict=True)
    ]
    rates = [
        [f"{rate.per_second:.0f}", f"{rate.p50:.1f}", f"{rate.p99:.1f}", "yes" if rate.held else "no"]
        for rate in sorted(figures.rates, key=lambda rate: rate.per_second)
    ]
    return "\n\n".join(
        [
            "# The gateway in front of a session",
            summary(results),
            f"## From the session to the client ({figures.streams} streams, 30 deltas a second each)",
            table(["way", "frames", "p50 ms", "p99 ms"], ways),
            "## From the request to the first frame",
            table(["requests/s", "p50 ms", "p99 ms", "held"], rates),
        ]
    )


def made_with(results: AgentOpsResults) -> str:
    """Return the date, machine and versions of the run."""
    run = results.circumstances
    versions = ", ".join(f"{name} {version}" for name, version in run.versions.items())
    busy = f" The machine was busy (a load of {results.load:.1f} before the run): run it again."
    return f"{run.date}, {run.machine}, {run.python}; {versions}.{busy if results.load > BUSY else ''}"
