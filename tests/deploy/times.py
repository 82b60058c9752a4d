"""Times that the tests measure: the end of their stage lists them, and `docs/deploy.md` shows those of one run."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeAlias

Times: TypeAlias = dict[str, dict[str, float]]
"""Seconds of each measure, for each proxy and server."""

FILE: Final = Path(__file__).with_name("times.json")
PROPERTY: Final = "times"
PROXY_TIMES: Final[Mapping[str, str]] = {
    "first word": "the first word of an answer arrives",
    "disconnect": "the agent of a client that has left is cancelled",
    "upload": "a file of 10 MB is answered",
}
SERVER_TIMES: Final[Mapping[str, str]] = {
    "disconnect": "the agent of a client that has left is cancelled",
    "pages": "at SIGTERM, all of 20 pages are disconnected",
    "exit": "at SIGTERM, the process has exited; `drain` is 1",
}


def merged(measured: Iterable[tuple[str, str, float]]) -> Times:
    """Return the longest time of each measure."""
    times: Times = defaultdict(dict)
    for name, measure, seconds in measured:
        times[name][measure] = round(max(seconds, times[name].get(measure, 0)), 2)
    return dict(times)


def recorded() -> Times:
    """Return the times of the run that was recorded."""
    times: Times = json.loads(FILE.read_text(encoding="utf-8"))
    return times


def record(times: Times) -> None:
    """Keep the times of this run, in place of those of the same measures."""
    kept = recorded() if FILE.exists() else {}
    for name, measures in times.items():
        kept[name] = kept.get(name, {}) | measures
    FILE.write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def table(names: Iterable[str], measures: Mapping[str, str], times: Times) -> Iterator[str]:
    """Yield the lines of a table: a row for each measure."""
    columns = list(names)
    yield f"| after | {' | '.join(columns)} |"
    yield f"|---|{'---|' * len(columns)}"
    for measure, text in measures.items():
        cells = (f"{times[name][measure]:.2f} s" if measure in times.get(name, {}) else "–" for name in columns)
        yield f"| {text} | {' | '.join(cells)} |"
