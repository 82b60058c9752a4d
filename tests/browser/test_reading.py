"""What an answer holds can be read: long code, wide tables, formulas, task lists, data, on paper and on a phone."""

import re
from functools import partial
from itertools import pairwise
from urllib.parse import unquote

import pytest
from playwright.sync_api import Locator, Page

from tests.browser.agent import DOCUMENT, DRAWN_DIAGRAMS, LONG_CODE, MARKDOWN, PICTURE, SOURCE_DIAGRAMS
from tests.browser.chatting import ask, clipboard, expect, expect_copied, settle, wait_until_idle
from tests.browser.conftest import OpenPage
from tests.browser.markdown_texts import DEEP
from tests.conformance.served import eventually

SYNTAX = {"Note", "Still", "as", "axis", "bar", "class", "else", "end", "over", "participant", "state", "title"}
"""Words of diagrams that are not drawn: the name of a state has a label in its place."""


def test_long_code_is_whole_coloured_and_copied(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "code please")
    wait_until_idle(page)
    code = page.locator(".code-block pre")
    last = code.get_by_text("def function_29")
    last.scroll_into_view_if_needed()
    expect(last).to_be_in_viewport()
    assert code.evaluate("pre => pre.scrollHeight - pre.clientHeight") <= 1, "no line is cut off"
    assert code.evaluate("pre => pre.scrollWidth > pre.clientWidth"), "a wide line scrolls"
    code.evaluate("pre => { pre.scrollLeft = 100000; }")
    assert code.evaluate("pre => pre.scrollLeft") > 0
    expect(code.locator(".token").first).to_have_text("def")
    page.get_by_role("button", name="Copy code").click()
    expect_copied(page, LONG_CODE.removeprefix("```python\n").removesuffix("\n```\n"))


@pytest.mark.parametrize(
    ("block", "line", "tokens"),
    [
        (0, 0, ["const", "Props", "Title", '"Hello"']),
        (1, 0, ["const", "Title", '"Hello"']),
        (2, 0, ["#define", "return", '"two"', "2"]),
        (2, 1, ["int", "return"]),
    ],
    ids=["TSX", "JSX", "macro", "behind the macro"],
)
def test_languages_that_share_a_grammar_and_macros_are_coloured(
    open_page: OpenPage, block: int, line: int, tokens: list[str]
) -> None:
    page = open_page()
    ask(page, "grammars please")
    wait_until_idle(page)
    code = page.locator(".code-block pre").nth(block).locator("code > span").nth(line)
    expect(code.locator(".token").first).to_be_visible()
    plain = code.evaluate("line => getComputedStyle(line).color")
    colours = code.locator(".token").evaluate_all(
        "all => all.map((token) => [token.textContent.trim(), getComputedStyle(token).color])"
    )
    coloured = [text for text, colour in colours if colour != plain]
    assert [text for text in tokens if not any(text in token for token in coloured)] == []


def follows_the_wheel(page: Page, box: Locator) -> bool:
    """Turn the wheel over a box. While the page goes to a question, the box may have left the pointer by then."""
    box.hover()
    page.mouse.wheel(120, 0)
    return bool(box.evaluate("box => box.scrollLeft > 0"))


def test_the_input_keeps_its_focus_when_the_window_gets_narrow(open_page: OpenPage) -> None:
    page = open_page()
    page.locator("#prompt").focus()
    page.evaluate("document.querySelector('#prompt').addEventListener('blur', () => (window.hasBlurred = true))")
    page.set_viewport_size({"width": 700, "height": 860})
    expect(page.get_by_role("navigation", name="Chats")).to_be_hidden()
    settle(page)
    assert page.evaluate("window.hasBlurred") is None
    expect(page.locator("#prompt")).to_be_focused()


def test_wide_code_and_a_wide_table_follow_the_wheel(open_page: OpenPage) -> None:
    page = open_page()
    page.set_viewport_size({"width": 700, "height": 860})
    for text, box in (
        ("code please", page.locator(".code-block pre")),
        ("table please", page.get_by_role("group", name="Table")),
    ):
        ask(page, text)
        wait_until_idle(page)
        eventually(partial(follows_the_wheel, page, box), f"the box of {text!r} follows the wheel")
    assert page.evaluate("document.documentElement.scrollLeft") == 0


