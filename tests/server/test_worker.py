"""An agent worker behind a chat app: what an agent sees and what a page gets are as in one process."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import httpx2
import pytest
import redis

from tests.chats.talking import answer, user
from tests.redis_server import PATIENCE, SERVERS, RedisServer, redis_server
from tests.server.process import question
from tests.server.streams import Streams
from usechat import ChunkDecoder, MessageBuilder
from usechat.chats import MemoryChats, SqlChats
from usechat.errors import CannotAnswer, InvalidSetting
from usechat.parts import ApprovalRequest, Part, Text, ToolCall, ToolResult
from usechat.runs.memory import MemoryRuns
from usechat.runs.redis.store import RedisRuns
from usechat.runs.redis.turns import RedisTurns
from usechat.runs.run import RunInfo
from usechat.server import AgentWorker, ChatApp, Observer, Quotas, Settings
from usechat.sources import restartable
from usechat.turn import Identity, Turn

_prefixes = (f"tier{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with redis_server(next(iter(SERVERS))) as running:
        yield running


class Tier:
    """A chat app, and agent workers behind it."""

    def __init__(self, url: str) -> None:
        self.url, self.prefix = url, next(_prefixes)
        self._workers: list[tuple[AgentWorker, asyncio.Task[None]]] = []
        self._apps: list[ChatApp] = []

    def runs(self, lease: float = 10) -> RedisRuns:
        return RedisRuns(self.url, prefix=self.prefix, lease=lease)

    def web(self, *, headers: tuple[str, ...] = ("x-tenant",), lease: float = 10, **options: Any) -> httpx2.AsyncClient:
        runs = self.runs(lease)
        settings = Settings(sdk="7", **options.pop("settings", {}))
        queue = RedisTurns(runs, "agents", forwarded_headers=headers)
        app = ChatApp(queue, runs=runs, settings=settings, **options)
        self._apps.append(app)
        return httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=app), base_url="http://example", timeout=2 * PATIENCE
        )

    def worker(self, agent: Any, *, version: str = "v1", lease: float = 10, **options: Any) -> AgentWorker:
        worker = AgentWorker(agent, RedisTurns(self.runs(lease), "agents"), version=version, **options)
        self._workers.append((worker, asyncio.create_task(worker.work(drain=PATIENCE))))
        return worker

    async def kill(self, worker: AgentWorker) -> None:
        """End a worker as kill -9 does: nothing is said to Redis."""
        [task] = [task for each, task in self._workers if each is worker]
        self._workers = [each for each in self._workers if each[0] is not worker]
        await worker._turns.runs.close()  # noqa: SLF001
        task.cancel()
        await asyncio.wait([task])

    async def end(self) -> None:
        for worker, task in self._workers:
            worker.stop()
            worker.stop()
            await task
        for app in self._apps:
            await app.shut_down()


@pytest.fixture
async def tier(server: RedisServer) -> AsyncIterator[Tier]:
    instance = Tier(server.url)
    yield instance
    await instance.end()


def message_of(body: bytes, message: Any = None) -> Any:
    builder = MessageBuilder(sdk="7", message=message)
    for chunk in ChunkDecoder().receive(body):
        builder.receive(chunk)
    return builder.message


def text_of(answer: httpx2.Response) -> str:
    assert answer.status_code == 200, answer.text
    return "".join(part["text"] for part in message_of(answer.content)["parts"] if part["type"] == "text")


async def until(condition: Callable[[], Any], what: str) -> None:
    """Wait until this holds; the condition may be a coroutine function."""
    deadline = monotonic() + PATIENCE
    while True:
        result = condition()
        if await result if asyncio.iscoroutine(result) else result:
            return
        assert monotonic() < deadline, f"never happened: {what}"
        await asyncio.sleep(0.02)


@asynccontextmanager
async def asking(http: httpx2.AsyncClient, body: Any) -> AsyncIterator[asyncio.Task[httpx2.Response]]:
    task = asyncio.create_task(http.post("/api/chat", json=body))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_an_agent_sees_the_turn_but_only_the_headers_on_the_list(tier: Tier) -> None:
    turns: list[Turn] = []

    async def agent(turn: Turn) -> AsyncIterator[str]:
        turns.append(turn)
        yield turn.text

    def authorize(*_: Any) -> Identity:
        return Identity("ada", {"role": "admin"}, "a-token")

    web = tier.web(authorize=authorize)
    tier.worker(agent)
    headers = {"X-Tenant": "t1", "authorization": "Bearer secret", "cookie": "secret"}
    answer = await web.post("/api/chat?a=1", json={**question("hello"), "model": "m"}, headers=headers)
    assert text_of(answer) == "hello"
    [turn] = turns
    assert (turn.identity, dict(turn.headers)) == (authorize(), {"x-tenant": "t1"})
    assert (turn.headers["X-TENANT"], dict(turn.query), dict(turn.body)) == ("t1", {"a": "1"}, {"model": "m"})
    assert turn.chat_id == "c1"


async def approving(turn: Turn) -> AsyncIterator[Part]:
    if turn.approvals:
        yield ToolResult("call-1", {"deleted": turn.approvals[0].approved})
        yield Text("Done.")
    else:
        yield ToolCall("call-1", "delete", {"path": "/"})
        yield ApprovalRequest("approval-1", "call-1")


@pytest.mark.parametrize("is_forgotten", [False, True])
async def test_an_approval_is_taken_by_a_worker_of_any_version(tier: Tier, is_forgotten: bool) -> None:
    web = tier.web()
    first = tier.worker(approving)
    request = message_of((await web.post("/api/chat", json=question())).content)
    assert (await web.get("/api/chat/c1")).json()["state"] == "waiting"
    first.stop()
    tier.worker(approving, version="v2")
    if is_forgotten:  # then the signature decides, which a worker has made and a web process checks
        client = redis.Redis.from_url(tier.url)
        client.delete(*client.keys(f"{tier.prefix}:*c1*"))
        client.close()
    [call] = [part for part in request["parts"] if part["type"] == "tool-delete"]
    call |= {"state": "approval-responded", "approval": call["approval"] | {"approved": True}}
    messages = [*question()["messages"], request]
    answer = await web.post("/api/chat", json={"id": "c1", "messages": messages})
    message = message_of(answer.content, request)
    [call] = [part for part in message["parts"] if part["type"] == "tool-delete"]
    assert call["output"] == {"deleted": True}


async def test_a_message_that_is_sent_again_is_answered_once(tier: Tier) -> None:
    gate, questions = asyncio.Event(), []

    async def agent(turn: Turn) -> AsyncIterator[str]:
        questions.append(turn.text)
        yield "One "
        await gate.wait()
        yield "answer."

    streams = Streams()
    one, other = tier.web(), tier.web(observer=streams)
    tier.worker(agent)
    async with asking(one, question()) as first:
        await until(lambda: questions, "the agent begins")
        async with asking(other, question()) as second:
            await streams.wait_for(1)
            gate.set()
            assert {text_of(await first), text_of(await second)} == {"One answer."}
    assert questions == ["Hi"]


async def test_an_edited_message_interrupts_the_answer_to_the_old_one(tier: Tier) -> None:
    questions: list[str] = []

    async def agent(turn: Turn) -> AsyncIterator[str]:
        questions.append(turn.text)
        yield turn.text
        if turn.text == "old":
            await asyncio.Event().wait()

    web = tier.web()
    tier.worker(agent)
    async with asking(web, question("old")):
        await until(lambda: questions, "the agent begins")
        assert text_of(await web.post("/api/chat", json=question("new"))) == "new"
    assert questions == ["old", "new"]


async def test_a_worker_answers_no_more_turns_at_once_than_it_may(tier: Tier) -> None:
    gate, running = asyncio.Event(), []

    async def agent(turn: Turn) -> AsyncIterator[str]:
        running.append(turn.chat_id)
        await gate.wait()
        yield "done"

    web = tier.web()
    worker = tier.worker(agent, concurrency=2)
    async with asking(web, question(chat_id="a")) as a, asking(web, question(chat_id="b")) as b:
        await until(lambda: len(running) == 2, "two agents run")
        async with asking(web, question(chat_id="c")) as c:
            await asyncio.sleep(0.3)
            assert (len(running), worker.running) == (2, 2)
            gate.set()
            assert [text_of(await each) for each in (a, b, c)] == ["done"] * 3


async def test_a_run_that_nobody_reads_any_more_is_stopped(tier: Tier) -> None:
    stopped = asyncio.Event()

    async def agent(_turn: Turn) -> AsyncIterator[str]:
        try:
            yield "begun"
            await asyncio.Event().wait()
        finally:
            stopped.set()

    web = tier.web(settings={"disconnect": "cancel"}, lease=4)
    worker = tier.worker(agent, settings=Settings(disconnect="cancel"), lease=4)
    async with asking(web, question()):
        await until(lambda: worker.running, "the agent begins")
    async with asyncio.timeout(PATIENCE):
        await stopped.wait()


async def test_a_waiting_turn_that_nobody_reads_any_more_never_begins(tier: Tier) -> None:
    chat_ids = []

    async def agent(turn: Turn) -> AsyncIterator[str]:
        chat_ids.append(turn.chat_id)
        yield "begun"

    web = tier.web(settings={"disconnect": "cancel"}, lease=4)
    states: list[str] = []
    async with asking(web, question()):
        while not states:
            response = await web.get("/api/chat/c1")
            states += [response.json()["state"]] if response.status_code == 200 else []

    async def is_stopped() -> bool:
        return bool((await web.get("/api/chat/c1")).json()["state"] == "stopped")

    await until(is_stopped, "it is stopped")
    tier.worker(agent)
    await web.post("/api/chat", json=question(chat_id="c2"))
    assert (states, chat_ids) == (["running"], ["c2"])


async def test_quotas_are_released_when_the_worker_has_answered(tier: Tier) -> None:
    async def agent(_turn: Turn) -> AsyncIterator[str]:
        yield "a long answer"

    web = tier.web(settings={"quotas": Quotas(concurrent_runs=1, bytes_per_day=100)})
    tier.worker(agent)
    assert text_of(await web.post("/api/chat", json=question())) == "a long answer"
    refused: list[httpx2.Response] = []

    async def is_refused() -> bool:
        refused.append(await web.post("/api/chat", json=question(chat_id="c2")))
        return "used up" in refused[-1].text

    await until(is_refused, "the bytes are counted")
    assert refused[-1].status_code == 429


async def test_a_factory_is_opened_once_and_closed_at_the_end(tier: Tier) -> None:
    events = []

    @asynccontextmanager
    async def make() -> AsyncIterator[Any]:
        events.append("opened")

        async def agent(turn: Turn) -> AsyncIterator[str]:
            yield turn.text

        yield agent
        events.append("closed")

    web = tier.web()
    worker = tier.worker(make)
    for chat in ("a", "b"):
        assert text_of(await web.post("/api/chat", json=question("hi", chat))) == "hi"
    assert events == ["opened"]
    worker.stop()
    await until(lambda: events == ["opened", "closed"], "the factory is left")


async def test_the_page_of_a_worker_that_died_is_told_so(tier: Tier) -> None:
    beginning = asyncio.Event()

    async def agent(_turn: Turn) -> AsyncIterator[str]:
        yield "half an"
        beginning.set()
        await asyncio.Event().wait()

    runs = tier.runs()

    async def is_written() -> bool:
        latest = await runs.latest("c1")
        return latest is not None and b"half an" in await runs.frames(latest)

    web = tier.web(lease=2)
    worker = tier.worker(agent, lease=2)
    async with asking(web, question()) as answer:
        await beginning.wait()
        await until(is_written, "what it said is in Redis")
        await tier.kill(worker)
        body = (await answer).content
    await runs.close()
    assert b"half an" in body
    assert b'{"type":"error","errorText":"The run was lost."}' in body
    assert (await web.get("/api/chat/c1")).json()["state"] == "lost"


async def test_an_agent_that_fails_is_reported_like_in_one_process(tier: Tier) -> None:
    async def agent(_turn: Turn) -> AsyncIterator[str]:
        yield "before"
        raise RuntimeError("secret")

    web = tier.web()
    tier.worker(agent)
    answer = await web.post("/api/chat", json=question())
    assert b"An error occurred. Reference: " in answer.content
    assert b"secret" not in answer.content
    assert (await web.get("/api/chat/c1")).json()["state"] == "failed"


class Broken(Observer):
    """Raises at the beginning and at the end of a run."""

    def run_started(self, info: RunInfo) -> None:
        raise RuntimeError(info.run_id)

    def run_ended(self, info: RunInfo, seconds: float) -> None:
        raise RuntimeError(f"{info.run_id} after {seconds} seconds")


async def test_an_observer_that_raises_is_logged_and_the_worker_goes_on(
    tier: Tier, caplog: pytest.LogCaptureFixture
) -> None:
    web = tier.web()
    tier.worker(lambda turn: f"Hello, {turn.text}", observer=Broken())
    async with asyncio.timeout(PATIENCE):
        for chat_id in ("c1", "c2"):
            assert text_of(await web.post("/api/chat", json=question("Ada", chat_id))) == "Hello, Ada"
    raised = [record.args for record in caplog.records if record.exc_info]
    assert raised == [("Broken", "run_started"), ("Broken", "run_ended")], "once each"


def test_a_queue_needs_a_store_that_is_shared(server: RedisServer) -> None:
    with pytest.raises(CannotAnswer, match="need a run store that is shared"):
        ChatApp(RedisTurns(RedisRuns(server.url), "agents"), runs=MemoryRuns())


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ({"chats": MemoryChats()}, "agent processes need a chat store that is shared"),
        ({"chats": SqlChats("chats.db"), "titles": print}, "agent processes make the titles"),
    ],
)
def test_what_agent_processes_do_not_share_is_refused_together_with_a_queue(
    option: dict[str, Any], sentence: str
) -> None:
    runs = RedisRuns("redis://localhost:1")
    with pytest.raises(InvalidSetting, match=sentence):
        ChatApp(RedisTurns(runs, "agents"), runs=runs, **option)


async def test_an_agent_gets_the_history_that_the_application_loads(tier: Tier) -> None:
    async def agent(turn: Turn) -> AsyncIterator[str]:
        yield " ".join([message["id"] for message in turn.messages])

    web = tier.web(load=lambda _turn: [user("stored", "Hi"), answer("a1", "Hello")])
    tier.worker(agent)
    body = {"id": "c1", "message": user("u2", "And now?")}
    assert text_of(await web.post("/api/chat", json=body)) == "stored a1 u2"


def test_an_object_without_attributes_cannot_be_said_to_be_restartable() -> None:
    with pytest.raises(CannotAnswer, match="wrap it in a function and mark that"):
        restartable((1, 2))
