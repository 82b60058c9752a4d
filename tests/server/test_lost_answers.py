"""Answers of processes that died, with Redis: the log of the run has the rest, and one living process reports it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.chats.dying import DyingServer, InRedis, Kill, agent
from tests.chats.talking import texts, user
from tests.redis_server import SERVERS, RedisServer, redis_server
from tests.server.sockets import Body
from tests.server.test_worker import Tier, asking, until
from usechat.chats import ChatStore, SqlChats
from usechat.runs.redis.store import RedisRuns
from usechat.server import ChatApp, Settings
from usechat.server.turns import StoredTurns
from usechat.turn import Turn

LEASE = 2.0
BODY = {"id": "c/1", "messages": [user("u1", "wait")]}
LOST_ANSWER = ("c/1", "", ["Half"], [None, "output-error", "done"])


class Reports:
    """An ``on_finish`` that notes what it was given."""

    def __init__(self) -> None:
        self.outcomes: list[str] = []
        self.lost: list[tuple[Any, ...]] = []

    def __call__(self, message: Any, turn: Turn, outcome: str) -> None:
        self.outcomes.append(outcome)
        if outcome == "lost":
            subject = turn.identity.subject if turn.identity else None
            states = [part.get("state") for part in message["parts"]]
            self.lost.append((turn.chat_id, subject, texts([message]), states))


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with redis_server(next(iter(SERVERS))) as running:
        yield running


class Survivor:
    """A worker in this process, beside one that dies in the middle of an answer."""

    def __init__(self, url: str, prefix: str, path: Path, chats: ChatStore | None) -> None:
        self.reports = Reports()
        self.runs = RedisRuns(url, lease=LEASE, prefix=prefix)
        self._redis = InRedis(url, prefix, LEASE)
        self._path = path
        settings = Settings(sdk="7")
        self.app = ChatApp(agent, runs=self.runs, chats=chats, settings=settings, metrics=False, on_finish=self.reports)
        self.client = httpx2.AsyncClient(transport=httpx2.ASGITransport(self.app), base_url="http://a", timeout=60)

    async def see_another_die(self) -> DyingServer:
        dying = DyingServer(self._path, redis=self._redis)
        task = asyncio.ensure_future(asyncio.to_thread(dying.ask, BODY))

        async def is_logged() -> bool:
            info = await self.runs.latest("c%2F1")
            return info is not None and b"Half" in await self.runs.frames(info)

        await until(is_logged, "the answer is in Redis")
        await asyncio.to_thread(dying.kill)
        await task
        return dying

    async def is_lost(self) -> bool:
        return bool((await self.client.get("/api/chat/c%2F1")).json()["state"] == "lost")

    async def ask(self, text: str) -> str:
        response = await self.client.post("/api/chat", json={"id": "c/1", "messages": [user("u2", text)]})
        return Body(response.content, complete=True).text

    async def reported(self) -> list[Any]:
        """What was reported, after everything that could be reported again was done."""
        await until(lambda: self.reports.lost, "the loss is reported")
        for _ in range(3):
            await self.client.get("/api/chat/c%2F1")
        return self.reports.lost


async def test_a_lost_answer_is_reported_by_the_worker_that_declares_it(server: RedisServer, tmp_path: Path) -> None:
    survivor = Survivor(server.url, "reported", tmp_path / "chats.db", None)
    await survivor.see_another_die()
    await until(survivor.is_lost, "the run is declared lost")
    assert await survivor.reported() == [LOST_ANSWER]
    await survivor.app.shut_down()


async def test_the_log_of_a_dead_worker_has_the_rest_of_its_answer(server: RedisServer, tmp_path: Path) -> None:
    chats = SqlChats(str(tmp_path / "chats.db"))
    survivor = Survivor(server.url, "rest", tmp_path / "chats.db", chats)
    dying = await survivor.see_another_die()
    await until(survivor.is_lost, "the run is declared lost")
    assert await survivor.reported() == [LOST_ANSWER]
    loaded = (await survivor.client.get("/api/chat/c%2F1/messages")).json()
    assert (texts(loaded["messages"]), loaded["running"]) == (["wait", "Half"], None)
    assert list(loaded["outcomes"].values()) == ["lost"]
    assert await survivor.ask("Next") == "3: Next", "the chat is free before its lease of half a minute has expired"
    dying.kill()
    await survivor.app.shut_down()


async def test_the_next_question_finds_all_of_an_answer_whose_lease_has_expired(
    server: RedisServer, tmp_path: Path
) -> None:
    chats = SqlChats(str(tmp_path / "chats.db"))
    survivor = Survivor(server.url, "next", tmp_path / "chats.db", chats)
    (await survivor.see_another_die()).expire()
    assert await survivor.ask("Next") == "3: Next"
    assert texts((await chats.load("c/1", owner="")).messages) == ["wait", "Half", "Next", "3: Next"]
    assert await survivor.reported() == [LOST_ANSWER]
    await survivor.app.shut_down()


async def test_a_redis_that_is_away_does_not_keep_a_chat_busy(tmp_path: Path) -> None:
    with redis_server(next(iter(SERVERS))) as server:
        chats = SqlChats(str(tmp_path / "chats.db"))
        survivor = Survivor(server.url, "away", tmp_path / "chats.db", chats)
        dying = await survivor.see_another_die()
        server.kill()
        dying.expire()
        stored = survivor.app._endpoints.stored  # noqa: SLF001
        assert stored is not None
        await stored.open()
        await until(lambda: survivor.reports.lost, "the loss is reported")
        loaded = await chats.load("c/1", owner="")
        assert (loaded.running, texts(loaded.messages[:1])) == (None, ["wait"])
        await survivor.app.shut_down()


# With agent processes.


@pytest.fixture
async def tier(server: RedisServer) -> AsyncIterator[Tier]:
    instance = Tier(server.url)
    yield instance
    await instance.end()


@pytest.fixture
def store(tmp_path: Path) -> Callable[..., SqlChats]:
    def make(**options: Any) -> SqlChats:
        return SqlChats(str(tmp_path / "chats.db"), **options)

    return make


async def load(web: httpx2.AsyncClient, chat_id: str = "c%2F1") -> tuple[list[str], list[str]]:
    loaded = (await web.get(f"/api/chat/{chat_id}/messages")).json()
    return texts(loaded["messages"]), list(loaded["outcomes"].values())


async def test_a_turn_that_is_stopped_while_it_waits_frees_its_chat(tier: Tier, store: Callable[..., SqlChats]) -> None:
    reports = Reports()
    web = tier.web(chats=store(), on_finish=reports)
    async with asking(web, BODY) as answer:

        async def is_waiting() -> bool:
            return '"state":"running"' in (await web.get("/api/chat/c%2F1")).text

        await until(is_waiting, "the turn waits")
        assert (await web.post("/api/chat/c%2F1/stop")).status_code == 204
        await answer
    assert reports.outcomes == ["stopped"]
    assert await load(web) == (["wait"], [])
    tier.worker(agent, chats=store())
    response = await web.post("/api/chat", json={"id": "c/1", "messages": [user("u2", "Next")]})
    assert Body(response.content, complete=True).text == "2: Next"


async def test_a_turn_whose_chat_was_given_to_another_run_is_not_answered(
    tier: Tier, store: Callable[..., SqlChats]
) -> None:
    chats, questions = store(), []

    async def counting(turn: Turn) -> AsyncIterator[str]:
        questions.append(turn.text)
        yield "Answered."

    web = tier.web(chats=chats)
    async with asking(web, BODY) as answer:

        async def is_waiting() -> bool:
            return '"state":"running"' in (await web.get("/api/chat/c%2F1")).text

        await until(is_waiting, "the turn waits")
        await chats.delete("c/1", owner="")
        tier.worker(counting, chats=store())
        assert b"The run was lost." in (await answer).content
    assert questions == []


async def test_a_worker_without_the_store_of_its_web_processes_says_so(
    tier: Tier, store: Callable[..., SqlChats], caplog: pytest.LogCaptureFixture
) -> None:
    web = tier.web(chats=store())
    tier.worker(agent)
    response = await web.post("/api/chat", json={"id": "c1", "messages": [user("u1", "Hi")]})
    assert b"An error occurred. Reference: " in response.content
    assert "give the agent process the same store: usechat worker --chats" in caplog.text


async def test_a_turn_that_another_release_has_stored_in_its_own_way_fails(
    tier: Tier, store: Callable[..., SqlChats], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = StoredTurns.recorded

    def otherwise(turns: StoredTurns, recording: Any, *run: Any, **options: Any) -> Any:
        return recorded(turns, {**recording, "claim": "of another release"}, *run, **options)

    monkeypatch.setattr(StoredTurns, "recorded", otherwise)
    web = tier.web(chats=store())
    worker = tier.worker(agent, chats=store())
    response = await web.post("/api/chat", json={"id": "c1", "messages": [user("u1", "Hi")]})
    assert b"An error occurred. Reference: " in response.content
    await until(lambda: not worker.running, "there is room for another turn")


WEB_WRITES = [Kill(*each) for each in product((1, 2), ("before", "during", "after"))]
"""A web process stores the question, queues the turn, and keeps the chat for the agent process that takes it."""


@pytest.mark.parametrize("kill", WEB_WRITES)
async def test_a_web_process_that_dies_before_its_chat_is_handed_over_leaves_a_chat_that_goes_on(
    tier: Tier, store: Callable[..., SqlChats], tmp_path: Path, kill: Kill
) -> None:
    redis = InRedis(tier.url, tier.prefix, LEASE, queue="agents")
    dying = DyingServer(tmp_path / "chats.db", kill, redis=redis)
    received = await asyncio.to_thread(dying.ask, BODY)
    assert (received.complete, received.chunks) == (False, [])
    if kill == Kill(1, "after"):
        assert 0 < dying.claimed_for() <= store().lease
    runs = tier.runs()
    queued = await runs.latest("c%2F1")
    assert (queued is not None) == (kill.write == 2), "a chat is kept for longer only if its turn waits"
    dying.expire()
    web = tier.web(chats=store())
    posting = asyncio.ensure_future(web.post("/api/chat", json={"id": "c/1", "messages": [user("u2", "Next")]}))

    async def is_queued() -> bool:
        return await runs.latest("c%2F1") != queued

    await until(is_queued, "the next message is queued")  # otherwise the agent process may answer the first one
    await runs.close()
    tier.worker(agent, chats=store())
    response = await posting
    earlier = [] if kill in (Kill(1, "before"), Kill(1, "during")) else ["wait"]
    text = f"{len(earlier) + 1}: Next"
    assert Body(response.content, complete=True).text == text
    assert await load(web) == ([*earlier, "Next", text], ["finished"])


@pytest.mark.parametrize("kill_after", [1, 500, 1_500])
async def test_an_answer_is_stored_whole_although_its_web_process_died(
    tier: Tier, store: Callable[..., SqlChats], tmp_path: Path, kill_after: int
) -> None:
    web = tier.web(chats=store())
    tier.worker(agent, chats=store())
    messages = [user("u1", "story")]
    await web.post("/api/chat", json={"id": "whole", "messages": messages})
    dying = DyingServer(tmp_path / "chats.db", redis=InRedis(tier.url, tier.prefix, LEASE, queue="agents"))
    received = await asyncio.to_thread(
        dying.ask, {"id": "c1", "messages": messages}, until=lambda data: len(data) >= kill_after
    )
    assert not received.complete

    async def has_ended() -> bool:
        return (await load(web, "c1"))[1] == ["waiting"]

    await until(has_ended, "the answer is stored")
    assert await load(web, "c1") == await load(web, "whole")
