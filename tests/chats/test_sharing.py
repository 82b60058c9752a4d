"""Two processes and a PostgreSQL, no Redis: any of them shows, stops and answers what the other one runs."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from tests.chats.conftest import migrate
from tests.chats.sharing import SharingServer
from tests.chats.talking import user
from tests.server.sockets import Body
from usechat.chats import SqlChats
from usechat.ids import new_id
from usechat.protocol.message import MessageBuilder
from usechat.protocol.sse import ChunkDecoder
from usechat.protocol.ui_messages import text_of
from usechat.server import Settings

pytestmark = pytest.mark.stores

PATIENCE: Final = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gates")


@pytest.fixture(scope="module")
def servers(postgres: str, folder: Path) -> Iterator[tuple[SharingServer, SharingServer]]:
    pair = tuple(SharingServer(postgres, folder, Settings(sdk="7", approval_secret="s" * 32)) for _ in range(2))
    yield pair[0], pair[1]
    for server in pair:
        server.kill()


class Stream:
    """A response that is read as far as the test wants."""

    def __init__(self, response: httpx2.Response) -> None:
        self.status = response.status_code
        self._pieces = response.aiter_raw()
        self.data = b""

    async def until(self, text: str) -> str:
        """Read until the page shows a text; return all that it shows."""
        async with asyncio.timeout(PATIENCE):
            while text not in self.text:
                self.data += await anext(self._pieces)
        return self.text

    async def rest(self) -> Body:
        async with asyncio.timeout(PATIENCE):
            async for piece in self._pieces:
                self.data += piece
        return Body(self.data, complete=True)

    @property
    def message(self) -> Any:
        builder = MessageBuilder(sdk="7")
        for chunk in ChunkDecoder().receive(self.data):
            builder.receive(chunk)
        return builder.message

    @property
    def text(self) -> str:
        return text_of(self.message)


class Page:
    """A chat on a page that one process serves."""

    def __init__(self, client: httpx2.AsyncClient, chat_id: str) -> None:
        self._client = client
        self.chat_id = chat_id

    @asynccontextmanager
    async def sends(self, *messages: Any) -> AsyncIterator[Stream]:
        body = {"id": self.chat_id, "messages": list(messages)}
        async with self._client.stream("POST", "/api/chat", json=body) as response:
            yield Stream(response)

    @asynccontextmanager
    async def resumes(self) -> AsyncIterator[Stream]:
        async with self._client.stream("GET", f"/api/chat/{self.chat_id}/stream") as response:
            yield Stream(response)

    async def stops(self) -> int:
        return (await self._client.post(f"/api/chat/{self.chat_id}/stop")).status_code

    async def state(self) -> Any:
        return (await self._client.get(f"/api/chat/{self.chat_id}")).json()

    async def loads(self) -> Any:
        return (await self._client.get(f"/api/chat/{self.chat_id}/messages")).json()

    async def deletes(self) -> int:
        return (await self._client.delete(f"/api/chat/{self.chat_id}")).status_code

    async def ended(self) -> tuple[str, Any]:
        """How the last answer ended, and what is stored of it."""
        async with asyncio.timeout(PATIENCE):
            while (await self.loads())["running"] is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        loaded = await self.loads()
        message = loaded["messages"][-1]
        return loaded["outcomes"][message["id"]], message


@pytest.fixture
async def pages(servers: tuple[SharingServer, SharingServer]) -> AsyncIterator[tuple[Page, Page]]:
    async with pages_of(*servers) as pages:
        yield pages


@asynccontextmanager
async def pages_of(*servers: SharingServer) -> AsyncIterator[tuple[Page, Page]]:
    """The same new chat on pages of both processes."""
    chat_id = new_id()
    async with (
        httpx2.AsyncClient(base_url=servers[0].url, timeout=PATIENCE) as here,
        httpx2.AsyncClient(base_url=servers[1].url, timeout=PATIENCE) as there,
    ):
        yield Page(here, chat_id), Page(there, chat_id)


@pytest.fixture
def gates(folder: Path) -> Iterator[Path]:
    close(folder)
    yield folder
    open_all(folder)  # what waits still goes on


def open_all(gates: Path) -> None:
    for name in ("two", "three"):
        (gates / name).touch()


def close(gates: Path) -> None:
    for gate in gates.iterdir():
        gate.unlink()


async def test_a_page_of_another_process_sees_how_the_answer_grows(pages: tuple[Page, Page], gates: Path) -> None:
    here, there = pages
    async with here.sends(user("u1", "Go")) as asked:
        await asked.until("One. ")
        async with there.resumes() as resumed:
            assert await resumed.until("One. ") == "One. "
            (gates / "two").touch()
            assert await resumed.until("Two. ") == "One. Two. ", "long before the owner would save it by itself"
            async with there.resumes() as late:
                assert await late.until("Two. ") == "One. Two. "
            (gates / "three").touch()
            await asyncio.gather(asked.rest(), resumed.rest())
    assert resumed.message == asked.message
    assert (await there.loads())["messages"][-1]["parts"] == resumed.message["parts"]


async def test_any_process_says_that_a_chat_is_answered(pages: tuple[Page, Page], gates: Path) -> None:
    here, there = pages
    async with here.sends(user("u1", "Go")) as asked:
        await asked.until("One. ")
        states = [await page.state() for page in pages]
        assert states[0] == states[1]
        assert (states[1]["state"], states[1]["running"]) == ("running", True)
        assert (await there.loads())["running"] == {"messageId": asked.message["id"], "attempt": 1}
        async with there.sends(user("u2", "More")) as refused:
            assert refused.status == 409
        open_all(gates)
        await asked.rest()
    async with there.resumes() as resumed:
        assert resumed.status == 204


@pytest.mark.usefixtures("gates")
async def test_any_process_stops_an_answer(pages: tuple[Page, Page]) -> None:
    here, there = pages
    async with here.sends(user("u1", "Go")) as asked, there.resumes() as resumed:
        await resumed.until("One. ")
        assert await there.stops() == 204
        bodies = await asyncio.gather(asked.rest(), resumed.rest())
    assert all(b'"type":"abort"' in body.data for body in bodies)
    outcome, message = await there.ended()
    assert (outcome, text_of(message)) == ("stopped", "One. ")
    assert await there.stops() in (204, 404), "once more does nothing"


@pytest.mark.usefixtures("gates")
async def test_an_order_to_stop_whose_signal_was_lost_is_found_in_the_database(
    pages: tuple[Page, Page], postgres: str
) -> None:
    async with pages[0].sends(user("u1", "Go")) as asked:
        await asked.until("One. ")
        chats = SqlChats(postgres)
        await chats.order_stop(pages[0].chat_id)
        assert b'"type":"abort"' in (await asked.rest()).data
        await chats.close()


@pytest.mark.usefixtures("gates")
async def test_any_process_deletes_a_chat_that_is_answered(pages: tuple[Page, Page]) -> None:
    here, there = pages
    async with here.sends(user("u1", "Go")) as asked:
        await asked.until("One. ")
        assert await there.deletes() == 204
        assert b'"type":"abort"' in (await asked.rest()).data


async def test_a_message_that_is_sent_again_elsewhere_joins_the_answer(pages: tuple[Page, Page], gates: Path) -> None:
    here, there = pages
    async with here.sends(user("u1", "Go")) as asked:
        await asked.until("One. ")
        async with there.sends(user("u1", "Go")) as again:
            await again.until("One. ")
            open_all(gates)
            await asyncio.gather(asked.rest(), again.rest())
    assert again.message == asked.message


async def test_an_edit_elsewhere_stops_the_answer_to_what_it_replaces(pages: tuple[Page, Page], gates: Path) -> None:
    here, there = pages
    async with here.sends(user("u1", "Go")) as asked:
        await asked.until("One. ")
        async with there.sends(user("u1", "Go on")) as edited:
            assert b'"type":"abort"' in (await asked.rest()).data
            open_all(gates)
            await edited.rest()
    assert edited.text == "One. Two. Three."


async def test_an_answer_that_nobody_reads_gives_way_to_a_message_elsewhere(
    pages: tuple[Page, Page], gates: Path
) -> None:
    here, there = pages
    async with here.sends(user("u1", "Go")) as asked:
        await asked.until("One. ")
    async with there.sends(user("u2", "Go")) as other:
        assert other.status == 200
        open_all(gates)
        await other.rest()
    outcomes = (await there.loads())["outcomes"]
    assert list(outcomes.values()) == ["stopped", "finished"]


async def test_an_approval_at_another_process_reaches_the_task_that_waits(pages: tuple[Page, Page]) -> None:
    here, there = pages
    async with here.sends(user("u1", "ask")) as asked:
        await asked.rest()
    async with there.sends(user("u1", "ask"), approved(asked.message)) as answered:
        await answered.rest()
    outcome, message = await here.ended()
    assert (outcome, text_of(message)) == ("finished", "Dug.")
    assert [part["output"] for part in message["parts"] if part["type"] == "tool-dig"] == ["approved: True"]


async def test_a_page_of_another_process_sees_how_an_approved_answer_goes_on(
    pages: tuple[Page, Page], gates: Path
) -> None:
    here, there = pages
    open_all(gates)
    async with here.sends(user("u1", "pay")) as asked:
        await asked.rest()
    close(gates)
    answer = approved(asked.message)
    async with (
        here.sends(user("u1", "pay"), answer) as approving,
        there.resumes() as resumed,
        there.sends(user("u1", "pay"), answer) as again,
    ):
        await resumed.until("Two. One. ")
        open_all(gates)
        await asyncio.gather(approving.rest(), resumed.rest(), again.rest())
    outcome, message = await here.ended()
    assert outcome == "waiting"
    assert resumed.message["parts"] == message["parts"]
    page = MessageBuilder(sdk="7", message=answer)
    for chunk in ChunkDecoder().receive(again.data):
        page.receive(chunk)
    assert page.message["parts"] == message["parts"]


@pytest.fixture
def start(postgres: str, folder: Path) -> Iterator[Callable[[Settings], SharingServer]]:
    """Start a process that is known to be dead soon after its death.

    Its database is its own: the other servers of this module would take over its answers, by other rules.
    """
    servers: list[SharingServer] = []
    database = asyncio.run(another_database(postgres, f"deaths_{new_id().lower()}"))

    def start_one(settings: Settings) -> SharingServer:
        servers.append(SharingServer(database, folder, settings, lease=6))
        return servers[-1]

    yield start_one
    for server in servers:
        server.kill()


async def test_who_reads_elsewhere_reads_on_when_the_process_has_died(
    start: Callable[[Settings], SharingServer], gates: Path
) -> None:
    settings = Settings(sdk="7", after_crash="continue")
    servers = start(settings), start(settings)
    async with pages_of(*servers) as (here, there):
        async with here.sends(user("u1", "Go")) as asked:
            await asked.until("One. ")
            async with there.resumes() as resumed:
                await resumed.until("One. ")
                servers[0].kill()
                open_all(gates)
                await resumed.rest()
        assert resumed.text == "One. Two. Three."
        outcome, message = await there.ended()
    assert (outcome, resumed.message["parts"]) == ("finished", message["parts"])


async def test_a_message_after_the_death_of_the_other_process_waits_until_the_chat_is_free(
    start: Callable[[Settings], SharingServer], gates: Path
) -> None:
    servers = start(Settings(sdk="7")), start(Settings(sdk="7"))
    async with pages_of(*servers) as (here, there):
        async with here.sends(user("u1", "Go")) as asked:
            await asked.until("One. ")
            servers[0].kill()
            open_all(gates)
            async with there.sends(user("u2", "Go")) as answered:
                assert answered.status == 200
                await answered.rest()
        assert answered.text == "One. Two. Three."
        assert list((await there.loads())["outcomes"].values())[-1] == "finished"


async def another_database(url: str, name: str) -> str:
    """Make a database at the server of another one; return its URL."""
    engine = create_async_engine(url.replace("postgresql:", "postgresql+asyncpg:"), isolation_level="AUTOCOMMIT")
    async with engine.connect() as connection:
        await connection.execute(text(f'CREATE DATABASE "{name}"'))
    await engine.dispose()
    database = url.replace("/postgres?", f"/{name}?")
    await migrate(database)
    return database


def approved(message: Any) -> Any:
    """A message with a yes to its question."""
    parts = [
        {**part, "state": "approval-responded", "approval": {**part["approval"], "approved": True}}
        if part.get("state") == "approval-requested"
        else part
        for part in message["parts"]
    ]
    return {**message, "parts": parts}
