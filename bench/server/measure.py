"""The measurements: streams held, how a thousand fare, floods, the log in Redis, and agents in another process."""

import gc
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import sleep
from typing import Final

import msgspec

from bench.rounds import say
from bench.server.client import Client
from bench.server.contestants import BARE, OURS, OURS_EXTERNAL, OURS_REDIS, REDIS_VARIABLE, contestants
from bench.server.load import PER_SECOND
from bench.server.process import CLIENT_CORE, Server, agents, redis, serving

LATE: Final = 50.0
"""Milliseconds: a stream is held as long as 99 of 100 deltas are less late than this."""
_COMPLETE: Final = 0.97
"""The share of deltas that must arrive: a server that sends nothing is not in time."""


class Plan(msgspec.Struct, frozen=True):
    """How much is measured. Seconds and counts; ``arriving`` is how many streams of the crowd are opened a second,
    ``ramp`` how many when all come at once, ``opened`` how many in a search.
    """

    thousand: int = 1000
    arriving: float = 250
    ramp: float = 800
    opened: float = 500
    patience: float = 5
    settle: float = 0.6
    window: float = 3.0
    step: float = 1.2
    first_step: int = 250
    most: int = 8000
    bisections: int = 3
    chances: int = 2
    floods: tuple[int, ...] = (1, 100, 1000)
    flood: float = 0.9
    redis_streams: int = 300
    rounds: int = 3
    """How often the two that the goals compare are measured, in turns; the others are measured once."""
    redis_rounds: int = 2
    """How often ours is measured with the log in Redis and without, in turns."""


QUICK: Final = Plan(
    thousand=5,
    arriving=100,
    opened=100,
    settle=0,
    window=0.1,
    step=0.1,
    first_step=2,
    most=4,
    bisections=1,
    chances=1,
    floods=(2,),
    flood=0.1,
    redis_streams=2,
    rounds=1,
    redis_rounds=1,
)


class Paced(msgspec.Struct, frozen=True):
    """How paced streams fared: milliseconds, kilobytes per open stream, microseconds of processor time per delta."""

    streams: int
    late_p50: float
    late_p99: float
    first_p50: float
    first_p99: float
    kilobytes: float
    processor: float
    complete: bool
    """Whether all deltas arrived that were due."""
    client: float = 0.0
    """The share of its core that the client took."""

    @property
    def held(self) -> bool:
        return self.complete and self.late_p99 < LATE


class Figures(msgspec.Struct, frozen=True):
    """What one contestant did. ``held``: streams, of each search; ``flood``: deltas a second, by streams; ``ramp``:
    milliseconds to the first delta, p99, when the crowd comes at once.

    Of several measurements the best counts, because other work of the machine only makes them worse.
    """

    held: list[int]
    thousand: Paced
    flood: dict[int, float]
    ramp: float

    def and_again(self, other: "Figures") -> "Figures":
        """Return the best of two measurements of one contestant."""
        return Figures(
            [*self.held, *other.held],
            min(self.thousand, other.thousand, key=lambda crowd: crowd.late_p99 + crowd.first_p99),
            {streams: max(rate, other.flood[streams]) for streams, rate in self.flood.items()},
            min(self.ramp, other.ramp),
        )


class Redis(msgspec.Struct, frozen=True):
    """Ours with the log in Redis, and without it at the same number of streams, measured in turns."""

    paced: Paced
    paced_in_memory: Paced
    flood: dict[int, float]
    crowd: Paced
    crowd_in_memory: Paced
    held: list[int]
    held_in_memory: list[int]


class External(msgspec.Struct, frozen=True):
    """Paced streams of a web process whose agents are in another process, and of one process that does both."""

    external: Paced
    direct: Paced

    @property
    def added_p50(self) -> float:
        return self.external.late_p50 - self.direct.late_p50

    @property
    def added_p99(self) -> float:
        return self.external.late_p99 - self.direct.late_p99


