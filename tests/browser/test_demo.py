"""The demo, as a newcomer meets it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page

from tests.browser.chatting import ask, expect, wait_until_idle
from tests.browser.conftest import OpenPage
from tests.browser.test_access import serious_findings
from tests.server.process import ServeProcess, serve_process
from usechat.demo.tour import STEPS
from usechat.documentation import documentation

ROOT: Final = Path(__file__).parent.parent.parent
_ADDRESSES: Final = "links => links.map(link => link.href)"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    with serve_process(tmp_path_factory.mktemp("demo"), command="demo") as running:
        yield running


def test_a_question_is_answered_by_a_flow_with_sources(open_page: OpenPage, demo: ServeProcess) -> None:
    page = open_page(f"{demo.url}/")
    card(page, "How does a page resume after a reload?").click()
    expect(page.get_by_role("button", name="Search docs Done")).to_be_visible()
    expect(page.locator(".sources a").first).to_be_visible()
    wait_until_idle(page)
    flow = page.get_by_role("complementary", name="Flow")
    expect(flow).to_contain_text("Usechat guide complete")
    quoted, cited = (page.locator(each).evaluate_all(_ADDRESSES) for each in (".markdown a", ".sources a"))
    assert quoted == cited
    assert f"{demo.url}/docs/resume.md#resume-and-stop" in quoted


def test_a_source_opens_its_section(open_page: OpenPage, demo: ServeProcess) -> None:
    page = open_page(f"{demo.url}/")
    ask(page, "How do I add a stop button?")
    wait_until_idle(page)
    with page.expect_popup() as popup:
        page.locator(".sources a").first.click()
    expect(popup.value).to_have_url(f"{demo.url}/?text=docs/resume.md#a-stop-button")
    expect(popup.value.get_by_role("heading", name="A stop button", exact=True)).to_be_in_viewport()


def test_every_section_that_can_be_cited_is_a_heading_of_its_page(open_page: OpenPage, demo: ServeProcess) -> None:
    page = open_page(f"{demo.url}/")
    sections = documentation().sections
    missing = []
    for name in documentation().pages:
        page.goto(f"{demo.url}/?text=docs/{name}")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        headings = page.locator("article :is(h1, h2, h3, h4)").evaluate_all("all => all.map(each => each.id)")
        ids = {f"{name}#{heading}" for heading in headings}
        missing += [section.id for section in sections if section.page == name and section.id not in ids]
    assert missing == []


def test_every_diagram_of_the_documentation_can_be_drawn(context: BrowserContext) -> None:
    texts = [path.read_text(encoding="utf-8") for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))]
    diagrams = [
        block for text in texts for block in re.findall(r"^```mermaid\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    ]
    assert len(diagrams) > 5
    page = context.new_page()
    page.add_script_tag(path=ROOT / "scripts" / "site" / "node_modules" / "mermaid" / "dist" / "mermaid.min.js")
    for diagram in diagrams:
        page.evaluate("(text) => mermaid.parse(text)", diagram)


def test_the_page_shows_a_text(open_page: OpenPage, demo: ServeProcess) -> None:
    text = open_page(f"{demo.url}/")
    text.goto(f"{demo.url}/?text=docs/resume.md#resume")
    expect(text.get_by_role("heading", name="Resume", exact=True)).to_be_in_viewport()
    expect(text.get_by_role("heading", level=1)).not_to_be_in_viewport()
    assert serious_findings(text) == []
    text.set_viewport_size({"width": 390, "height": 780})
    assert text.evaluate("document.documentElement.scrollWidth <= innerWidth")
    text.emulate_media(color_scheme="dark")
    assert serious_findings(text) == []


def test_a_text_that_is_not_there_is_said_so(open_page: OpenPage, demo: ServeProcess) -> None:
    page = open_page(f"{demo.url}/")
    for path in ("docs/nothing.md", "//example.org/evil.md", "../secret.md"):
        page.goto(f"{demo.url}/?text={path}")
        expect(page.get_by_role("alert")).to_have_text("There is no such page.")


@pytest.mark.parametrize(("button", "text"), [("Approve", "The notes are gone."), ("Deny", "Then the notes stay.")])
def test_consent_is_asked_for(open_page: OpenPage, demo: ServeProcess, button: str, text: str) -> None:
    page = open_page(f"{demo.url}/")
    ask(page, "Please delete my notes")
    flow = page.get_by_role("complementary", name="Flow")
    expect(flow).to_contain_text("Usechat guide paused")
    expect(flow.locator(".node.running")).to_have_count(0)
    expect(page.get_by_role("separator", name="Speaker: Clerk")).to_be_visible()
    page.get_by_role("button", name=button, exact=True).click()
    expect(page.get_by_text(text)).to_be_visible()
    wait_until_idle(page)
    expect(flow).to_contain_text("Usechat guide complete")
    expect(flow).not_to_contain_text("running")


def card(page: Page, text: str) -> Locator:
    """The suggestion of a page without messages, and not the chat of that name in the list."""
    suggestions = page.get_by_role("group", name="Suggestions")
    if not suggestions.get_by_role("button", name=text).is_visible():
        suggestions.get_by_role("button", name="more").click()
    return suggestions.get_by_role("button", name=text)


def end(page: Page, step: str) -> None:
    """Do what a step of the tour waits for, and see its end."""
    if "approval" in step:
        page.get_by_role("button", name="Approve", exact=True).click()
        expect(page.get_by_text("You approved")).to_be_visible()
    if "stop" in step:
        expect(page.get_by_text("1 2 3")).to_be_visible()
        page.get_by_role("button", name="Stop", exact=True).click()
    expect(page.get_by_text("The code:")).to_be_visible()
    wait_until_idle(page)


def on_one_screen(page: Page) -> None:
    expect(page.get_by_label("You", exact=True)).to_be_in_viewport(ratio=1)
    expect(page.get_by_label("Assistant")).to_be_in_viewport(ratio=1)


@pytest.mark.parametrize("step", STEPS)
def test_a_step_of_the_tour_is_on_one_screen_of_a_phone(chromium: Browser, demo: ServeProcess, step: str) -> None:
    with chromium.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True) as phone:
        page = phone.new_page()
        page.goto(f"{demo.url}/")
        card(page, step).tap()
        end(page, step)
        on_one_screen(page)


@pytest.mark.parametrize("step", STEPS)
def test_a_step_of_the_tour_is_on_one_screen_and_its_link_opens_the_section(
    open_page: OpenPage, demo: ServeProcess, step: str
) -> None:
    page = open_page(f"{demo.url}/")
    page.set_viewport_size({"width": 1440, "height": 900})
    card(page, step).click()
    end(page, step)
    on_one_screen(page)
    link = page.get_by_role("link", name="documentation")
    name = str(link.get_attribute("href")).partition("#")[2]
    with page.expect_popup() as popup:
        link.click()
    expect(popup.value).to_have_url(re.compile(rf"/\?text=docs/.+\.md#{name}$"))
    expect(popup.value.locator(f"[id='{name}']")).to_be_in_viewport()


def test_the_browser_tells_its_time_as_often_as_it_is_asked(open_page: OpenPage, demo: ServeProcess) -> None:
    page = open_page(f"{demo.url}/")
    for times in (1, 2):
        ask(page, "Show a tool that runs in my browser")
        expect(page.get_by_text("Your browser says that it is")).to_have_count(times)
        wait_until_idle(page)
    expect(page.get_by_role("button", name="Browser time Done")).to_have_count(2)


def test_the_last_step_continues_after_a_reload_until_it_is_stopped(open_page: OpenPage, demo: ServeProcess) -> None:
    page = open_page(f"{demo.url}/")
    card(page, "Show a stop and a resume").click()
    expect(page.get_by_text("1 2 3 4 5")).to_be_visible()
    page.reload()
    expect(page.get_by_text("1 2 3 4 5 6 7 8 9 10 11 12 13 14 15")).to_be_visible()
    page.get_by_role("button", name="Stop", exact=True).click()
    wait_until_idle(page)
    counted = page.get_by_label("Assistant").inner_text()
    page.reload()
    expect(page.get_by_label("Assistant")).to_have_text(counted, use_inner_text=True)
    assert not counted.rstrip().endswith(" 120")


def test_two_nodes_of_a_flow_are_drawn_side_by_side(open_page: OpenPage, demo: ServeProcess) -> None:
    page = open_page(f"{demo.url}/")
    card(page, "Show a flow with two parallel nodes").click()
    flow = page.get_by_role("complementary", name="Flow")
    expect(flow).to_contain_text("Party planner complete")
    expect(flow.locator(".node.complete")).to_have_count(3)
    diagram = flow.get_by_role("group", name="Diagram")
    assert diagram.evaluate("box => box.scrollWidth <= box.clientWidth"), "both nodes are in sight"


def test_a_sum_and_a_tool_that_fails(open_page: OpenPage, demo: ServeProcess) -> None:
    page = open_page(f"{demo.url}/")
    ask(page, "What is (17 + 4) * 2?")
    expect(page.get_by_text("The result is 42.").last).to_be_visible()
    wait_until_idle(page)
    ask(page, "What is the weather in Lisbon?")
    expect(page.get_by_role("button", name="weather Failed")).to_be_visible()
    expect(page.get_by_text("That did not work").last).to_be_visible()


def test_a_reload_in_the_middle_of_a_flow_goes_on(open_page: OpenPage, demo: ServeProcess) -> None:
    page = open_page(f"{demo.url}/")
    ask(page, "Which metrics are exposed to Prometheus?")
    expect(page.get_by_role("button", name="Search docs Done")).to_be_visible()
    page.reload()
    expect(page.get_by_text("From Metrics, spans and logs").first).to_be_visible()
    wait_until_idle(page)
    expect(page.get_by_role("button", name="Search docs Done")).to_have_count(1)
