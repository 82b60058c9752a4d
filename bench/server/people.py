"""What a hundred people cost who chat: the share of a core that the server takes, beside a route written by hand.

Each of them asks every ten seconds, on a new connection (servers close idle ones), and reads an answer of 40 deltas, 20
a second. Ours is served as a team serves it: chats in PostgreSQL, the log of runs in Redis, metrics on. What those two
servers take of the machine is not counted.

`python -m bench.server.people PORT` serves the route.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Final

import msgspec

from bench.rounds import say
from bench.server import by_hand
from bench.server.process import Server, free_port, redis, serving_at
from bench.server.turns import END, post, postgres_chats, usechat

_DELTAS: Final = 40
_INTERVAL: Final = 0.05


class People(msgspec.Struct, frozen=True):
    """Shares of a core that the servers took; ``people`` asked every ``period`` seconds."""

    people: int
    period: float
    ours: float
    by_hand: float

    @property
    def times(self) -> float:
        return self.ours / self.by_hand

    @property
    def per_core(self) -> float:
        """How many people keep one core busy."""
        return self.people / self.ours


async def agent(_turn: object) -> AsyncGenerator[str, None]:
    """Say forty words, as a model does."""
    for number in range(_DELTAS):
        await asyncio.sleep(_INTERVAL)
        yield f"word {number} "


def measure_people(*, people: int = 100, period: float = 10, turns: int = 3) -> People:
    """Measure both, one after the other; the first turn of everyone warms up."""
    with _serving_ours() as server:
        ours = asyncio.run(_share(server, people, period, turns))
    with _serving_by_hand() as server:
        theirs = asyncio.run(_share(server, people, period, turns))
    measured = People(people, period, ours, theirs)
    say(f"{people} people: {ours:.1%} of a core, by hand {theirs:.1%}, {measured.times:.2f}x")
    return measured


@contextmanager
def _serving_ours() -> Iterator[Server]:
    port = free_port()
    with postgres_chats() as chats, redis() as log:
        options = ["--port", str(port), "--chats", chats, "--redis", log]
        with serving_at(port, [usechat(), "serve", "bench.server.people:agent", *options]) as server:
            yield server


@contextmanager
def _serving_by_hand() -> Iterator[Server]:
    port = free_port()
    with serving_at(port, [sys.executable, "-m", "bench.server.people", str(port)]) as server:
        yield server


async def _share(server: Server, people: int, period: float, turns: int) -> float:
    """Return the share of a core that a server takes while everyone asks ``turns`` times."""
    begin = monotonic()
    chats = [
        asyncio.create_task(_chat(server.port, number, begin + period * number / people, period, turns + 1))
        for number in range(people)
    ]
    await asyncio.sleep(period)
    before = server.processor_nanoseconds()
    await asyncio.sleep(period * turns)
    share = (server.processor_nanoseconds() - before) / 1e9 / (period * turns)
    await asyncio.gather(*chats)
    return share


async def _chat(port: int, number: int, begin: float, period: float, turns: int) -> None:
    """Ask every ``period`` seconds, and read each answer to its end."""
    for turn in range(turns):
        await asyncio.sleep(begin + turn * period - monotonic())
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(post(f"chat-{number}", f"user-{number}-{turn}"))
        answer = await reader.readuntil(END)
        writer.close()
        if answer.count(b'"text-delta"') != _DELTAS:
            raise RuntimeError(f"an answer is not whole: {answer[:200]!r}")


def main(port: int) -> None:
    import uvicorn

    uvicorn.run(by_hand.app(agent), port=port)


if __name__ == "__main__":
    main(int(sys.argv[1]))
