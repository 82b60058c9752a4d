"""The same page code with the hooks of AI SDK 5 and 6. The other tests have that of 7."""

import re
from collections.abc import Iterator

import pytest

from tests.browser.agent import answer
from tests.browser.building import page_with_hook
from tests.browser.chatting import ask, expect, wait_until_idle, wait_until_stored
from tests.browser.conftest import OpenPage, page_served
from tests.browser.test_recovery import wait_for_the_count
from tests.built_once import built_once


@pytest.fixture(scope="module", params=[5, 6], ids=["5", "6"])
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    major: int = request.param
    directory = built_once(tmp_path_factory, f"hook-{major}", lambda output: page_with_hook(major, output))
    with page_served(answer, directory=directory) as served:
        yield f"http://127.0.0.1:{served.port}/chat/"


def test_turn(open_page: OpenPage, address: str) -> None:
    page = open_page(address)
    ask(page, "hello there")
    expect(page.get_by_label("Assistant")).to_contain_text("You said: hello there")
    wait_until_idle(page)
    wait_until_stored(page, "user", "assistant")


def test_tool(open_page: OpenPage, address: str) -> None:
    page = open_page(address)
    ask(page, "tools please")
    page.get_by_role("button", name="Used 2 tools").click()
    expect(page.get_by_role("button", name="Search Done")).to_be_visible()
    expect(page.get_by_text("Division by zero.")).to_be_visible()


def test_reasoning_and_files(open_page: OpenPage, address: str) -> None:
    page = open_page(address)
    ask(page, "think hard")
    expect(page.get_by_role("button", name=re.compile("^Thought"))).to_be_visible()
    expect(page.get_by_text("I have thought.")).to_be_visible()
    wait_until_idle(page)
    page.set_input_files("input[type=file]", {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"some notes"})
    ask(page, "files please")
    expect(page.get_by_label("Assistant").last).to_contain_text("Files: notes.txt (text/plain)")


def test_reload_in_the_middle(open_page: OpenPage, address: str) -> None:
    page = open_page(address)
    ask(page, "count held")
    expect(page.get_by_text("number-10 ")).to_be_visible()
    page.reload()
    wait_for_the_count(page)


def test_reload_after_an_approval(open_page: OpenPage, address: str) -> None:
    """AI SDK 5 knows no approvals: its server asks by a call of the tool ``approval``."""
    page = open_page(address)
    ask(page, "approve slowly, held")
    expect(page.get_by_role("group", name="Allow: Delete file?")).to_have_count(1)
    expect(page.get_by_role("form", name="Answer the question")).to_have_count(0)
    page.get_by_role("button", name="Approve", exact=True).click()
    expect(page.get_by_text("number-10 ")).to_be_visible()
    page.reload()
    wait_for_the_count(page)
    expect(page.get_by_text("This needs your consent.")).to_have_count(1)


def test_stop(open_page: OpenPage, address: str) -> None:
    page = open_page(address)
    ask(page, "long story")
    expect(page.get_by_text("word5 ")).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    wait_until_idle(page)
    expect(page.get_by_role("alert")).to_be_hidden()
