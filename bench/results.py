"""What a run found, and what it says about the goals."""

from typing import Final, NamedTuple

import msgspec

from bench.contestants import FLOOR, PART_BUILT, PART_GIVEN, PYDANTIC_AI_BUILT
from bench.growth import Growth
from bench.machine import Circumstances
from bench.rounds import Figure

FLAT: Final = 1.25
"""A time per delta counts as flat if it grows no more than this from the shortest to the longest message."""

QUIET: Final = 1.15
"""The machine was quiet if the floor's median is no further from its best time than this."""


class Results(msgspec.Struct, frozen=True):
    """One run. Times are nanoseconds per delta."""

    circumstances: Circumstances
    encoding: dict[str, Figure]
    growth: Growth

    def ratio(self, slower: str, faster: str) -> float:
        """Return how many times the one's median is the other's."""
        return self.encoding[slower].median / self.encoding[faster].median

    def growth_ratio(self, kind: str) -> float:
        """Return the longest message's time per delta over the shortest one's."""
        figures = [figure.median for _, figure in sorted(self.growth[kind].items())]
        return figures[-1] / figures[0]

    @property
    def unrest(self) -> float:
        """The floor's median over its best time: what the rest of the machine did to the figures."""
        return self.encoding[FLOOR].median / self.encoding[FLOOR].best


class Goal(NamedTuple):
    """One goal, and how near the run came."""

    text: str
    measured: str
    met: bool


def goals(results: Results) -> list[Goal]:
    """Judge the run; a peer that was not there is not judged."""
    floors = results.ratio(PART_BUILT, FLOOR)
    judged = [
        Goal("text part to bytes in at most 3x the floor", f"{floors:.2f}x", floors <= 3),
        Goal("stretch: in at most 2x the floor", f"{floors:.2f}x", floors <= 2),
    ]
    if PYDANTIC_AI_BUILT in results.encoding:
        peer = results.ratio(PYDANTIC_AI_BUILT, PART_BUILT)
        judged.append(Goal("at least 9x faster than pydantic-ai's chunks", f"{peer:.1f}x", peer >= 9))
    for kind, figures in results.growth.items():
        ratio = results.growth_ratio(kind)
        text = f"{kind}: time per delta flat (within {FLAT}x) from {min(figures):,} to {max(figures):,} deltas"
        judged.append(Goal(text, f"{ratio:.2f}x", ratio <= FLAT))
    return judged


def where_the_time_goes(results: Results) -> str:
    """Split our time for one text part: it is the reason when a goal is missed."""
    floor, send, total = (results.encoding[name].median for name in (FLOOR, PART_GIVEN, PART_BUILT))
    return (
        f"Of the {total:.0f} ns from text to bytes, {floor:.0f} are the floor, {send - floor:.0f} the call of `send`"
        f" and its checks, {total - send:.0f} the building of the part."
    )
