"""A run as Markdown: tables, the judgement of the goals, and where it was made."""

from collections.abc import Iterable, Sequence

from bench.contestants import FLOOR, PART_BUILT
from bench.results import QUIET, Results, goals, where_the_time_goes


def report(results: Results) -> str:
    """Return the whole report."""
    return "\n\n".join(
        [
            "# The core, side by side",
            made_with(results),
            "## One text delta, built, framed and encoded",
            "![Nanoseconds per text delta](core.svg)",
            encoding_table(results),
            where_the_time_goes(results),
            "## Decoding and building a message, and checking a stream for the newest 5, 6 and 7, per delta or call",
            growth_table(results),
            "## Goals",
            goal_list(results),
        ]
    )


def summary(results: Results) -> str:
    """Return what the README shows of it."""
    return "\n\n".join([made_with(results), goal_list(results), where_the_time_goes(results)])


def made_with(results: Results) -> str:
    """Say when, where and with what the run was made."""
    run = results.circumstances
    versions = ", ".join(f"{name} {version}" for name, version in run.versions.items())
    busy = results.unrest > QUIET
    noise = (
        f" The machine was busy (the floor's median is {results.unrest:.2f}x its best): run it again." if busy else ""
    )
    return f"{run.date}, {run.machine}, {run.python}; {versions}.{noise}"


def encoding_table(results: Results) -> str:
    """Return every way from text to bytes, the fastest first."""
    ranked = sorted(results.encoding.items(), key=lambda item: item[1].median)
    header = ["way", "median ns", "best ns", "x floor", "x usechat (part built)"]
    rows = (
        [
            name,
            f"{figure.median:,.0f}",
            f"{figure.best:,.0f}",
            f"{results.ratio(name, FLOOR):.2f}",
            f"{results.ratio(name, PART_BUILT):.2f}",
        ]
        for name, figure in ranked
    )
    return table(header, rows)


def growth_table(results: Results) -> str:
    """Return the time per delta for each length, and how it grew."""
    header = ["message", "deltas", "median µs per delta", "best µs", "x shortest"]
    rows = []
    for kind, figures in results.growth.items():
        shortest = figures[min(figures)].median
        for count, figure in sorted(figures.items()):
            ratio = f"{figure.median / shortest:.2f}"
            rows.append([kind, f"{count:,}", f"{figure.median / 1000:.2f}", f"{figure.best / 1000:.2f}", ratio])
    return table(header, rows)


def goal_list(results: Results) -> str:
    """Return the goals, each with what was measured and whether that is enough."""
    return "\n".join(f"- {'met' if goal.met else 'MISSED'}: {goal.text}: {goal.measured}" for goal in goals(results))


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Lay out a Markdown table that also reads well in a terminal; the first column is text, the others figures."""
    cells = [header, *rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    lines = []
    for first, *figures in [cells[0], rule, *cells[1:]]:
        aligned = (figure.rjust(width) for figure, width in zip(figures, widths[1:], strict=True))
        lines.append(f"| {' | '.join([first.ljust(widths[0]), *aligned])} |")
    return "\n".join(lines)
