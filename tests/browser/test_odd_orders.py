"""Things that people do in an order that nobody planned."""

from collections.abc import Iterator
from typing import Literal

import pytest
from playwright.sync_api import Page

from tests.browser.agent import answer, open_gates
from tests.browser.chatting import ask, chat_id, delete_chat, expect, go_on, wait_until_idle
from tests.browser.conftest import OpenPage, page_served
from tests.browser.test_recovery import numbers, wait_for_the_count
from tests.browser.test_states import scroll_up
from tests.browser.test_stored_chats import everyone_is_ada
from tests.browser.test_touch import DISTANCE_TO_END
from tests.server.process import eventually
from usechat.chats import MemoryChats


@pytest.fixture(scope="module")
def storing() -> Iterator[str]:
    """The address of a server that stores and shares chats, with two agents."""
    with page_served(
        {"one": answer, "two": answer}, chats=MemoryChats(), authorize=everyone_is_ada, share=True
    ) as served:
        yield f"http://127.0.0.1:{served.port}/chat/"


def expect_version(page: Page, version: str) -> None:
    expect(page.get_by_label("Assistant").get_by_role("group", name="Versions")).to_have_text(version)


def test_an_edit_waits_until_the_answer_is_complete(open_page: OpenPage, storing: str) -> None:
    page = open_page(storing)
    ask(page, "hello there")
    wait_until_idle(page)
    page.get_by_role("button", name="Edit").click()
    field = page.get_by_label("Edit message")
    field.fill("hello again")
    ask(page, "count held")
    expect(page.get_by_text("number-10 ")).to_be_visible()
    field.press("Enter")
    expect(page.locator(".edit button[type=submit]")).to_be_hidden()
    go_on(page)
    expect(page.get_by_text("end-of-count")).to_be_visible()
    expect(page.locator(".edit button[type=submit]")).to_be_visible()
    assert numbers_in_last(page) == list(range(1, 101))
    expect(field).to_have_value("hello again")
    field.press("Enter")
    expect(page.get_by_label("Assistant")).to_have_text(["You said: hello again"])


def numbers_in_last(page: Page) -> list[int]:
    text = page.get_by_label("Assistant").last.inner_text()
    return [int(word.removeprefix("number-")) for word in text.split() if word.startswith("number-")]


def test_an_answer_that_is_regenerated_twice_has_three_versions_and_a_stopped_one_is_one(
    open_page: OpenPage, storing: str
) -> None:
    page = open_page(storing)
    ask(page, "count held")
    go_on(page)
    expect(page.get_by_text("end-of-count")).to_be_visible()
    wait_until_idle(page)
    page.get_by_role("button", name="Regenerate").click()
    expect(page.get_by_text("number-10 ")).to_be_visible()
    expect(page.get_by_role("button", name="Regenerate")).to_have_count(0)
    page.keyboard.press("Escape")
    wait_until_idle(page)
    page.get_by_role("button", name="Regenerate").click()
    go_on(page)
    expect(page.get_by_text("end-of-count")).to_be_visible()
    wait_until_idle(page)
    expect_version(page, "3/3")
    page.get_by_role("button", name="Earlier version").click()
    expect(page.get_by_text("end-of-count")).to_be_hidden()
    expect_version(page, "2/3")
    page.get_by_role("button", name="Earlier version").click()
    expect(page.get_by_text("end-of-count")).to_be_visible()
    expect_version(page, "1/3")


@pytest.mark.parametrize("stores", [False, True], ids=["kept here", "stored"])
def test_a_chat_that_is_deleted_while_it_answers_is_put_back_and_goes_on(
    open_page: OpenPage, storing: str, stores: bool
) -> None:
    page = open_page(storing if stores else "")
    ask(page, "count undone, held")
    expect(page.get_by_text("number-10 ")).to_be_visible()
    counting = chat_id(page)
    page.get_by_role("navigation").get_by_role("listitem").filter(has_text="count undone").hover()
    page.get_by_role("button", name="Options of count undone, held").click()
    page.get_by_role("menuitem", name="Delete").click()
    expect(page.get_by_text("number-10 ")).to_be_hidden()
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("number-10 ")).to_be_visible()
    assert chat_id(page) == counting
    open_gates(counting)
    expect(page.get_by_text("end-of-count")).to_be_visible()
    wait_until_idle(page)
    assert numbers(page) == list(range(1, 101))


