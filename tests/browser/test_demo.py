"""The demo, as a newcomer meets it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize

from tests.browser.chatting import ask, expect, wait_until_idle
from tests.browser.conftest import OpenPage
from tests.browser.test_access import serious_findings, serious_findings_in_both_themes
from tests.conformance.served import eventually
from tests.server.process import ServeProcess, serve_process
from usechat.demo.show import SCENES
from usechat.documentation import documentation

ROOT: Final = Path(__file__).parent.parent.parent
_ADDRESSES: Final = "links => links.map(link => link.href)"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    with serve_process(tmp_path_factory.mktemp("demo"), command="demo") as running:
        yield running


def test_a_question_is_answered_with_sources_and_without_machinery(open_page: OpenPage, demo: ServeProcess) -> None:
    page = open_page(f"{demo.url}/")
    ask(page, "How does a page resume after a reload?")
    expect(page.get_by_role("button", name="Search docs Done")).to_be_visible()
    expect(page.locator(".sources a").first).to_be_visible()
    wait_until_idle(page)
    expect(page.get_by_role("complementary", name="Flow")).to_have_count(0)
    expect(page.get_by_role("separator")).to_have_count(0)
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
    assert serious_findings_in_both_themes(text) == []
    text.set_viewport_size({"width": 390, "height": 780})
    assert text.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert serious_findings_in_both_themes(text) == []


def test_a_text_that_is_not_there_is_said_so(open_page: OpenPage, demo: ServeProcess) -> None:
    page = open_page(f"{demo.url}/")
    for path in ("docs/nothing.md", "//example.org/evil.md", "../secret.md"):
        page.goto(f"{demo.url}/?text={path}")
        expect(page.get_by_role("alert")).to_have_text("There is no such page.")


def follow(page: Page, scene: str) -> None:
    """Go on to a scene, by what the page offers below the last answer."""
    page.get_by_role("group", name="Suggestions").get_by_role("button", name=f"Next: {scene}").click()


def see_the_end(page: Page) -> None:
    """See the end of a scene: its code is there, and the way on."""
    expect(page.get_by_label("Assistant").last.get_by_text("The Python behind it")).to_be_visible(timeout=60_000)
    wait_until_idle(page)
    expect(page.get_by_role("group", name="Suggestions").get_by_role("button").first).to_be_visible()


def begin(page: Page) -> None:
    """Play the first scene, to its approval."""
    page.get_by_role("group", name="Suggestions").get_by_role("button").click()
    expect(page.get_by_role("group", name="Allow: Book seats?")).to_be_visible()


def reload_at_the_invitation(page: Page) -> None:
    """Reload the page when the first scene says so; the answer goes on, to the question whether to kill the server."""
    expect(page.get_by_text("Now reload the page")).to_be_visible()
    page.reload()
    expect(page.get_by_role("figure").get_by_text("Lisbon, °C")).to_be_visible()
    expect(page.get_by_role("listitem").filter(has_text="Back to the hotel")).to_have_count(1, timeout=60_000)
    expect(page.get_by_role("group", name="Allow: Kill the server?")).to_be_visible()


def test_the_first_scene_goes_on_after_a_reload_and_when_its_server_is_killed(
    open_page: OpenPage, demo: ServeProcess
) -> None:
    page = open_page(f"{demo.url}/")
    begin(page)
    expect(page.get_by_role("button", name="Used 2 tools")).to_be_visible()
    expect(page.get_by_role("button", name=re.compile("^Thought"))).to_be_visible()
    page.get_by_role("button", name="Approve", exact=True).click()
    reload_at_the_invitation(page)
    page.get_by_role("button", name="Approve", exact=True).click()
    expect(page.get_by_text("in the middle of")).to_be_visible()
    expect(page.get_by_text("The connection was lost. Reconnecting…")).to_be_visible()
    expect(page.get_by_role("paragraph").filter(has_text="Nothing was packed twice")).to_be_visible(timeout=60_000)
    see_the_end(page)
    expect(page.get_by_role("paragraph").filter(has_text="Two seats are booked.")).to_have_count(1)
    expect(page.locator(".sources a")).to_have_count(2)
    packed = [
        line.removesuffix(".").split()[-1]
        for line in page.get_by_role("listitem").all_inner_texts()
        if "packed by" in line
    ]
    assert packed == [packed[0]] * 3 + [packed[-1]]
    assert packed[0] != packed[-1]
    expect(page.get_by_text(f"kill -9 {packed[0]}")).to_be_visible()
    expect(page.get_by_text(f"this sentence, and process {packed[-1]} ends it.")).to_be_visible()


def test_the_first_scene_ends_where_both_approvals_are_denied(open_page: OpenPage, demo: ServeProcess) -> None:
    page = open_page(f"{demo.url}/")
    begin(page)
    page.get_by_role("button", name="Deny", exact=True).click()
    reload_at_the_invitation(page)
    expect(page.get_by_text("Then you take the car.")).to_be_visible()
    page.get_by_role("button", name="Deny", exact=True).click()
    expect(page.get_by_role("paragraph").filter(has_text="Then it lives, and nothing is packed.")).to_be_visible()
    see_the_end(page)
    expect(page.get_by_role("button", name="Next: Several agents")).to_be_visible()


def test_the_other_scenes_follow_one_another(open_page: OpenPage, demo: ServeProcess) -> None:
    page = open_page(f"{demo.url}/")
    ask(page, list(SCENES)[1])
    expect(page.get_by_role("separator", name="Speaker: Cook")).to_be_visible()
    see_the_end(page)
    follow(page, "A flow")
    flow = page.get_by_role("complementary", name="Flow")
    expect(flow).to_contain_text("Party planner complete")
    expect(flow.locator(".node.complete")).to_have_count(3)
    diagram = flow.get_by_role("group", name="Diagram")
    assert diagram.evaluate("box => box.scrollWidth <= box.clientWidth"), "both nodes are in sight"
    see_the_end(page)
    follow(page, "A form")
    page.get_by_label("Who travels?").select_option("A family")
    page.get_by_label("It must be by the sea").check()
    page.get_by_role("button", name="Answer", exact=True).click()
    expect(page.get_by_text("For a family, 3 days: Cascais.")).to_be_visible()
    see_the_end(page)
    follow(page, "Files")
    expect(page.locator(".message.assistant img[src^='data:image/png']")).to_be_visible()
    see_the_end(page)
    follow(page, "Versions of an answer")
    see_the_end(page)
    page.get_by_role("button", name="Regenerate").last.click()
    expect(page.get_by_role("group", name="Versions").last).to_contain_text("2/2")
    see_the_end(page)
    expect(page.get_by_role("group", name="Suggestions").get_by_role("button")).to_have_count(2)


def test_the_code_behind_a_scene_is_copied_and_its_link_opens_the_section(
    open_page: OpenPage, demo: ServeProcess
) -> None:
    page = open_page(f"{demo.url}/")
    ask(page, list(SCENES)[1])
    see_the_end(page)
    page.get_by_role("button", name="Copy code").click()
    eventually(lambda: page.evaluate("navigator.clipboard.readText()").startswith("async def agent(turn):"), "copied")
    with page.expect_popup() as popup:
        page.get_by_role("link", name="documentation").click()
    expect(popup.value.locator("[id='parts-what-an-agent-can-send']")).to_be_in_viewport()


@pytest.mark.parametrize("size", [(1440, 900), (1024, 768), (390, 844)], ids=["desktop", "tablet", "phone"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_scene_is_shown_well(
    chromium: Browser, demo: ServeProcess, size: tuple[int, int], theme: Literal["light", "dark"]
) -> None:
    viewport: ViewportSize = {"width": size[0], "height": size[1]}
    with chromium.new_context(viewport=viewport, color_scheme=theme, locale="en-GB") as context:
        page = context.new_page()
        page.goto(f"{demo.url}/")
        begin(page)
        expect(page.get_by_label("You", exact=True)).to_be_in_viewport(ratio=1)
        expect(page.get_by_role("button", name="Approve", exact=True)).to_be_in_viewport(ratio=1)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert serious_findings(page) == []


def test_a_reload_in_the_middle_of_an_answer_goes_on(open_page: OpenPage, demo: ServeProcess) -> None:
    page = open_page(f"{demo.url}/")
    ask(page, "Which metrics are exposed to Prometheus?")
    expect(page.get_by_role("button", name="Search docs Done")).to_be_visible()
    page.reload()
    expect(page.get_by_text("From Metrics, spans and logs").first).to_be_visible()
    wait_until_idle(page)
    expect(page.get_by_role("button", name="Search docs Done")).to_have_count(1)
