"""A chat that is shared by a link: others read it until the link is revoked, and can do nothing else."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.agent import answer
from tests.browser.chatting import ask, expect, expect_copied, wait_until_idle
from tests.browser.conftest import OpenPage, page_served
from tests.browser.test_access import serious_findings
from tests.browser.test_stored_chats import everyone_is_ada
from usechat.chats import MemoryChats


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with page_served(answer, chats=MemoryChats(), authorize=everyone_is_ada, share=True) as served:
        yield f"http://127.0.0.1:{served.port}/chat/"


@pytest.fixture
def elsewhere(chromium: Browser) -> Iterator[Page]:
    context = chromium.new_context(viewport={"width": 390, "height": 780}, color_scheme="dark")
    yield context.new_page()
    context.close()


def share_of(page: Page, title: str) -> None:
    page.get_by_role("button", name=title, exact=True).hover()
    page.get_by_role("button", name=f"Options of {title}").click()


def test_a_link_shows_the_chat_to_others_until_it_is_revoked(
    open_page: OpenPage, address: str, elsewhere: Page
) -> None:
    page = open_page(address)
    ask(page, "tools please")
    wait_until_idle(page)
    share_of(page, "tools please")
    page.get_by_role("menuitem", name="Share").click()
    page.get_by_role("button", name="Create a link").click()
    link = page.get_by_label("Link", exact=True).input_value()
    page.get_by_role("button", name="Copy link").click()
    expect_copied(page, link)
    assert serious_findings(page) == []
    page.keyboard.press("Escape")
    elsewhere.goto(link)
    expect(elsewhere.get_by_text("One tool worked, one did not.")).to_be_visible()
    expect(elsewhere.get_by_text("Shared, read-only")).to_be_visible()
    expect(elsewhere.get_by_role("button", name="Regenerate")).to_have_count(0)
    expect(elsewhere.get_by_role("button", name="Edit")).to_have_count(0)
    expect(elsewhere.locator("#prompt")).to_have_count(0)
    assert serious_findings(elsewhere) == []
    assert elsewhere.evaluate("document.documentElement.scrollWidth <= innerWidth")
    ask(page, "hello again")
    expect(page.get_by_text("You said: hello again")).to_be_visible()
    wait_until_idle(page)
    elsewhere.reload()
    expect(elsewhere.get_by_text("You said: hello again")).to_be_visible()
    share_of(page, "tools please")
    page.get_by_role("menuitem", name="Shared link").click()
    expect(page.get_by_label("Link", exact=True)).to_have_value(link)
    page.get_by_role("button", name="Revoke the link").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    elsewhere.reload()
    expect(elsewhere.get_by_role("alert")).to_contain_text("no longer shared")
    expect(elsewhere.get_by_text("One tool worked")).to_have_count(0)


def test_without_the_option_nothing_can_be_shared(open_page: OpenPage) -> None:
    with page_served(answer, chats=MemoryChats(), authorize=everyone_is_ada) as served:
        page = open_page(f"http://127.0.0.1:{served.port}/chat/")
        ask(page, "hello there")
        wait_until_idle(page)
        share_of(page, "hello there")
        expect(page.get_by_role("menuitem", name="Rename")).to_be_visible()
        expect(page.get_by_role("menuitem", name="Share")).to_have_count(0)
