"""Long chats, long answers and many frames stay usable."""

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.chatting import ask, expect, stored, wait_until_idle
from tests.browser.conftest import OpenPage

pytestmark = pytest.mark.alone

LONGEST_TASK: Final = 0.05
"""Seconds of processor time. A longer task delays what a user types."""


def text_message(number: int) -> dict[str, object]:
    role, text = ("user", "question") if number % 2 == 0 else ("assistant", "An *answer* with `code`.\n\n- one\n- two")
    return {"id": f"m{number}", "role": role, "parts": [{"type": "text", "text": f"{text} {number}"}]}


def fill_the_chat(page: Page, messages: int) -> None:
    chat = json.dumps({"messages": [text_message(number) for number in range(messages)], "running": False})
    script = "chat => localStorage.setItem(`usechat:/chat/api/chat::${location.search.slice(6)}`, chat)"
    page.evaluate(script, chat)
    page.reload()
    wait_until_filled(page, messages)


def wait_until_filled(page: Page, messages: int) -> None:
    """Wait until all messages of a chat are drawn: its last ones are drawn first. Half of them are questions."""
    expect(page.locator(".message")).to_have_count(messages)
    expect(page.locator(".message.user")).to_have_count(messages // 2)


def test_five_hundred_messages_do_not_slow_an_answer(open_page: OpenPage) -> None:
    page = open_page()
    fill_the_chat(page, 500)
    # What is not written anew is not drawn anew: the elements of the first answer stay the same, untouched.
    page.evaluate("""() => {
        window.changes = 0;
        new MutationObserver((all) => { window.changes += all.length; })
            .observe(document.querySelectorAll(".message.assistant")[3], { subtree: true, childList: true });
    }""")
    ask(page, "count for me")
    expect(page.get_by_text("number-50 ")).to_be_visible()
    page.fill("#prompt", "typed while it streams")
    expect(page.get_by_text("end-of-count")).to_be_visible()
    wait_until_idle(page)
    assert page.evaluate("window.changes") == 0
    assert page.input_value("#prompt") == "typed while it streams"


def task_times(trace: dict[str, Any]) -> list[float]:
    """Return the processor time of each task of the page's main thread, in seconds. Other processes add none to it.

    The thread clock of a trace jumps ahead at times, by up to 10 ms: a task takes at most its wall time.
    """
    events = trace["traceEvents"]
    main_threads = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    return [
        min(event["tdur"], event["dur"]) / 1e6
        for event in events
        if event["name"].endswith("RunTask") and (event["pid"], event["tid"]) in main_threads and "tdur" in event
    ]


QUESTIONS: Final = [
    "report 150",
    "blocks please",
    *(f"odd {name}" for name in ("bold", "footnotes", "nested", "quote", "references", "rows", "word")),
    *(f"odd {name} at once" for name in ("bold", "footnotes", "nested", "references", "rows")),
]


@pytest.mark.parametrize("question", QUESTIONS)
def test_no_task_is_long_while_100_kilobytes_stream_into_a_chat_of_500_messages(
    open_page: OpenPage, chromium: Browser, question: str
) -> None:
    def longest() -> Iterator[float]:
        for _ in range(2):
            page = open_page()
            fill_the_chat(page, 500)
            for _ in range(2):  # a third answer would be refused: the chat is too large
                yield longest_task_of_an_answer(page, chromium, question)
                assert len(stored(page)[-1]["parts"][-1]["text"]) > 100_000

    # The best counts: a task takes longer while other processes use the caches of its core, and on a page that is new.
    assert any(seconds <= LONGEST_TASK for seconds in longest())


@pytest.mark.parametrize("question", ["cards please", "cited please", "measured at once", "pondering please"])
def test_no_task_is_long_while_an_answer_of_many_parts_or_long_thoughts_arrives(
    open_page: OpenPage, chromium: Browser, question: str
) -> None:
    def longest() -> float:
        page = open_page()
        seconds = longest_task_of_an_answer(page, chromium, question, least=0)
        assert len(json.dumps(stored(page)[-1])) > 50_000
        return seconds

    assert any(longest() <= LONGEST_TASK for _ in range(3))


def test_no_task_is_long_while_the_inspector_shows_the_message(open_page: OpenPage, chromium: Browser) -> None:
    page = open_page()
    page.get_by_role("button", name="Inspector").click()
    page.get_by_role("tab", name="message").click()
    longest = (longest_task_of_an_answer(page, chromium, "report 150") for _ in range(3))
    assert any(seconds <= LONGEST_TASK for seconds in longest)
    assert len(page.get_by_label("Message", exact=True).last.inner_text()) > 100_000, "in the end it is all there"


def test_no_task_is_long_when_a_chat_of_500_messages_is_opened(open_page: OpenPage, chromium: Browser) -> None:
    page = open_page()
    fill_the_chat(page, 500)
    longest = (longest_task_of_opening(page, chromium) for _ in range(3))
    assert any(seconds <= LONGEST_TASK for seconds in longest)


def longest_task_of_opening(page: Page, chromium: Browser) -> float:
    page.get_by_role("button", name="New chat").first.click()
    expect(page.locator(".message")).to_have_count(0)
    entry = page.locator("nav li button").first
    chromium.start_tracing(page=page, categories=["toplevel"])
    entry.click()
    page.wait_for_function("() => document.querySelectorAll('.message.user').length === 250", polling=100)
    return longest_task(chromium)


def test_no_task_is_long_while_one_searches_a_thousand_chats(open_page: OpenPage, chromium: Browser) -> None:
    page = open_page()
    fill_the_list(page, 1000)
    longest = (longest_task_of_searching(page, chromium) for _ in range(3))
    assert any(seconds <= LONGEST_TASK for seconds in longest)


def fill_the_list(page: Page, chats: int) -> None:
    listed = [{"id": f"chat-{number}", "title": f"Chat {number}", "changed": number} for number in range(chats)]
    page.evaluate("list => localStorage.setItem('usechat:/chat/api/chat::chats', list)", json.dumps(listed))
    page.reload()
    expect(page.get_by_role("button", name=f"Chat {chats - 1}", exact=True)).to_be_visible()


def longest_task_of_searching(page: Page, chromium: Browser) -> float:
    search = page.get_by_label("Search chats")
    chromium.start_tracing(page=page, categories=["toplevel"])
    search.press_sequentially("chat 77", delay=50)
    for _ in range(len("chat 77")):
        search.press("Backspace")
    page.evaluate("() => new Promise((done) => setTimeout(done, 500))")
    return longest_task(chromium)


def test_the_end_of_a_long_list_of_chats_comes_into_sight(open_page: OpenPage) -> None:
    page = open_page()
    fill_the_list(page, 300)
    entries = page.locator("nav li")
    assert entries.count() < 100, "only the first ones are drawn"
    for _ in range(20):
        entries.last.scroll_into_view_if_needed()
        page.mouse.move(100, 600)
        page.mouse.wheel(0, 5000)
        page.evaluate("() => new Promise((done) => setTimeout(done, 50))")
    expect(entries).to_have_count(300)
    expect(page.get_by_role("button", name="Chat 0", exact=True)).to_be_in_viewport()


DRAWN: Final = """([answers, least]) => {
    const all = document.querySelectorAll(".message.assistant");
    const size = all[all.length - 1]?.textContent.length ?? 0;
    const idle = all.length === answers && document.querySelector("[role=log]").ariaBusy === "false";
    const same = idle && size === window.size_ && size > least;
    window.size_ = size;
    return same;
}"""
"""Whether an answer is complete and no more of it is being drawn."""


def longest_task_of_an_answer(page: Page, chromium: Browser, question: str, least: int = 30_000) -> float:
    answers_before = page.locator(".message.assistant").count()
    page.fill("#prompt", question)
    wait_until_idle(page)  # the chat is drawn
    page.evaluate("() => new Promise((done) => requestIdleCallback(done))")
    chromium.start_tracing(page=page, categories=["toplevel"])
    page.press("#prompt", "Enter")
    # A query by role or text would be a long task itself.
    page.wait_for_function(DRAWN, arg=[answers_before + 1, least], polling=500, timeout=120_000)
    return longest_task(chromium)


def longest_task(chromium: Browser) -> float:
    times = task_times(json.loads(chromium.stop_tracing()))
    assert len(times) > 100
    return max(times)


def test_an_answer_of_twenty_thousand_deltas_arrives(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "many 20000")
    expect(page.get_by_text("end-of-many")).to_be_visible(timeout=120_000)
    wait_until_idle(page)
    expect(page.get_by_label("Assistant")).to_contain_text("w19999")


def test_the_inspector_shows_any_of_thousands_of_frames(open_page: OpenPage) -> None:
    page = open_page()
    page.get_by_role("button", name="Inspector").click()
    ask(page, "many 5000")
    expect(page.get_by_text("end-of-many")).to_be_visible(timeout=120_000)
    wait_until_idle(page)
    inspector = page.get_by_role("complementary", name="Inspector")
    expect(inspector.get_by_role("button", name="[DONE]", exact=True)).to_be_visible()
    assert page.locator(".frames tbody tr").count() < 200, "only what is in sight is in the document"
    page.evaluate("document.querySelector('.frames').scrollTop = 0")
    expect(inspector.get_by_role("button", name="start", exact=True)).to_be_visible()
    inspector.get_by_label("Filter frames").fill('"w4321 "')
    inspector.get_by_role("button", name="text-delta").click()
    expect(inspector.get_by_label("Frame", exact=False).last).to_contain_text('"delta": "w4321 "')
