"""Stop, reload, a cut network, two tabs: the answer is one, and whole."""

import re

from playwright.sync_api import Page

from tests.browser.chatting import ask, expect, stored, wait_until_idle
from tests.browser.conftest import OpenPage
from tests.conformance.served import Served


def numbers(page: Page) -> list[int]:
    return [int(found) for found in re.findall(r"number-(\d+)", page.get_by_label("Assistant").inner_text())]


def wait_for_the_count(page: Page) -> None:
    expect(page.get_by_text("end-of-count")).to_be_visible()
    wait_until_idle(page)
    assert numbers(page) == list(range(1, 101)), "nothing is lost, doubled or out of order"
    assert [message["role"] for message in stored(page)] == ["user", "assistant"]


def test_stop_ends_the_answer_and_keeps_it(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "long story")
    expect(page.get_by_text("word5 ")).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    wait_until_idle(page)
    expect(page.get_by_role("alert")).to_be_hidden()
    said = page.get_by_label("Assistant").inner_text()
    ask(page, "hello after that")
    expect(page.get_by_text("You said: hello after that")).to_be_visible()
    assert page.get_by_label("Assistant").first.inner_text() == said, "nothing came after the stop"


def test_a_reload_in_the_middle_goes_on(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "count for me")
    expect(page.get_by_text("number-10 ")).to_be_visible()
    page.reload()
    wait_for_the_count(page)


def test_a_cut_network_resumes_by_itself(open_page: OpenPage, served: Served) -> None:
    page = open_page()
    ask(page, "count for me")
    expect(page.get_by_text("number-10 ")).to_be_visible()
    served.cut()
    wait_for_the_count(page)
    expect(page.get_by_role("alert")).to_be_hidden()


def test_two_tabs_show_one_chat(open_page: OpenPage) -> None:
    first = open_page()
    ask(first, "count for me")
    expect(first.get_by_text("number-10 ")).to_be_visible()
    second = open_page(first.url)
    expect(second.get_by_text("number-20 ")).to_be_visible()
    wait_for_the_count(second)
    wait_for_the_count(first)


def test_a_tab_follows_what_another_asks(open_page: OpenPage) -> None:
    first = open_page()
    ask(first, "hello there")
    wait_until_idle(first)
    second = open_page(first.url)
    expect(second.get_by_text("You said: hello there")).to_be_visible()
    ask(first, "long story")
    expect(second.get_by_text("word9 ")).to_be_visible()
    second.get_by_role("button", name="Stop").click()
    wait_until_idle(first)
    wait_until_idle(second)
    assert stored(first) == stored(second)
