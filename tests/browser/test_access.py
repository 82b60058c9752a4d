"""Keyboard, screen readers, narrow screens, and a strict policy for content."""

import gzip
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from playwright.sync_api import Page

from tests.browser.building import HERE, install
from tests.browser.chatting import ask, expect, go_on, wait_until_idle
from tests.browser.conftest import OpenPage

AXE = HERE / "axe"


ABOUT_COLORS = ("color-contrast", "link-in-text-block")
"""The rules of axe that depend on colors."""


def serious_findings(page: Page, rules: Sequence[str] = ()) -> list[Any]:
    """Return what axe finds that is serious, by all of its usual rules unless some are named."""
    install(AXE)
    # A color in the middle of a transition has any contrast; one that is replaced is cancelled.
    transitions = "document.getAnimations().filter(one => one instanceof CSSTransition)"
    page.evaluate(f"Promise.allSettled({transitions}.map(one => one.finished))")
    if not page.evaluate("'axe' in window"):
        page.evaluate((AXE / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8"))
    options = {"runOnly": {"type": "rule", "values": rules}} if rules else {}
    result: dict[str, Any] = page.evaluate("(options) => axe.run(options)", options)
    return [
        (finding["id"], [node["html"] for node in finding["nodes"]])
        for finding in result["violations"]
        if finding["impact"] in ("serious", "critical")
    ]


def serious_findings_in_both_themes(page: Page) -> list[Any]:
    """Return what axe finds in the light theme, and about colors in the dark one: nothing else differs."""
    findings = serious_findings(page)
    page.evaluate("document.documentElement.dataset.theme = 'dark'")  # the page reads the preference when it is loaded
    findings += serious_findings(page, ABOUT_COLORS)
    page.evaluate("document.documentElement.dataset.theme = 'light'")
    return findings


def test_findings_in_the_dark_theme_are_found(open_page: OpenPage) -> None:
    page = open_page()
    page.evaluate("""() => {
        const sheet = new CSSStyleSheet();
        sheet.replaceSync("[data-theme=dark] h1 { color: #333 !important; }");
        document.adoptedStyleSheets = [sheet];
    }""")
    assert serious_findings(page) == []
    assert [name for name, _ in serious_findings_in_both_themes(page)] == ["color-contrast"]


def test_the_keyboard_alone_is_enough(open_page: OpenPage) -> None:
    page = open_page()
    page.keyboard.type("approve this")
    page.keyboard.press("Enter")
    approve = page.get_by_role("button", name="Approve", exact=True)
    expect(approve).to_be_visible()
    wait_until_idle(page)
    for _ in range(30):
        page.keyboard.press("Shift+Tab")
        if approve.evaluate("element => element === document.activeElement"):
            break
    page.keyboard.press("Enter")
    expect(page.get_by_text("It is gone.")).to_be_visible()
    wait_until_idle(page)
    prompt = page.locator("#prompt")
    expect(prompt).to_be_focused()
    page.keyboard.press("Shift+Tab")
    expect(prompt).not_to_be_focused()
    page.keyboard.press("/")
    expect(prompt).to_be_focused()
    page.keyboard.type("long story")
    page.keyboard.press("Enter")
    expect(page.get_by_text("word3 ")).to_be_visible()
    page.keyboard.press("Shift+Tab")
    with page.expect_response("**/stop") as stopped:
        page.keyboard.press("Escape")
    assert stopped.value.status == 204
    wait_until_idle(page)
    expect(prompt).to_be_focused()


def test_a_narrow_screen_shows_everything_without_scrolling_sideways(open_page: OpenPage) -> None:
    page = open_page()
    page.set_viewport_size({"width": 390, "height": 780})
    page.reload()
    for text in ("markdown", "tools please", "flow please"):
        ask(page, text)
        wait_until_idle(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    expect(page.locator("#prompt")).to_be_in_viewport()
    expect(page.get_by_role("banner")).to_be_in_viewport()
    assert page.evaluate("document.documentElement.scrollHeight <= innerHeight"), "only the conversation scrolls"
    expect(page.get_by_text("Words of write")).to_be_in_viewport()
    expect(page.get_by_role("complementary", name="Flow")).to_be_hidden()
    expect(page.get_by_role("navigation", name="Chats")).to_be_hidden()
    page.get_by_role("button", name="Chats").click()
    page.get_by_role("button", name="markdown", exact=True).click()
    expect(page.get_by_role("navigation", name="Chats")).to_be_hidden()


def test_escape_closes_the_drawer_and_leaves_the_answer_alone(open_page: OpenPage) -> None:
    page = open_page()
    page.set_viewport_size({"width": 390, "height": 780})
    page.reload()
    ask(page, "count held")
    expect(page.get_by_text("number-10 ")).to_be_visible()
    page.get_by_role("button", name="Chats").press("Enter")
    chats = page.get_by_role("navigation", name="Chats")
    page.get_by_role("button", name="Options of count held").press("Enter")
    page.keyboard.press("Escape")
    expect(page.get_by_role("menu")).to_have_count(0)
    expect(chats).to_be_visible()
    page.keyboard.press("Escape")
    expect(chats).to_be_hidden()
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    go_on(page)
    expect(page.get_by_text("end-of-count")).to_be_visible()
    wait_until_idle(page)


def test_the_drawer_holds_the_focus_and_gives_it_back(open_page: OpenPage) -> None:
    page = open_page()
    page.set_viewport_size({"width": 390, "height": 780})
    page.reload()
    ask(page, "hello there")
    wait_until_idle(page)
    toggle = page.get_by_role("button", name="Chats")
    toggle.press("Enter")
    chats = page.get_by_role("navigation", name="Chats")
    expect(chats).to_be_focused()
    reached = set()
    for key in ["Tab"] * 12 + ["Shift+Tab"] * 12:
        page.keyboard.press(key)
        reached.add(page.evaluate("document.activeElement.closest('nav, main, header, body').localName"))
    assert reached - {"body"} == {"nav"}, "at the end of the list it goes round"
    page.keyboard.press("Escape")
    expect(toggle).to_be_focused()


def test_lines_show_what_backgrounds_did_where_the_colours_are_forced(open_page: OpenPage) -> None:
    page = open_page()
    page.emulate_media(forced_colors="active")
    ask(page, "approve this")
    wait_until_idle(page)
    lined = "element => getComputedStyle(element).outlineStyle"
    for element in (
        page.get_by_label("You", exact=True).locator("p"),
        page.get_by_role("button", name="Approve", exact=True),
        page.get_by_role("button", name="approve this", exact=True),
    ):
        assert element.evaluate(lined) == "solid"


def test_the_page_asks_its_own_server_alone(open_page: OpenPage) -> None:
    page = open_page()
    hosts: set[str] = set()
    page.on("request", lambda request: hosts.add(request.url.split("/")[2]) if "://" in request.url else None)
    page.reload()
    ask(page, "sources")
    wait_until_idle(page)
    assert hosts == {page.url.split("/")[2]}
    response = page.request.get(page.url)
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy


def test_the_first_load_is_under_350_kilobytes_compressed(open_page: OpenPage) -> None:
    page = open_page()
    page.wait_for_load_state("networkidle")
    directory = files("usechat") / "web" / "built"
    names = page.evaluate("performance.getEntriesByType('resource').map((entry) => new URL(entry.name).pathname)")
    loaded = {name.rpartition("/")[2] for name in names if "/assets/" in name}
    assert any(name.endswith(".css") for name in loaded)
    sizes = [len(gzip.compress((directory / "assets" / name).read_bytes())) for name in loaded]
    assert sum(sizes) + len(gzip.compress((directory / "index.html").read_bytes())) < 350_000