def test_both_sides_of_a_chat_are_copied(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "markdown please")
    wait_until_idle(page)
    for name, text in (("Copy message", "markdown please"), ("Copy", MARKDOWN)):
        page.get_by_role("button", name=name, exact=True).click()
        expect_copied(page, text)
        expect(page.get_by_role("button", name="Copied")).to_be_hidden()


def test_a_long_answer_reads_as_one_document(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "document please")
    wait_until_idle(page)
    answer = page.get_by_label("Assistant")
    expect(answer.locator("ol")).to_have_count(1)
    expect(answer.locator("ol > li")).to_have_count(100)
    expect(answer.locator(".katex-display")).to_have_count(1)
    expect(answer.get_by_text("Paragraph 199 of the end.")).to_be_visible()
    expect(answer.locator(".blocks:empty")).to_have_count(0)
    code = answer.locator(".code-block pre")
    expect(code).to_have_count(1)
    assert code.evaluate("pre => pre.textContent").strip() == DOCUMENT.split("```")[1].removeprefix("python").strip()
    expect(code.locator("code > span", has_text="def function_99").locator(".token").first).to_have_text("def")
    tops = answer.locator(".markdown p").evaluate_all("all => all.map((one) => one.getBoundingClientRect().top)")[-150:]
    gaps = [below - above for above, below in pairwise(tops)]
    assert max(gaps) - min(gaps) < 1, "all paragraphs are equally far apart"


def test_a_list_a_table_and_a_paragraph_of_100_kilobytes_are_one_each(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "blocks please")
    page.wait_for_function("() => document.querySelector('[role=log]').ariaBusy === 'false'", timeout=120_000)
    answer = page.get_by_label("Assistant")
    expect(answer.locator("p").last).to_contain_text("The sentence 700 has some words, and code.", timeout=60_000)
    items = answer.locator("ol > li")
    numbers = items.evaluate_all(
        "all => all.map((one) => one.parentElement.start + [...one.parentElement.children].indexOf(one))"
    )
    assert numbers == list(range(1, 901))
    tops = items.evaluate_all("all => all.map((one) => one.getBoundingClientRect().top)")
    gaps = [below - above for above, below in pairwise(tops)]
    assert max(gaps) - min(gaps) < 1, "all items are equally far apart"
    answer.get_by_role("group", name="Table").hover()
    answer.get_by_role("button", name="Copy table").click()
    rows = ["name", *(f"row {number}" for number in range(1, 1001))]
    eventually(lambda: [row.split("\t")[0] for row in clipboard(page).splitlines()] == rows, "the table is copied")
    text = answer.locator("p").last.text_content() or ""
    assert [int(number) for number in re.findall(r"The sentence (\d+) has some words, and code\.", text)] == list(
        range(1, 701)
    )
    expect(answer.locator("details")).to_have_text("Opened and closed.")


def test_a_link_whose_address_is_far_below_leads_there(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "references please")
    wait_until_idle(page)
    expect(page.get_by_role("link", name="the page")).to_have_attribute("href", "https://example.org/page")


def test_the_number_of_a_footnote_leads_to_it_and_back(open_page: OpenPage) -> None:
    page = open_page()
    for _ in range(2):  # the footnotes of another answer have the same numbers
        ask(page, "footnotes please")
        wait_until_idle(page)
    answer = page.get_by_label("Assistant").last
    number, note = answer.get_by_role("link", name="1", exact=True), answer.get_by_text("The source.")
    expect(note).not_to_be_in_viewport()
    number.click()
    expect(note).to_be_in_viewport()
    expect(number).not_to_be_in_viewport()
    answer.get_by_role("link", name="Back to reference 1").click()
    expect(number).to_be_in_viewport()
    assert len(page.context.pages) == 1


def test_an_inline_image_is_shown(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "image please")
    wait_until_idle(page)
    expect(page.get_by_role("img", name="a dot")).to_have_attribute("src", PICTURE)
    elsewhere = page.get_by_role("link", name="Image on example.org ↗")
    expect(elsewhere).to_have_attribute("href", "https://example.org/spy.png")
    expect(elsewhere).to_have_attribute("title", "elsewhere")


