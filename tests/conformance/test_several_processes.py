"""Two processes that share nothing but a PostgreSQL, and pages of the npm clients at both."""

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx2
import pytest

from tests.chats.sharing import SharingServer
from tests.conformance.http_client import NEWEST, PATIENCE, Browser, Page, text_of
from tests.postgres_server import postgres_server
from usechat.chats import SqlChats
from usechat.server import Settings

_numbers = itertools.count(1)


async def migrate(url: str) -> None:
    store = SqlChats(url)
    await store.migrate()
    await store.close()


class Processes(NamedTuple):
    """The processes, and the folder whose files let their agents go on."""

    servers: list[SharingServer]
    folder: Path


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    folder = tmp_path_factory.mktemp("gates")
    with postgres_server() as url:
        asyncio.run(migrate(url))
        servers = [SharingServer(url, folder, Settings()) for _ in range(2)]
        yield Processes(servers, folder)
        for server in servers:
            server.kill()


class Chat:
    """A new chat on a page of the first process, and on others of the second one."""

    def __init__(self, browser: Browser, release: str, processes: Processes) -> None:
        self._browser = browser
        self._release = release
        self._here, self._there = [server.url for server in processes.servers]
        self._chat_id = f"chat-{next(_numbers)}"
        self.page = browser.open(release, f"{self._here}/api/chat", chat_id=self._chat_id)

    def opened_there(self) -> Page:
        """Open the chat on a page of the other process."""
        loaded = httpx2.get(f"{self._there}/api/chat/{self._chat_id}/messages", timeout=PATIENCE).json()
        url = f"{self._there}/api/chat"
        return self._browser.open(self._release, url, chat_id=self._chat_id, messages=loaded["messages"])

    def stop_there(self) -> int:
        """Stop the answer at the other process."""
        return httpx2.post(f"{self._there}/api/chat/{self._chat_id}/stop", timeout=PATIENCE).status_code


@pytest.fixture(params=NEWEST)
def chat(request: pytest.FixtureRequest, browser: Browser, processes: Processes) -> Chat:
    for gate in processes.folder.iterdir():
        gate.unlink()
    return Chat(browser, request.param, processes)


def test_a_page_at_another_process_resumes_the_answer_while_it_grows(chat: Chat, processes: Processes) -> None:
    chat.page.send("Go")
    chat.page.until_text("One. ")
    other = chat.opened_there()
    other.resume()
    other.until_text("One. ")
    (processes.folder / "two").touch()
    other.until_text("One. Two. ")
    assert chat.page.look()["status"] == "streaming"
    (processes.folder / "three").touch()
    shown, seen = chat.page.answer(), other.answer()
    assert (seen["id"], seen["parts"]) == (shown["id"], shown["parts"])


def test_a_stop_at_another_process_ends_the_answer_on_all_pages(chat: Chat) -> None:
    chat.page.send("Go")
    chat.page.until_text("One. ")
    other = chat.opened_there()
    other.resume()
    other.until_text("One. ")
    assert chat.stop_there() == 204
    views = [page.settled() for page in (chat.page, other)]
    assert [(view["status"], view["error"], text_of(view)) for view in views] == [("ready", None, "One. ")] * 2
