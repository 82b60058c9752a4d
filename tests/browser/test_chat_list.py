"""The list of chats: what one can do with them, and what stays apart."""

import json
import re

from playwright.sync_api import BrowserContext

from tests.browser.agent import answer
from tests.browser.chatting import ask, delete_chat, expect, settle, wait_until_idle
from tests.browser.conftest import OpenPage, page_served


def test_a_deleted_chat_can_be_put_back(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "hello there")
    wait_until_idle(page)
    chats = page.get_by_role("navigation", name="Chats")
    delete_chat(page, "hello there")
    expect(chats).not_to_contain_text("hello there")
    expect(page.get_by_text("You said: hello there")).to_be_hidden()
    page.get_by_role("button", name="Undo").click()
    expect(chats).to_contain_text("hello there")
    expect(page.get_by_text("You said: hello there")).to_be_visible()
    page.reload()
    expect(page.get_by_text("You said: hello there")).to_be_visible()


def test_a_chat_is_renamed_pinned_and_found(open_page: OpenPage) -> None:
    page = open_page()
    for text in ("first words", "second words"):
        page.get_by_role("button", name="New chat").click()
        ask(page, text)
        wait_until_idle(page)
    chats = page.get_by_role("navigation", name="Chats")
    expect(chats.get_by_role("button").first).to_have_text("New chat")
    page.get_by_role("button", name="first words", exact=True).hover()
    page.get_by_role("button", name="Options of first words").click()
    page.get_by_role("menuitem", name="Rename").click()
    page.get_by_label("Title").fill("My own title")
    page.get_by_label("Title").press("Enter")
    page.get_by_role("button", name="My own title", exact=True).click()
    expect(page.locator("h1")).to_have_text("My own title")
    ask(page, "more words")
    wait_until_idle(page)
    expect(chats).to_contain_text("My own title")
    page.get_by_role("button", name="Options of second words").click()
    page.get_by_role("menuitem", name="Pin", exact=True).click()
    expect(chats.get_by_role("region", name="Pinned")).to_have_text(re.compile("second words"))
    expect(chats.get_by_role("region", name="Today")).to_have_text(re.compile("My own title"))
    page.get_by_role("button", name="Options of second words").click()
    page.get_by_role("menuitem", name="Unpin", exact=True).click()
    expect(chats.get_by_role("region", name="Pinned")).to_have_count(0)
    page.get_by_label("Search chats").fill("own")
    expect(chats).not_to_contain_text("second words")
    expect(chats).to_contain_text("My own title")


def test_chats_are_in_groups_by_date(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "this is new")
    wait_until_idle(page)
    page.evaluate("""() => {
        const key = Object.keys(localStorage).find((each) => each.endsWith(":chats"));
        const day = 24 * 3600 * 1000;
        const noon = new Date().setHours(12, 0, 0, 0);
        const aged = (days) => ({ id: `chat-${days}`, title: `${days} days`, changed: noon - days * day });
        const older = [1, 4, 20, 90].map(aged);
        localStorage.setItem(key, JSON.stringify([...JSON.parse(localStorage.getItem(key)), ...older]));
    }""")
    page.reload()
    groups = page.get_by_role("navigation", name="Chats").get_by_role("region")
    expect(groups).to_have_text(
        ["Todaythis is new", "Yesterday1 days", "Previous 7 days4 days", "Previous 30 days20 days", "Older90 days"]
    )


def test_a_command_is_chosen_with_the_mouse(open_page: OpenPage) -> None:
    page = open_page()
    page.get_by_role("button", name="Commands").click()
    page.get_by_role("option", name="Use dark mode").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("button", name="Commands").click()
    page.get_by_role("option", name="Keyboard shortcuts").click()
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    page.get_by_role("button", name="Close").click()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_chat_is_exported(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "hello there")
    wait_until_idle(page)
    page.get_by_role("button", name="hello there", exact=True).hover()
    options = page.get_by_role("button", name="Options of hello there")
    options.click()
    with page.expect_download() as saved:
        page.get_by_role("menuitem", name="Export as Markdown").click()
    assert saved.value.suggested_filename == "hello-there.md"
    text = saved.value.path().read_text(encoding="utf-8")
    assert text == "## You\n\nhello there\n\n## Assistant\n\nYou said: hello there\n"
    expect(options).to_be_focused()  # the menu gives the focus back with a timer, which would close the next one
    options.click()
    with page.expect_download() as saved:
        page.get_by_role("menuitem", name="Export as JSON").click()
    assert saved.value.suggested_filename == "hello-there.json"
    exported = json.loads(saved.value.path().read_text(encoding="utf-8"))
    assert [message["role"] for message in exported["messages"]] == ["user", "assistant"]


def test_chats_of_different_agents_at_one_address_stay_apart(context: BrowserContext) -> None:
    """As when one agent is served on a port after another."""
    with page_served(answer, name="one:agent") as served, page_served(answer, name="two:agent") as other:
        page = context.new_page()
        address = f"http://127.0.0.1:{served.port}/chat/"
        page.goto(address)
        ask(page, "hello there")
        wait_until_idle(page)
        page.route(
            address,
            lambda route: route.fulfill(
                response=context.request.get(address.replace(str(served.port), str(other.port)))
            ),
        )
        page.goto(address)
        expect(page.get_by_role("navigation", name="Chats")).to_contain_text("No chats yet.")
        page.unroute(address)
        page.goto(address)
        expect(page.get_by_role("navigation", name="Chats")).to_contain_text("hello there")


