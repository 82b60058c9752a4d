"""What has to work in every browser: all of it runs in Firefox and in WebKit."""

import asyncio
import json
import re
import threading
from typing import Any, Final

import pytest

from tests.browser.agent import answer
from tests.browser.conftest import page_served
from tests.browser.test_embedding import Shop
from tests.browser.test_reading_place import TO_END, TOP
from tests.browser.test_recovery import CleanCut
from tests.browser.test_sign_in import TOKEN, Doorkeeper
from tests.browser.test_size import text_message
from tests.browser.test_stored_chats import everyone_is_ada
from tests.browsers.tab import Tab
from tests.conformance.served import Served, eventually
from usechat.chats import MemoryChats

RECONNECTING: Final = "The connection was lost. Reconnecting…"
FITS: Final = "() => document.documentElement.scrollWidth <= innerWidth"
BACKGROUND: Final = "() => getComputedStyle(document.body).backgroundColor"


def open_chat(tab: Tab, served: Served, **options: str) -> None:
    tab.open(f"http://127.0.0.1:{served.port}/chat/", **options)


def see_the_whole_count(tab: Tab) -> None:
    """Let the count go on to its end, and see that nothing is lost, doubled or out of order."""
    tab.go_on()
    tab.see("end-of-count")
    tab.wait_until_idle()
    numbers = [int(digits) for digits in re.findall(r"number-(\d+)", tab.text(".message.assistant"))]
    assert numbers == list(range(1, 101))
    assert tab.count("[role=alert]") == 0


