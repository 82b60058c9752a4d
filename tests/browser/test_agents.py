"""Several agents on one page: the picker, what it says of them, and the chat that keeps its agent."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.browser.chatting import ask, expect, wait_until_idle
from tests.browser.conftest import OpenPage, page_served
from tests.browser.test_access import serious_findings
from tests.browser.test_stored_chats import everyone_is_ada
from usechat import Turn
from usechat.chats import MemoryChats


async def writer(turn: Turn) -> AsyncIterator[str]:
    """Writes letters, and whatever else is made of words."""
    yield f"writer: {turn.text}"


async def coder(turn: Turn) -> AsyncIterator[str]:
    """Writes code."""
    yield f"coder: {turn.text}"


AGENTS = {"writer": writer, "coder": coder}


@pytest.fixture(scope="module")
def stored() -> Iterator[str]:
    with page_served(AGENTS, chats=MemoryChats(), authorize=everyone_is_ada) as served:
        yield f"http://127.0.0.1:{served.port}/chat/"


@pytest.fixture(scope="module")
def unstored() -> Iterator[str]:
    with page_served(AGENTS, title="") as served:
        yield f"http://127.0.0.1:{served.port}/chat/"


@pytest.mark.parametrize("kept_by", ["stored", "unstored"])
def test_the_chosen_agent_answers_and_is_kept_with_the_chat(
    open_page: OpenPage, request: pytest.FixtureRequest, kept_by: str
) -> None:
    page = open_page(request.getfixturevalue(kept_by))
    expect(page.get_by_text("Writes letters")).to_be_visible()
    ask(page, "first")
    expect(page.get_by_text("writer: first")).to_be_visible()
    wait_until_idle(page)
    page.get_by_role("button", name="Agent: writer").click()
    page.get_by_role("menuitemradio", name="coder").click()
    ask(page, "second")
    expect(page.get_by_text("coder: second")).to_be_visible()
    wait_until_idle(page)
    page.reload()
    expect(page.get_by_role("button", name="Agent: coder")).to_be_visible()
    ask(page, "third")
    expect(page.get_by_text("coder: third")).to_be_visible()
    wait_until_idle(page)
    page.get_by_role("navigation", name="Chats").get_by_role("button", name="New chat").click()
    expect(page.get_by_role("button", name="Agent: writer")).to_be_visible()


def test_the_picker_works_by_keyboard_and_touches_no_edge_on_a_phone(open_page: OpenPage, stored: str) -> None:
    page = open_page(stored)
    page.set_viewport_size({"width": 390, "height": 780})
    page.reload()
    page.get_by_role("button", name="Agent: writer").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("menuitemradio", name="writer")).to_have_attribute("aria-checked", "true")
    assert serious_findings(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("menuitemradio", name="coder")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Agent: coder")).to_be_visible()
    expect(page.get_by_text("Writes code.")).to_be_visible()


def test_without_a_title_the_empty_chat_has_the_name_of_its_agent(open_page: OpenPage, unstored: str) -> None:
    page = open_page(unstored)
    expect(page.get_by_role("heading", name="writer")).to_be_visible()
    page.get_by_role("button", name="Agent: writer").click()
    page.get_by_role("menuitemradio", name="coder").click()
    expect(page.get_by_role("heading", name="coder")).to_be_visible()


def test_one_agent_needs_no_picker(open_page: OpenPage) -> None:
    page = open_page()
    page.wait_for_load_state("networkidle")
    expect(page.get_by_role("button", name="Agent:")).to_have_count(0)