def test_html_that_holds_no_code_in_its_preformatted_text_is_shown(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "preformatted please")
    wait_until_idle(page)
    expect(page.get_by_label("Assistant").locator("pre")).to_have_text("as it is")


def test_what_is_nested_too_deeply_to_be_read_is_shown_as_it_is(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "deep please")
    wait_until_idle(page)
    expect(page.get_by_label("Assistant").locator(".markdown")).to_have_text(DEEP)


def test_a_wide_table_scrolls_and_breaks_no_word(open_page: OpenPage) -> None:
    page = open_page()
    page.set_viewport_size({"width": 390, "height": 780})
    expect(page.get_by_role("navigation", name="Chats")).to_be_hidden()
    ask(page, "table please")
    wait_until_idle(page)
    table = page.get_by_role("group", name="Table")
    assert table.evaluate("box => box.scrollWidth > box.clientWidth")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    lines = "cell => { const range = document.createRange(); range.selectNodeContents(cell);"
    assert table.get_by_role("cell").first.evaluate(f"{lines} return range.getClientRects().length; }}") == 1
    table.hover()
    page.get_by_role("button", name="Copy table").click()
    head = "\t".join(f"Considerable-{number}" for number in range(9))
    eventually(lambda: clipboard(page).startswith(f"{head}\n"), "the table is copied")


@pytest.mark.parametrize("width", [1280, 390])
def test_the_columns_of_a_long_table_are_aligned_and_break_no_word(open_page: OpenPage, width: int) -> None:
    """Its rows are laid out in groups, each by itself."""
    page = open_page()
    page.set_viewport_size({"width": width, "height": 780})
    ask(page, "odd rows at once")
    page.wait_for_function("() => document.querySelector('table.long')?.rows.length > 1500", timeout=120_000)
    places = """table => {
        const shown = [...table.rows].filter((row, at) => at === 0 || at % 500 === 1);
        for (const row of shown) row.scrollIntoView();
        return [...new Set(shown.map((row) => [...row.cells].map((cell) => Math.round(cell.offsetLeft)).join()))];
    }"""
    table = page.locator("table.long")
    assert len(table.evaluate(places)) == 1
    lines = """table => [0, 1, 501, 1501].flatMap((at) => [0, 1, 2].map((column) => {
        const cell = table.rows[at].cells[column];
        const range = document.createRange();
        range.selectNodeContents(cell);
        cell.scrollIntoView();
        return new Set([...range.getClientRects()].map((box) => Math.round(box.bottom / 10))).size;
    }))"""
    assert {*table.evaluate(lines)} == {1}, "the short texts are on one line each"
    expect(page.get_by_role("columnheader")).to_have_text(["name", "number", "bold", "remark", "code"])
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_labels_of_a_chart_can_be_read_on_a_phone(open_page: OpenPage) -> None:
    page = open_page()
    page.set_viewport_size({"width": 390, "height": 780})
    ask(page, "drawn please")
    wait_until_idle(page)
    chart = page.get_by_role("img", name="Sales: 2025 3, 5, 2")
    expect(chart.locator("text")).to_have_text(["0", "2", "4", "6", "a", "b", "c"])
    heights = chart.locator("text").evaluate_all("all => all.map((one) => one.getBoundingClientRect().height)")
    assert min(heights) >= 12
    fills_its_place = """least => {
        const place = (element) => document.querySelector(element).getBoundingClientRect();
        const [chart, line] = [place("figure svg"), place("figure svg line")];
        return chart.width > least && Math.round(line.right) === Math.round(chart.right);
    }"""
    page.wait_for_function(fills_its_place, arg=200)
    page.set_viewport_size({"width": 1024, "height": 780})
    page.wait_for_function(fills_its_place, arg=500)
    assert chart.locator("text").evaluate_all("all => all.map((one) => one.getBoundingClientRect().height)") == heights


def test_the_lines_of_a_chart_are_at_round_values_and_at_zero(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "balance please")
    wait_until_idle(page)
    chart = page.get_by_role("img", name="Balance: euros -12, 31")
    expect(chart.locator("text")).to_have_text(["-20", "0", "20", "40"])


def test_formulas_are_drawn_and_code_keeps_its_backslashes(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "formulas please")
    wait_until_idle(page)
    answer = page.get_by_label("Assistant")
    expect(answer.locator(".katex")).to_have_count(4)
    expect(answer.locator(".katex-display annotation")).to_have_text([r"\frac{1}{2}", "alone"])
    expect(answer.locator("code")).to_have_text(r"\(raw\)")