class Reporting:
    """Lets a browser report what the policy of the page forbids."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.reports: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def send_with_address(message: Any) -> None:
            headers = [
                (name, value + b"; report-uri /chat/reports" if name == b"content-security-policy" else value)
                for name, value in message.get("headers", [])
            ]
            await send({**message, "headers": headers} if "headers" in message else message)

        if scope["path"].endswith("/reports"):
            report = json.loads((await receive())["body"])["csp-report"]
            self.reports.append(f"{report['violated-directive']} {report['blocked-uri']}")
            await send({"type": "http.response.start", "status": 204})
            await send({"type": "http.response.body"})
        else:
            await self.app(scope, receive, send_with_address)


def test_a_load_violates_no_policy(tab: Tab) -> None:
    around: list[Reporting] = []

    def report(app: Any) -> Reporting:
        around.append(Reporting(app))
        return around[0]

    with page_served(answer, around=report) as served:
        open_chat(tab, served)
        tab.ask_and_wait("markdown please")
        tab.note_complaints()
        tab.evaluate("() => { new Image().src = 'https://example.org/forbidden.png'; }")
        eventually(lambda: around[0].reports, "the browser reports what is forbidden")
        assert [report.partition(" ")[0] for report in around[0].reports] == ["img-src"]
        tab.evaluate("() => void window.complaints.splice(0)")


def test_the_first_message_is_answered_bit_by_bit(chat: Tab) -> None:
    chat.click("button", "hello there")
    chat.see("You said: hello there")
    chat.ask("count held")
    chat.see("number-49", ".message.assistant")
    chat.find_button("Stop")
    see_the_whole_count(chat)


def test_markdown_and_code_are_drawn(chat: Tab) -> None:
    chat.ask_and_wait("markdown please")
    chat.see("A title", ".message.assistant :is(h1, h2)")
    chat.see("bold", ".message.assistant strong")
    chat.see("2", ".message.assistant td")
    colours = """() => new Set([...document.querySelectorAll(".message.assistant pre span")]
        .map((word) => getComputedStyle(word).color)).size"""
    eventually(lambda: chat.evaluate(colours) > 2, "the code has colours")
    chat.ask_and_wait("diagram please")
    chat.find(".message.assistant .diagram img")


def test_a_tool_tells_what_it_does_and_what_became_of_it(chat: Tab) -> None:
    chat.ask("tools held")
    chat.see("Running", ".tool")
    chat.go_on()
    chat.see("One tool worked, one did not.")
    chat.click(".tools > button")
    chat.see("Division by zero.", ".tool")
    assert chat.text(".tool > button").split() == ["Divide", "Failed"]


@pytest.mark.parametrize(("button", "text"), [("Approve", "It is gone."), ("Deny", "It stays.")])
def test_a_tool_that_asks_is_answered(chat: Tab, button: str, text: str) -> None:
    chat.ask("approve this")
    chat.see("notes.txt", ".tool")
    chat.click_button(button)
    chat.see(text)
    chat.wait_until_idle()


def test_a_form_is_filled_in(chat: Tab) -> None:
    chat.ask("question form")
    chat.fill("input", "3", "Guests")
    chat.click("input", "Terrace")
    chat.evaluate("() => document.querySelector('select').focus()")
    chat.press("L")
    chat.click_button("Answer")
    content = {"guests": 3, "name": "Ada", "terrace": True, "menu": "a"}
    chat.see(json.dumps({"action": "accept", "content": content}), ".message.assistant")


def test_an_answer_is_stopped(chat: Tab) -> None:
    chat.ask("long story")
    chat.see("word5", ".message.assistant")
    chat.click_button("Stop")
    chat.see("You stopped this answer")
    chat.wait_until_idle()


def test_an_answer_is_regenerated_and_a_message_edited_and_each_version_shown(tab: Tab) -> None:
    with page_served(answer, chats=MemoryChats(), authorize=everyone_is_ada) as served:
        open_chat(tab, served)
        tab.ask_and_wait("hello there")
        tab.click_button("Regenerate")
        tab.see("2/2", ".message.assistant")
        tab.wait_until_idle()
        tab.click_button("Edit")
        tab.fill("textarea", "hello again", "Edit message")
        tab.press("Enter")
        tab.see("You said: hello again", ".message.assistant")
        tab.see("2/2", ".message.user")
        tab.wait_until_idle()
        tab.click_button("Earlier version")
        tab.see("You said: hello there", ".message.assistant")
        tab.reload()
        tab.see("You said: hello there", ".message.assistant")


def test_the_field_of_an_edit_is_as_high_as_its_text(chat: Tab) -> None:
    chat.ask_and_wait("hello " + "and so on " * 40)
    chat.click_button("Edit")
    chat.find("textarea", "Edit message")
    heights = "(field) => [field.clientHeight, field.scrollHeight]"
    shown, whole = chat.evaluate(f"() => ({heights})(document.querySelector('.edit textarea'))")
    assert shown > 60
    assert whole - shown <= 1


def test_a_reload_in_the_middle_goes_on(chat: Tab) -> None:
    chat.ask("count held")
    chat.see("number-10", ".message.assistant")
    chat.reload()
    chat.see("number-49", ".message.assistant")
    see_the_whole_count(chat)


class Away:
    """Gives no answer that goes on until it is back."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.is_back = threading.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        while scope["path"].endswith("/stream") and not self.is_back.is_set():  # noqa: ASYNC110 (set by the test's thread)
            await asyncio.sleep(0.005)
        await self.app(scope, receive, send)


def test_the_notice_of_a_lost_connection_goes_when_the_answer_goes_on(tab: Tab) -> None:
    around: list[Away] = []

    def away(app: Any) -> Away:
        around.append(Away(app))
        return around[0]

    with page_served(answer, wrap=away) as served:
        open_chat(tab, served)
        tab.ask("count held")
        tab.see("number-10", ".message.assistant")
        served.cut()
        tab.see(RECONNECTING)
        assert "number-10" in tab.text(".message.assistant")
        around[0].is_back.set()
        tab.see("number-49", ".message.assistant")
        tab.miss(RECONNECTING)
        tab.find_button("Stop")  # the answer is not at its end
        see_the_whole_count(tab)


def test_an_answer_whose_body_ends_in_its_middle_is_not_taken_for_a_whole_one(tab: Tab) -> None:
    with page_served(answer, wrap=CleanCut) as served:
        open_chat(tab, served)
        tab.ask("count held")
        tab.see("number-40", ".message.assistant")
        tab.find_button("Stop")
        see_the_whole_count(tab)


def test_a_message_that_is_sent_after_scrolling_up_comes_into_view(chat: Tab) -> None:
    chat.ask_and_wait("lines 60")
    chat.scroll("[role=log]", -5000)
    eventually(lambda: chat.evaluate(TOP) >= 0, "the view is at the start")
    chat.ask_and_wait("lines 3")
    eventually(lambda: 0 <= chat.evaluate(TOP) <= 40, "the question is at the top of the view")


