"""Views of a run in another worker: the chunks from an index on, while it runs and after its end."""

from collections.abc import AsyncIterator

import pytest

from tests.redis_server import redis_server
from tests.runs.test_manager import Agent, settings_of, start
from tests.runs.test_views import all_of, tail_of
from usechat.runs.manager import RunManager
from usechat.runs.redis.store import RedisRuns
from usechat.runs.views import View


@pytest.fixture
async def workers() -> AsyncIterator[tuple[RunManager, RunManager]]:
    with redis_server("valkey") as server:
        managers = [RunManager(RedisRuns(server.url), settings_of(15)) for _ in range(2)]
        yield managers[0], managers[1]
        for manager in managers:
            await manager.shut_down(drain=5)


async def test_another_worker_goes_on_exactly_where_the_first_was_cut(workers: tuple[RunManager, RunManager]) -> None:
    here, there = workers
    agent = Agent()
    first = await start(here, agent)
    await agent.waits.wait()
    latest = await there.latest("c1")
    assert latest is not None
    running = [await there.tail(latest, View("r1"), index) for index in range(3)]
    agent.go_on.set()
    sent = await all_of(first)
    for index, found in enumerate(running):
        assert found is not None
        assert await all_of(found[0]) == sent[index:]
    agent.go_on.set()
    await all_of(await start(here, agent, "r2", "u2"))
    for manager in workers:
        for index in range(len(sent)):
            assert await tail_of(manager, View("r1"), index) == sent[index:]
        assert await manager.tail(latest, View("r0"), 0) is None