def test_task_lists_have_named_boxes(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "tasks please")
    wait_until_idle(page)
    expect(page.get_by_role("checkbox", name="Done")).to_be_checked()
    expect(page.get_by_role("checkbox", name="To do")).not_to_be_checked()


def test_data_is_drawn_by_its_kind(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "drawn please")
    expect(page.get_by_role("progressbar", name="Reading files")).to_have_attribute("aria-valuenow", "40")
    expect(page.get_by_role("img", name="Sales: 2025 3, 5, 2")).to_be_visible()
    expect(page.get_by_role("cell", name="567,131")).to_be_visible()


def test_an_empty_answer_says_so(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "nothing please")
    expect(page.get_by_text("The answer is empty.")).to_be_visible()


def test_text_from_right_to_left_begins_on_the_right(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "שלום עולם")
    wait_until_idle(page)
    expect(page.locator("#prompt")).to_have_attribute("dir", "auto")
    words = page.get_by_label("You", exact=True).locator("p")
    assert words.evaluate("element => getComputedStyle(element).direction") == "rtl"


def test_paper_shows_the_whole_conversation_and_nothing_else(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "code please")
    wait_until_idle(page)
    ask(page, "the last words")
    wait_until_idle(page)
    page.emulate_media(media="print")
    expect(page.locator("#prompt")).to_be_hidden()
    expect(page.get_by_role("navigation", name="Chats")).to_be_hidden()
    assert page.evaluate("document.documentElement.scrollHeight") > 2 * page.evaluate("innerHeight")
    for box in ("[role=log]", ".code-block pre"):
        assert page.locator(box).first.evaluate("box => box.scrollHeight - box.clientHeight") <= 1, box


def test_the_dark_theme_is_printed_in_dark_letters(open_page: OpenPage) -> None:
    page = open_page()
    page.get_by_role("button", name="Dark mode").click()
    ask(page, "markdown please")
    wait_until_idle(page)
    token = page.locator(".code-block .token").first
    expect(token).to_be_visible()
    page.emulate_media(media="print")
    colour = "element => getComputedStyle(element).color"
    assert page.get_by_text("Some bold words").evaluate(colour) == "rgb(26, 26, 30)"
    shade = "element => Math.max(...getComputedStyle(element).color.match(/\\d+/g).map(Number))"
    assert token.evaluate(shade) < 200


def test_a_text_is_copied_where_the_browser_gives_no_clipboard(open_page: OpenPage) -> None:
    """As on a page that another machine serves over plain HTTP."""
    page = open_page()
    ask(page, "hello there")
    wait_until_idle(page)
    page.evaluate("() => Object.defineProperty(navigator, 'clipboard', { value: undefined, configurable: true })")
    button = page.get_by_role("button", name="Copy message")
    button.click()
    expect(page.get_by_role("button", name="Copied")).to_be_focused()
    page.evaluate("() => delete navigator.clipboard")
    expect_copied(page, "hello there")


def test_sources_are_named_without_what_says_nothing(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "wiki please")
    wait_until_idle(page)
    sources = page.get_by_role("group", name="Sources")
    expect(sources.get_by_role("link")).to_have_text(["wwikipedia.org/wiki/Lisbon", "eexample.org"])


def test_the_page_has_one_main_heading(open_page: OpenPage) -> None:
    page = open_page()
    expect(page.locator("h1")).to_have_text("Support")
    ask(page, "hello there")
    wait_until_idle(page)
    expect(page.locator("h1")).to_have_text("hello there")


