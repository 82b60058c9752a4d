"""A run as Markdown: tables, the judgement of the goals, and where it was made."""

from collections.abc import Iterable

from bench.report import table
from bench.server.contestants import BARE, OURS, OURS_EXTERNAL, OURS_REDIS
from bench.server.measure import LATE, Paced
from bench.server.results import BUSY, ServerResults, goals
from bench.server.turns import BY_HAND


def report(results: ServerResults) -> str:
    """Return the whole report."""
    return "\n\n".join(
        [
            "# The server, side by side",
            made_with(results),
            f"## Streams that one core holds (30 deltas a second each, p99 less than {LATE:.0f} ms late)",
            "![Streams that one core holds](server.svg)",
            held_table(results),
            "## How a crowd of paced streams fares",
            crowd_table(results),
            "## How long the first delta takes when a thousand come in 1.25 s (p99)",
            ramp_table(results),
            "## Floods, in deltas a second",
            flood_table(results),
            "## With the log in Redis",
            redis_table(results),
            "## With the agents in another process",
            external_table(results),
            "## Readers that take nothing",
            stalled_sentence(results),
            "## Clients that go on at an exact chunk",
            exact_sentence(results),
            "## What a turn costs (two deltas, one connection)",
            turns_table(results),
            "## People who chat",
            people_sentence(results),
            "## What a start costs",
            starts_table(results),
            "## Goals",
            goal_list(results),
        ]
    )


def summary(results: ServerResults) -> str:
    """Return what the README shows of it."""
    return "\n\n".join([made_with(results), goal_list(results)])


def capacity(results: ServerResults) -> str:
    """Return what the page for operators shows of it."""
    run, crowd, redis = results.circumstances, results.contestants[OURS].thousand, results.redis
    rows = [
        ["streams that one core holds", f"{results.held(OURS):,.0f}"],
        ["the same with the log in Redis", f"{max(redis.held):,}"],
        ["memory of an open stream", f"{crowd.kilobytes:.1f} KB"],
        ["open streams per GB", f"{1024 * 1024 / max(0.1, crowd.kilobytes):,.0f}"],
        ["added by agents in another process, p50", f"{results.external.added_p50:.1f} ms"],
        ["added by agents in another process, p99", f"{results.external.added_p99:.1f} ms"],
        ["people on one core, who each ask every 10 s", f"{results.people.per_core:,.0f}"],
    ]
    when = f"Measured on {run.date} ({run.machine}, {run.python}), with 30 deltas a second in every stream:"
    return f"{when}\n\n{table(['', ''], rows)}"


def made_with(results: ServerResults) -> str:
    """Say when, where and with what the run was made."""
    run = results.circumstances
    versions = ", ".join(f"{name} {version}" for name, version in run.versions.items())
    others = f" Meanwhile other processes took {results.others:.0%} of the machine"
    busy = ": it was busy, so run it again." if results.others > BUSY else "."
    return f"{run.date}, {run.machine}, {run.python}; {versions}.{others}{busy}"


def held_table(results: ServerResults) -> str:
    """Return who holds how many streams, the most first."""
    rows = []
    for name in sorted(results.contestants, key=results.held, reverse=True):
        searches = ", ".join(f"{streams:,}" for streams in results.contestants[name].held)
        ratios = [f"{results.ratio(name, other):.2f}" for other in (BARE, OURS)]
        rows.append([name, f"{results.held(name):,.0f}", searches, *ratios])
    return table(["server", "streams", "searches", "x bare", "x usechat"], rows)


def crowd_table(results: ServerResults) -> str:
    """Return how the same number of streams fares at everyone's."""
    crowds = {name: figures.thousand for name, figures in results.contestants.items()}
    return _paced_table(sorted(crowds.items(), key=lambda item: item[1].processor))


def ramp_table(results: ServerResults) -> str:
    """Return who is quickest under a ramp."""
    ramps = {name: figures.ramp for name, figures in results.contestants.items()}
    return table(["server", "ms"], [[name, f"{ramp:.1f}"] for name, ramp in sorted(ramps.items(), key=_second)])


def _second(item: tuple[str, float]) -> float:
    return item[1]


