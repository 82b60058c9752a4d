"""A phone: fingers instead of a mouse, at 390 pixels."""

import re
from base64 import b64decode
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, FilePayload, Locator, Page

from tests.browser.agent import MARKDOWN, PICTURE, answer
from tests.browser.chatting import expect, expect_copied, settle, text_file, wait_for_limits, wait_until_idle
from tests.browser.conftest import OpenPage, page_served
from tests.browser.test_recovery import expect_no_loss, wait_for_the_count
from tests.browser.test_stored_chats import everyone_is_ada
from tests.conformance.served import PATIENCE, eventually
from usechat.chats import MemoryChats


@pytest.fixture
def context(chromium: Browser) -> Iterator[BrowserContext]:
    """A browser with a touch screen and no mouse."""
    context = chromium.new_context(
        viewport={"width": 390, "height": 780}, has_touch=True, is_mobile=True, locale="en-GB"
    )
    context.set_default_timeout(PATIENCE * 1000)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    yield context
    context.close()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with page_served(answer, chats=MemoryChats(), authorize=everyone_is_ada, share=True) as served:
        yield f"http://127.0.0.1:{served.port}/chat/"


DISTANCE_TO_END = "(log => log.scrollHeight - log.clientHeight - log.scrollTop)(document.querySelector('[role=log]'))"
WHERE_FOR_A_WHILE = """box => new Promise((done) => {
    const before = [box.scrollLeft, box.scrollTop];
    setTimeout(() => done(before.join() === [box.scrollLeft, box.scrollTop].join() ? before : null), 300);
})"""


def wait_until_still(box: Locator) -> tuple[float, float]:
    """Wait until nothing scrolls any more in a box; return how far it is scrolled, sideways and down."""
    positions: list[list[float]] = []

    def stands_still() -> bool:
        positions[:] = filter(None, [box.evaluate(WHERE_FOR_A_WHILE)])
        return bool(positions)

    eventually(stands_still, f"{box} stands still")
    return positions[0][0], positions[0][1]


def conversation(page: Page) -> Locator:
    return page.get_by_role("log", name="Conversation")


NOTHING_GLIDES = """() => new Promise((done) => {
    const log = document.querySelector("[role=log]");
    const before = log?.scrollTop;
    requestAnimationFrame(() => setTimeout(() => done(log?.scrollTop === before), 100));
})"""


def tap(page: Page, name: str) -> None:
    """Tap the last button of this name. While the conversation glides, a finger only stops it."""
    eventually(lambda: page.evaluate(NOTHING_GLIDES), "the conversation stands still")
    page.get_by_role("button", name=name, exact=True).last.tap()


def send(page: Page, text: str) -> None:
    page.locator("#prompt").tap()
    expect(page.locator("#prompt")).to_be_focused()
    page.keyboard.type(text)
    tap(page, "Send")
    expect(page.get_by_label("You", exact=True).last).to_contain_text(text)


