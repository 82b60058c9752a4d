"""`python -m bench.server.profile`: where the time of a delta and the memory of a stream go, for ours and the bare app.

The streams of `bench.server.pulsed` take turns. Of one delta it shows the CPU time, the instructions, the cache lines
that a second-level cache of 1 MiB does not hold, and by leaving out one part after the other what each part takes.
Instructions and cache lines are counted by valgrind, so they hardly depend on what else the machine does. Of one stream
it shows what Python allocates, by module.
"""

import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.report import table
from bench.server.client import Client
from bench.server.contestants import BARE, OURS
from bench.server.pulsed import FORGET, LOG, PUSH, ROUNDS, SEND, TICKS, TRACED, WRITE

_ROOT: Final = Path(__file__).parent.parent.parent
_WINDOWS: Final = 15
"""Measurements of the time, in alternation; the best counts, because other load only adds to it."""
_PER_SECOND: Final = 400
_CALLGRIND: Final = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--cache-sim=yes", "--LL=1048576,16,64"]
_FEW: Final = 100
"""Streams of the profile by parts: its instructions are the same with more."""
_BARE_PARTS: Final = {"uvicorn's `send`": SEND}
_OUR_PARTS: Final = {
    "keeping the log short": FORGET,
    "writing to the connection": PUSH,
    "the log: append, flush": LOG,
    "from text to frame": WRITE,
}
"""What is left out, one part after the other."""
_SMALL: Final = 0.15
"""Kilobytes: modules that allocate less for a stream are counted together."""


class Pulsed:
    """A contestant in its own process, with its streams open."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.pid = process.pid
        self._process = process

    def answer(self) -> Any:
        """Return what the process says next."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the server ended; its own words are on stderr")
        return msgspec.json.decode(line)

    def ask(self, command: str) -> Any:
        """Let the process do something, and return what it says."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        return self.answer()


@contextmanager
def pulsed(name: str, streams: int, *options: str, under: Sequence[str] = ()) -> Iterator[Pulsed]:
    """Serve a contestant, and open its streams, until the block ends."""
    command = [*under, sys.executable, "-m", "bench.server.pulsed", name, str(streams), *options]
    process = subprocess.Popen(
        command,
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if under else None,
        encoding="utf-8",
    )
    try:
        server = Pulsed(process)
        with Client(server.answer()) as client:
            client.open(streams, per_second=_PER_SECOND)
            server.answer()
            yield server
    finally:
        process.kill()
        process.communicate()


def times(streams: int, windows: int = _WINDOWS) -> Mapping[str, float]:
    """Return the microseconds of CPU time per delta, the best of some measurements."""
    with pulsed(BARE, streams, TICKS) as bare, pulsed(OURS, streams, TICKS) as ours:
        pairs = [(bare.ask("time"), ours.ask("time")) for _ in range(windows)]
    return {BARE: min(first for first, _ in pairs), OURS: min(second for _, second in pairs)}


def counts(name: str, streams: int, *left_out: str) -> Mapping[str, float]:
    """Return instructions and cache misses per delta, as valgrind simulates them; nothing of the kernel is in them.

    The ticks of time limits are left out: valgrind makes the machine fifty times slower, but not its clock.
    """
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory, "callgrind")
        with pulsed(name, streams, TICKS, *left_out, under=[*_CALLGRIND, f"--callgrind-out-file={out}"]) as server:
            _control("--instr=on", server)
            server.ask("time")
            _control("--instr=off", server)
            _control("--dump", server)
        text = next(file for file in sorted(Path(directory).iterdir()) if file.stat().st_size).read_text("utf-8")
    names = re.search(r"^events: (.*)$", text, re.MULTILINE)
    totals = re.search(r"^totals: (.*)$", text, re.MULTILINE)
    assert names is not None
    assert totals is not None
    deltas = streams * ROUNDS
    per_delta = {name: int(number) / deltas for name, number in zip(names[1].split(), totals[1].split(), strict=False)}
    return {
        "instructions": per_delta["Ir"],
        "cache lines read": per_delta["DLmr"],
        "cache lines written": per_delta["DLmw"],
    }


def parts(name: str, left_out: Mapping[str, str]) -> Mapping[str, float]:
    """Return the instructions of a delta by part: what is saved when it is left out, besides those before it."""
    savings, before = {}, counts(name, _FEW)["instructions"]
    without: list[str] = []
    for part, option in left_out.items():
        without.append(option)
        after = counts(name, _FEW, *without)["instructions"]
        savings[part], before = before - after, after
    return {"event loop, task, agent": before, **savings}


def _control(option: str, server: Pulsed) -> None:
    subprocess.run(["callgrind_control", option, str(server.pid)], check=True, capture_output=True)


def allocations(name: str, streams: int) -> Mapping[str, float]:
    """Return the kilobytes that Python allocates for a stream, by module."""
    with pulsed(name, streams, TRACED) as server:
        sizes: Mapping[str, float] = server.ask("allocations")
    by_module: dict[str, float] = defaultdict(float)
    for path, size in sizes.items():
        kilobytes = size / 1024
        module = path.removesuffix(".py").replace("/", ".").removeprefix("src.") if kilobytes >= _SMALL else "others"
        by_module[module] += kilobytes
    return by_module


def report(streams: int) -> str:
    """Return the tables."""
    microseconds = times(streams)
    counted = [counts(name, streams) for name in (BARE, OURS)]
    by_part = parts(BARE, _BARE_PARTS), parts(OURS, _OUR_PARTS)
    allocated = allocations(BARE, streams), allocations(OURS, streams)
    return "\n\n".join(
        [
            f"One delta of {streams:,} streams",
            _table([({"CPU time, µs": microseconds[BARE]}, {"CPU time, µs": microseconds[OURS]})], ".1f"),
            _table([(counted[0], counted[1])], ",.0f"),
            "Its instructions, by part",
            _table([by_part], ",.0f"),
            "One stream, in KB that Python allocates",
            _table([({"all": sum(allocated[0].values())}, {"all": sum(allocated[1].values())}), allocated], ".1f"),
        ]
    )


def _table(groups: Sequence[tuple[Mapping[str, float], Mapping[str, float]]], form: str) -> str:
    """Lay out groups of figures, in each the largest of ours first."""
    rows = [
        [what, *(f"{figures[what]:{form}}" if what in figures else "" for figures in (bare, ours))]
        for bare, ours in groups
        for what in sorted({*bare, *ours}, key=lambda what: -max(bare.get(what, 0), ours.get(what, 0)))
    ]
    return table(["", "bare app", "usechat"], rows)


if __name__ == "__main__":
    print(report(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
