"""No mouse and no finger: what the other tests click or tap, reached with Tab and done with keys."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import FileChooser, Locator, Page

from tests.browser.agent import answer
from tests.browser.chatting import ask, expect, expect_copied, text_file, wait_for_limits, wait_until_idle
from tests.browser.conftest import OpenPage, page_served
from tests.browser.test_stored_chats import everyone_is_ada
from tests.conformance.served import eventually
from usechat.chats import MemoryChats


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with page_served(answer, chats=MemoryChats(), authorize=everyone_is_ada, share=True) as served:
        yield f"http://127.0.0.1:{served.port}/chat/"


HAS_THE_FOCUS = "element => new Promise(done => setTimeout(() => done(element === document.activeElement)))"


def reach(page: Page, element: Locator, key: str = "Shift+Tab") -> None:
    """Go from one element to the next until this one has the focus. A menu moves it with a timer."""
    for _ in range(60):
        if element.evaluate(HAS_THE_FOCUS):
            return
        page.keyboard.press(key)
    raise AssertionError(f"{key} does not reach {element}")


def press(page: Page, name: str) -> None:
    """Go to the last button of this name, and press it."""
    reach(page, page.get_by_role("button", name=name, exact=True).last)
    page.keyboard.press("Enter")


def choose(page: Page, title: str, item: str) -> None:
    """Choose from the menu of a chat with the arrows."""
    press(page, f"Options of {title}")
    entry = page.get_by_role("menuitem", name=item, exact=True)
    expect(entry).to_be_visible()
    reach(page, entry, "ArrowDown")
    page.keyboard.press("Enter")


def test_a_suggestion_is_asked(open_page: OpenPage, address: str) -> None:
    page = open_page(address)
    press(page, "hello there")
    expect(page.get_by_text("You said: hello there")).to_be_visible()


def test_a_chat_is_pinned_exported_deleted_and_put_back(open_page: OpenPage, address: str) -> None:
    page = open_page(address)
    ask(page, "by keys alone")
    wait_until_idle(page)
    choose(page, "by keys alone", "Pin")
    chats = page.get_by_role("navigation", name="Chats")
    expect(chats.get_by_role("region", name="Pinned")).to_contain_text("by keys alone")
    for item, ending in (("Export as Markdown", "md"), ("Export as JSON", "json")):
        with page.expect_download() as saved:
            choose(page, "by keys alone", item)
        assert saved.value.suggested_filename == f"by-keys-alone.{ending}"
    choose(page, "by keys alone", "Delete")
    expect(chats).not_to_contain_text("by keys alone")
    expect(page.locator("#prompt")).to_be_focused()
    reach(page, page.get_by_role("button", name="Undo"), "Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_text("You said: by keys alone")).to_be_visible()


def test_a_chat_is_found_and_opened(open_page: OpenPage, address: str) -> None:
    page = open_page(address)
    ask(page, "find this heron")
    wait_until_idle(page)
    page.keyboard.press("Control+Shift+O")
    expect(page.get_by_text("You said: find this heron")).to_be_hidden()
    reach(page, page.get_by_label("Search chats"))
    page.keyboard.type("heron")
    expect(page.get_by_role("navigation").get_by_role("listitem")).to_have_count(1)
    reach(page, page.get_by_role("button", name="find this heron", exact=True), "Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_text("You said: find this heron")).to_be_visible()


def test_versions_ratings_and_copies(open_page: OpenPage, address: str) -> None:
    page = open_page(address)
    ask(page, "first version")
    wait_until_idle(page)
    press(page, "Edit")
    page.keyboard.press("Control+a")
    page.keyboard.type("second version")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Assistant")).to_contain_text("You said: second version")
    wait_until_idle(page)
    press(page, "Copy message")
    expect_copied(page, "second version")
    page.locator("#prompt").focus()
    press(page, "Regenerate")
    of_answer = page.get_by_label("Assistant").get_by_role("group", name="Versions")
    expect(of_answer).to_contain_text("2/2")
    wait_until_idle(page)
    page.locator("#prompt").focus()
    press(page, "Earlier version")
    expect(of_answer).to_contain_text("1/2")
    page.locator("#prompt").focus()
    press(page, "Later version")
    expect(of_answer).to_contain_text("2/2")
    page.locator("#prompt").focus()
    press(page, "Good answer")
    expect(page.get_by_role("button", name="Good answer")).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Good answer")).to_have_attribute("aria-pressed", "false")
    page.locator("#prompt").focus()
    press(page, "Copy")
    expect_copied(page, "You said: second version")


def test_a_link_is_made_and_revoked(open_page: OpenPage, address: str) -> None:
    page = open_page(address)
    ask(page, "share by keys")
    wait_until_idle(page)
    choose(page, "share by keys", "Share")
    reach(page, page.get_by_role("button", name="Create a link"), "Tab")
    page.keyboard.press("Enter")
    link = page.get_by_label("Link", exact=True)
    expect(link).to_be_visible()
    reach(page, page.get_by_role("button", name="Copy link"), "Tab")
    page.keyboard.press("Enter")
    expect_copied(page, link.input_value())
    reach(page, page.get_by_role("button", name="Revoke the link"), "Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_files_are_attached_one_is_refused_and_one_taken_back(open_page: OpenPage, address: str) -> None:
    page = open_page(address)
    choosers: list[FileChooser] = []

    def remember(chooser: FileChooser) -> None:
        choosers.append(chooser)

    page.on("filechooser", remember)
    wait_for_limits(page)
    page.keyboard.type("files please")
    reach(page, page.get_by_role("button", name="Attach files"), "Tab")
    page.keyboard.press("Enter")
    eventually(lambda: page.evaluate("1") == 1 and len(choosers) == 1, "files can be chosen")
    choosers[0].set_files([text_file("one.txt"), text_file("two.txt"), text_file("large.txt", 160_000)])
    expect(page.locator("#prompt")).to_be_focused()
    expect(page.get_by_role("alert")).to_have_text("large.txt is too large: 160 kB. A file may have 150 kB.")
    press(page, "Remove one.txt")
    expect(page.locator("#prompt")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Assistant")).to_contain_text("Files: two.txt (text/plain)")


def test_what_was_typed_stays_over_a_switch_and_a_reload(open_page: OpenPage, address: str) -> None:
    page = open_page(address)
    ask(page, "hello draft")
    wait_until_idle(page)
    page.keyboard.type("half a thought")
    page.keyboard.press("Control+Shift+O")
    prompt = page.locator("#prompt")
    expect(prompt).to_have_value("")
    page.keyboard.press("Control+k")
    page.keyboard.type("hello draft")
    page.keyboard.press("Enter")
    expect(prompt).to_have_value("half a thought")
    page.reload()
    expect(prompt).to_have_value("half a thought")


def test_what_was_typed_in_a_new_chat_stays_there(open_page: OpenPage, address: str) -> None:
    page = open_page(address)
    prompt = page.locator("#prompt")
    page.keyboard.type("the first thought")
    new_chat = page.url
    page.reload()
    expect(prompt).to_have_value("the first thought")
    other = open_page(address)
    expect(other.locator("#prompt")).to_have_value("")
    ask(other, "hello elsewhere")
    wait_until_idle(other)
    page.get_by_role("button", name="hello elsewhere", exact=True).click()
    expect(prompt).to_have_value("")
    page.get_by_role("button", name="New chat").click()
    expect(prompt).to_have_value("the first thought")
    assert page.url == new_chat, "it is the same chat"
    prompt.press("Enter")
    wait_until_idle(page)
    page.get_by_role("button", name="New chat").click()
    expect(prompt).to_have_value("")
    assert page.url != new_chat


def test_wide_code_and_a_wide_table_scroll(open_page: OpenPage, address: str) -> None:
    page = open_page(address)
    page.set_viewport_size({"width": 700, "height": 860})
    for text, box in (
        ("code please", page.locator(".code-block pre")),
        ("table", page.get_by_label("Table", exact=True)),
    ):
        ask(page, text)
        wait_until_idle(page)
        reach(page, box)
        page.keyboard.press("ArrowRight")
        page.wait_for_function("() => document.activeElement.scrollLeft > 0")


def test_the_views_of_the_inspector_are_chosen_with_arrows(open_page: OpenPage, address: str) -> None:
    page = open_page(address)
    ask(page, "approve this")
    wait_until_idle(page)
    press(page, "Inspector")
    inspector = page.get_by_role("complementary", name="Inspector")
    reach(page, inspector.get_by_role("tab", name="Frames"), "Tab")
    page.keyboard.press("ArrowRight")
    expect(inspector.get_by_label("Message", exact=True)).to_contain_text('"role": "assistant"')
    page.keyboard.press("ArrowRight")
    expect(inspector).to_contain_text("No problems found.")
    reach(page, inspector.get_by_role("button", name="Would other releases accept it?"), "Tab")
    page.keyboard.press("Enter")
    expect(inspector).to_contain_text("AI SDK 5: rejected")
    frame = inspector.get_by_role("button", name=re.compile(r"^frame \d+$")).first
    number = frame.inner_text().removeprefix("frame ")
    reach(page, frame, "Tab")
    page.keyboard.press("Enter")
    expect(inspector.get_by_label(f"Frame {number}", exact=True)).to_contain_text('"type": "tool-approval-request"')
    page.keyboard.press("Escape")
    expect(inspector).to_be_hidden()
