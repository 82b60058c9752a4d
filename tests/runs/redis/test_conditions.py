"""Redis in every bad condition: 503 with a sentence, not ready, and one log line with the cause and the remedy."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from typing import TypeAlias

import httpx2
import pytest

from tests.redis_server import PATIENCE, SERVERS, RedisServer, free_port, redis_server
from tests.runs.redis_stores import FINISHED, RUN, SHORT, StoreEvents, Workers, read_all, until
from tests.server.metrics_page import chat_request
from usechat.errors import RunLost, StoreUnreachable
from usechat.runs.redis.store import RedisRuns
from usechat.server import ChatApp
from usechat.turn import Turn

pytestmark = pytest.mark.unit

SENTENCE = "The run store cannot be reached."
ANSWERED_WITHIN = 5.0

Condition: TypeAlias = Callable[[RedisServer, ExitStack], str]
"""Brings a server into a condition, and returns the URL with which it is met."""


def wrong_password(server: RedisServer, _stack: ExitStack) -> str:
    client = server.client()
    client.config_set("requirepass", "right")
    client.close()
    return server.url_with("wrong")


def missing_password(server: RedisServer, stack: ExitStack) -> str:
    wrong_password(server, stack)
    return server.url_with(None)


def absent(server: RedisServer, _stack: ExitStack) -> str:
    server.stop()
    return server.url


def absent_sentinels(_server: RedisServer, _stack: ExitStack) -> str:
    return f"redis+sentinel://127.0.0.1:{free_port()}/service"


def absent_cluster(_server: RedisServer, _stack: ExitStack) -> str:
    return f"redis+cluster://127.0.0.1:{free_port()}"


def replica(server: RedisServer, stack: ExitStack) -> str:
    kind = next(iter(SERVERS))
    primary = stack.enter_context(redis_server(kind))
    client = server.client()
    client.replicaof("127.0.0.1", primary.port)
    client.close()
    return server.url


def full(server: RedisServer, _stack: ExitStack) -> str:
    client = server.client()
    client.config_set("maxmemory", "1")
    client.close()
    return server.url


def without_permission(server: RedisServer, _stack: ExitStack) -> str:
    client = server.client()
    client.execute_command("ACL SETUSER", "default", "-eval")
    client.close()
    return server.url


def paused(server: RedisServer, _stack: ExitStack) -> str:
    server.pause()
    return server.url


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    with redis_server(request.param) as running:
        yield running


async def agent(turn: Turn) -> AsyncIterator[str]:
    yield turn.text


async def ask_everything(url: str) -> list[tuple[int, str]]:
    """Return how a service answers each request whose answer depends on the store."""
    app = ChatApp(agent, runs=RedisRuns(url))
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://test", timeout=PATIENCE) as client:
        answers = await asyncio.gather(
            client.get("/readyz"),
            client.post("/api/chat", json=chat_request("hi")),
            client.get("/api/chat/c1"),
            client.get("/api/chat/c1/stream"),
            client.post("/api/chat/c1/stop"),
        )
    await app.shut_down()
    return [(each.status_code, each.text) for each in answers]


CONDITIONS = [
    (wrong_password, "it refuses the password, or wants one and the URL has none; put user and password into the URL"),
    (
        missing_password,
        "it refuses the password, or wants one and the URL has none; put user and password into the URL",
    ),
    (absent, "it cannot be reached; see whether it runs, and check scheme, host and port of the URL"),
    (absent_sentinels, "no Sentinel knows a primary of this service; check that the Sentinels of the URL run"),
    (absent_cluster, "it cannot be reached; see whether it runs, and check scheme, host and port of the URL"),
    (without_permission, "the user of the URL may not run a command that is needed; allow it with ACL SETUSER"),
    (paused, "it does not answer in time; see whether it is paused or overloaded"),
]


@pytest.mark.parametrize(("condition", "line"), CONDITIONS)
async def test_a_redis_that_cannot_be_used_is_503_with_a_sentence_and_one_log_line(
    server: RedisServer, condition: Condition, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    with ExitStack() as stack:
        url = condition(server, stack)
        begin = asyncio.get_running_loop().time()
        assert await ask_everything(url) == [(503, SENTENCE)] * 5
        assert asyncio.get_running_loop().time() - begin < ANSWERED_WITHIN
    messages = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(messages) == 1, messages
    assert f"cannot be used: {line}" in messages[0]
    assert "wrong" not in messages[0], "the password is in no log"


@pytest.mark.parametrize(
    ("condition", "line"),
    [
        (replica, "it is a replica and accepts no writes; name the primary in the URL, or its Sentinels"),
        (full, "its memory is full; raise its maxmemory, or let it forget earlier"),
    ],
)
async def test_a_redis_that_can_be_read_and_accepts_no_writes_is_not_ready(
    server: RedisServer, condition: Condition, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    with ExitStack() as stack:
        ready, posting, *_read = await ask_everything(condition(server, stack))
    assert (ready, posting) == ((503, SENTENCE), (503, SENTENCE))
    messages = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(messages) == 1, messages
    assert f"cannot be used: {line}" in messages[0]


async def test_a_server_without_scripts_is_named_as_such(caplog: pytest.LogCaptureFixture) -> None:
    with redis_server(next(iter(SERVERS)), "--rename-command", "EVAL", "") as server:
        assert await ask_everything(server.url) == [(503, SENTENCE)] * 5
    assert caplog.text.count("cannot be used: it does not know a command that is needed; use Redis 6.2") == 1


async def test_the_permissions_that_the_log_names_are_enough(server: RedisServer) -> None:
    client = server.client()
    rules = "on >secret ~mine:* resetchannels +@read +@write +@connection +@scripting +time"
    client.execute_command("ACL SETUSER", "usechat", *rules.split())
    client.close()
    url = f"redis://usechat:secret@127.0.0.1:{server.port}"
    owner, other = RedisRuns(url, prefix="mine"), RedisRuns(url, prefix="mine")
    events = StoreEvents(owner)
    try:
        await owner.check()
        await owner.claim(RUN)
        owner.append("r1", b"one ")
        reader = asyncio.ensure_future(read_all(other))
        await other.request_stop(RUN)
        await until(lambda: events.stops == ["r1"], "the request arrives")
        assert await owner.count("key", 1, 60) == (1, 60)
        assert await owner.hold("holders", "r1", 60) == 1
        await owner.release("holders", "r1")
        assert await owner.end(FINISHED)
        assert await reader == b"one "
    finally:
        await owner.close()
        await other.close()


async def test_when_redis_works_again_the_log_says_so_and_the_next_outage_is_logged_anew(
    restarted: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "usechat.runs")
    store = restarted.store()
    for _ in range(2):
        await asyncio.to_thread(restarted.server.stop)
        for _ in range(3):
            with pytest.raises(StoreUnreachable):
                await store.check()
        await asyncio.to_thread(restarted.server.start)
        await store.check()
        await store.check()
    assert [caplog.text.count(text) for text in ("cannot be used", "works again")] == [2, 2]


async def test_readers_of_a_paused_redis_end_within_the_lease_on_every_worker(restarted: Workers) -> None:
    lease = 3 * SHORT
    owner, other = restarted.store(lease=lease), restarted.store(lease=lease)
    events = StoreEvents(owner)
    await owner.claim(RUN)
    reading = other.read(RUN)
    assert await anext(reading) == b""
    restarted.server.pause()
    begin = asyncio.get_running_loop().time()
    try:
        owner.append("r1", b"nobody writes this")
        with pytest.raises(RunLost):
            async with asyncio.timeout(PATIENCE):
                await anext(reading)
        await until(lambda: events.failures, "the owner gives up")
        assert asyncio.get_running_loop().time() - begin < lease
    finally:
        restarted.server.go_on()


async def test_a_paused_redis_that_goes_on_soon_is_not_noticed(restarted: Workers) -> None:
    owner, other = restarted.store(), restarted.store()
    await owner.claim(RUN)
    reader = asyncio.ensure_future(read_all(other))
    owner.append("r1", b"one ")
    await asyncio.sleep(0.2)
    restarted.server.pause()
    owner.append("r1", b"two ")
    await asyncio.sleep(1)
    restarted.server.go_on()
    owner.append("r1", b"three")
    assert await owner.end(FINISHED)
    assert await reader == b"one two three"


async def test_who_waits_for_an_end_asks_redis_once(workers: Workers) -> None:
    owner, other = workers.store(), workers.store()
    await owner.claim(RUN)
    workers.client.config_resetstat()
    waiting = asyncio.ensure_future(other.wait_until_ended(RUN))
    await asyncio.sleep(2)
    assert not waiting.done()
    calls = {name: stats["calls"] for name, stats in workers.client.info("commandstats").items()}
    assert calls["cmdstat_eval"] == 1, "the lease is looked at once; polling would have been 40"
    begin = asyncio.get_running_loop().time()
    await owner.end(FINISHED)
    async with asyncio.timeout(PATIENCE):
        await waiting
    assert asyncio.get_running_loop().time() - begin < 1