def flood_table(results: ServerResults) -> str:
    """Return everyone's deltas a second by the number of streams, and in relation to the bare app's."""
    floor = results.contestants[BARE].flood
    header = ["server", *(f"{streams:,} streams" for streams in floor), *(f"x bare, {streams:,}" for streams in floor)]
    rates = {name: figures.flood for name, figures in results.contestants.items()}
    rates[OURS_REDIS] = results.redis.flood
    rows = [
        [
            name,
            *(f"{rate:,.0f}" for rate in flood.values()),
            *(f"{rate / max(1, floor[streams]):.2f}" for streams, rate in flood.items()),
        ]
        for name, flood in sorted(rates.items(), key=lambda item: max(item[1].values()), reverse=True)
    ]
    return table(header, rows)


def redis_table(results: ServerResults) -> str:
    """Return what the log in Redis costs paced streams."""
    redis = results.redis
    rows = [
        (OURS, redis.paced_in_memory),
        (OURS_REDIS, redis.paced),
        (OURS, redis.crowd_in_memory),
        (OURS_REDIS, redis.crowd),
    ]
    text = f"Streams held: {max(redis.held):,} with the log in Redis, {max(redis.held_in_memory):,} without."
    return f"{_paced_table(rows)}\n\n{text}"


def external_table(results: ServerResults) -> str:
    """Return how paced streams fare whose agents are in another process."""
    return _paced_table([(OURS, results.external.direct), (OURS_EXTERNAL, results.external.external)])


def stalled_sentence(results: ServerResults) -> str:
    """Say what readers that take nothing cost."""
    stalled = results.stalled
    return (
        f"An answer of {stalled.answer:.0f} MB takes {stalled.log:.1f} MB of memory; {stalled.readers} readers that"
        f" resume it and take nothing add {stalled.added:.1f} MB."
    )


def exact_sentence(results: ServerResults) -> str:
    """Say what it costs to keep the exact chunks of a run, and to send its second half again."""
    exact = results.exact
    return (
        f"A run of {exact.deltas:,} deltas has {exact.sent / 1000:,.0f} KB as it was sent, and"
        f" {exact.compact / 1000:,.0f} KB as it is kept; the lengths of its deltas add"
        f" {exact.lengths / 1000:,.0f} KB. To keep it takes {exact.kept:.1f} ms of CPU with the lengths and"
        f" {exact.merged:.1f} ms without; to send its second half to a client that goes on there,"
        f" {exact.resumed:.1f} ms."
    )


def turns_table(results: ServerResults) -> str:
    """Return what a turn costs everyone, and in relation to a route that is written by hand."""
    floor = results.turns[BY_HAND]
    rows = [[name, f"{cost:.2f}", f"{cost / floor:.2f}"] for name, cost in results.turns.items()]
    return table(["server", "CPU ms/turn", "x by hand"], rows)


def people_sentence(results: ServerResults) -> str:
    """Say what it costs in the whole: what an operator plans with."""
    people = results.people
    return (
        f"{people.people} people, who each ask every {people.period:.0f} s and get 40 deltas, take {people.ours:.1%} of"
        f" a core: chats in PostgreSQL, the log in Redis, metrics on. The route by hand takes {people.by_hand:.1%}."
    )


def starts_table(results: ServerResults) -> str:
    """Return what each start costs."""
    return table(["start", "CPU s"], [[name, f"{cost:.3f}"] for name, cost in results.starts.items()])


def goal_list(results: ServerResults) -> str:
    """Return the goals, each with what was measured and whether that is enough."""
    return "\n".join(f"- {'met' if goal.met else 'MISSED'}: {goal.text}: {goal.measured}" for goal in goals(results))


def _paced_table(crowds: Iterable[tuple[str, Paced]]) -> str:
    header = [
        "server",
        "streams",
        "held",
        "p50 ms",
        "p99 ms",
        "first p50",
        "first p99",
        "KB each",
        "CPU µs/delta",
        "client",
    ]
    rows = [
        [
            name,
            f"{crowd.streams:,}",
            "yes" if crowd.held else "no",
            f"{crowd.late_p50:.1f}",
            f"{crowd.late_p99:.1f}",
            f"{crowd.first_p50:.1f}",
            f"{crowd.first_p99:.1f}",
            f"{crowd.kilobytes:.1f}",
            f"{crowd.processor:.1f}",
            f"{crowd.client:.0%}",
        ]
        for name, crowd in crowds
    ]
    return table(header, rows)