def test_what_was_typed_stays_over_a_switch_and_a_reload(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "hello there")
    wait_until_idle(page)
    page.fill("#prompt", "half a thought")
    page.get_by_role("button", name="New chat").click()
    expect(page.locator("#prompt")).to_have_value("")
    page.get_by_role("navigation").get_by_role("button", name="hello there", exact=True).click()
    expect(page.locator("#prompt")).to_have_value("half a thought")
    page.reload()
    expect(page.locator("#prompt")).to_have_value("half a thought")
    page.press("#prompt", "Enter")
    expect(page.get_by_text("You said: half a thought")).to_be_visible()
    wait_until_idle(page)
    page.reload()
    expect(page.locator("#prompt")).to_have_value("")


def test_a_tap_beside_the_drawer_closes_it(open_page: OpenPage) -> None:
    page = open_page()
    page.set_viewport_size({"width": 390, "height": 780})
    page.reload()
    chats = page.get_by_role("navigation", name="Chats")
    expect(chats).to_be_hidden()
    page.get_by_role("button", name="Chats").click()
    expect(chats).to_be_visible()
    settle(page)
    page.mouse.click(370, 400)
    expect(chats).to_be_hidden()


def test_every_command_is_found_by_typing(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "hello there")
    wait_until_idle(page)
    page.keyboard.press("Control+k")
    page.keyboard.type("inspec")
    page.keyboard.press("Enter")
    expect(page.get_by_role("complementary", name="Inspector")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("complementary", name="Inspector")).to_be_hidden()
    page.keyboard.press("Control+Shift+O")
    expect(page.get_by_text("You said: hello there")).to_be_hidden()
    page.keyboard.press("Control+k")
    page.keyboard.type("hello")
    page.keyboard.press("Enter")
    expect(page.get_by_text("You said: hello there")).to_be_visible()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()


def test_a_title_is_written_in_the_direction_of_its_language(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "\u0645\u0631\u062d\u0628\u0627")
    wait_until_idle(page)
    for title in (page.get_by_role("navigation").locator("[aria-current=page]"), page.get_by_role("heading", level=1)):
        expect(title).to_have_css("direction", "rtl")


def test_the_chosen_command_is_in_sight(open_page: OpenPage) -> None:
    page = open_page()
    for number in range(9):
        page.get_by_role("button", name="New chat").click()
        ask(page, f"chat {number}")
        wait_until_idle(page)
    page.keyboard.press("Control+k")
    page.keyboard.press("ArrowUp")
    last = page.get_by_role("option").last
    expect(last).to_have_attribute("aria-selected", "true")
    expect(last).to_be_in_viewport(ratio=1)


def test_what_was_typed_into_a_new_chat_is_there_in_the_next_one_until_it_is_sent(open_page: OpenPage) -> None:
    page = open_page()
    page.fill("#prompt", "half a thought")
    page.goto(page.url.partition("?")[0])
    expect(page.locator("#prompt")).to_have_value("half a thought")
    page.reload()
    expect(page.locator("#prompt")).to_have_value("half a thought")
    page.press("#prompt", "Enter")
    wait_until_idle(page)
    page.get_by_role("button", name="New chat").first.click()
    expect(page.locator("#prompt")).to_have_value("")
    page.goto(page.url.partition("?")[0])
    expect(page.locator("#prompt")).to_have_value("")


def test_an_address_without_a_chat_says_so(open_page: OpenPage) -> None:
    page = open_page()
    notice = page.get_by_text("There is no chat at this address")
    page.reload()
    page.wait_for_load_state("networkidle")
    expect(notice).to_be_hidden()  # a new chat has an address, too
    page.goto(page.url.partition("?")[0] + "?chat=gone")
    expect(notice).to_be_visible()
    ask(page, "hello there")
    expect(page.get_by_text("You said: hello there")).to_be_visible()
    expect(notice).to_be_hidden()


def test_the_notice_of_a_deleted_chat_covers_no_input(open_page: OpenPage) -> None:
    page = open_page()
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 800})
        page.goto(page.url.partition("?")[0])
        ask(page, f"hello {width}")
        wait_until_idle(page)
        if width == 390:
            page.get_by_role("button", name="Chats", exact=True).click()
        delete_chat(page, f"hello {width}")
        notice = page.get_by_role("status").filter(has=page.get_by_role("button", name="Undo")).bounding_box()
        prompt = page.locator("form[aria-label=Message]").bounding_box()
        assert notice is not None
        assert prompt is not None
        assert notice["y"] + notice["height"] <= prompt["y"]
        page.get_by_role("button", name="Undo").click()


def test_the_command_palette_has_headings(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "hello there")
    wait_until_idle(page)
    page.keyboard.press("Control+k")
    palette = page.get_by_role("dialog")
    expect(palette.get_by_role("group", name="Commands").get_by_role("option", name="New chat")).to_be_visible()
    expect(palette.get_by_role("group", name="Chats").get_by_role("option")).to_have_text(["hello there"])
    page.keyboard.type("hello")
    expect(palette.get_by_role("group", name="Commands")).to_have_count(0)
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("hello there")
