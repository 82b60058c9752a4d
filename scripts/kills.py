"""Kill processes in the middle of answers, and check what becomes of the answers: `make kills KILLS=500 SEED=1`.

Each number from `SEED` on is a story (:mod:`tests.chats.killing`) on SQLite, on PostgreSQL, and on SQLite with runs in
Redis: processes of `usechat serve` are ended with kill -9 and SIGTERM, or stopped for longer than a lease, also while
they continue an answer. Stories are told until `KILLS` of these faults have happened before the end of an answer.
`KILLS_STORES="sqlite redis"` names the stores, and `KILLS_AT_ONCE` is how many stories are told at the same time.

The seeds of stories that failed are printed with what was wrong and the logs of their processes; the exit code is 1.
`KILLS=1 SEED=17 KILLS_STORES=redis` tells one of them again: what happens is the same, its moments may differ a little.
"""

import asyncio
import itertools
import os
import sys
from collections.abc import Iterator, Sequence

from tests.chats.killing import STORES, Servers, Store, Story, draw, tell


class Killer:
    """Tells stories until there were so many faults."""

    def __init__(self, servers: Servers, kills: int) -> None:
        self._servers = servers
        self._kills = kills
        self._faults = 0
        self._stories = 0
        self.failures: list[str] = []

    async def run(self, stories: Iterator[Story], at_once: int) -> None:
        """Tell stories, some at once."""
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(self._tell_on(stories))

    async def _tell_on(self, stories: Iterator[Story]) -> None:
        while self._faults < self._kills:
            await self._tell(next(stories))

    async def _tell(self, story: Story) -> None:
        end = await tell(story, self._servers)
        self._faults += end.faults
        self._stories += 1
        name = f"SEED={story.seed} KILLS_STORES={story.store}"
        if end.problems:
            self.failures.append(name)
            self._write("\n".join([f"{name}: {story}", *end.problems, end.logs]))
        self._write(f"{self._stories} stories, {self._faults} of {self._kills} kills, {len(self.failures)} failures")

    def _write(self, text: str) -> None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


def drawn(seed: int, stores: Sequence[Store]) -> Iterator[Story]:
    """Yield the stories from a seed on, on each store."""
    return (draw(number, store) for number in itertools.count(seed) for store in stores)


def main(kills: int, seed: int, stores: Sequence[Store], at_once: int) -> int:
    """Tell stories; return the exit code."""
    with Servers(stores) as servers:
        killer = Killer(servers, kills)
        asyncio.run(killer.run(drawn(seed, stores), at_once))
    return 1 if killer.failures else 0


if __name__ == "__main__":
    names = os.environ.get("KILLS_STORES", "").replace(",", " ").split() or STORES
    chosen = [store for store in STORES if store in names]
    if len(chosen) != len(names):
        raise SystemExit(f"KILLS_STORES: {' '.join(names)!r} is not some of {' '.join(STORES)}")
    sys.exit(main(int(os.environ["KILLS"]), int(os.environ["SEED"]), chosen, int(os.environ.get("KILLS_AT_ONCE") or 4)))
