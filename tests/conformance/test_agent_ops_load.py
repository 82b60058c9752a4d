"""Clients under load, in front of a gateway in another process, so that its memory can be measured."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from examples.agent_ops_session.server import Sessions
from tests.agent_ops.directories import directory_at, fill, sqlite
from tests.agent_ops.gateways import Upstream, eventually, upstream
from tests.conformance.http_client import NEWEST, Browser, Page, text_of
from tests.server.process import PATIENCE, ServeProcess, question, serve_process
from usechat.runs.run import CANNOT_FOLLOW

MEBIBYTE = 1024 * 1024
ROOM = 12 * MEBIBYTE
"""How much memory may vary by itself; the floods are several times as large."""


class Gateway:
    """`usechat serve --as agent-ops` in front of sessions in this process."""

    def __init__(self, served: ServeProcess, behind: Upstream, sessions: Sessions, token: str) -> None:
        self._served = served
        self.behind = behind
        self.sessions = sessions
        self.url = f"{served.url}/api/sessions/interactive/chat"
        self.headers = {"Authorization": f"Bearer {token}"}

    def open(self, browser: Browser, release: str, chat_id: str, *, reads: bool = True) -> Page:
        return browser.open(release, self.url, chat_id=chat_id, headers=self.headers, reads=reads)

    def memory(self, what: str = "VmRSS") -> int:
        """Return how many bytes of memory the gateway has now (`VmRSS`), or had at most (`VmHWM`)."""
        status = Path(f"/proc/{self._served.process.pid}/status").read_text(encoding="ascii")
        return int(re.findall(rf"^{what}:\s*(\d+) kB$", status, re.MULTILINE)[0]) * 1024


async def token_of_carl(directory: Path) -> str:
    async with directory_at(sqlite(directory)) as sessions:
        return await (await fill(sessions)).new_token("carl")


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    place = tmp_path_factory.mktemp("gateway")
    token = asyncio.run(token_of_carl(place))
    (place / "upstream.txt").write_text("theirs", encoding="utf-8")
    access = ["--access", f"directory:{sqlite(place)}", "--upstream-token", "upstream.txt", "--no-page"]
    with upstream() as behind:
        sessions = behind.start("runner", "later")  # no frame has a whole turn in it
        with serve_process(place, "--as", "agent-ops", sessions.url, *access) as served:
            yield Gateway(served, behind, sessions, token)


@pytest.mark.parametrize("release", NEWEST)
def test_a_flood_of_50_mb_against_a_client_that_does_not_read(browser: Browser, gate: Gateway, release: str) -> None:
    session = gate.sessions["interactive"]
    before = gate.memory("VmHWM")
    session.commands.clear()
    page = gate.open(browser, release, f"flood {release}", reads=False)
    page.send("flood 50")
    # From the abort on a client that reads in time gets the last words.
    eventually(
        lambda: [command["type"] for _, command in list(session.commands)] == ["prompt", "abort"],
        "the agent is stopped",
    )
    page.read()
    view = page.settled()
    eventually(lambda: not session.busy and not session.clients, "the socket is closed")
    assert (view["status"], view["error"]) == ("error", {"name": "Error", "message": CANNOT_FOLLOW})
    assert [message["role"] for message in view["messages"]] == ["user", "assistant"]
    text = text_of(view)
    assert set(text) == {"x"}
    assert len(text) < 20 * MEBIBYTE
    assert gate.memory("VmHWM") - before < ROOM


def test_the_whole_turn_is_never_in_memory(gate: Gateway) -> None:
    before, session = gate.memory("VmHWM"), gate.sessions["interactive"]
    with httpx2.stream("POST", gate.url, headers=gate.headers, json=question("hang"), timeout=PATIENCE) as answer:
        assert gate.behind.speak_in_step(session, answer.iter_lines(), 50) == 50 * MEBIBYTE
    assert gate.memory("VmHWM") - before < ROOM


def test_1000_sequential_turns_with_flat_memory(browser: Browser, gate: Gateway) -> None:
    def turns(count: int) -> None:
        for number in range(count):
            page = gate.open(browser, NEWEST[number % len(NEWEST)], f"turn {number} of {count}")
            page.send(f"hello {number}")
            page.answer()
            view = page.look()
            assert (view["status"], len(view["messages"])) == ("ready", 2)
            assert text_of(view) == f"You said: hello {number}"

    turns(200)
    before = gate.memory()
    turns(1000)
    eventually(lambda: not gate.sessions["interactive"].clients, "every socket is closed")
    assert gate.memory() - before < 4 * MEBIBYTE
