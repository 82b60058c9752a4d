"""The measurements: the latency of a frame with and without the gateway, and the highest rate of requests."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from bench.agent_ops.client import Client, Opener, bare, through_the_gateway
from bench.rounds import say
from bench.server.load import PER_SECOND
from bench.server.process import CLIENT_CORE, SERVER_CORE
from usechat.agent_ops import DirectoryChanges, SessionDirectory

_ROOT: Final = Path(__file__).parent.parent.parent
SLOW: Final = 200.0
"""Milliseconds: a rate is sustained if 99 of 100 requests get their first frame within this time."""
_FIRST_FRAME: Final = b"event: message-start"


class Plan(msgspec.Struct, frozen=True):
    """How much is measured: streams, seconds, rounds; rates are requests a second.

    ``patience`` is how many seconds first frames may come after the last request of a rate.
    """

    streams: int = 100
    seconds: float = 5
    rounds: int = 3
    first_rate: float = 25
    most: float = 1600
    rate_seconds: float = 4
    bisections: int = 4
    patience: int = 1


QUICK: Final = Plan(streams=4, seconds=1, rounds=1, first_rate=20, most=20, rate_seconds=0.3, bisections=0, patience=60)


class Way(msgspec.Struct, frozen=True):
    """The latency of frames, in milliseconds."""

    frames: int
    p50: float
    p99: float


class Rate(msgspec.Struct, frozen=True):
    """The latency of first frames at a rate of requests, in milliseconds."""

    per_second: float
    p50: float
    p99: float
    complete: bool

    @property
    def held(self) -> bool:
        return self.complete and self.p99 < SLOW


class Figures(msgspec.Struct, frozen=True):
    """The results: pairs of a round without and a round with the gateway, and every rate that was tried."""

    streams: int
    rounds: list[tuple[Way, Way]]
    rates: list[Rate]

    @property
    def highest(self) -> Rate | None:
        """The highest sustained rate."""
        return max((rate for rate in self.rates if rate.held), key=lambda rate: rate.per_second, default=None)


def measure(plan: Plan) -> Figures:
    """Measure latency with and without the gateway in alternation, then the rates."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, CLIENT_CORE)
    try:
        return _measure(plan)
    finally:
        os.sched_setaffinity(0, cores)


def _measure(plan: Plan) -> Figures:
    with TemporaryDirectory() as directory:
        url = f"sqlite:///{directory}/sessions.db"
        token = asyncio.run(_fill(url))
        with _serving("upstream") as upstream:
            address = f"ws://127.0.0.1:{upstream}/api/sessions/{{id}}/ws?role=client"
            with _serving("gateway", address, url) as gateway:
                deltas = int((plan.seconds + 2) * PER_SECOND)
                ways = (bare(upstream, deltas), through_the_gateway(gateway, token, deltas))
                rounds = []
                for number in range(plan.rounds):
                    first, second = (_way(opener, plan) for opener in ways)
                    rounds.append((first, second))
                    say(f"agent-ops: round {number + 1} of {plan.rounds}")
                return Figures(plan.streams, rounds, _rates(through_the_gateway(gateway, token, 1), plan))


async def _fill(url: str) -> str:
    directory = SessionDirectory(url)
    changes = DirectoryChanges(directory)
    await changes.migrate()
    for number in range(10):
        await changes.add(f"b{number}", "bench", "interactive")
        await changes.switch(f"b{number}", enabled=True)
    token = await changes.new_token("bench")
    await directory.close()
    return token


def _way(opener: Opener, plan: Plan) -> Way:
    with Client(opener) as client:
        client.open(plan.streams, per_second=200)
        while client.waiting:
            client.read(0.05)
        del client.delays[:]
        client.read(plan.seconds)
        return Way(len(client.delays), *(_percentile(client.delays, share) for share in (0.5, 0.99)))


def _rates(opener: Opener, plan: Plan) -> list[Rate]:
    rates = [_better_rate(opener, plan.first_rate, plan)]
    while rates[-1].held and rates[-1].per_second < plan.most:
        rates.append(_better_rate(opener, rates[-1].per_second * 2, plan))
    low = max((rate.per_second for rate in rates if rate.held), default=0.0)
    high = rates[-1].per_second
    for _ in range(plan.bisections if low < high else 0):
        rates.append(_better_rate(opener, (low + high) / 2, plan))
        low, high = (rates[-1].per_second, high) if rates[-1].held else (low, rates[-1].per_second)
    return rates


def _better_rate(opener: Opener, per_second: float, plan: Plan) -> Rate:
    """Try a rate, and try it again if it was not sustained, because other load on the machine may be the cause."""
    first = _rate(opener, per_second, plan)
    return first if first.held else min(first, _rate(opener, per_second, plan), key=lambda rate: rate.p99)


def _rate(opener: Opener, per_second: float, plan: Plan) -> Rate:
    with Client(opener, _FIRST_FRAME) as client:
        streams = max(1, int(per_second * plan.rate_seconds))
        client.open(streams, per_second=per_second)
        seconds = 0
        while len(client.first) < streams and seconds < plan.patience:
            client.read(1)
            seconds += 1
        p50, p99 = (_percentile(client.first, share) for share in (0.5, 0.99))
        rate = Rate(per_second, p50, p99, complete=len(client.first) == streams)
    say(f"agent-ops: {per_second:.0f} requests a second: p99 {rate.p99:.0f} ms")
    return rate


def _percentile(nanoseconds: Sequence[int], share: float) -> float:
    ordered = sorted(nanoseconds)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] / 1e6 if ordered else float("inf")


@contextmanager
def _serving(*arguments: str) -> Iterator[int]:
    """Run one of the two servers in its own process, and return its port. The gateway has a core for itself."""
    cores = SERVER_CORE if arguments[0] == "gateway" else CLIENT_CORE
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.agent_ops.serve", *arguments],
        cwd=_ROOT,
        env={name: value for name, value in os.environ.items() if name != "ENABLE_AI_SDK_ADAPTER"},
        stdout=subprocess.PIPE,
        encoding="utf-8",
        preexec_fn=lambda: os.sched_setaffinity(0, cores),  # noqa: PLW1509  # there are no threads here
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"the {arguments[0]} did not start; its own words are on stderr")
        yield int(line)
    finally:
        process.kill()
        process.communicate()
