"""The sign-in before the chat: a token, or the way to another page; nothing that was typed is lost."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, Request

from tests.browser.agent import answer
from tests.browser.chatting import ask, expect, sign_in, wait_until_idle
from tests.browser.conftest import OpenPage, page_served
from tests.server.process import serve_process
from usechat.chats import MemoryChats
from usechat.errors import Unauthenticated
from usechat.turn import Identity

TOKEN = "a-token-of-some-length"


class Doorkeeper:
    """Knows Ada by a token or a cookie, until both have expired."""

    def __init__(self) -> None:
        self.has_expired = False

    async def __call__(self, request: Any, _chat_id: str, _action: Any) -> Identity:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self.has_expired and token != "another":
            raise Unauthenticated("The token has expired.")
        if token in (TOKEN, "another") or request.cookies.get("user") == "ada":
            return Identity("ada")
        raise Unauthenticated("The token is not valid.")


@pytest.fixture
def door() -> Doorkeeper:
    return Doorkeeper()


@pytest.fixture
def address(door: Doorkeeper) -> Iterator[str]:
    with page_served(answer, chats=MemoryChats(), authorize=door, auth=True, share=True) as served:
        yield f"http://127.0.0.1:{served.port}/chat/"


@pytest.fixture
def elsewhere(door: Doorkeeper) -> Iterator[str]:
    """Where a page is whose sign-in is somewhere else."""
    look = {"login_url": "/sign-in?for=chat"}
    with page_served(answer, chats=MemoryChats(), authorize=door, auth=True, look=look) as served:
        yield f"http://127.0.0.1:{served.port}/chat/"


def tokens_of(page: Page) -> list[str]:
    """Note every token that the page sends."""
    sent: list[str] = []

    def note(request: Request) -> None:
        if token := request.headers.get("authorization"):
            sent.append(token.removeprefix("Bearer "))

    page.on("request", note)
    return sent


def test_the_page_begins_with_a_sign_in_and_refuses_a_wrong_token_at_once(open_page: OpenPage, address: str) -> None:
    page = open_page(address, shows="form")
    sent = tokens_of(page)
    field = page.get_by_label("Access token")
    expect(page.locator("#prompt")).to_have_count(0)
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(field).to_be_focused()
    field.press_sequentially("wrong")
    assert sent == [], "a token that is not complete is not sent"
    field.press("Enter")
    expect(page.get_by_role("alert")).to_have_text("The token is not valid.")
    expect(field).to_have_value("wrong")
    expect(field).to_have_attribute("aria-invalid", "true")
    assert sent == ["wrong"]
    sign_in(page, f" {TOKEN} ")
    ask(page, "hello there")
    wait_until_idle(page)
    page.reload()
    expect(page.get_by_text("You said: hello there")).to_be_visible()
    assert set(sent[1:]) == {TOKEN}


def test_a_sign_in_loads_the_chats_and_the_chat_that_is_open(
    open_page: OpenPage, address: str, context: BrowserContext
) -> None:
    first = open_page(address, shows="form")
    sign_in(first, TOKEN)
    ask(first, "hello there")
    wait_until_idle(first)
    chat = first.url
    context.clear_cookies()
    first.evaluate("localStorage.clear()")
    page = open_page(chat, shows="form")
    sign_in(page, TOKEN)
    expect(page.get_by_text("You said: hello there")).to_be_visible()
    chats = page.get_by_role("navigation", name="Chats")
    expect(chats.get_by_role("button", name="hello there", exact=True)).to_be_visible()


def test_a_token_that_expires_is_asked_for_again_and_nothing_is_lost(
    open_page: OpenPage, address: str, door: Doorkeeper
) -> None:
    page = open_page(address, shows="form")
    sign_in(page, TOKEN)
    ask(page, "hello there")
    wait_until_idle(page)
    door.has_expired = True
    page.fill("#prompt", "was I signed out?")
    page.press("#prompt", "Enter")
    expect(page.get_by_role("alert").first).to_have_text("The token has expired.")
    expect(page.get_by_label("Access token")).to_be_focused()
    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog")).to_have_count(0)
    sign_in_again(page)
    expect(page.get_by_text("You said: was I signed out?")).to_be_visible()
    wait_until_idle(page)
    expect(page.get_by_label("You", exact=True)).to_have_count(2)


def sign_in_again(page: Page) -> None:
    page.get_by_label("Access token").fill("another")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_label("Access token")).to_have_count(0)


def test_what_was_typed_is_there_after_a_reload_with_an_expired_token(
    open_page: OpenPage, address: str, door: Doorkeeper
) -> None:
    page = open_page(address, shows="form")
    sign_in(page, TOKEN)
    page.fill("#prompt", "a long question")
    door.has_expired = True
    page.reload()
    expect(page.get_by_role("alert")).to_have_text("The token has expired.")
    sign_in(page, "another")
    expect(page.locator("#prompt")).to_have_value("a long question")


def test_signing_out_forgets_the_token(open_page: OpenPage, address: str) -> None:
    page = open_page(address, shows="form")
    sign_in(page, TOKEN)
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Access token")).to_have_value("")
    expect(page.get_by_role("alert")).to_have_count(0)
    page.reload()
    expect(page.get_by_label("Access token")).to_be_visible()


def test_another_sign_in_returns_with_a_token_that_the_address_loses_at_once(
    open_page: OpenPage, elsewhere: str
) -> None:
    page = open_page(elsewhere, shows="main")
    expect(page.get_by_label("Access token")).to_have_count(0)
    page.goto(f"{elsewhere}?chat=kept")
    page.route("**/sign-in?for=chat", lambda route: route.fulfill(status=200, body="the other sign-in"))
    page.get_by_role("link", name="Sign in").click()
    expect(page.get_by_text("the other sign-in")).to_be_visible()
    page.goto(f"{elsewhere}#token={TOKEN}")
    expect(page.locator("#prompt")).to_be_visible()
    assert page.url == f"{elsewhere}?chat=kept", "the user comes back to the same chat"
    ask(page, "hello there")
    expect(page.get_by_text("You said: hello there")).to_be_visible()
    page.go_back()
    assert "token" not in page.url


def test_another_sign_in_returns_with_a_cookie(open_page: OpenPage, elsewhere: str, context: BrowserContext) -> None:
    page = open_page(elsewhere, shows="main")
    expect(page.get_by_role("link", name="Sign in")).to_have_attribute("href", "/sign-in?for=chat")
    context.add_cookies([{"name": "user", "value": "ada", "url": elsewhere}])
    page.goto(elsewhere)
    ask(page, "hello there")
    expect(page.get_by_text("You said: hello there")).to_be_visible()
    expect(page.get_by_role("button", name="Sign out")).to_have_count(0)


def test_a_token_that_nobody_asked_for_signs_in_nobody_by_itself(open_page: OpenPage, elsewhere: str) -> None:
    """Somebody's link could sign you in as its maker, who would read what you write."""
    page = open_page(f"{elsewhere}#token={TOKEN}", shows="form")
    assert page.url == elsewhere
    expect(page.get_by_text("This link has a token.")).to_be_visible()
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("#prompt")).to_be_visible()


