"""The suite of the server, with agent processes (`USECHAT_TEST_AGENTS=external`).

Every chat app of the tests gets a store in a real Redis and a queue, and an agent worker with a store of its own in the
same event loop: everything between web and agent goes through Redis. (Tests that end processes are
`tests/server/test_agent_processes.py`; they run in any case.)
"""

import asyncio
import os
from contextlib import ExitStack
from typing import Any, Final
from weakref import WeakKeyDictionary

import msgspec
import pytest

from tests.redis_server import SERVERS, redis_server
from usechat.runs.memory import MemoryRuns
from usechat.runs.redis.store import RedisRuns
from usechat.runs.redis.turns import RedisTurns
from usechat.runs.settings import Settings
from usechat.runs.store import RunStore
from usechat.server.endpoints import Endpoints
from usechat.server.hooks import NO_HOOKS
from usechat.server.worker import AgentWorker
from usechat.sources import HandsOver, as_source

__all__ = ["EXTERNAL_AGENTS", "needs_agents_here", "put_agents_outside"]

EXTERNAL_AGENTS: Final = os.environ.get("USECHAT_TEST_AGENTS") == "external"


def needs_agents_here(reason: str) -> pytest.MarkDecorator:
    """Skip a test that makes no sense with agent processes."""
    return pytest.mark.skipif(EXTERNAL_AGENTS, reason=f"agents are external: {reason}")


class _Agents:
    """The agent worker of one app, started with the app's first turn."""

    def __init__(self, agent: Any, url: str, prefix: str, lease: float, options: dict[str, Any]) -> None:
        runs = RedisRuns(url, prefix=prefix, lease=lease)
        turns = RedisTurns(runs, "agents")
        self._worker = AgentWorker(agent, turns, version="v1", concurrency=1000, **options)
        self._work: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._work is None:
            self._work = asyncio.get_running_loop().create_task(self._worker.work(drain=60))

    async def stop(self, drain: float) -> None:
        if self._work is not None:
            self._worker.stop()
            await asyncio.wait([self._work], timeout=drain)
            self._worker.stop()
            await self._work


def put_agents_outside(monkeypatch: pytest.MonkeyPatch, stack: ExitStack) -> None:
    """Let every app that keeps its runs in memory hand its turns to an agent worker instead, which records them."""
    url = stack.enter_context(redis_server(next(iter(SERVERS)))).url
    make, begin, shut_down = Endpoints.__init__, Endpoints.begin, Endpoints.shut_down
    agents: WeakKeyDictionary[Endpoints, _Agents] = WeakKeyDictionary()
    prefixes = iter(range(10**9))

    def make_external(
        self: Endpoints, agent: Any, *, store: RunStore, settings: Settings, observer: Any, **options: Any
    ) -> None:
        keeps_log, hooks = options.get("keep_log", True), options.get("hooks", NO_HOOKS)
        in_memory = keeps_log and isinstance(store, MemoryRuns)
        if not in_memory or isinstance(as_source(agent), HandsOver):
            make(self, agent, store=store, settings=settings, observer=observer, **options)
            return
        prefix = f"app{os.getpid()}-{next(prefixes)}"
        runs = RedisRuns(url, prefix=prefix)
        headers = ("accept-language", "x-tenant", "user-agent", "authorization", "cookie", "x-test", "x-ai-sdk")
        queue = RedisTurns(runs, "agents", forwarded_headers=headers)
        make(self, queue, store=runs, settings=settings, observer=observer, **options)
        worker_settings = msgspec.structs.replace(settings, approval_secret=None)
        chats = options.get("chats")
        stored = None if chats is None else chats.store
        recording = {"chats": stored, "titles": hooks.titles, "on_finish": hooks.on_finish}
        worker_options = {"settings": worker_settings, "observer": observer, **recording}
        agents[self] = _Agents(agent, url, prefix, runs.lease, worker_options)

    async def begin_external(self: Endpoints, *arguments: Any, **options: Any) -> Any:
        if self in agents:
            agents[self].start()
        return await begin(self, *arguments, **options)

    async def shut_down_external(self: Endpoints, drain: float) -> None:
        if self in agents:
            await agents[self].stop(drain)
        await shut_down(self, drain)

    monkeypatch.setattr(Endpoints, "__init__", make_external)
    monkeypatch.setattr(Endpoints, "begin", begin_external)
    monkeypatch.setattr(Endpoints, "shut_down", shut_down_external)
