"""What the page looks like before anybody has written: its font, its title, its colours, its weight."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route

from tests.browser.agent import answer
from tests.browser.chatting import ask, expect, hold_the_next, wait_until_idle
from tests.browser.conftest import OpenPage, page_served
from tests.browser.test_access import serious_findings
from tests.conformance.served import Served
from usechat import Turn

LOGO = '<svg xmlns="http://www.w3.org/2000/svg" width="10" height="10"><circle cx="5" cy="5" r="5"/></svg>'
MIDDLE = "element => { const box = element.getBoundingClientRect(); return (box.top + box.bottom) / 2 / innerHeight; }"


def test_the_font_comes_with_the_page(open_page: OpenPage) -> None:
    page = open_page()
    page.evaluate("() => document.fonts.ready")
    assert page.evaluate("() => document.fonts.check('16px \"Figtree Variable\"')")
    loaded = """() => [...document.fonts].filter((font) => font.status === "loaded")
        .map((font) => font.family.replaceAll('"', ""))"""
    assert "Figtree Variable" in page.evaluate(loaded)
    assert page.evaluate("() => getComputedStyle(document.body).fontFamily").startswith('"Figtree Variable"')
    origins = "() => [...new Set(performance.getEntriesByType('resource').map((entry) => new URL(entry.name).origin))]"
    assert page.evaluate(origins) == [page.evaluate("location.origin")]
    ask(page, "markdown please")
    wait_until_idle(page)
    page.wait_for_function(f"() => ({loaded})().includes('JetBrains Mono Variable')")


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (390, 844)])
def test_an_empty_chat_has_its_input_in_the_middle(open_page: OpenPage, width: int, height: int) -> None:
    page = open_page()
    page.set_viewport_size({"width": width, "height": height})
    assert 0.35 < page.locator("#prompt").evaluate(MIDDLE) < 0.65
    page.fill("#prompt", "hello")
    page.press("#prompt", "Enter")
    wait_until_idle(page)
    assert page.locator("#prompt").evaluate(MIDDLE) > 0.8
    expect(page.locator("#prompt")).to_be_focused()


def test_a_card_has_an_icon_a_title_and_a_line_and_sends_the_line(open_page: OpenPage) -> None:
    suggestions = ("🧭 Plan a trip | Find a train to Lisbon", "Hello there", "Third", "Fourth", "Fifth", "Sixth")
    with page_served(answer, suggestions=suggestions) as served:
        page = open_page(f"http://127.0.0.1:{served.port}/chat/")
        cards = page.get_by_role("group", name="Suggestions")
        expect(cards.get_by_role("button")).to_have_count(5)
        trip = cards.get_by_role("button").first
        expect(trip.locator("[aria-hidden]")).to_have_text("🧭")
        expect(trip).to_have_accessible_name("Plan a trip Find a train to Lisbon")
        cards.get_by_role("button", name="Show 2 more").click()
        expect(cards.get_by_role("button")).to_have_count(6)
        trip.click()
        expect(page.get_by_text("You said: Find a train to Lisbon")).to_be_visible()


def test_the_page_greets_as_a_person_would(open_page: OpenPage) -> None:
    async def silent(turn: Turn) -> str:
        return turn.text

    with page_served(silent) as served:
        page = open_page(f"http://127.0.0.1:{served.port}/chat/")
        expect(page.get_by_text("What can I help you with?")).to_be_visible()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("accent", ["#ffe600", "#111133"])
def test_a_logo_and_an_accent_of_ones_own_can_be_read_in_both_themes(
    open_page: OpenPage, tmp_path: Path, theme: str, accent: str
) -> None:
    logo = tmp_path / "logo.svg"
    logo.write_text(LOGO)
    with page_served(answer, look={"logo": logo, "accent": accent}) as served:
        page = open_page(f"http://127.0.0.1:{served.port}/chat/")
        page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
        page.reload()
        expect(page.locator("header img")).to_have_js_property("naturalWidth", 10)
        assert page.locator("link[rel=icon]").get_attribute("href") == "./logo.svg"
        ask(page, "approve this")
        button = page.get_by_role("button", name="Approve", exact=True)
        assert button.evaluate("button => getComputedStyle(button).backgroundColor") != "rgb(15, 111, 104)"
        assert serious_findings(page) == []


def test_before_the_script_arrives_the_frame_of_the_page_is_there(open_page: OpenPage, served: Served) -> None:
    page = open_page()
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/assets/index-*.js", hold)
    page.goto(f"http://127.0.0.1:{served.port}/chat/", wait_until="commit")
    skeleton = page.locator(".skeleton")
    expect(skeleton).to_be_visible()
    place = skeleton.locator(".skeleton-prompt").bounding_box()
    held[0].continue_()
    prompt = page.locator("form[aria-label=Message] > div").last
    expect(prompt).to_be_visible()
    expect(skeleton).to_have_count(0)
    box = prompt.bounding_box()
    assert place is not None
    assert box is not None
    assert abs(box["x"] - place["x"]) <= 2
    assert abs(box["width"] - place["width"]) <= 2


def test_the_first_paint_waits_for_no_script(
    open_page: OpenPage, served: Served, request: pytest.FixtureRequest
) -> None:
    """How long it takes depends on the machine: it is measured, and stands in the report."""
    page = open_page()
    held = hold_the_next(page, "**/assets/index-*.js")
    page.goto(f"http://127.0.0.1:{served.port}/chat/", wait_until="commit")
    first_paint = page.wait_for_function("() => performance.getEntriesByName('first-paint')[0]?.startTime")
    request.node.user_properties.append(("first paint, in milliseconds", round(first_paint.json_value())))
    assert held != [], "the script has not arrived"
    held[0].continue_()
    expect(page.locator("#prompt")).to_be_visible()


def test_at_most_250_kilobytes_of_script_are_loaded_before_the_first_message(open_page: OpenPage) -> None:
    page = open_page()
    page.wait_for_load_state("networkidle")
    assert 0 < loaded_script(page) <= 250_000


def loaded_script(page: Page) -> int:
    """Return how many bytes of script the page has got, compressed."""
    sizes = """() => performance.getEntriesByType("resource").filter((entry) => entry.name.endsWith(".js"))
        .reduce((sum, entry) => sum + entry.encodedBodySize, 0)"""
    size: int = page.evaluate(sizes)
    return size


def test_a_load_violates_no_policy(chromium: Browser, served: Served) -> None:
    with chromium.new_context() as context:
        context.add_init_script(
            "window.violations = []; addEventListener('securitypolicyviolation', (event) =>"
            " window.violations.push(`${event.violatedDirective} ${event.blockedURI}`))"
        )
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{served.port}/chat/")
        ask(page, "markdown please")
        wait_until_idle(page)
        assert page.evaluate("window.violations") == []
