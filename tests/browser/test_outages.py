"""A server that dies, restarts or is away: what was said stays, what was typed is sent, the answer goes on."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route

from tests.browser.agent import answer
from tests.browser.chatting import ask, chat_id, expect, go_on, hold_the_next, stored, wait_until_idle
from tests.browser.conftest import OpenPage, page_served
from tests.browser.test_recovery import numbers, wait_for_the_count
from tests.browser.test_stored_chats import everyone_is_ada
from tests.conformance.served import Served, eventually, unanswered_port
from tests.server.process import ServeProcess, serve_process
from usechat.chats import MemoryChats

LOST = "The connection was lost before the answer was complete."
RECONNECTING = "The connection was lost. Reconnecting…"
CONTINUING = "The server restarted. Continuing…"
AGENTS = """
import asyncio
from pathlib import Path


async def plan(text):
    return f"Plan for {text}."


async def lasting(turn):
    yield await turn.step("plan", plan, turn.text)
    async for text in rest():
        yield text


async def passing(turn):
    yield f"Answer to {turn.text}."
    async for text in rest():
        yield text


async def rest():
    yield " Half"
    while not Path("go").exists():
        await asyncio.sleep(0.02)
    yield " and whole."
"""


class Restarting:
    """A server with chats in a file, which is killed and started again at the same port."""

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self.port = port
        self.url = f"http://127.0.0.1:{port}/"
        (directory / "agents.py").write_text(AGENTS)

    def start(self, agent: str) -> AbstractContextManager[ServeProcess]:
        return serve_process(self.directory, f"agents.py:{agent}", "--chats", "chats.db", port=self.port)

    def let_go_on(self) -> None:
        (self.directory / "go").touch()


def kill(process: ServeProcess) -> None:
    process.process.kill()
    process.process.wait()


@pytest.fixture
def server(tmp_path: Path) -> Restarting:
    with unanswered_port() as port:
        pass
    return Restarting(tmp_path, port)


@pytest.fixture(params=[True, False], ids=["stored", "kept here"])
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    kept: dict[str, Any] = {"chats": MemoryChats(), "authorize": everyone_is_ada} if request.param else {}
    with page_served(answer, **kept) as served:
        yield f"http://127.0.0.1:{served.port}/chat/"


def test_an_answer_goes_on_after_its_process_was_killed_and_the_page_says_so(
    open_page: OpenPage, server: Restarting
) -> None:
    with server.start("lasting") as first:
        page = open_page(server.url)
        ask(page, "Lisbon")
        expect(page.get_by_text("Plan for Lisbon. Half")).to_be_visible()
        kill(first)
        expect(page.get_by_text(RECONNECTING)).to_be_visible()
        expect(page.get_by_text("Plan for Lisbon. Half")).to_be_visible()
    with server.start("lasting"):
        expect(page.get_by_text(CONTINUING)).to_be_visible()
        server.let_go_on()
        expect(page.get_by_text("Plan for Lisbon. Half and whole.")).to_be_visible()
        wait_until_idle(page)
        expect(page.get_by_text(CONTINUING)).to_be_hidden()
        expect(page.get_by_role("alert")).to_be_hidden()
        expect(page.get_by_label("Assistant")).to_have_count(1)


def deliver_at_once(request: Route) -> None:
    """Give the page an answer when it is complete."""
    request.fulfill(response=request.fetch())


@pytest.mark.parametrize("deliver", [Route.continue_, deliver_at_once], ids=["piece by piece", "at once"])
def test_what_is_there_of_a_lost_answer_stays_until_another_try_has_begun(
    open_page: OpenPage, server: Restarting, deliver: Callable[[Route], None]
) -> None:
    half = "Answer to Lisbon. Half"
    with server.start("passing") as first:
        page = open_page(server.url)
        ask(page, "Lisbon")
        expect(page.get_by_text(half)).to_be_visible()
        kill(first)
        expect(page.get_by_text(RECONNECTING)).to_be_visible()
    with server.start("passing"):
        for _ in range(2):
            expect(page.get_by_role("alert")).to_contain_text(LOST)
            expect(page.get_by_text(half)).to_be_visible()
            page.reload()
        expect(page.get_by_role("alert")).to_contain_text(LOST)
        requests = hold_the_next(page, "**/api/chat")
        page.get_by_role("button", name="Try again").click()
        eventually(lambda: page.evaluate("1") == 1 and len(requests) == 1, "it is asked again")
        expect(page.get_by_text(half)).to_be_visible()
        server.let_go_on()
        deliver(requests[0])
        expect(page.get_by_text(f"{half} and whole.")).to_be_visible()
        wait_until_idle(page)
        expect(page.get_by_label("Assistant")).to_have_count(1)
        expect(page.get_by_role("alert")).to_be_hidden()


def test_a_message_that_was_sent_while_the_server_was_away_is_sent_once_it_is_back(
    open_page: OpenPage, server: Restarting
) -> None:
    server.let_go_on()
    with server.start("passing") as first:
        page = open_page(server.url)
        ask(page, "Lisbon")
        wait_until_idle(page)
        kill(first)
    ask(page, "Porto")
    expect(page.get_by_text(RECONNECTING)).to_be_visible()
    with server.start("passing"):
        expect(page.get_by_text("Answer to Porto. Half and whole.")).to_be_visible()
        wait_until_idle(page)
        expect(page.get_by_role("alert")).to_be_hidden()
        page.reload()
        expect(page.get_by_text("Answer to Porto. Half and whole.")).to_be_visible()
        expect(page.get_by_label("You", exact=True)).to_have_count(2)
        expect(page.get_by_role("group", name="Versions")).to_have_count(0)


def test_the_first_message_and_an_edit_are_sent_when_the_network_is_back(open_page: OpenPage, address: str) -> None:
    page = open_page(address)
    page.context.set_offline(True)
    ask(page, "hello offline")
    expect(page.get_by_text(RECONNECTING)).to_be_visible()
    page.context.set_offline(False)
    expect(page.get_by_text("You said: hello offline")).to_be_visible()
    wait_until_idle(page)
    page.context.set_offline(True)
    page.get_by_role("button", name="Edit").click()
    page.get_by_label("Edit message").fill("hello again")
    page.get_by_label("Edit message").press("Enter")
    expect(page.get_by_text(RECONNECTING)).to_be_visible()
    page.context.set_offline(False)
    expect(page.get_by_text("You said: hello again")).to_be_visible()
    wait_until_idle(page)
    expect(page.get_by_role("alert")).to_be_hidden()
    assert [message["role"] for message in stored(page)] == ["user", "assistant"]


def test_a_message_that_breaks_the_connection_each_time_is_not_sent_for_ever(open_page: OpenPage, address: str) -> None:
    page = open_page(address)
    sent: list[str] = []

    def refuse(route: Route) -> None:
        sent.append(route.request.method)
        route.abort()

    page.route("**/api/chat", refuse)
    ask(page, "hello there")
    expect(page.get_by_role("alert")).to_be_visible()
    assert len(sent) == 4, "once, and three times again"
    page.unroute("**/api/chat")
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_text("You said: hello there")).to_be_visible()


def try_for_a_minute(page: Page) -> None:
    alert = page.get_by_role("alert")
    for _ in range(30):
        if alert.count():
            break
        page.clock.run_for(8000)
    expect(alert).to_contain_text("The server cannot be reached.")


def test_a_button_goes_on_with_the_same_answer_after_a_long_outage(open_page: OpenPage, served: Served) -> None:
    page = open_page()
    ask(page, "count held")
    expect(page.get_by_text("number-10 ")).to_be_visible()
    page.clock.install()
    page.route("**/api/**", lambda route: route.abort())
    served.cut()
    try_for_a_minute(page)
    expect(page.get_by_text("number-10 ")).to_be_visible()
    before = numbers(page)
    page.clock.resume()
    page.unroute("**/api/**")
    with page.expect_request(f"**/{chat_id(page)}/stream"):
        page.get_by_role("button", name="Try again").click()
    wait_for_the_count(page)
    assert before == list(range(1, len(before) + 1))
    expect(page.get_by_role("alert")).to_be_hidden()
    go_on(page)
