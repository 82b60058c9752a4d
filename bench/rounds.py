"""Measuring several things side by side, so that other work of the machine affects them all alike."""

import statistics
import sys
from collections.abc import Callable, Mapping
from time import process_time_ns
from typing import Final, TypeAlias

import msgspec

Measure: TypeAlias = Callable[[], float]
"""Does the work once and returns the nanoseconds it took per delta."""

TURN: Final = 4_000_000
"""Nanoseconds that each takes in each round, at least."""


class Figure(msgspec.Struct, frozen=True):
    """Nanoseconds per delta over all rounds."""

    median: float
    best: float


def measure_in_rounds(measures: Mapping[str, Measure], *, rounds: int, warm_up: int, title: str) -> dict[str, Figure]:
    """Run everyone once per round; the first rounds, in which interpreters and compilers warm up, do not count."""
    samples: dict[str, list[float]] = {name: [] for name in measures}
    names = list(measures)
    for number in range(1, warm_up + rounds + 1):
        names = [*names[1:], names[0]]  # or one would always come after the same other and find the caches it left
        for name in names:
            samples[name].append(measures[name]())
        if number % max(1, (warm_up + rounds) // 5) == 0:
            say(f"{title}: round {number} of {warm_up + rounds}")
    return {name: Figure(statistics.median(each[warm_up:]), min(each[warm_up:])) for name, each in samples.items()}


def timed(
    work: Callable[[], object], count: int, *, least: int = TURN, clock: Callable[[], int] = process_time_ns
) -> Measure:
    """Turn work on ``count`` deltas into a measurement of one; it is repeated until it has taken ``least`` nanoseconds.

    Processor time, not the clock's: on a busy machine a long turn is interrupted more often than a short one, which
    would make the slow look slower than they are. Turns of one length: each begins with cold caches, which would make
    the fast look slower. Work that waits for another process is measured by the ``clock`` of the wall.
    """

    def measure() -> float:
        begin = clock()
        passes = duration = 0
        while not passes or duration < least:
            work()
            passes += 1
            duration = clock() - begin
        return duration / (passes * count)

    return measure


def say(text: str) -> None:
    """Tell who waits how far we are; stdout is for the results."""
    print(text, file=sys.stderr, flush=True)