def test_the_keyboard_renames_a_chat_and_stays_where_it_was(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "name me")
    wait_until_idle(page)
    entry = page.get_by_role("navigation").get_by_role("button", name="name me", exact=True)
    options = page.get_by_role("button", name="Options of name me")
    for title, key in (("   ", "Enter"), ("something else", "Escape")):
        options.press("Enter")
        page.get_by_role("menuitem", name="Rename").press("Enter")
        page.get_by_label("Title").fill(title)
        page.keyboard.press(key)
        expect(entry).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("menu")).to_be_visible()
    page.keyboard.press("Escape")
    expect(options).to_be_focused()
    page.keyboard.press("Enter")
    page.get_by_role("menuitem", name="Rename").press("Enter")
    expect(page.get_by_label("Title")).to_be_focused()
    page.keyboard.type("Named by keys")
    page.keyboard.press("Enter")
    expect(page.get_by_role("navigation").get_by_role("button", name="Named by keys", exact=True)).to_be_focused()


@pytest.mark.parametrize("stores", [False, True], ids=["kept here", "stored"])
def test_an_approval_that_was_given_offline_is_sent_when_the_server_is_back(
    open_page: OpenPage, storing: str, stores: bool
) -> None:
    """A server that stores no chats cannot say whether it has got the approval: a person decides."""
    page = open_page(storing if stores else "")
    ask(page, "approve this")
    wait_until_idle(page)
    page.context.set_offline(True)
    page.get_by_role("button", name="Approve", exact=True).click()
    expect(page.get_by_text("The connection was lost. Reconnecting…")).to_be_visible()
    page.context.set_offline(False)
    if not stores:
        expect(page.get_by_role("alert")).to_contain_text("The connection was lost before the answer was complete.")
        expect(page.get_by_role("button", name="Delete file Answered")).to_be_visible()
        page.get_by_role("button", name="Try again").click()
    expect(page.get_by_text("It is gone.")).to_be_visible()
    wait_until_idle(page)
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.get_by_label("Assistant")).to_have_count(1)
    expect(page.get_by_role("group", name="Versions")).to_have_count(0)


def test_an_approval_that_was_given_offline_is_there_after_a_reload(open_page: OpenPage, storing: str) -> None:
    page = open_page(storing)
    ask(page, "approve this")
    wait_until_idle(page)
    page.route("**/api/chat", lambda route: route.abort())
    page.get_by_role("button", name="Approve", exact=True).click()
    expect(page.get_by_role("button", name="Delete file Answered")).to_be_visible()
    page.reload()
    page.unroute("**/api/chat")
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_text("It is gone.")).to_be_visible()


def test_files_that_are_chosen_dropped_and_pasted_at_once_are_sent_but_for_one(open_page: OpenPage) -> None:
    page = open_page()
    page.set_input_files("input[type=file]", {"name": "chosen.txt", "mimeType": "text/plain", "buffer": b"x"})
    page.evaluate("""() => {
        const holding = (name) => {
            const files = new DataTransfer();
            files.items.add(new File(["x"], name, { type: "text/plain" }));
            return files;
        };
        const event = { bubbles: true, cancelable: true };
        document.body.dispatchEvent(new DragEvent("drop", { ...event, dataTransfer: holding("dropped.txt") }));
        document.querySelector("#prompt").dispatchEvent(
            new ClipboardEvent("paste", { ...event, clipboardData: holding("pasted.txt") }));
    }""")
    expect(page.get_by_role("list", name="Attached files").get_by_role("listitem")).to_have_count(3)
    page.get_by_role("button", name="Remove dropped.txt").click()
    ask(page, "files please")
    expect(page.get_by_label("Assistant")).to_contain_text("Files: chosen.txt (text/plain), pasted.txt (text/plain)")


def test_each_version_of_an_answer_has_its_own_rating(open_page: OpenPage, storing: str) -> None:
    page = open_page(storing)
    ask(page, "rate my versions")
    wait_until_idle(page)
    good, bad = (page.get_by_role("button", name=f"{kind} answer") for kind in ("Good", "Bad"))
    good.click()
    page.get_by_role("button", name="Regenerate").click()
    expect(page.get_by_role("group", name="Versions")).to_contain_text("2/2")
    wait_until_idle(page)
    expect(good).to_have_attribute("aria-pressed", "false")
    with page.expect_response(lambda response: response.url.endswith("/feedback")):
        bad.click()
    page.get_by_role("button", name="Earlier version").click()
    expect(good).to_have_attribute("aria-pressed", "true")
    expect(bad).to_have_attribute("aria-pressed", "false")
    page.reload()
    page.get_by_role("button", name="Later version").click()
    expect(bad).to_have_attribute("aria-pressed", "true")


def test_an_agent_that_is_picked_while_another_answers_gets_the_next_message(open_page: OpenPage, storing: str) -> None:
    page = open_page(storing)
    ask(page, "count held")
    expect(page.get_by_text("number-10 ")).to_be_visible()
    page.get_by_role("button", name="Agent: one").click()
    page.get_by_role("menuitemradio", name="two").click()
    go_on(page)
    expect(page.get_by_text("end-of-count")).to_be_visible()
    wait_until_idle(page)
    with page.expect_request(lambda request: request.method == "POST") as request_info:
        ask(page, "hello there")
    assert (request_info.value.post_data_json or {})["agent"] == "two"
    expect(page.get_by_text("You said: hello there")).to_be_visible()
    expect(page.get_by_role("button", name="Agent: two")).to_be_visible()


