"""What the features of an app with stored chats do to each other."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.chats.talking import REGENERATE, texts, user
from tests.server.sockets import Body
from tests.server.streams import Streams
from tests.server.test_chat_routes import named
from tests.server.test_stored_turns import Agent, approved, titles_in
from usechat.chats import ChatStore, MemoryChats, SqlChats
from usechat.runs.quotas import Quotas
from usechat.server import ChatApp, Settings
from usechat.turn import Turn

pytestmark = pytest.mark.external_agents

Make = Callable[..., httpx2.AsyncClient]


@pytest.fixture
def agent() -> Agent:
    return Agent()


@pytest.fixture(params=["memory", "sqlite"])
def chats(request: pytest.FixtureRequest, tmp_path: Path) -> ChatStore:
    return MemoryChats() if request.param == "memory" else SqlChats(str(tmp_path / "chats.db"))


@pytest.fixture
async def make(chats: ChatStore, agent: Agent) -> AsyncIterator[Make]:
    apps: list[ChatApp] = []

    def make(quotas: Quotas | None = None, **options: Any) -> httpx2.AsyncClient:
        settings = Settings(sdk="7", quotas=quotas or Quotas())
        app = ChatApp(agent, chats=chats, settings=settings, metrics=False, authorize=named, **options)
        apps.append(app)
        headers = {"x-name": "ada"}
        transport = httpx2.ASGITransport(app)
        return httpx2.AsyncClient(transport=transport, base_url="http://a", timeout=30, headers=headers)

    yield make
    for app in apps:
        await app.shut_down()


async def post(client: httpx2.AsyncClient, *messages: Any, chat_id: str = "c1", **body: Any) -> Body:
    response = await client.post("/api/chat", json={"id": chat_id, "messages": list(messages), **body})
    assert response.status_code == 200, response.text
    return Body(response.content, complete=True)


async def loaded(client: httpx2.AsyncClient) -> list[Any]:
    messages: list[Any] = (await client.get("/api/chat/c1/messages")).json()["messages"]
    return messages


@asynccontextmanager
async def answering(client: httpx2.AsyncClient, agent: Agent) -> AsyncIterator["asyncio.Future[Body]"]:
    """Ask a question whose answer waits in the middle; yield its response."""
    task = asyncio.ensure_future(post(client, user("u1", "wait")))
    await asyncio.wait_for(agent.waits.wait(), 30)
    yield task
    agent.goes_on.set()
    await task


# Quotas.


async def test_a_request_for_the_answer_that_runs_is_not_one_run_more(make: Make, agent: Agent) -> None:
    streams = Streams()
    client = make(Quotas(concurrent_runs=1), observer=streams)
    async with answering(client, agent) as task:
        second = asyncio.ensure_future(post(client, user("u1", "wait")))
        await streams.wait_for(2)
        other = await client.post("/api/chat", json={"id": "c2", "messages": [user("u1", "Other chat")]})
        assert (other.status_code, other.text) == (429, "More than 1 messages at once. Please wait.")
        refused = await client.post("/api/chat", json={"id": "c1", "messages": [user("u2", "Other question")]})
        assert refused.status_code == 409, "the chat is being answered: that is the reason, and not a quota"
        assert (await post(client, user("u1", "Edited"))).text == "Answer 1 to Edited."
        assert [(await each).text for each in (task, second)] == ["Wait", "Wait"]


async def test_approvals_of_two_tabs_are_one_run(make: Make, agent: Agent) -> None:
    streams = Streams()
    client = make(Quotas(concurrent_runs=1), observer=streams)
    await post(client, user("u1", "delete slowly"))
    copy = approved((await loaded(client))[-1])
    first = asyncio.ensure_future(post(client, copy, messageId=copy["id"]))
    await asyncio.wait_for(agent.waits.wait(), 30)
    second = asyncio.ensure_future(post(client, copy, messageId=copy["id"]))
    await streams.wait_for(3)
    agent.goes_on.set()
    assert [(await each).text for each in (first, second)] == ["Done.", "Done."]
    assert agent.ran == 1


# Hooks.


class Reports:
    """An ``on_finish`` that notes what it was given, and what was stored by then."""

    def __init__(self, chats: ChatStore) -> None:
        self.entries: list[tuple[str, list[str]]] = []
        self._chats = chats

    async def __call__(self, message: Any, turn: Turn, outcome: str) -> None:
        stored = (await self._chats.load(turn.chat_id, owner="ada", tree=True)).tree
        assert message in [row["message"] for row in stored]
        self.entries.append((outcome, texts([message])))


async def test_on_finish_gets_a_stopped_answer_once_as_it_is_stored(make: Make, agent: Agent, chats: ChatStore) -> None:
    reports = Reports(chats)
    client = make(on_finish=reports)
    async with answering(client, agent) as task:
        assert (await client.post("/api/chat/c1/stop")).status_code == 204
        await task
    assert reports.entries == [("stopped", ["Wait"])]


async def test_on_finish_gets_the_answer_that_an_edit_stops(make: Make, agent: Agent, chats: ChatStore) -> None:
    reports = Reports(chats)
    client = make(on_finish=reports)
    async with answering(client, agent):
        await post(client, user("u1", "Edited"))
    assert reports.entries == [("stopped", ["Wait"]), ("finished", ["Answer 1 to Edited."])]


async def test_on_finish_gets_the_answer_of_a_chat_that_is_deleted(make: Make, agent: Agent, chats: ChatStore) -> None:
    reports = Reports(chats)
    client = make(on_finish=reports)
    async with answering(client, agent) as task:
        assert (await client.delete("/api/chat/c1")).status_code == 204
        assert (await task).text == "Wait"
    assert reports.entries == [("stopped", ["Wait"])]
    assert (await client.get("/api/chat/c1/messages")).status_code == 404
    assert (await post(client, user("u1", "Again"))).text == "Answer 1 to Again.", "nothing of the chat is left"


# Titles.


async def test_a_function_does_not_replace_the_title_that_a_person_gave_meanwhile(
    make: Make, agent: Agent, chats: ChatStore
) -> None:
    renamed, suggested = asyncio.Event(), asyncio.Event()

    async def titles(_messages: list[Any]) -> str:
        await renamed.wait()
        asyncio.get_running_loop().call_later(0.2, suggested.set)
        return "Of a function"

    client = make(titles=titles)
    async with answering(client, agent) as task:
        assert (await client.patch("/api/chat/c1", json={"title": "Mine"})).status_code == 200
        renamed.set()
        await asyncio.wait_for(suggested.wait(), 30)
    assert titles_in(await task) == ["wait"]
    assert (await chats.look_up("c1", owner="ada")).chat.title == "Mine"


# Shared chats.


async def test_a_link_shows_the_branch_that_its_owner_sees(make: Make, agent: Agent) -> None:
    client = make(share=True)
    await post(client, user("u1", "First"))
    token = (await client.put("/api/chat/c1/share")).json()["token"]

    async def shared() -> list[str]:
        return texts((await client.get(f"/api/shared/{token}", headers={"x-name": "stranger"})).json()["messages"])

    assert await shared() == ["First", "Answer 1 to First."]
    await post(client, user("u1", "Edited"))
    assert await shared() == ["Edited", "Answer 1 to Edited."]
    await post(client, trigger=REGENERATE)
    first = next(ids[0] for ids in (await client.get("/api/chat/c1/messages")).json()["siblings"].values())
    await client.patch("/api/chat/c1", json={"headId": first})
    assert await shared() == ["First"], "the head is the question"
    async with answering(client, agent):
        assert await shared() == ["wait"], "an answer is shown when it has ended"
    assert await shared() == ["wait", "Wait over."]
