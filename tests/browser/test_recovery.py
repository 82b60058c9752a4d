"""Stop, reload, a cut network: the answer is one, and whole."""

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.browser.agent import GATES, answer, open_gates
from tests.browser.chatting import ask, chat_id, expect, go_on, hold_the_next, wait_until_idle, wait_until_stored
from tests.browser.conftest import OpenPage, page_served
from tests.browser.test_stored_chats import everyone_is_ada
from tests.conformance.served import Served, eventually
from usechat.chats import MemoryChats
from usechat.protocol.sse import encode_frame
from usechat.server.response import DISCONNECTED


def numbers(page: Page) -> list[int]:
    return [int(digits) for digits in re.findall(r"number-(\d+)", page.get_by_label("Assistant").inner_text())]


def wait_for_the_count(page: Page) -> None:
    GATES.open(chat_id(page))
    expect(page.get_by_text("number-99 ")).to_be_visible()  # before that it may not have resumed the answer
    go_on(page)
    expect(page.get_by_text("end-of-count")).to_be_visible()
    wait_until_idle(page)
    assert numbers(page) == list(range(1, 101)), "nothing is lost, doubled or out of order"
    wait_until_stored(page, "user", "assistant")


def test_stop_ends_the_answer_and_keeps_it(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "long story")
    expect(page.get_by_text("word5 ")).to_be_visible()
    with page.expect_response("**/stop") as stopped:
        page.get_by_role("button", name="Stop").click()
    assert stopped.value.status == 204
    wait_until_idle(page)
    expect(page.get_by_role("alert")).to_be_hidden()
    text = page.get_by_label("Assistant").locator(".markdown").inner_text()
    ask(page, "hello after that")
    expect(page.get_by_text("You said: hello after that")).to_be_visible()
    assert page.get_by_label("Assistant").first.locator(".markdown").inner_text() == text, "nothing came after the stop"


def test_a_reload_in_the_middle_goes_on(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "count held")
    expect(page.get_by_text("number-10 ")).to_be_visible()
    page.reload()
    wait_for_the_count(page)


def test_a_cut_network_resumes_by_itself(open_page: OpenPage, served: Served) -> None:
    page = open_page()
    ask(page, "count held")
    expect(page.get_by_text("number-10 ")).to_be_visible()
    served.cut()
    wait_for_the_count(page)
    expect(page.get_by_role("alert")).to_be_hidden()