def test_commands_come_over_a_dialog_and_leave_it_there(open_page: OpenPage, storing: str) -> None:
    page = open_page(storing)
    ask(page, "share under commands")
    wait_until_idle(page)
    page.get_by_role("button", name="share under commands", exact=True).hover()
    page.get_by_role("button", name="Options of share under commands").click()
    page.get_by_role("menuitem", name="Share").click()
    page.keyboard.press("Control+k")
    expect(page.get_by_label("Command", exact=True)).to_be_focused()
    page.keyboard.type("dark")
    page.keyboard.press("Enter")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    expect(page.get_by_role("dialog")).to_contain_text("Share")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.parametrize("named", ["no-such-chat", "..%2F..%2Fx%20<b>", "x" * 600, "%F0%9F%8E%89"])
def test_an_address_that_names_no_chat_begins_one(open_page: OpenPage, storing: str, named: str) -> None:
    page = open_page(f"{storing}?chat={named}")
    expect(page.get_by_role("heading", name="Support").last).to_be_visible()
    ask(page, "hello there")
    expect(page.get_by_text("You said: hello there")).to_be_visible()


def test_back_and_forward_go_through_the_chats_while_one_answers(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "hello there")
    wait_until_idle(page)
    page.get_by_role("navigation").get_by_role("button", name="New chat").click()
    ask(page, "count held")
    expect(page.get_by_text("number-10 ")).to_be_visible()
    page.go_back()
    expect(page.locator("h1")).to_have_text("hello there")
    page.go_forward()
    expect(page.locator("h1")).to_have_text("count held")
    wait_for_the_count(page)


def test_a_chat_that_another_tab_deletes_leaves_the_list_there(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "delete in a tab")
    wait_until_idle(page)
    other = open_page()
    chats = other.get_by_role("navigation", name="Chats")
    expect(chats).to_contain_text("delete in a tab")
    delete_chat(page, "delete in a tab")
    expect(chats).not_to_contain_text("delete in a tab")
    page.get_by_role("button", name="Undo").click()
    expect(chats).to_contain_text("delete in a tab")


@pytest.mark.parametrize("width", [640, 320], ids=["200 %", "400 %"])
def test_an_enlarged_page_scrolls_in_one_direction_only(open_page: OpenPage, width: int) -> None:
    """A window of 1280 pixels, enlarged, has the room of a smaller one."""
    page = open_page()
    page.set_viewport_size({"width": width, "height": 430})
    page.reload()
    for text in ("markdown please", "tools please", "approve this"):
        ask(page, text)
        wait_until_idle(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    expect(page.locator("#prompt")).to_be_in_viewport(ratio=1)
    approve = page.get_by_role("button", name="Approve", exact=True)

    def is_reached() -> bool:
        approve.scroll_into_view_if_needed()  # the question is at the top, and the view is low
        return bool(approve.evaluate("(it) => it.getBoundingClientRect().bottom <= innerHeight"))

    eventually(is_reached, "the button can be scrolled into view")  # the page may still bring the question to the top


def test_nothing_moves_by_itself_where_motion_is_unwanted(open_page: OpenPage) -> None:
    page = open_page()
    page.emulate_media(reduced_motion="reduce")
    ask(page, "think while held")
    expect(page.get_by_text("Let me think about that.")).to_be_visible()
    moving = "() => document.getAnimations().filter((one) => one.playState === 'running').length"
    assert page.evaluate(moving) == 0
    go_on(page)
    wait_until_idle(page)


@pytest.mark.parametrize(("motion", "jumps"), [("reduce", True), ("no-preference", False)])
def test_the_way_to_the_end_is_a_jump_where_motion_is_unwanted(
    open_page: OpenPage, motion: Literal["reduce", "no-preference"], jumps: bool
) -> None:
    page = open_page()
    page.emulate_media(reduced_motion=motion)
    ask(page, "code please")
    wait_until_idle(page)
    scroll_up(page)
    follow = "log => (window.tops = [], log.onscroll = () => tops.push(log.scrollTop))"
    page.get_by_role("log", name="Conversation").evaluate(follow)
    page.get_by_role("button", name="Scroll to the end").click()
    page.wait_for_function(f"() => tops.length > 0 && {DISTANCE_TO_END} < 2")
    on_the_way = page.evaluate("tops.filter((top) => top > 100 && top < Math.max(...tops) - 100)")
    assert (on_the_way == []) == jumps
