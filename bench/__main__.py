"""`python -m bench`: measure, print the report, and write it to `bench/results/`. It judges and never fails."""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from bench.chart import bar_chart
from bench.encoding import measure_encoding
from bench.growth import measure_growth
from bench.machine import circumstances, stay_on_one_core
from bench.report import report, summary
from bench.results import Results
from bench.rounds import say

_HERE: Final = Path(__file__).parent
_README_BLOCK: Final = re.compile(r"(?<=<!-- latest run -->\n).*(?=\n<!-- end -->)", re.DOTALL)


def run(*, quick: bool) -> Results:
    """Measure everything; ``quick`` only shows that it works, its figures mean nothing."""
    if quick:
        return Results(
            circumstances(), measure_encoding(rounds=2, least=0), measure_growth(rounds=2, scale=100, least=0)
        )
    return Results(circumstances(), measure_encoding(rounds=150), measure_growth(rounds=15))


def write(results: Results) -> None:
    """Write the report, its figures and its chart, and the summary in the README."""
    directory = _HERE / "results"
    directory.mkdir(exist_ok=True)
    figures = msgspec.json.format(msgspec.json.encode(results), indent=2)
    medians = {name: figure.median for name, figure in results.encoding.items()}
    (directory / "core.json").write_bytes(figures + b"\n")
    (directory / "core.md").write_text(report(results) + "\n", encoding="utf-8")
    (directory / "core.svg").write_text(
        bar_chart("Nanoseconds per text delta, text to bytes", medians, ours="usechat"), encoding="utf-8"
    )
    readme = _HERE / "README.md"
    readme.write_text(
        _README_BLOCK.sub(lambda _: summary(results), readme.read_text(encoding="utf-8")), encoding="utf-8"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Measure the core side by side with its peers."
    )
    parser.add_argument("--quick", action="store_true", help="show that it runs; write nothing, mean nothing")
    options = parser.parse_args(arguments)
    stay_on_one_core()
    results = run(quick=options.quick)
    print(report(results))
    if not options.quick:
        write(results)
        say("written to bench/results/")


if __name__ == "__main__":
    main()