class CleanCut:
    """Ends the body of the first answer properly in its middle, as a proxy does that gives up."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.is_done = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        cuts = scope["type"] == "http" and scope["method"] == "POST" and not self.is_done
        cut = asyncio.Event()

        async def send_some(message: Any) -> None:
            if cut.is_set():
                return
            if cuts and b"number-10 " in message.get("body", b""):
                self.is_done = True
                cut.set()
                message = {**message, "more_body": False}
            await send(message)

        await self.app(scope, receive, send_some)


def test_an_answer_that_a_proxy_cuts_off_cleanly_is_resumed(open_page: OpenPage) -> None:
    with page_served(answer, wrap=CleanCut) as served:
        page = open_page(f"http://127.0.0.1:{served.port}/chat/")
        ask(page, "count held")
        expect(page.get_by_text("number-40 ")).to_be_visible()
        wait_for_the_count(page)
        expect(page.get_by_role("alert")).to_be_hidden()


def test_the_notice_of_a_lost_connection_goes_when_the_answer_goes_on(open_page: OpenPage, served: Served) -> None:
    page = open_page()
    ask(page, "count held")
    expect(page.get_by_text("number-10 ")).to_be_visible()
    page.context.set_offline(True)
    served.cut()
    notice = page.get_by_text("The connection was lost. Reconnecting…")
    expect(notice).to_be_visible()
    page.context.set_offline(False)
    expect(page.get_by_text("number-49 ")).to_be_visible()
    expect(notice).to_be_hidden()
    expect(page.get_by_role("button", name="Stop")).to_be_visible()  # the answer is not at its end
    wait_for_the_count(page)


def test_an_answer_that_was_stopped_says_so_and_is_regenerated(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "long story")
    expect(page.get_by_text("word5 ")).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    wait_until_idle(page)
    for _ in range(2):
        expect(page.get_by_role("status").filter(has_text="You stopped this answer · Regenerate")).to_be_visible()
        page.reload()
    page.get_by_role("button", name="Regenerate").click()
    expect(page.get_by_text("You stopped this answer")).to_be_hidden()
    page.get_by_role("button", name="Stop").click()
    wait_until_idle(page)


@pytest.mark.parametrize("stores", [True, False], ids=["stored", "here"])
@pytest.mark.parametrize("arrives", [True, False], ids=["sent", "on its way"])
def test_an_answer_that_was_stopped_before_it_began_says_so(open_page: OpenPage, stores: bool, arrives: bool) -> None:
    kept: dict[str, Any] = {"chats": MemoryChats(), "authorize": everyone_is_ada} if stores else {}
    with page_served(answer, **kept) as served:
        page = open_page(f"http://127.0.0.1:{served.port}/chat/")
        if not arrives:
            hold_the_next(page, "**/api/chat")
        with page.expect_request("**/api/chat"):
            ask(page, "later held")
        if arrives:
            served.later(0.3).result()
        page.get_by_role("button", name="Stop").click()
        wait_until_idle(page)
        notice = page.get_by_role("status").filter(has_text="You stopped this answer · Regenerate")
        for _ in range(2):
            expect(notice).to_be_visible()
            expect(page.get_by_role("alert")).to_be_hidden()
            expect(page.get_by_text("The answer is empty.")).to_be_hidden()
            page.reload()
        go_on(page)
        page.get_by_role("button", name="Regenerate").click()
        expect(page.get_by_text("Here it is.")).to_be_visible()
        wait_until_idle(page)
        expect(notice).to_be_hidden()


def test_a_server_that_is_away_for_a_while_is_waited_for(open_page: OpenPage, served: Served) -> None:
    page = open_page()
    ask(page, "count held")
    expect(page.get_by_text("number-10 ")).to_be_visible()
    page.context.set_offline(True)
    served.cut()
    expect(page.get_by_text("The connection was lost. Reconnecting…")).to_be_visible()
    expect(page.get_by_text("number-10 ")).to_be_visible()
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    page.context.set_offline(False)
    wait_for_the_count(page)
    expect(page.get_by_role("alert")).to_be_hidden()


def test_an_answer_that_is_lost_is_told_and_can_be_asked_for_again(open_page: OpenPage, served: Served) -> None:
    page = open_page()
    ask(page, "count held")
    expect(page.get_by_text("number-10 ")).to_be_visible()
    page.route("**/stream", lambda route: route.fulfill(status=204))
    served.cut()
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("The connection was lost before the answer was complete.")
    expect(page.get_by_text("number-10 ")).to_be_visible()
    assert numbers(page) == list(range(1, numbers(page)[-1] + 1))
    page.request.post(f"http://127.0.0.1:{served.port}/chat/api/chat/{chat_id(page)}/stop")
    page.get_by_role("button", name="Try again").click()
    wait_for_the_count(page)
    expect(alert).to_be_hidden()


def expect_no_loss(page: Page, send: Callable[[Page, str], None]) -> None:
    """Send a question while the page tries to resume; there is nothing to resume, and the answer has not begun."""
    resume, question = hold_the_next(page, "**/stream"), hold_the_next(page, "**/api/chat")
    page.reload()
    eventually(lambda: page.evaluate("1") == 1 and len(resume) == 1, "the page tries to resume")
    send(page, "hello there")
    eventually(lambda: page.evaluate("1") == 1 and len(question) == 1, "the question is sent")
    with page.expect_response("**/stream"):
        resume[0].fulfill(status=204)
    page.evaluate("() => new Promise((done) => setTimeout(done, 200))")
    question[0].continue_()
    expect(page.get_by_text("You said: hello there")).to_be_visible()
    wait_until_idle(page)
    expect(page.get_by_role("alert")).to_be_hidden()


def click_send(page: Page, text: str) -> None:
    page.fill("#prompt", text)
    page.get_by_role("button", name="Send").click()


@pytest.mark.parametrize("send", [ask, click_send], ids=["keyboard", "mouse"])
def test_a_resume_that_finds_nothing_after_a_question_was_sent_is_no_loss(
    open_page: OpenPage, send: Callable[[Page, str], None]
) -> None:
    expect_no_loss(open_page(), send)


def test_what_a_server_says_that_hangs_up_is_no_failure(open_page: OpenPage) -> None:
    page = open_page()
    body = b'data: {"type":"start","messageId":"m"}\n\n' + encode_frame(DISCONNECTED) + b"data: [DONE]\n\n"
    stream = {"content-type": "text/event-stream", "x-vercel-ai-ui-message-stream": "v1"}
    ask(page, "count held")
    expect(page.get_by_text("number-10 ")).to_be_visible()
    page.route("**/stream", lambda route: route.fulfill(status=200, headers=stream, body=body), times=1)
    page.reload()
    wait_for_the_count(page)
    expect(page.get_by_role("alert")).to_be_hidden()


def test_a_reload_after_an_approval_goes_on(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "approve slowly, held")
    page.get_by_role("button", name="Approve", exact=True).click()
    expect(page.get_by_text("number-10 ")).to_be_visible()
    page.reload()
    wait_for_the_count(page)
    expect(page.get_by_role("button", name="Delete file Done")).to_have_count(1)
    expect(page.get_by_text("This needs your consent.")).to_have_count(1)


def test_a_cut_network_after_an_approval_resumes(open_page: OpenPage, served: Served) -> None:
    page = open_page()
    ask(page, "approve slowly, held")
    page.get_by_role("button", name="Approve", exact=True).click()
    expect(page.get_by_text("number-10 ")).to_be_visible()
    served.cut()
    wait_for_the_count(page)
    expect(page.get_by_text("This needs your consent.")).to_have_count(1)


def test_an_answer_goes_on_while_another_chat_is_looked_at(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "count held")
    expect(page.get_by_text("number-10 ")).to_be_visible()
    counting = chat_id(page)
    page.get_by_role("button", name="New chat").click()
    ask(page, "hello there")
    expect(page.get_by_text("You said: hello there")).to_be_visible()
    chats = page.get_by_role("navigation", name="Chats")
    expect(chats.get_by_role("img", name="Answering:")).to_be_visible()
    open_gates(counting)
    expect(chats.get_by_role("img", name="Answering:")).to_be_hidden()
    chats.get_by_role("button", name="count held", exact=True).click()
    wait_for_the_count(page)