def test_a_wrong_token_is_refused_and_the_right_one_opens_the_chat(tab: Tab) -> None:
    with page_served(answer, chats=MemoryChats(), authorize=Doorkeeper(), auth=True) as served:
        open_chat(tab, served, shows="input")
        tab.fill("input", "wrong")
        tab.press("Enter")
        tab.see("The token is not valid.", "[role=alert]")
        tab.fill("input", TOKEN)
        tab.press("Enter")
        tab.find("#prompt")
        tab.ask_and_wait("hello there")
        tab.reload()
        tab.see("You said: hello there")


def test_dragging_the_edge_of_a_panel_selects_no_text(chat: Tab) -> None:
    chat.ask_and_wait("lines 30")
    chat.click_button("Inspector")
    chat.drag("[role=separator]", (700, 400))
    width = "() => document.querySelector('[role=separator]').ariaValueNow"
    eventually(lambda: chat.evaluate(width) == str(1280 - 700), "the panel has its width")
    assert chat.evaluate("() => getSelection().toString()") == ""


def test_a_clipboard_that_the_browser_refuses_is_told(chat: Tab) -> None:
    chat.ask_and_wait("hello there")
    chat.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('no')); }")
    chat.click_button("Copy message")
    chat.find_button("The browser refused to copy")


def test_a_theme_is_chosen_and_stays(chat: Tab) -> None:
    before = chat.evaluate(BACKGROUND)
    chat.click_button("Dark mode")
    chat.find_button("Light mode")
    dark = chat.evaluate(BACKGROUND)
    assert dark != before
    chat.reload()
    assert chat.evaluate(BACKGROUND) == dark


def test_a_chat_is_opened_from_the_list_deleted_and_put_back(chat: Tab) -> None:
    chat.ask_and_wait("first words")
    chat.click_button("New chat")
    chat.ask_and_wait("second words")
    chat.click_button("first words")
    chat.see("You said: first words")
    chat.hover("button", "first words")
    chat.click_button("Options of first words")
    chat.click("[role=menuitem]", "Delete")
    chat.lose("button", "first words")
    chat.click_button("Undo")
    chat.find_button("first words")
    chat.see("You said: first words")


def test_the_page_fits_a_phone(chat: Tab) -> None:
    chat.driver.resize(390, 844)
    assert chat.evaluate(FITS)
    chat.ask_and_wait("table please")
    chat.ask_and_wait("code please")
    assert chat.evaluate(FITS)
    chat.click_button("Chats")
    chat.find_button("table please")
    assert chat.evaluate(FITS)


def test_another_site_shows_the_page_behind_a_button(tab: Tab, shop: Shop) -> None:
    tab.open(shop.url, shows="button")
    tab.click_button("Ask us")
    tab.find("iframe")
    tab.note_complaints()
    tab.driver.enter_frame()
    tab.find("#prompt")
    tab.ask("hello there")
    tab.see("You said: hello there", ".message.assistant")
    tab.wait_until_idle()


def test_a_chat_of_500_messages_is_read_from_its_end_to_its_start(chat: Tab) -> None:
    messages = [text_message(number) for number in range(500)]
    stored = json.dumps({"messages": messages, "running": False})
    chat.evaluate("(chat) => localStorage.setItem(`usechat:/chat/api/chat::${location.search.slice(6)}`, chat)", stored)
    chat.reload()
    chat.see("499", ".message.assistant")
    eventually(lambda: chat.evaluate(TO_END) <= 4, "the end is in sight")

    def is_at_start() -> bool:
        chat.scroll("[role=log]", -100_000)
        return bool(chat.evaluate("() => document.querySelector('[role=log]').scrollTop === 0"))

    eventually(is_at_start, "the start is in sight")
    first = "() => document.querySelector('.message').innerText"
    eventually(lambda: "question 0" in chat.evaluate(first), "the first message is drawn")
    chat.click_button("Scroll to the end")
    eventually(lambda: chat.evaluate(TO_END) <= 4, "the end is in sight")
    assert "499" in chat.text(".message.assistant")
