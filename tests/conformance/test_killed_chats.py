"""kill -9 at every write and at random moments: what was saved is loaded, part for part, passes the clients' own
validation, and the chat goes on.
"""

import asyncio
import random
import shutil
from collections.abc import AsyncIterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest

from tests.chats.dying import DyingServer, Kill, agent
from tests.chats.talking import answers, texts, user
from tests.conformance.judge import RELEASES, Judge
from tests.server.sockets import Body
from usechat.chats import SqlChats
from usechat.chats.chat import settled
from usechat.protocol.chunks import Chunk
from usechat.protocol.message import MessageBuilder
from usechat.protocol.ui_messages import UIMessage
from usechat.server import ChatApp, Settings

GROUPS, MOMENTS = 8, 25
AT_ONCE = 5
"""Processes that are killed at the same time: they wait more than they work."""
SIZE = 6_000
"""Bytes of the answer."""
QUESTION = {"id": "c1", "messages": [user("u1", "story")]}
SAVES = 5
"""Writes of one answer that are sure to happen: its beginning, and one for each step."""


class Restarted:
    """The server after the restart."""

    def __init__(self, path: Path) -> None:
        self.chats = SqlChats(str(path))
        self._app = ChatApp(agent, chats=self.chats, settings=Settings(sdk="7"), metrics=False)
        self.client = httpx2.AsyncClient(transport=httpx2.ASGITransport(self._app), base_url="http://a", timeout=60)

    async def post(self, *messages: Any, **body: Any) -> Body:
        response = await self.client.post("/api/chat", json={"id": "c1", "messages": list(messages), **body})
        assert response.status_code == 200, response.text
        return Body(response.content, complete=True)

    async def load(self) -> list[UIMessage]:
        response = await self.client.get("/api/chat/c1/messages")
        return [] if response.status_code == 404 else cast("list[UIMessage]", response.json()["messages"])

    async def close(self) -> None:
        await self._app.shut_down()


@pytest.fixture(scope="session")
def empty_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with its tables: a copy of it need not be upgraded."""
    path = tmp_path_factory.mktemp("killed") / "chats.db"
    asyncio.run(_prepare(path))
    return path


async def _prepare(path: Path) -> None:
    store = SqlChats(str(path))
    await store.open()
    await store.close()


@pytest.fixture
async def whole(empty_file: Path, tmp_path: Path) -> AsyncIterator[list[Chunk]]:
    """All chunks of the answer, as a page sees them that nobody interrupts."""
    restarted = Restarted(Path(shutil.copy(empty_file, tmp_path / "whole.db")))
    yield (await restarted.post(user("u1", "story"))).chunks
    await restarted.close()


def states(chunks: Sequence[Chunk], message_id: str) -> list[list[Any]]:
    """The parts of the answer after each chunk: after none, after the first, and so on."""
    builder = MessageBuilder(sdk="7", message_id=message_id)
    found: list[list[Any]] = [[]]
    for chunk in chunks:
        builder.receive(chunk)
        found.append(unsigned(builder.message["parts"]))
    return found


def unsigned(parts: Sequence[Any]) -> list[Any]:
    """The parts without the signature of an approval request, which is another one in each process."""
    return [
        {**part, "approval": {"id": part["approval"]["id"]}} if "approval" in part else dict(part) for part in parts
    ]


def ended(parts: list[Any]) -> list[Any]:
    message = cast("UIMessage", {"id": "m", "role": "assistant", "parts": parts})
    return list(settled(message, "lost")["parts"])


async def check_after_kill(judge: Judge, path: Path, server: DyingServer, received: Body, whole: list[Chunk]) -> None:
    """What is loaded is a state of the answer that is not older than what was saved; then the chat goes on."""
    server.expire()
    restarted = Restarted(path)
    loaded = await restarted.load()
    seen = [type(chunk) for chunk in received.chunks]
    assert seen == [type(chunk) for chunk in whole[: len(seen)]]
    if seen or server.saved:
        assert texts(loaded[:1]) == ["story"], "the question is stored before the first byte of the answer"
    possible = states(whole, "m")
    shown = unsigned(loaded[1]["parts"]) if loaded[1:] else []
    is_whole = shown == possible[-1]
    assert is_whole or not received.complete
    if not is_whole:
        oldest = 0
        if server.saved:
            saved = unsigned(server.saved[-1]["parts"])
            oldest = max(number for number, parts in enumerate(possible) if parts == saved)
        assert shown in [ended(parts) for parts in possible[oldest:]]
    if loaded:
        verdicts = [judge.validate(RELEASES[major][-1], [loaded]) for major in ("6", "7")]  # 5 has no approvals
        assert [verdict["ok"] for [verdict] in verdicts] == [True, True], verdicts
    if is_whole:  # the answer ended before the process did: its approval is open
        approved = {**answers("t1", "p1", True), "type": "tool-delete", "input": {"path": "notes"}}
        copy = {**loaded[1], "parts": [*loaded[1]["parts"][:-1], approved]}
        assert (await restarted.post(copy, messageId=copy["id"])).text == "Deleted."
    said = await restarted.post(user("u2", "Next"))
    assert said.text == f"{len(loaded) + 1}: Next"
    assert texts(await restarted.load())[-2:] == ["Next", said.text]
    await restarted.close()


@pytest.mark.parametrize("kill", [Kill(*each) for each in product(range(1, SAVES + 1), ("before", "during", "after"))])
async def test_a_process_that_dies_at_a_write_loses_nothing_that_was_saved(
    judge: Judge, empty_file: Path, tmp_path: Path, whole: list[Chunk], kill: Kill
) -> None:
    path = Path(shutil.copy(empty_file, tmp_path / "chats.db"))
    server = DyingServer(path, kill)
    received = server.ask(QUESTION)
    server.kill()
    assert not received.complete
    await check_after_kill(judge, path, server, received, whole)


@pytest.mark.parametrize("group", range(GROUPS))
async def test_a_process_that_dies_at_random_moments_loses_nothing_that_was_saved(
    judge: Judge, empty_file: Path, tmp_path: Path, whole: list[Chunk], group: int
) -> None:
    at_once = asyncio.Semaphore(AT_ONCE)

    async def die_at(number: int) -> None:
        moment = random.Random(group * MOMENTS + number).randrange(1, SIZE)
        path = Path(shutil.copy(empty_file, tmp_path / f"{number}.db"))
        async with at_once:
            server = DyingServer(path)
            received = await asyncio.to_thread(server.ask, QUESTION, kill_after=moment)
            await asyncio.to_thread(server.kill)
            await check_after_kill(judge, path, server, received, whole)

    await asyncio.gather(*[die_at(number) for number in range(MOMENTS)])
