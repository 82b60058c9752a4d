"""Two tabs of one browser show one chat, whichever of them is behind, asks or closes."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import APIResponse, Page, Route

from tests.browser.agent import answer
from tests.browser.chatting import ask, expect, go_on, hold_the_next, stored, wait_until_idle, wait_until_stored
from tests.browser.conftest import OpenPage, page_served
from tests.browser.test_recovery import numbers, wait_for_the_count
from tests.browser.test_stored_chats import everyone_is_ada
from tests.conformance.served import eventually
from usechat.chats import MemoryChats

READS_SLOWLY = """() => {
    const fast = window.fetch;
    window.fetch = async (...request) => {
        const response = await fast(...request);
        if (!response.headers.get("content-type")?.startsWith("text/event-stream")) return response;
        const gate = new TransformStream({
            async transform(piece, passed) {
                await window.mayRead;
                passed.enqueue(piece);
            },
        });
        return new Response(response.body.pipeThrough(gate), response);
    };
}"""
"""What the network brings waits at a gate while it is shut."""

SHUT = "() => { window.mayRead = new Promise((open) => { window.readOn = open; }); }"


@pytest.fixture(scope="module")
def storing() -> Iterator[str]:
    """The address of a server that stores the chats."""
    with page_served(answer, chats=MemoryChats(), authorize=everyone_is_ada) as served:
        yield f"http://127.0.0.1:{served.port}/chat/"


def wait_until_told(page: Page, by: Page) -> None:
    """Wait until a tab has got every storage event that another has caused so far: they arrive in their order."""
    page.evaluate("""() => {
        window.told = new Promise((done) => {
            addEventListener("storage", (event) => event.key === "marker" && done());
        });
    }""")
    by.evaluate("() => localStorage.setItem('marker', String(Math.random()))")
    page.evaluate("() => window.told")
    wait_until_idle(page)


def test_two_tabs_show_one_chat(open_page: OpenPage) -> None:
    first = open_page()
    ask(first, "count held")
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
    eventually(lambda: stored(first) == stored(second), "both tabs keep the same")


SAVES_LATE = """() => {
    const id = new URL(location).searchParams.get("chat");
    const [key, text] = Object.entries(localStorage).find(([name]) => name.endsWith(`:${id}`));
    const chat = JSON.parse(text);
    localStorage.setItem(key, JSON.stringify({ ...chat, messages: [...chat.messages, ...chat.messages] }));
    dispatchEvent(new Event("pagehide"));
}"""
"""Another tab has saved more, and this one saves what it has before it is told so."""


def test_a_tab_drops_nothing_that_another_has_saved_a_moment_ago(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "hello there")
    wait_until_idle(page)
    wait_until_stored(page, "user", "assistant")
    page.evaluate(SAVES_LATE)
    assert [message["role"] for message in stored(page)] == ["user", "assistant"] * 2


def test_a_tab_that_is_behind_does_not_set_back_one_that_has_the_whole_answer(open_page: OpenPage) -> None:
    first = open_page()
    first.evaluate(READS_SLOWLY)
    ask(first, "count held")
    expect(first.get_by_text("number-10 ")).to_be_visible()
    second = open_page(first.url)
    expect(second.get_by_text("number-20 ")).to_be_visible()
    first.evaluate(SHUT)
    wait_for_the_count(second)
    first.evaluate("dispatchEvent(new Event('pagehide'))")  # what it has is saved at once
    wait_until_told(second, first)
    assert numbers(second) == list(range(1, 101))
    expect(second.get_by_role("alert")).to_be_hidden()
    second.reload()
    expect(second.get_by_text("end-of-count")).to_be_visible()
    assert numbers(second) == list(range(1, 101)), "what is kept is whole"
    expect(second.get_by_role("alert")).to_be_hidden()
    first.evaluate("readOn()")
    wait_for_the_count(first)


def test_what_another_tab_kept_too_late_is_replaced_by_the_whole_answer(open_page: OpenPage) -> None:
    first = open_page()
    ask(first, "count held")
    expect(first.get_by_text("number-20 ")).to_be_visible()
    find_entry = "() => Object.entries(localStorage).find(([key, text]) => text.includes('number-1 '))"
    eventually(lambda: first.evaluate(find_entry) is not None, "the beginning of the answer is kept")
    beginning = first.evaluate(find_entry)
    second = open_page(first.url)
    wait_for_the_count(second)
    wait_for_the_count(first)
    first.evaluate("([key, text]) => localStorage.setItem(key, text)", beginning)
    wait_until_told(second, first)
    assert numbers(second) == list(range(1, 101))
    expect(second.get_by_role("alert")).to_be_hidden()
    eventually(lambda: first.evaluate(find_entry)[1] != beginning[1], "the whole answer is kept again")
    wait_for_the_count(first)


def test_a_change_during_a_resume_is_followed(open_page: OpenPage) -> None:
    first = open_page()
    ask(first, "hello there")
    wait_until_idle(first)
    second = open_page(first.url)
    routes = hold_the_next(second, "**/stream")
    second.reload()
    eventually(lambda: second.evaluate("1") == 1 and len(routes) == 1, "the second tab tries to resume")
    ask(first, "hello again")
    wait_until_idle(first)
    routes[0].fulfill(status=204)
    expect(second.get_by_text("You said: hello again")).to_be_visible()


def test_a_change_while_a_stored_chat_is_loaded_is_followed(open_page: OpenPage, storing: str) -> None:
    first = open_page(storing)
    ask(first, "hello there")
    wait_until_idle(first)
    second = open_page(first.url)
    responses: list[tuple[Route, APIResponse]] = []
    second.route("**/messages", lambda route: responses.append((route, route.fetch())), times=1)
    second.reload()
    eventually(lambda: second.evaluate("1") == 1 and len(responses) == 1, "the second tab loads the chat")
    ask(first, "hello again")
    wait_until_idle(first)
    route, before = responses[0]
    route.fulfill(response=before)
    expect(second.get_by_text("You said: hello again")).to_be_visible()


def test_a_tab_that_is_behind_follows_what_was_asked_meanwhile(open_page: OpenPage) -> None:
    first = open_page()
    ask(first, "count held")
    expect(first.get_by_text("number-10 ")).to_be_visible()
    second = open_page(first.url)
    second.add_init_script(f"({READS_SLOWLY})()")
    second.reload()
    expect(second.get_by_text("number-20 ")).to_be_visible()
    second.evaluate(SHUT)
    go_on(first)
    expect(first.get_by_text("end-of-count")).to_be_visible()
    wait_until_idle(first)
    ask(first, "hello again")
    wait_until_idle(first)
    second.evaluate("readOn()")
    expect(second.get_by_text("You said: hello again")).to_be_visible()
    wait_until_idle(second)
    assert [message["role"] for message in stored(first)] == ["user", "assistant"] * 2
    expect(first.get_by_text("You said: hello again")).to_be_visible()


@pytest.mark.parametrize("stores", [False, True], ids=["kept here", "stored"])
def test_a_tab_waits_for_an_answer_that_has_not_begun(open_page: OpenPage, storing: str, stores: bool) -> None:
    first = open_page(storing if stores else "")
    ask(first, "hello there")
    wait_until_idle(first)
    second = open_page(first.url)
    expect(second.get_by_text("You said: hello there")).to_be_visible()
    wait_until_idle(second)
    routes = hold_the_next(first, "**/api/chat")
    with second.expect_response("**/messages" if stores else "**/stream"):
        ask(first, "hello again")
    expect(second.get_by_role("status").get_by_text("Waiting for the answer…")).to_be_visible()
    expect(second.get_by_role("alert")).to_be_hidden()
    routes[0].continue_()
    expect(second.get_by_text("You said: hello again")).to_be_visible()
    expect(second.get_by_role("alert")).to_be_hidden()
