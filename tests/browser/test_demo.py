"""The demo, as a newcomer meets it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Locator, Page

from tests.browser.chatting import ask, expect, wait_until_idle
from tests.browser.conftest import OpenPage
from tests.browser.test_access import serious_findings
from tests.server.process import ServeProcess, eventually, serve_process
from usechat.demo.tour import STEPS

ROOT: Final = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    with serve_process(tmp_path_factory.mktemp("demo"), command="demo") as running:
        yield running


def test_a_question_is_answered_by_a_flow_with_sources(open_page: OpenPage, demo: ServeProcess) -> None:
    page = open_page(f"{demo.url}/")
    page.get_by_role("button", name="How does a page resume after a reload?").click()
    expect(page.get_by_role("button", name="search_docs Done")).to_be_visible()
    source = page.locator(".sources a").first
    expect(source).to_contain_text("Resume")
    wait_until_idle(page)
    dividers = page.get_by_label("Assistant").get_by_role("separator").all_inner_texts()
    assert dividers == ["researcher", "writer"]
    flow = page.get_by_role("complementary", name="Flow")
    expect(flow).to_contain_text("usechat-guide complete")
    cited = page.locator(".markdown a").first
    assert str(cited.get_attribute("href")).endswith(".md#resume")


@pytest.fixture
def complaints(context: BrowserContext) -> list[str]:
    """What the browser reports as an error on the site, a refusal by its policy and a missing file among them."""
    said: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if message.type == "error" and message.page and "/docs/" in message.page.url:
            said.append(message.text)

    context.on("console", note)
    context.on("weberror", lambda error: said.append(str(error.error)))
    return said


def test_a_source_opens_its_section_on_the_site_of_the_documentation(
    open_page: OpenPage, demo: ServeProcess, complaints: list[str]
) -> None:
    page = open_page(f"{demo.url}/")
    ask(page, "How does a page resume after a reload?")
    source = page.locator(".sources a").first
    expect(source).to_contain_text("Resume")
    wait_until_idle(page)
    with page.expect_popup() as popup:
        source.click()
    site = popup.value
    expect(site).to_have_url(re.compile(r"/docs/[\d.]+/resume\.html#resume$"))
    expect(site.get_by_role("heading", name="Resume", exact=False, level=2).first).to_be_in_viewport()
    expect(site.get_by_role("heading", level=1)).not_to_be_in_viewport()
    expect(site.locator(".mermaid svg, div.mermaid").first).to_be_attached()
    assert complaints == []


def test_the_site_is_searched_and_read_under_its_policy(
    open_page: OpenPage, demo: ServeProcess, complaints: list[str]
) -> None:
    site = open_page(f"{demo.url}/")
    site.goto(f"{demo.url}/docs/")
    expect(site).to_have_url(re.compile(r"/docs/[\d.]+/index\.html$"))
    expect(site.get_by_role("heading", level=1)).to_be_visible()
    site.keyboard.press("/")
    focused = "document.activeElement?.shadowRoot?.activeElement?.tagName"
    eventually(lambda: site.evaluate(focused) == "INPUT", "the search is open")
    site.keyboard.type("prometheus")
    expect(site.get_by_text(re.compile(r"^\d+ results$"))).to_be_visible()
    site.keyboard.press("Enter")
    expect(site).not_to_have_url(re.compile(r"/index\.html"))
    expect(site.locator("article")).to_contain_text(re.compile("prometheus", re.IGNORECASE))
    assert complaints == []


def test_every_diagram_of_the_documentation_can_be_drawn(open_page: OpenPage, demo: ServeProcess) -> None:
    texts = [path.read_text(encoding="utf-8") for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))]
    diagrams = [
        found for text in texts for found in re.findall(r"^```mermaid\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    ]
    assert len(diagrams) > 5
    site = open_page(f"{demo.url}/")
    site.goto(f"{demo.url}/docs/")
    site.goto(site.url.replace("index.html", "resume.html"))
    site.wait_for_function("() => window.mermaid")
    for diagram in diagrams:
        site.evaluate("(text) => mermaid.parse(text)", diagram)


def test_without_a_site_the_page_shows_the_text(open_page: OpenPage, demo: ServeProcess) -> None:
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


@pytest.mark.parametrize(("button", "said"), [("Approve", "The notes are gone."), ("Deny", "Then the notes stay.")])
def test_consent_is_asked_for(open_page: OpenPage, demo: ServeProcess, button: str, said: str) -> None:
    page = open_page(f"{demo.url}/")
    ask(page, "Please delete my notes")
    flow = page.get_by_role("complementary", name="Flow")
    expect(flow).to_contain_text("usechat-guide paused")
    expect(flow.locator(".node.running")).to_have_count(0)
    expect(page.get_by_role("separator", name="Node clerk")).to_be_visible()
    page.get_by_role("button", name=button, exact=True).click()
    expect(page.get_by_text(said)).to_be_visible()
    wait_until_idle(page)
    expect(flow).to_contain_text("usechat-guide complete")
    expect(flow).not_to_contain_text("running")


def card(page: Page, text: str) -> Locator:
    """The suggestion of a page without messages, and not the chat of that name in the list."""
    return page.get_by_role("log", name="Conversation").get_by_role("button", name=text)


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
    expect(popup.value).to_have_url(re.compile(rf"/docs/[\d.]+/.+\.html#{name}$"))
    expect(popup.value.locator(f"[id='{name}']")).to_be_in_viewport()


def test_the_browser_tells_its_time_as_often_as_it_is_asked(open_page: OpenPage, demo: ServeProcess) -> None:
    page = open_page(f"{demo.url}/")
    for times in (1, 2):
        ask(page, "Show a tool that runs in my browser")
        expect(page.get_by_text("Your browser says that it is")).to_have_count(times)
        wait_until_idle(page)
    expect(page.get_by_role("button", name="browser_time Done")).to_have_count(2)


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
    expect(flow).to_contain_text("party-planner complete")
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
    expect(page.get_by_role("separator", name="Node writer")).to_be_visible()
    page.reload()
    expect(page.get_by_text("From Metrics, spans and logs")).to_be_visible()
    wait_until_idle(page)
    expect(page.get_by_role("button", name="search_docs Done")).to_have_count(1)
