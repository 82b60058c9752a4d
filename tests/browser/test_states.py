"""Every state of the page: axe finds nothing serious in any, on a desktop and on a phone, light or dark."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from tests.browser.agent import answer
from tests.browser.chatting import ask, expect, go_on, wait_for_limits, wait_until_idle
from tests.browser.conftest import OpenPage, page_served
from tests.browser.test_access import serious_findings_in_both_themes
from tests.browser.test_stored_chats import ada_with_a_token, everyone_is_ada
from tests.conformance.served import PATIENCE
from usechat import Turn
from usechat.chats import MemoryChats
from usechat.demo.show import SCENES

Show = Callable[[Page], None]
SCREENS: Final[Mapping[str, Mapping[str, Any]]] = {
    "desktop": {"viewport": {"width": 1440, "height": 900}},
    "phone": {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True},
}


async def coder(turn: Turn) -> AsyncIterator[str]:
    """Writes code."""
    yield f"coder: {turn.text}"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with page_served(
        {"support": answer, "coder": coder},
        chats=MemoryChats(),
        authorize=everyone_is_ada,
        share=True,
        suggestions=tuple(SCENES),
    ) as served:
        yield f"http://127.0.0.1:{served.port}/chat/"


@pytest.fixture(params=SCREENS)
def context(chromium: Browser, request: pytest.FixtureRequest) -> Iterator[BrowserContext]:
    context = chromium.new_context(**SCREENS[request.param], locale="en-GB")
    context.set_default_timeout(PATIENCE * 1000)
    yield context
    context.close()


def _answered(text: str) -> Show:
    def show(page: Page) -> None:
        ask(page, text)
        wait_until_idle(page)

    return show


def _streaming(page: Page) -> None:
    ask(page, "think while held")
    expect(page.get_by_text("Let me think about that.")).to_be_visible()


def _failed(page: Page) -> None:
    ask(page, "fail please")
    expect(page.get_by_role("alert")).to_be_visible()


def _branches(page: Page) -> None:
    _answered("hello there")(page)
    page.get_by_role("button", name="Regenerate").last.click()
    expect(page.get_by_role("group", name="Versions").last).to_contain_text("2/2")
    wait_until_idle(page)


def _pressed(keys: str) -> Show:
    def show(page: Page) -> None:
        page.locator("#prompt").blur()
        page.keyboard.press(keys)
        expect(page.get_by_role("dialog")).to_be_visible()

    return show


def _picker(page: Page) -> None:
    page.get_by_role("button", name="Agent: support").click()
    expect(page.get_by_role("menuitemradio", name="coder")).to_be_visible()


def _viewer(page: Page) -> None:
    _answered("sources")(page)
    page.get_by_role("button", name="View GIF image").click()
    expect(page.get_by_role("dialog")).to_be_visible()


def _inspector(view: str) -> Show:
    def show(page: Page) -> None:
        _answered("tools please")(page)
        page.get_by_role("button", name="Inspector").click()
        page.get_by_role("complementary", name="Inspector").get_by_role("tab", name=view).click()

    return show


def _flow(page: Page) -> None:
    _answered("flow please")(page)
    flow = page.get_by_role("complementary", name="Flow")
    if not flow.is_visible():  # on a phone it is a sheet, closed by default
        page.get_by_role("button", name="Flow").click()
    expect(flow).to_be_visible()


def _tool_values(page: Page) -> None:
    _answered("tools please")(page)
    page.get_by_role("button", name="Used 2 tools").click()
    page.get_by_role("button", name="Search Done").click()
    expect(page.get_by_role("group", name="Output value")).to_be_visible()


def _thoughts(page: Page) -> None:
    _answered("think about it")(page)
    page.get_by_role("button", name="Thought").click()
    expect(page.get_by_text("Let me think about that.")).to_be_visible()


def scroll_up(page: Page) -> None:
    """Go to the start of a long answer."""
    page.get_by_role("log", name="Conversation").hover()
    page.mouse.wheel(0, -10_000)
    page.wait_for_function("() => document.querySelector('[role=log]').scrollTop === 0")
    expect(page.get_by_role("button", name="Scroll to the end")).to_be_visible()


def _scrolled_up(page: Page) -> None:
    _answered("code please")(page)
    scroll_up(page)


def _editing(page: Page) -> None:
    _answered("hello there")(page)
    page.get_by_role("button", name="Edit").click()
    expect(page.get_by_label("Edit message")).to_be_visible()


def _attached(page: Page) -> None:
    files = [{"name": f"{size}.txt", "mimeType": "text/plain", "buffer": b"x" * size} for size in (10, 160_000)]
    wait_for_limits(page)
    page.set_input_files("input[type=file]", files)  # type: ignore[arg-type]
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.get_by_role("list", name="Attached files")).to_be_visible()


def _renaming(page: Page) -> None:
    _menu(page)
    page.get_by_role("menuitem", name="Rename").click()
    expect(page.get_by_label("Title")).to_be_visible()


def _deleted(page: Page) -> None:
    _menu(page)
    page.get_by_role("menuitem", name="Delete").click()
    expect(page.get_by_role("button", name="Undo")).to_be_visible()


def _open_list(page: Page) -> None:
    """On a phone the list of chats is a drawer."""
    if not page.get_by_role("navigation", name="Chats").is_visible():
        page.get_by_role("button", name="Chats", exact=True).click()


def _nothing_found(page: Page) -> None:
    _open_list(page)
    page.get_by_label("Search chats").fill("no such words")
    expect(page.get_by_text("No matching chats.")).to_be_visible()


def _drawer(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 780})
    page.reload()
    page.get_by_role("button", name="Chats", exact=True).click()
    expect(page.get_by_role("navigation", name="Chats")).to_be_visible()


def _menu(page: Page) -> None:
    _answered("hello there")(page)
    _open_list(page)
    page.get_by_role("button", name="hello there", exact=True).first.hover()
    page.get_by_role("button", name="Options of hello there").first.click()
    expect(page.get_by_role("menuitem", name="Rename")).to_be_visible()


def _share_dialog(page: Page) -> None:
    _menu(page)
    page.get_by_role("menuitem", name="Share").click()
    page.get_by_role("button", name="Create a link").click()
    expect(page.get_by_label("Link", exact=True)).to_be_visible()


def _shared_view(page: Page) -> None:
    _share_dialog(page)
    page.goto(page.get_by_label("Link", exact=True).input_value())
    expect(page.get_by_text("Shared, read-only")).to_be_visible()


def _all_cards(page: Page) -> None:
    page.get_by_role("group", name="Suggestions").get_by_role("button", name="more").click()
    expect(page.get_by_text("Suggest something for Sunday")).to_be_visible()


STATES: Final[Mapping[str, Show]] = {
    "start": lambda page: expect(page.get_by_role("group", name="Suggestions")).to_be_visible(),
    "start, with all cards": _all_cards,
    "streaming": _streaming,
    "Markdown": _answered("markdown"),
    "tasks": _answered("tasks"),
    "tools": _answered("tools please"),
    "values of a tool": _tool_values,
    "thoughts": _thoughts,
    "scrolled up": _scrolled_up,
    "data": _answered("drawn"),
    "sources, a picture and data": _answered("sources"),
    "code": _answered("code"),
    "formulas": _answered("formulas"),
    "diagrams": _answered("diagram"),
    "tokens and duration": _answered("usage"),
    "an empty answer": _answered("nothing"),
    "edit": _editing,
    "attached and refused files": _attached,
    "rename": _renaming,
    "deleted": _deleted,
    "a search that finds nothing": _nothing_found,
    "approval": _answered("approve this"),
    "question": _answered("question form"),
    "question that was answered wrongly": _answered("question again"),
    "flow": _flow,
    "error": _failed,
    "branches": _branches,
    "command palette": _pressed("Control+k"),
    "help sheet": _pressed("?"),
    "inspector: frames": _inspector("Frames"),
    "inspector: message": _inspector("Message"),
    "inspector: check": _inspector("Check"),
    "agent picker": _picker,
    "menu of a chat": _menu,
    "share dialog": _share_dialog,
    "shared view": _shared_view,
    "drawer": _drawer,
    "image viewer": _viewer,
}
"""What brings a new chat into each state."""
PARTS: Final = 4
"""So many tests look at all states: one alone would take minutes."""


@pytest.mark.parametrize("part", range(PARTS))
def test_axe_finds_nothing_serious_in_any_state(open_page: OpenPage, address: str, part: int) -> None:
    page = open_page(address)
    size = page.viewport_size
    assert size is not None
    findings_by_state = {}
    for name, show in list(STATES.items())[part::PARTS]:
        page.set_viewport_size(size)
        page.goto(address)
        show(page)
        if findings := serious_findings_in_both_themes(page):
            findings_by_state[name] = findings
        if name == "streaming":
            go_on(page)
            wait_until_idle(page)
    assert findings_by_state == {}


def test_axe_finds_nothing_serious_where_a_token_is_asked_for(open_page: OpenPage) -> None:
    with page_served(answer, authorize=ada_with_a_token, auth=True) as served:
        page = open_page(f"http://127.0.0.1:{served.port}/chat/", shows="form")
        assert serious_findings_in_both_themes(page) == []
        page.get_by_label("Access token").fill("wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_be_visible()
        assert serious_findings_in_both_themes(page) == []