def test_a_mermaid_fence_is_an_image_that_is_drawn_on_use_and_stays_code_if_it_is_wrong(open_page: OpenPage) -> None:
    page = open_page()
    page.wait_for_load_state("networkidle")
    loaded = "performance.getEntriesByType('resource').filter((entry) => entry.name.endsWith('.js')).length"
    before = page.evaluate(loaded)
    ask(page, "diagram please")
    wait_until_idle(page)
    image = page.get_by_role("img", name="Diagram: graph TD")
    expect(image).to_be_visible()
    assert page.evaluate(loaded) > before, "what draws it is loaded on use"
    assert image.evaluate("image => image.decode().then(() => image.naturalHeight)") > 100
    assert "http://www.w3.org" in str(image.get_attribute("src")).replace("%3A", ":").replace("%2F", "/")
    assert "googleapis" not in str(image.get_attribute("src"))
    expect(page.get_by_label("Code: mermaid")).to_have_text("no such diagram")
    assert "#ededf0" not in unquote(str(image.get_attribute("src")))
    page.get_by_role("button", name="Dark mode").click()
    expect(image).to_have_count(1)
    assert "--fg:#ededf0" in unquote(str(image.get_attribute("src"))), "the dark theme has an image of its own"


def test_a_flowchart_is_drawn_as_it_is_written_or_shown_as_source(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "flowcharts please")
    wait_until_idle(page)
    images = page.get_by_role("img", name="Diagram:")
    expect(images).to_have_count(2)
    first, second = (dict(labels_of(str(image.get_attribute("src")))) for image in images.all())
    assert first.keys() == {"A", "B", "Sea; sky", "maybe"}
    assert second["Start"] < second["Fine?"] < second["Done"]
    expect(page.get_by_label("Code: mermaid")).to_have_text("graph TD\n  A[", use_inner_text=True)


def test_a_diagram_of_any_kind_is_drawn_with_all_its_lines_or_shown_as_source(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "diagrams drawn")
    wait_until_idle(page)
    images = page.get_by_role("img", name="Diagram:")
    expect(images).to_have_count(len(DRAWN_DIAGRAMS))
    for source, image in zip(DRAWN_DIAGRAMS, images.all(), strict=True):
        drawn = re.sub(r"<[^>]*>", " ", re.sub(r"<style.*?</style>", "", unquote(str(image.get_attribute("src")))))
        words = set(re.findall(r"[^\W\d_]{2,}", source.partition("\n")[2])) - SYNTAX
        assert {word for word in words if word not in drawn} == set()
    ask(page, "diagrams that are source")
    wait_until_idle(page)
    expect(page.get_by_label("Code: mermaid")).to_have_text(list(SOURCE_DIAGRAMS), use_inner_text=True)
    expect(images).to_have_count(len(DRAWN_DIAGRAMS))


def labels_of(address: str) -> list[tuple[str, float]]:
    """Return each text in an image, and how far down it stands."""
    texts = re.findall(r'<text x="[\d.]+" y="([\d.]+)"[^>]*>([^<]*)<', unquote(address))
    return [(text, float(y)) for y, text in texts]


def test_a_picture_that_cannot_be_shown_is_a_file(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "broken picture")
    wait_until_idle(page)
    expect(page.get_by_role("link", name="PNG image")).to_be_visible()
    expect(page.get_by_role("button", name="View PNG image")).to_have_count(0)


def test_a_clipboard_that_the_browser_refuses_is_told(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "hello there")
    wait_until_idle(page)
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('no')); }")
    page.get_by_role("button", name="Copy message").click()
    expect(page.get_by_role("button", name="The browser refused to copy")).to_be_visible()


def test_the_button_of_a_table_from_right_to_left_covers_no_head(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "hebrew table")
    wait_until_idle(page)
    table = page.get_by_role("group", name="Table")
    table.hover()
    button = page.get_by_role("button", name="Copy table").bounding_box()
    box = table.bounding_box()
    assert button is not None
    assert box is not None
    assert button["x"] < box["x"] + 12, "it stands at the end of the line, on the left"


def test_the_field_of_an_edit_is_as_high_as_its_text(open_page: OpenPage) -> None:
    page = open_page()
    page.fill("#prompt", "\n".join(f"line {number}" for number in range(1, 7)))
    page.press("#prompt", "Enter")
    wait_until_idle(page)
    page.get_by_role("button", name="Edit").click()
    field = page.get_by_label("Edit message")
    assert field.evaluate("field => field.scrollHeight - field.clientHeight") <= 1
    before = field.evaluate("field => field.clientHeight")
    assert before >= 6 * 20
    field.press("Shift+Enter")
    assert field.evaluate("field => field.clientHeight") > before
    assert field.evaluate("field => getComputedStyle(field).fieldSizing") == "fixed", "it needs no new CSS"
