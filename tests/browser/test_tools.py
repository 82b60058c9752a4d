"""Tool calls, approvals and data are shown in words."""

import re

import pytest

from tests.browser.agent import answer
from tests.browser.chatting import ask, expect, go_on, wait_until_idle
from tests.browser.conftest import OpenPage, page_served
from tests.browser.test_stored_chats import everyone_is_ada
from tests.genkit import scripted
from usechat.chats import MemoryChats
from usechat.genkit import GenkitChatTransport


def test_tools_that_run_at_once_are_one_line_that_says_what_runs(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "flights held")
    expect(page.get_by_role("button", name="Read the forecast… Running")).to_be_visible()
    go_on(page)
    wait_until_idle(page)
    expect(page.get_by_text("Running")).to_have_count(0)
    page.get_by_role("button", name=re.compile(r"^Used 2 tools [\d.]+ m?s$")).click()
    flights = page.get_by_role("button", name="Search flights Done From: BER · To: LIS · Is direct: Yes")
    expect(flights).to_be_visible()
    expect(page.get_by_role("button", name="Read the forecast Done City: Lisbon")).to_be_visible()
    expect(page.get_by_text("Done", exact=True).first).to_have_class("sr-only")
    flights.click()
    expect(page.get_by_role("group", name="Input value")).to_have_text("FromBERToLISIs directYes")
    expect(page.get_by_role("group", name="Output value").get_by_role("columnheader")).to_have_text(
        ["Flight number", "Price"]
    )


@pytest.mark.parametrize("width", [1280, 390])
def test_the_words_of_a_line_stand_on_one_baseline(open_page: OpenPage, width: int) -> None:
    page = open_page()
    page.set_viewport_size({"width": width, "height": 800})
    ask(page, "flights please")
    wait_until_idle(page)
    page.get_by_role("button", name="Used 2 tools").click()
    middles = page.locator(".tool button").first.evaluate(
        """line => [...line.querySelectorAll(":scope > span:not(.sr-only)")].filter((one) => one.textContent)
            .map((one) => { const box = one.getBoundingClientRect(); return (box.top + box.bottom) / 2; })"""
    )
    assert max(middles) - min(middles) <= 1


def test_an_approval_says_what_will_be_done_and_offers_nothing_else(open_page: OpenPage) -> None:
    with page_served(answer, chats=MemoryChats(), authorize=everyone_is_ada) as served:
        page = open_page(f"http://127.0.0.1:{served.port}/chat/")
        ask(page, "approve this")
        approval = page.get_by_role("group", name="Allow: Delete file?")
        expect(approval).to_contain_text("Delete file?")
        expect(approval.get_by_role("group", name="Input")).to_have_text("Pathnotes.txt")
        wait_until_idle(page)
        for name in ("Regenerate", "Good answer", "Bad answer"):
            expect(page.get_by_role("button", name=name)).to_have_count(0)
        approval.get_by_role("button", name="Approve").click()
        expect(page.get_by_text("It is gone.")).to_be_visible()
        for name in ("Regenerate", "Good answer", "Bad answer"):
            expect(page.get_by_role("button", name=name)).to_be_visible()


def test_a_form_has_its_question_as_heading_and_room_between_label_and_field(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "question form")
    form = page.get_by_role("form", name="Answer the question")
    expect(form.get_by_role("heading", name="Which table?")).to_be_visible()
    expect(form.get_by_role("button", name="Decline")).to_be_visible()
    gaps = form.locator("label[for]").evaluate_all(
        """all => all.map((label) => {
            const field = document.getElementById(label.htmlFor);
            return Math.round(field.getBoundingClientRect().top - label.getBoundingClientRect().bottom);
        })"""
    )
    assert set(gaps) == {6}
    select = form.get_by_label("Menu")
    assert select.evaluate("field => getComputedStyle(field).appearance") == "none"
    assert select.evaluate("field => getComputedStyle(field).backgroundImage").startswith("linear-gradient")


def test_each_speaker_is_named_above_what_it_says(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "team please")
    wait_until_idle(page)
    answer = page.get_by_label("Assistant")
    expect(answer.get_by_role("separator")).to_have_text(["Researcher", "Writer"])
    expect(answer.locator(".data")).to_have_count(0)
    words = answer.inner_text().split("\n")
    order = ["Researcher", "I have read it.", "Writer", "I write it down."]
    assert [word for word in words if word in order] == order


def test_data_has_a_title_words_and_a_colour_for_each_series(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "titled please")
    wait_until_idle(page)
    chart = page.locator("figure", has_text="Sold tickets")
    fills = chart.locator("rect").evaluate_all("all => [...new Set(all.map((one) => getComputedStyle(one).fill))]")
    assert len(fills) == 3
    week = page.get_by_role("figure", name="Week")
    expect(week.get_by_role("columnheader")).to_have_text(["Day", "Is open"])
    expect(week.get_by_role("cell")).to_have_text(["Monday", "Yes", "Sunday", "No"])
    expect(page.get_by_text("bars")).to_have_count(0)


def test_a_formula_between_single_dollars_is_drawn_and_a_price_is_not(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "dollars please")
    wait_until_idle(page)
    answer = page.get_by_label("Assistant")
    expect(answer.locator("annotation")).to_have_text(
        ["x", r"a_1 + b^2 = \frac{1}{2}", r"x_{max} < \text{the limit}", "E = mc^2"]
    )
    expect(answer.get_by_text("It costs $5 here and $6 there, or $7-$8, and $HOME is set.")).to_be_visible()
    names, prices = "$user_name$ or $API_KEY=abc$", "$10 (tip = 2) and 5$ more, or $5 < price <= 20$"
    expect(answer.get_by_text(f"Say {names}, pay {prices}, then kill $$ and echo $$.")).to_be_visible()
    expect(answer.locator("code")).to_have_text("$y$")


@pytest.mark.parametrize(
    ("tool", "title", "output"),
    [("delete", "Delete", "Rome is still there"), ("careless", "Careless", "Rome is gone")],
    ids=["one that tests approved", "one that only tests resumed"],
)
def test_what_a_denied_tool_of_genkit_returned_is_shown_and_not_that_it_has_run(
    open_page: OpenPage, tool: str, title: str, output: str
) -> None:
    """Nothing on the wire tells the two apart."""
    with page_served(GenkitChatTransport(scripted.stateless, interrupts="approval")) as served:
        page = open_page(f"http://127.0.0.1:{served.port}/chat/")
        ask(page, tool)
        page.get_by_role("button", name="Deny", exact=True).click()
        wait_until_idle(page)
        for group in page.get_by_role("button", name="Used 2 tools").all():
            group.click()
        expect(page.get_by_role("button", name=f"{title} Done")).to_have_count(0)
        expect(page.get_by_role("button", name=f"{title} Denied")).to_have_count(2)
        page.get_by_role("button", name=f"{title} Denied Returned an output").click()
        expect(page.get_by_role("group", name="Output value")).to_have_text(output)
        expect(page.get_by_text("only this says whether it did its work")).to_be_visible()


def test_outputs_of_genkit_that_only_their_order_tells_apart_are_marked(open_page: OpenPage) -> None:
    with page_served(GenkitChatTransport(scripted.stateless)) as served:
        page = open_page(f"http://127.0.0.1:{served.port}/chat/")
        ask(page, "weather")
        wait_until_idle(page)
        page.get_by_role("button", name="Used 2 tools").click()
        calls = page.get_by_role("button", name="Weather Done Matched by order")
        expect(calls).to_have_count(2)
        calls.first.click()
        expect(page.get_by_text("so the output may belong to another one of them.")).to_be_visible()
