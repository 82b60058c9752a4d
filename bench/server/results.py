"""What a run found, and what it says about the goals."""

from typing import Final

import msgspec

from bench.machine import Circumstances
from bench.results import Goal
from bench.server.contestants import BARE, OURS, STREAMING_RESPONSE
from bench.server.exact import Exact
from bench.server.measure import External, Figures, Redis
from bench.server.people import People
from bench.server.stalled import Stalled
from bench.server.starts import HELP, IMPORT, READY, READY_WITH_CHATS
from bench.server.turns import BY_HAND, CHAT_APP, POSTGRES, SERVE, SQLITE

BUSY: Final = 0.1
"""The share of the machine that others took; with more than this the figures are not worth keeping."""


class ServerResults(msgspec.Struct, frozen=True):
    """One run. ``pipeline``: microseconds per delta inside the process; ``others``: the share of the machine's
    processor time that went to other processes meanwhile.
    """

    circumstances: Circumstances
    others: float
    pipeline: float
    contestants: dict[str, Figures]
    redis: Redis
    external: External
    stalled: Stalled
    exact: Exact
    turns: dict[str, float]
    """Milliseconds of processor time that a short turn costs, by server."""
    people: People
    starts: dict[str, float]
    """Seconds of processor time that a start takes."""

    def held(self, name: str) -> float:
        """Return the streams that one core holds, by the best of all searches."""
        return max(self.contestants[name].held)

    def ratio(self, name: str, other: str) -> float:
        """Return how many times the streams of the other the one holds."""
        return self.held(name) / max(1, self.held(other))

    def best_peer(self) -> str:
        """Return who holds most, apart from us and those who send prebuilt bytes."""
        peers = [name for name in self.contestants if name not in (OURS, BARE, STREAMING_RESPONSE)]
        return max(peers, key=self.held, default=STREAMING_RESPONSE)


def goals(results: ServerResults) -> list[Goal]:
    """Judge the run."""
    ours, thousand = results.contestants[OURS], results.contestants[OURS].thousand
    over_bare = results.ratio(OURS, BARE)
    peer = results.best_peer()
    over_peer = results.ratio(OURS, peer)
    crowd = f"at {thousand.streams:,} streams"
    judged = [
        Goal("streams held, at least 1.0x the bare ASGI app", f"{over_bare:.2f}x", over_bare >= 1.0),
        Goal(f"streams held, ahead of every peer (the best is {peer})", f"{over_peer:.2f}x", over_peer > 1),
        Goal(f"{crowd} p99 under 10 ms", f"{thousand.late_p99:.1f} ms", thousand.held and thousand.late_p99 < 10),
        Goal(f"{crowd} first delta p99 under 20 ms", f"{thousand.first_p99:.1f} ms", thousand.first_p99 < 20),
        Goal(f"{crowd} at most 17 µs of CPU a delta", f"{thousand.processor:.1f} µs", thousand.processor <= 17),
        Goal(f"{crowd} at most 18 KB each", f"{thousand.kilobytes:.1f} KB", thousand.kilobytes <= 18),
    ]
    ramp = Goal("a ramp of 800 streams a second, first delta p99 under 50 ms", f"{ours.ramp:.1f} ms", ours.ramp < 50)
    judged.append(ramp)
    for streams, rate in ours.flood.items():
        if streams == 100:
            judged.append(Goal("flood of 100 streams, at least 150,000 deltas/s", f"{rate:,.0f}/s", rate >= 150_000))
    rate = max(results.redis.flood.values())
    delay = results.redis.paced.late_p99 - results.redis.paced_in_memory.late_p99
    judged += [
        Goal("inside the process at most 1.5 µs per delta", f"{results.pipeline:.2f} µs", results.pipeline <= 1.5),
        Goal("with the Redis log at least 20,000 deltas/s", f"{rate:,.0f}/s", rate >= 20_000),
        Goal("the Redis log adds less than 10 ms to the p99", f"{delay:.1f} ms", delay < 10),
        *_redis_goals(results.redis),
        *_external_goals(results.external),
        _stalled_goal(results.stalled),
        *_exact_goals(results.exact),
        *_turn_goals(results.turns),
        _people_goal(results.people),
        *_start_goals(results.starts),
    ]
    return judged


def _external_goals(external: External) -> list[Goal]:
    """Judge what it costs that agents are in another process."""
    crowd = f"agents in another process, {external.external.streams:,} streams"
    p50, p99 = external.added_p50, external.added_p99
    return [
        Goal(f"{crowd}: adds less than 5 ms to the p50", f"{p50:.1f} ms", p50 < 5),
        Goal(f"{crowd}: adds less than 25 ms to the p99", f"{p99:.1f} ms", p99 < 25),
    ]


def _stalled_goal(stalled: Stalled) -> Goal:
    text = f"{stalled.readers} stalled readers of a run of {stalled.answer:.0f} MB, with it, take its size once at most"
    times = (stalled.log + stalled.added) / stalled.answer
    return Goal(text, f"{times:.2f}x", times <= 1)


def _exact_goals(exact: Exact) -> list[Goal]:
    """Judge what it costs that clients can go on at an exact chunk."""
    each = exact.lengths / exact.deltas
    return [
        Goal("exact chunks: the length of a delta takes at most 2 bytes", f"{each:.2f}", each <= 2),
        Goal("exact chunks: at most 0.5 µs of CPU more a delta", f"{exact.added:.2f} µs", exact.added <= 0.5),
    ]


def _turn_goals(turns: dict[str, float]) -> list[Goal]:
    """Judge what a turn costs beside a route that is written by hand, and what it costs to store it."""
    times = {name: turns[name] / turns[BY_HAND] for name in (CHAT_APP, SERVE)}
    stored = {SQLITE: 3, POSTGRES: 4}
    return [
        *(
            Goal(f"a turn costs at most 2x a route written by hand ({name})", f"{ratio:.2f}x", ratio <= 2)
            for name, ratio in times.items()
        ),
        *(
            Goal(f"a turn costs at most {most} ms of CPU ({name})", f"{turns[name]:.2f} ms", turns[name] <= most)
            for name, most in stored.items()
        ),
    ]


def _people_goal(people: People) -> Goal:
    text = f"{people.people} people who chat (PostgreSQL, Redis, metrics) cost at most 3x a route written by hand"
    return Goal(text, f"{people.times:.2f}x", people.times <= 3)


def _start_goals(starts: dict[str, float]) -> list[Goal]:
    """Judge whether a start stays as quick as it was."""
    most = {IMPORT: 0.065, HELP: 0.09, READY: 0.42, READY_WITH_CHATS: 0.72}
    return [
        Goal(f"{name}: at most {limit:g} s of CPU", f"{starts[name]:.3f} s", starts[name] <= limit)
        for name, limit in most.items()
    ]


def _redis_goals(redis: Redis) -> list[Goal]:
    """Judge what the log in Redis costs."""
    judged = []
    for shared, alone in ((redis.paced, redis.paced_in_memory), (redis.crowd, redis.crowd_in_memory)):
        times = shared.processor / max(0.1, alone.processor)
        text = f"at {shared.streams:,} streams a delta costs at most 1.4x with the Redis log"
        judged.append(Goal(text, f"{times:.2f}x", times <= 1.4))
    times = max(redis.held) / max(1, *redis.held_in_memory)
    judged.append(Goal("streams held with the Redis log, at least 0.8x", f"{times:.2f}x", times >= 0.8))
    return judged
