"""Where a conversation is read: at the question that was just sent, at the end, or wherever the user has scrolled."""

from playwright.sync_api import Page

from tests.browser.chatting import ask, expect, go_on, wait_until_idle
from tests.browser.conftest import OpenPage
from tests.conformance.served import eventually

TOP = """() => {
    const questions = document.querySelectorAll(".message.user");
    const log = document.querySelector("[role=log]");
    return questions[questions.length - 1].getBoundingClientRect().top - log.getBoundingClientRect().top;
}"""
"""Pixels from the top of the view down to the last question."""
TO_END = """() => {
    const log = document.querySelector("[role=log]");
    return log.scrollHeight - log.scrollTop - log.clientHeight;
}"""
"""Pixels from the bottom of the view down to the end of the conversation."""


def expect_question_at_top(page: Page) -> None:
    """Wait until the question is there and rests: Playwright scrolls to what moves while it is clicked."""
    eventually(lambda: 0 <= resting_top(page) <= 40, "the question is at the top of the view")


def resting_top(page: Page) -> float:
    top, before = float(page.evaluate(TOP)), None
    while top != before:
        page.wait_for_timeout(100)
        top, before = float(page.evaluate(TOP)), top
    return top


def expect_end(page: Page) -> None:
    eventually(lambda: page.evaluate(TO_END) <= 4, "the end is in sight")


def test_the_question_stays_at_the_top_while_its_answer_grows(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "lines 60 held")
    expect(page.get_by_text("Line 59 of the answer.")).to_have_count(1)
    expect_question_at_top(page)
    expect(page.get_by_text("Line 1 of the answer.")).to_be_in_viewport()
    go_on(page)
    wait_until_idle(page)
    expect(page.get_by_text("Line 60 of the answer.")).not_to_be_in_viewport()
    expect_question_at_top(page)


def test_a_later_question_goes_to_the_top_from_wherever_one_reads(open_page: OpenPage) -> None:
    page = open_page()
    for text in ("lines 60", "lines 3", "hello there"):
        ask(page, text)
        wait_until_idle(page)
        expect_question_at_top(page)
    page.get_by_role("log", name="Conversation").hover()
    page.mouse.wheel(0, -5000)
    expect(page.get_by_text("hello there", exact=True).last).not_to_be_in_viewport()
    ask(page, "after that")
    wait_until_idle(page)
    expect_question_at_top(page)
    expect(page.get_by_text("You said: after that")).to_be_in_viewport()


def test_scrolling_up_frees_the_view(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "lines 60")
    wait_until_idle(page)
    ask(page, "lines 60 held")
    expect(page.get_by_text("Line 59 of the answer.").last).to_have_count(1)
    expect_question_at_top(page)
    page.get_by_role("log", name="Conversation").hover()
    page.mouse.wheel(0, -600)
    eventually(lambda: page.evaluate(TOP) > 300, "the wheel has moved the view")
    before = resting_top(page)
    go_on(page)
    wait_until_idle(page)
    assert abs(page.evaluate(TOP) - before) <= 2


def test_whoever_goes_to_the_end_follows_it(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "count held")
    page.set_viewport_size({"width": 400, "height": 500})
    expect(page.get_by_text("number-49 ")).to_have_count(1)
    page.get_by_role("button", name="Scroll to the end").click()
    expect_end(page)
    go_on(page)
    expect(page.get_by_text("end-of-count")).to_be_in_viewport()
    wait_until_idle(page)
    expect_end(page)


GOES_ELSEWHERE = """() => new Promise((done) => {
    document.querySelector("[aria-label='Scroll to the end']").click();
    document.querySelector(".message.assistant a[href$='fnref-1']").click();
    setTimeout(done, 1000);
})"""
"""Follow a link while the view glides to the end, and wait until it would have arrived there."""


def test_whoever_follows_a_link_while_the_view_glides_stays_where_it_leads(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "footnotes please")
    wait_until_idle(page)
    number = page.get_by_label("Assistant").get_by_role("link", name="1", exact=True)
    expect_question_at_top(page)
    expect(number).to_be_in_viewport()
    page.evaluate(GOES_ELSEWHERE)
    expect(number).to_be_in_viewport()


def test_a_chat_that_is_opened_or_resumed_is_read_at_its_end(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "lines 60 held")
    expect(page.get_by_text("Line 59 of the answer.")).to_have_count(1)
    page.reload()
    expect(page.get_by_text("Line 59 of the answer.")).to_be_in_viewport()
    go_on(page)
    wait_until_idle(page)
    expect(page.get_by_text("Line 60 of the answer.")).to_be_in_viewport()
    expect_end(page)
    assert page.evaluate(TOP) < 0


def test_an_answer_that_goes_on_after_an_approval_moves_nothing(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "lines 60")
    wait_until_idle(page)
    ask(page, "approve this")
    button = page.get_by_role("button", name="Approve", exact=True)
    expect(button).to_be_in_viewport()
    expect_question_at_top(page)
    button.click()
    expect(page.get_by_text("It is gone.")).to_be_in_viewport()
    wait_until_idle(page)
    expect_question_at_top(page)