def test_a_shared_chat_needs_no_sign_in(open_page: OpenPage, address: str) -> None:
    page = open_page(address, shows="form")
    sign_in(page, TOKEN)
    ask(page, "hello there")
    wait_until_idle(page)
    page.get_by_role("button", name="hello there", exact=True).hover()
    page.get_by_role("button", name="Options of hello there").click()
    page.get_by_role("menuitem", name="Share").click()
    page.get_by_role("button", name="Create a link").click()
    link = page.get_by_label("Link", exact=True).input_value()
    page.evaluate("sessionStorage.clear()")
    page.goto(link)
    expect(page.get_by_text("You said: hello there")).to_be_visible()
    expect(page.get_by_label("Access token")).to_have_count(0)


def test_a_server_of_the_command_line_signs_in(open_page: OpenPage, tmp_path: Path) -> None:
    (tmp_path / "tokens.txt").write_text(f"ada:{hashlib.sha256(TOKEN.encode()).hexdigest()}\n")
    (tmp_path / "agent.py").write_text("async def agent(turn):\n    yield f'Hello {turn.identity.subject}'\n")
    with serve_process(tmp_path, "agent.py:agent", "--auth", "tokens:tokens.txt") as served:
        page = open_page(f"{served.url}/", shows="form")
        sign_in(page, TOKEN)
        ask(page, "hello there")
        expect(page.get_by_label("Assistant")).to_contain_text("Hello ada")


def test_a_server_that_is_away_is_named(open_page: OpenPage, address: str) -> None:
    page = open_page(address, shows="form")
    page.context.set_offline(True)
    page.get_by_label("Access token").fill(TOKEN)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_have_text("The server cannot be reached.")
    page.context.set_offline(False)
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("#prompt")).to_be_visible()