def swipe(page: Page, start: tuple[int, int], end: tuple[int, int]) -> None:
    """Move a finger from one point to another."""
    finger = page.context.new_cdp_session(page)
    for step in range(11):
        x, y = (one + (other - one) * step // 10 for one, other in zip(start, end, strict=True))
        kind = "touchMove" if step else "touchStart"
        finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": y}]})
    finger.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    finger.detach()


def test_a_message_is_sent_and_its_answer_stopped(open_page: OpenPage, address: str) -> None:
    page = open_page(address)
    send(page, "long story")
    expect(page.get_by_text("word3 ")).to_be_visible()
    with page.expect_response("**/stop") as stopped:
        tap(page, "Stop")
    assert stopped.value.status == 204
    wait_until_idle(page)
    send(page, "hello there")
    expect(page.get_by_text("You said: hello there")).to_be_visible()


def test_a_new_chat_begins_with_its_title(open_page: OpenPage) -> None:
    suggestions = tuple(f"Suggestion {number}" for number in range(12))
    with page_served(answer, title="Many suggestions", suggestions=suggestions) as served:
        page = open_page(f"http://127.0.0.1:{served.port}/chat/")
        tap(page, "Show 8 more")
        expect(page.get_by_role("button", name="Suggestion 11")).to_be_attached()
        assert wait_until_still(page.get_by_role("main")) == (0, 0)
        expect(page.get_by_role("heading", name="Many suggestions", level=2)).to_be_in_viewport()
        page.get_by_role("button", name="Suggestion 0", exact=True).tap()
        expect(page.get_by_text("You said: Suggestion 0")).to_be_in_viewport()


def test_a_swipe_scrolls_the_conversation_and_a_tap_goes_back_to_its_end(open_page: OpenPage, address: str) -> None:
    page = open_page(address)
    send(page, "code please")
    wait_until_idle(page)
    to_end = page.get_by_role("button", name="Scroll to the end")
    to_end.tap()
    page.wait_for_function(f"() => {DISTANCE_TO_END} < 2")
    expect(to_end).to_be_hidden()
    swipe(page, (195, 250), (195, 600))
    expect(to_end).to_be_visible()
    wait_until_still(conversation(page))
    assert page.evaluate(DISTANCE_TO_END) > 100
    to_end.tap()
    page.wait_for_function(f"() => {DISTANCE_TO_END} < 2")


def test_the_drawer_closes_by_a_tap_beside_it_and_by_opening_a_chat(open_page: OpenPage, address: str) -> None:
    page = open_page(address)
    send(page, "hello drawer")
    wait_until_idle(page)
    chats = page.get_by_role("navigation", name="Chats")
    tap(page, "Chats")
    expect(chats).to_be_visible()
    settle(page)
    page.touchscreen.tap(370, 400)
    expect(chats).to_be_hidden()
    tap(page, "New chat")
    expect(page.get_by_label("You", exact=True)).to_have_count(0)
    tap(page, "Chats")
    tap(page, "hello drawer")
    expect(chats).to_be_hidden()
    expect(page.get_by_text("You said: hello drawer")).to_be_visible()
    tap(page, "Chats")
    chats.get_by_role("button", name="New chat").tap()
    expect(chats).to_be_hidden()
    expect(page.get_by_label("You", exact=True)).to_have_count(0)


def test_a_deleted_chat_is_put_back(open_page: OpenPage, address: str) -> None:
    page = open_page(address)
    send(page, "delete me")
    wait_until_idle(page)
    tap(page, "Chats")
    tap(page, "Options of delete me")
    page.get_by_role("menuitem", name="Delete").tap()
    expect(page.get_by_role("navigation", name="Chats")).not_to_contain_text("delete me")
    tap(page, "Undo")
    expect(page.get_by_text("You said: delete me")).to_be_visible()


def choose(page: Page, title: str, item: str) -> None:
    """Tap an item in the menu of a chat in the drawer."""
    settle(page)  # the menu before gives the focus back with a timer, which would close this one
    tap(page, f"Options of {title}")
    page.get_by_role("menuitem", name=item, exact=True).tap()


def test_a_chat_is_rated_renamed_pinned_found_exported_and_shared(open_page: OpenPage, address: str) -> None:
    page = open_page(address)
    send(page, "name me")
    wait_until_idle(page)
    tap(page, "Bad answer")
    expect(page.get_by_role("button", name="Bad answer")).to_have_attribute("aria-pressed", "true")
    tap(page, "Chats")
    choose(page, "name me", "Rename")
    expect(page.get_by_label("Title")).to_be_focused()
    page.keyboard.type("Named by hand")
    page.keyboard.press("Enter")
    choose(page, "Named by hand", "Pin")
    expect(page.get_by_role("region", name="Pinned")).to_contain_text("Named by hand")
    for item, ending in (("Export as Markdown", "md"), ("Export as JSON", "json")):
        with page.expect_download() as saved:
            choose(page, "Named by hand", item)
        assert saved.value.suggested_filename == f"Named-by-hand.{ending}"
    page.get_by_label("Search chats").tap()
    page.keyboard.type("no such words")
    expect(page.get_by_text("No matching chats.")).to_be_visible()
    page.get_by_label("Search chats").fill("by hand")
    choose(page, "Named by hand", "Share")
    tap(page, "Create a link")
    link = page.get_by_label("Link", exact=True).input_value()
    tap(page, "Copy link")
    expect_copied(page, link)
    tap(page, "Revoke the link")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_another_agent_is_picked(open_page: OpenPage) -> None:
    with page_served({"one": answer, "other": answer}) as served:
        page = open_page(f"http://127.0.0.1:{served.port}/chat/")
        tap(page, "Agent: one")
        page.get_by_role("menuitemradio", name="other").tap()
        expect(page.get_by_role("button", name="Agent: other")).to_be_focused()
        with page.expect_request(lambda request: request.method == "POST") as request_info:
            send(page, "hello there")
        assert (request_info.value.post_data_json or {})["agent"] == "other"


def test_an_edit_a_copy_and_another_version(open_page: OpenPage, address: str) -> None:
    page = open_page(address)
    send(page, "first version")
    wait_until_idle(page)
    tap(page, "Edit")
    page.get_by_label("Edit message").fill("second version")
    page.locator(".edit button[type=submit]").tap()
    expect(page.get_by_label("Assistant")).to_contain_text("You said: second version")
    wait_until_idle(page)
    tap(page, "Earlier version")
    expect(page.get_by_label("Assistant")).to_contain_text("You said: first version")
    tap(page, "Copy message")
    expect_copied(page, "first version")


def test_a_table_is_copied(open_page: OpenPage, address: str) -> None:
    """Where nothing can hover, its button is always visible."""
    page = open_page(address)
    send(page, "markdown please")
    wait_until_idle(page)
    button = page.get_by_role("button", name="Copy table")
    assert button.evaluate("button => getComputedStyle(button.parentElement).opacity") == "1"
    button.tap()
    expect_copied(page, "left\tright\n1\t2")


def test_a_file_is_attached_and_a_picture_viewed(open_page: OpenPage, address: str) -> None:
    page = open_page(address)
    with page.expect_file_chooser() as chooser:
        tap(page, "Attach files")
    picture: FilePayload = {"name": "dot.gif", "mimeType": "image/gif", "buffer": b64decode(PICTURE.partition(",")[2])}
    chooser.value.set_files([text_file("notes.txt"), picture])
    expect(page.get_by_role("list", name="Attached files").locator("img")).to_be_visible()
    send(page, "files please")
    expect(page.get_by_label("Assistant")).to_contain_text("Files: notes.txt (text/plain), dot.gif (image/gif)")
    wait_until_idle(page)
    send(page, "sources please")
    wait_until_idle(page)
    tap(page, "View GIF image")
    expect(page.get_by_role("dialog")).to_be_visible()
    settle(page)
    page.touchscreen.tap(195, 40)
    expect(page.get_by_role("dialog")).to_be_hidden()


def test_wide_code_and_a_wide_table_follow_the_finger(open_page: OpenPage, address: str) -> None:
    page = open_page(address)
    for text, end, box in (
        ("code please", "wide = [", page.locator(".code-block pre")),
        ("table", "unbreakableword", page.get_by_label("Table", exact=True)),
    ):
        send(page, text)
        expect(box).to_contain_text(end)
        wait_until_idle(page)
        wait_until_still(conversation(page))  # it glides to the question, and the box with it
        place = box.bounding_box()
        assert place is not None
        y = int(place["y"]) + 65  # below the button that copies the box
        assert box.evaluate("(box, y) => box.contains(document.elementFromPoint(330, y))", y), "the finger is on it"
        swipe(page, (330, y), (60, y))
        assert wait_until_still(box)[0] > 0
    assert page.evaluate("document.documentElement.scrollLeft") == 0


def test_code_and_an_answer_are_copied(open_page: OpenPage, address: str) -> None:
    page = open_page(address)
    send(page, "markdown please")
    wait_until_idle(page)
    tap(page, "Copy code")
    expect_copied(page, "def double(number):\n    return 2 * number")
    tap(page, "Copy")
    expect_copied(page, MARKDOWN)


def test_another_answer_is_a_version_and_a_rating_is_taken_back(open_page: OpenPage, address: str) -> None:
    page = open_page(address)
    send(page, "hello versions")
    wait_until_idle(page)
    tap(page, "Regenerate")
    expect(page.get_by_role("group", name="Versions")).to_contain_text("2/2")
    wait_until_idle(page)
    good = page.get_by_role("button", name="Good answer")
    for pressed in ("true", "false"):
        good.tap()
        expect(good).to_have_attribute("aria-pressed", pressed)
    for button, version in (("Earlier version", "1/2"), ("Later version", "2/2")):
        tap(page, button)
        expect(page.get_by_role("group", name="Versions")).to_contain_text(version)


def test_what_was_typed_stays_over_a_switch_and_a_reload(open_page: OpenPage, address: str) -> None:
    page = open_page(address)
    send(page, "hello draft")
    wait_until_idle(page)
    page.locator("#prompt").tap()
    page.keyboard.type("half a thought")
    tap(page, "New chat")
    expect(page.locator("#prompt")).to_have_value("")
    tap(page, "Chats")
    tap(page, "hello draft")
    expect(page.locator("#prompt")).to_have_value("half a thought")
    page.reload()
    expect(page.locator("#prompt")).to_have_value("half a thought")


def test_a_file_that_is_too_large_is_refused_and_another_taken_back(open_page: OpenPage, address: str) -> None:
    page = open_page(address)
    wait_for_limits(page)
    page.locator("#prompt").tap()
    page.keyboard.type("files please")
    for name, size in (("large.bin", 160_000), ("one.txt", 5), ("two.txt", 5)):
        with page.expect_file_chooser() as chooser:
            tap(page, "Attach files")
        chooser.value.set_files(text_file(name, size))
        if name == "large.bin":
            expect(page.get_by_role("alert")).to_contain_text("large.bin is too large")
    tap(page, "Remove one.txt")
    tap(page, "Send")
    expect(page.get_by_label("Assistant")).to_contain_text("Files: two.txt (text/plain)")


def test_an_answer_goes_on_after_the_network_was_away(open_page: OpenPage) -> None:
    with page_served(answer) as served:
        page = open_page(f"http://127.0.0.1:{served.port}/chat/")
        send(page, "count held")
        expect(page.get_by_text("number-10 ")).to_be_visible()
        page.context.set_offline(True)
        served.cut()
        expect(page.get_by_text("The connection was lost. Reconnecting…")).to_be_visible()
        page.context.set_offline(False)
        wait_for_the_count(page)


def test_a_resume_that_finds_nothing_after_a_question_was_sent_is_no_loss(open_page: OpenPage) -> None:
    expect_no_loss(open_page(), send)


def test_every_command_has_a_button_on_a_phone(open_page: OpenPage) -> None:
    """There is no room for the button of the commands, so that only a keyboard opens them."""
    with page_served(answer) as served:
        page = open_page(f"http://127.0.0.1:{served.port}/chat/")
        send(page, "flow please")
        wait_until_idle(page)
        page.keyboard.press("Control+k")
        commands = page.get_by_role("option").locator("span:first-child").all_inner_texts()
        page.keyboard.press("Escape")
        chats = page.get_by_role("navigation", name="Chats")
        buttons = {
            "Flow": ("Show the flow", page.get_by_role("complementary", name="Flow"), "Close flow"),
            "Inspector": ("Open the inspector", page.get_by_role("complementary", name="Inspector"), "Close inspector"),
            "Dark mode": ("Use dark mode", page.locator("html[data-theme=dark]"), "Light mode"),
            "Chats": ("Show the list of chats", chats, "flow please"),
            "New chat": ("New chat", page.get_by_role("button", name="hello there"), "Chats"),
        }
        for button, (_, appears, back) in buttons.items():
            tap(page, button)
            expect(appears).to_be_visible()
            tap(page, back)
        tap(page, "flow please")
        expect(page.get_by_text("Words of write")).to_be_visible()
        of_keys_alone = {"Keyboard shortcuts"}
        assert {*commands} == {command for command, *_ in buttons.values()} | {"flow please"} | of_keys_alone


def test_the_inspector_is_a_sheet_with_its_views(open_page: OpenPage, address: str) -> None:
    page = open_page(address)
    send(page, "approve this")
    wait_until_idle(page)
    tap(page, "Inspector")
    inspector = page.get_by_role("complementary", name="Inspector")
    inspector.get_by_role("tab", name="Check").tap()
    expect(inspector).to_contain_text("No problems found.")
    inspector.get_by_role("button", name="Would other releases accept it?").tap()
    expect(inspector).to_contain_text("AI SDK 5: rejected")
    frame = inspector.get_by_role("button", name=re.compile(r"^frame \d+$")).first
    number = frame.inner_text().removeprefix("frame ")
    frame.tap()
    expect(inspector.get_by_label(f"Frame {number}", exact=True)).to_contain_text('"type": "tool-approval-request"')
    settle(page)
    page.touchscreen.tap(195, 100)
    expect(inspector).to_be_hidden()


TOO_SMALL = """() => [...document.querySelectorAll(
    "button, select, input:not([type=file], [type=checkbox]), a.attachment, .sources a, [role^=menuitem], [role=option]"
)].filter((one) => one.checkVisibility({ visibilityProperty: true }) && !one.closest(".frames, .sr-only"))
  .map((one) => [one.getAttribute("aria-label") ?? one.textContent, one.offsetWidth, one.offsetHeight])
  .filter(([name, width, height]) => Math.min(width, height) < 40)
  .map(([name, width, height]) => `${name}: ${width} x ${height}`)"""
"""What is laid out too small; a box that is still moved or scaled into its place is measured as it will be."""


def test_whatever_is_tapped_is_at_least_40_pixels_wide_and_high(open_page: OpenPage) -> None:
    elements: dict[str, list[str]] = {}
    with page_served(
        {"one": answer, "other": answer}, chats=MemoryChats(), authorize=everyone_is_ada, share=True
    ) as served:
        page = open_page(f"http://127.0.0.1:{served.port}/chat/")

        def look(state: str) -> None:
            elements[state] = page.evaluate(TOO_SMALL)

        look("start")
        tap(page, "Agent: one")
        look("picker")
        page.keyboard.press("Escape")
        expect(page.get_by_role("button", name="Agent: one")).to_be_focused()
        for text in ("tools please", "think hard", "sources please", "markdown please", "approve this", "fail please"):
            send(page, text)
            wait_until_idle(page)
            look(text)
        tap(page, "Edit")
        look("edit")
        tap(page, "Cancel")
        tap(page, "Regenerate")
        expect(page.get_by_role("group", name="Versions")).to_contain_text("2/2")
        wait_until_idle(page)
        look("versions")
        page.locator("input[type=file]").set_input_files(
            {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"some notes"}
        )
        expect(page.get_by_role("list", name="Attached files")).to_contain_text("notes.txt")
        look("attached")
        tap(page, "Inspector")
        look("inspector")
        tap(page, "Close inspector")
        tap(page, "Chats")
        look("drawer")
        tap(page, "Options of tools please")
        look("menu")
        page.get_by_role("menuitem", name="Share").tap()
        tap(page, "Create a link")
        look("link")
        tap(page, "Close")
        tap(page, "Options of tools please")
        page.get_by_role("menuitem", name="Rename").tap()
        look("rename")
    assert {state: small for state, small in elements.items() if small} == {}


def test_a_field_is_not_enlarged_when_it_is_tapped(open_page: OpenPage, address: str) -> None:
    """Phones enlarge the page for a field whose letters are smaller than 16 pixels."""
    page = open_page(address)
    tap(page, "Chats")
    sizes = page.locator("textarea, input:not([type=file])").evaluate_all(
        "all => all.map((one) => getComputedStyle(one).fontSize)"
    )
    assert sizes == ["16px", "16px"]


def test_a_column_of_a_table_has_room_for_words(open_page: OpenPage, address: str) -> None:
    page = open_page(address)
    send(page, "wordy table")
    wait_until_idle(page)
    cell = page.get_by_role("cell", name="light, quiet, small enough for a bag")
    assert cell.evaluate("cell => cell.getBoundingClientRect().height") < 70, "two lines, not a word in each"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_an_approval(open_page: OpenPage, address: str) -> None:
    page = open_page(address)
    send(page, "approve this")
    wait_until_idle(page)
    tap(page, "Approve")
    expect(page.get_by_text("It is gone.")).to_be_visible()


def test_the_flow_is_a_sheet_that_a_tap_above_it_closes(open_page: OpenPage, address: str) -> None:
    page = open_page(address)
    send(page, "flow please")
    wait_until_idle(page)
    sheet = page.get_by_role("complementary", name="Flow")
    expect(sheet).to_be_hidden()
    tap(page, "Flow")
    expect(sheet).to_contain_text(re.compile("Three nodes complete"))
    settle(page)
    page.touchscreen.tap(195, 100)
    expect(sheet).to_be_hidden()