def measure_all(plan: Plan) -> tuple[dict[str, Figures], Redis, External]:
    """Measure everyone, one after the other; the two that the goals compare in turns, from the begin to the end."""
    figures: dict[str, Figures] = {}
    with _quiet_client():
        for name in _in_turns(contestants(), plan.rounds):
            say(f"load {os.getloadavg()[0]:.1f}")
            again = measure(name, plan, max(figures[name].held) if name in figures else None)
            figures[name] = figures[name].and_again(again) if name in figures else again
        ranked = {name: figures[name] for name in contestants()}
        return ranked, measure_redis(plan, max(figures[OURS].held)), measure_external(plan)


def _in_turns(names: Sequence[str], rounds: int) -> Iterator[str]:
    """Yield the two that are compared in every round, and the others once, spread in between."""
    others = [name for name in names if name not in (OURS, BARE)]
    for number in range(rounds):
        yield from (BARE, OURS) if number % 2 == 0 else (OURS, BARE)
        yield from others[number * len(others) // rounds : (number + 1) * len(others) // rounds]


def measure(name: str, plan: Plan, guess: int | None = None) -> Figures:
    """Measure one contestant.

    Every measurement begins with a fresh process: some go on with the answers of those who have left.
    """
    with _fresh(name) as server:
        thousand = paced(server, plan.thousand, plan)
    say(f"{name}: {thousand.streams:,} streams, p99 {thousand.late_p99:.1f} ms, CPU {thousand.processor:.1f} µs")
    with _fresh(name) as server:
        ramp = first_under_ramp(server, plan)
    say(f"{name}: first delta under a ramp, p99 {ramp:.1f} ms")
    streams = held(name, plan, guess)
    say(f"{name}: holds {streams:,} streams")
    return Figures([streams], thousand, _floods(name, plan), ramp)


def measure_redis(plan: Plan, guess: int | None = None) -> Redis:
    """Measure ours with its log in Redis, and in turns without; ``guess`` is how many streams are held without."""
    with redis() as url:
        variables = {REDIS_VARIABLE: url}

        def both(streams: int) -> tuple[Paced, Paced]:
            rounds: dict[str, list[Paced]] = {OURS_REDIS: [], OURS: []}
            for name in [OURS_REDIS, OURS] * plan.redis_rounds:
                with _fresh(name, variables) as server:
                    rounds[name].append(paced(server, streams, plan))
            return _cheapest(OURS_REDIS, rounds[OURS_REDIS]), _cheapest(OURS, rounds[OURS])

        few, few_in_memory = both(plan.redis_streams)
        crowd, crowd_in_memory = both(plan.thousand)
        streams: dict[str, list[int]] = {OURS_REDIS: [], OURS: []}
        for name in [OURS_REDIS, OURS] * plan.redis_rounds:
            streams[name].append(held(name, plan, guess, variables))
        say(f"held with the log in Redis {streams[OURS_REDIS]}, without {streams[OURS]}")
        floods = _floods(OURS_REDIS, plan, variables)
    return Redis(few, few_in_memory, floods, crowd, crowd_in_memory, streams[OURS_REDIS], streams[OURS])


def measure_external(plan: Plan) -> External:
    """Measure ours with the agents in another process, and in turns with them in the server's own."""
    external, direct = [], []
    with redis() as url:
        variables = {REDIS_VARIABLE: url}
        for _ in range(plan.redis_rounds):
            with agents(variables), _fresh(OURS_EXTERNAL, variables) as server:
                external.append(paced(server, plan.redis_streams, plan))
            with _fresh(OURS) as server:
                direct.append(paced(server, plan.redis_streams, plan))
    best = External(*(min(rounds, key=lambda crowd: crowd.late_p99) for rounds in (external, direct)))
    say(f"{OURS_EXTERNAL}: p50 {best.external.late_p50:.1f} ms, p99 {best.external.late_p99:.1f} ms")
    return best


def _cheapest(name: str, rounds: Sequence[Paced]) -> Paced:
    """Return the round that took the least processor time: other work of the machine only adds to it."""
    best = min(rounds, key=lambda crowd: crowd.processor)
    say(f"{name}: {best.streams:,} streams, p99 {best.late_p99:.1f} ms, CPU {best.processor:.1f} µs")
    return best


@contextmanager
def _fresh(name: str, variables: Mapping[str, str] | None = None) -> Iterator[Server]:
    """Start a server; let it import what it needs, and come to rest."""
    with serving(name, variables) as server:
        with Client(server.port) as client:
            client.open(20, per_second=200)
            client.read(0.3)
        sleep(0.2)
        yield server


def paced(server: Server, streams: int, plan: Plan) -> Paced:
    """Open streams and see how they fare."""
    memory = server.memory()
    with Client(server.port) as client:
        client.open(streams, per_second=plan.arriving)
        client.read(plan.settle)
        first = client.first
        kilobytes = (server.memory() - memory) / 1024 / streams
        return _look(server, client, plan.window, first, kilobytes)


def first_under_ramp(server: Server, plan: Plan) -> float:
    """Return the milliseconds to the first delta, p99, when a thousand streams are opened in 1.25 seconds."""
    with Client(server.port) as client:
        client.open(plan.thousand, per_second=plan.ramp)
        client.read_until_all_began(plan.patience)
        return _share(sorted(client.first) or [0], 0.99) / 1e6


def held(name: str, plan: Plan, guess: int | None = None, variables: Mapping[str, str] | None = None) -> int:
    """Search how many streams a server holds: more and more until it does not, then halving the doubt."""
    low = high = 0
    step = plan.first_step if guess is None else max(1, guess * 3 // 4)
    with _fresh(name, variables) as server, Client(server.port) as client:
        while not high:
            client.open(step - client.open_streams, per_second=plan.opened)
            if _holds(server, client, plan):
                low, step = step, min(step * 2, plan.most) if guess is None else step * 5 // 4 + 1
                if low >= plan.most:
                    return low
            else:
                high = step
    for _ in range(plan.bisections):
        if high - low <= 1:
            break
        middle = (low + high) // 2
        with _fresh(name, variables) as server, Client(server.port) as client:
            client.open(middle, per_second=plan.opened)
            low, high = (middle, high) if _holds(server, client, plan) else (low, middle)
    return low


def _floods(name: str, plan: Plan, variables: Mapping[str, str] | None = None) -> dict[int, float]:
    floods = {}
    for streams in plan.floods:
        with _fresh(name, variables) as server:
            floods[streams] = flood(server, streams, plan)
    say(f"{name}: flood {', '.join(f'{rate:,.0f}/s of {streams:,}' for streams, rate in floods.items())}")
    return floods


def flood(server: Server, streams: int, plan: Plan) -> float:
    """Return how many deltas a second arrive when nothing holds the server back."""
    with Client(server.port, "flood") as client:
        client.open(streams, per_second=1000)
        client.read(plan.flood / 3)
        client.forget()
        client.read(plan.flood)
        return client.deltas / plan.flood


def _holds(server: Server, client: Client, plan: Plan) -> bool:
    """Tell whether all streams are held; whoever fails may try again, because others may have been in the way.

    Whether a server keeps up is seen once all streams have begun: a busy loop takes one new connection per turn.
    """
    client.read_until_all_began(plan.patience)
    for _ in range(plan.chances):
        client.read(plan.settle)
        if _look(server, client, plan.step, [0], 0).held:
            return True
    return False


def _look(server: Server, client: Client, seconds: float, first: Sequence[int], kilobytes: float) -> Paced:
    client.forget()
    begin = server.processor_seconds()
    client.read(seconds)
    processor_seconds = server.processor_seconds() - begin
    client_share = client.processor_share
    due = client.open_streams * PER_SECOND * seconds
    late = sorted(client.late) or [0]
    first = sorted(first) or [0]
    return Paced(
        streams=client.open_streams,
        late_p50=_share(late, 0.5) / 1e6,
        late_p99=_share(late, 0.99) / 1e6,
        first_p50=_share(first, 0.5) / 1e6,
        first_p99=_share(first, 0.99) / 1e6,
        kilobytes=kilobytes,
        processor=processor_seconds * 1e6 / max(1, client.deltas),
        complete=not client.broken and client.deltas >= due * _COMPLETE - client.open_streams,
        client=client_share,
    )


def _share(ranked: Sequence[int], share: float) -> int:
    return ranked[min(len(ranked) - 1, int(len(ranked) * share))]


@contextmanager
def _quiet_client() -> Iterator[None]:
    """Keep this process on its core and its garbage collector out of the way."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, CLIENT_CORE)
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        os.sched_setaffinity(0, before)
