"""kill -9 at every write and at random moments: what was saved is loaded, part for part, passes the clients' own
validation, and the chat goes on.
"""

import asyncio
import random
import shutil
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, cast

import httpx2
import pytest

from tests.chats.dying import DyingServer, Kill, agent
from tests.chats.talking import texts, user
from tests.conformance.judge import RELEASES, Judge
from tests.server.sockets import Body
from usechat.chats import SqlChats
from usechat.chats.chat import settled
from usechat.protocol.chunks import Chunk
from usechat.protocol.message import MessageBuilder
from usechat.protocol.ui_messages import UIMessage
from usechat.server import ChatApp, Settings

SDKS = ("5", "6", "7")
GROUPS, MOMENTS = 8, 25
AT_ONCE = 5
"""Processes that are killed at the same time: they wait more than they work."""
QUESTION = {"id": "c1", "messages": [user("u1", "story")]}
SAVES = 5
"""Writes of one answer that are sure to happen: its beginning, and one for each step."""


class Restarted:
    """The server after the restart."""

    def __init__(self, path: Path, sdk: str) -> None:
        self._app = ChatApp(agent, chats=SqlChats(str(path)), settings=Settings(sdk=sdk), metrics=False)
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


class Whole(NamedTuple):
    """The answer as a page sees it that nobody interrupts."""

    size: int
    """How many bytes are sent."""
    kinds: list[type[Chunk]]
    """The types of its chunks."""
    states: list[list[Any]]
    """Its parts after each chunk: after none, after the first, and so on."""


@pytest.fixture(scope="session")
def answers(empty_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Whole]:
    """The whole answer for each release."""
    directory = tmp_path_factory.mktemp("whole")
    paths = {sdk: Path(shutil.copy(empty_file, directory / f"{sdk}.db")) for sdk in SDKS}
    return {sdk: asyncio.run(_whole(path, sdk)) for sdk, path in paths.items()}


async def _whole(path: Path, sdk: str) -> Whole:
    restarted = Restarted(path, sdk)
    body = await restarted.post(user("u1", "story"))
    await restarted.close()
    builder = MessageBuilder(sdk=sdk, message_id="m")
    states: list[list[Any]] = [[]]
    for chunk in body.chunks:
        builder.receive(chunk)
        states.append(unsigned(builder.message["parts"]))
    return Whole(len(body.data), [type(chunk) for chunk in body.chunks], states)


def unsigned(parts: Sequence[Any]) -> list[Any]:
    """The parts without the signature of an approval request, which is another one in each process."""
    return [_unsigned(part) for part in parts]


def _unsigned(part: Any) -> Any:
    match part:
        case {"approval": {"id": approval_id}}:
            return {**part, "approval": {"id": approval_id}}
        case {"type": "tool-approval", "input": {"signature": _} as question}:  # 5 asks through this tool
            return {**part, "input": {name: value for name, value in question.items() if name != "signature"}}
    return dict(part)


def approved(message: UIMessage) -> UIMessage:
    """The page's copy of the answer, with its approval given; 5 asks for it through a tool of the page."""

    def give(part: Any) -> Any:
        match part:
            case {"type": "tool-approval"}:
                return {**part, "state": "output-available", "output": {"approved": True}}
            case {"state": "approval-requested", "approval": approval}:
                return {**part, "state": "approval-responded", "approval": {**approval, "approved": True}}
        return part

    return {**message, "parts": [give(part) for part in message["parts"]]}


def releases_for(messages: Sequence[UIMessage]) -> list[str]:
    """The newest releases that read these messages: 5 has no approvals."""
    states = [part.get("state") for message in messages for part in message["parts"]]
    return [RELEASES[sdk][-1] for sdk in SDKS if sdk != "5" or "approval-requested" not in states]


def ended(parts: list[Any]) -> list[Any]:
    message = cast("UIMessage", {"id": "m", "role": "assistant", "parts": parts})
    return list(settled(message, "lost")["parts"])


async def check_after_kill(judge: Judge, server: DyingServer, received: Body, whole: Whole) -> None:
    """What is loaded is a state of the answer that is not older than what was saved; then the chat goes on."""
    server.expire()
    restarted = Restarted(server.path, server.sdk)
    loaded, saved = await restarted.load(), server.saved
    kinds = [type(chunk) for chunk in received.chunks]
    assert kinds == whole.kinds[: len(kinds)]
    if kinds or saved:
        assert texts(loaded[:1]) == ["story"], "the question is stored before the first byte of the answer"
    stored_parts = unsigned(loaded[1]["parts"]) if loaded[1:] else []
    is_whole = stored_parts == whole.states[-1]
    assert is_whole or not received.complete
    if not is_whole:
        last = unsigned(saved[-1]["parts"]) if saved else []
        oldest = max(number for number, parts in enumerate(whole.states) if parts == last)
        assert stored_parts in [ended(parts) for parts in whole.states[oldest:]]
    for release in releases_for(loaded) if loaded else ():
        [verdict] = judge.validate(release, [loaded])
        assert verdict["ok"], (release, verdict)
    if is_whole:  # the answer ended before the process did: its approval is open
        copy = approved(loaded[1])
        assert (await restarted.post(copy, messageId=copy["id"])).text == "Deleted."
    answer = await restarted.post(user("u2", "Next"))
    assert answer.text == f"{len(loaded) + 1}: Next"
    assert texts(await restarted.load())[-2:] == ["Next", answer.text]
    await restarted.close()


@pytest.mark.parametrize("kill", [Kill(*each) for each in product(range(1, SAVES + 1), ("before", "during", "after"))])
@pytest.mark.parametrize("sdk", SDKS)
async def test_a_process_that_dies_at_a_write_loses_nothing_that_was_saved(
    judge: Judge, empty_file: Path, tmp_path: Path, answers: Mapping[str, Whole], sdk: str, kill: Kill
) -> None:
    server = DyingServer(Path(shutil.copy(empty_file, tmp_path / "chats.db")), kill, sdk=sdk)
    received = server.ask(QUESTION)
    server.kill()
    assert not received.complete
    await check_after_kill(judge, server, received, answers[sdk])


@pytest.mark.parametrize("group", range(GROUPS))
async def test_a_process_that_dies_at_random_moments_loses_nothing_that_was_saved(
    judge: Judge, empty_file: Path, tmp_path: Path, answers: Mapping[str, Whole], group: int
) -> None:
    at_once = asyncio.Semaphore(AT_ONCE)

    async def die_at(number: int) -> None:
        seed = group * MOMENTS + number
        sdk = SDKS[seed % len(SDKS)]
        moment = random.Random(seed).randrange(1, answers[sdk].size + 1)
        path = Path(shutil.copy(empty_file, tmp_path / f"{number}.db"))
        async with at_once:
            server = DyingServer(path, sdk=sdk)
            received = await asyncio.to_thread(server.ask, QUESTION, until=lambda data: len(data) >= moment)
            await asyncio.to_thread(server.kill)
            await check_after_kill(judge, server, received, answers[sdk])

    await asyncio.gather(*[die_at(number) for number in range(MOMENTS)])
