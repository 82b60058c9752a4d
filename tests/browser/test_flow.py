"""The flow beside the chat, drawn from message parts alone."""

import re
from typing import Literal

import pytest

from tests.browser.chatting import ask, expect, go_on, wait_until_idle
from tests.browser.conftest import OpenPage


def test_three_nodes_with_dividers_in_order(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "flow please")
    expect(page.get_by_text("Words of write")).to_be_visible()
    wait_until_idle(page)
    assert page.get_by_label("Assistant").get_by_role("separator").all_inner_texts() == ["Plan", "Research", "Write"]


def test_the_diagram_shows_nodes_states_and_durations(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "flow please, held")
    flow = page.get_by_role("complementary", name="Flow")
    expect(flow.locator(".node.running")).to_have_count(1)
    go_on(page)
    expect(flow).to_contain_text("Three nodes complete")
    expect(flow.locator(".node.done")).to_have_count(3)
    expect(flow.locator(".edge.fired")).to_have_count(2)
    expect(flow.locator(".edge.loop")).to_have_count(1)
    assert flow.locator(".node-label").all_text_contents() == ["Plan", "Research", "Write"]
    expect(flow.locator(".node-detail").first).to_have_text("done · 150 ms")
    page.reload()
    expect(flow).to_contain_text("Three nodes complete")


def test_thirty_nodes_beside_and_below_each_other_and_one_that_failed(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "parallel please")
    flow = page.get_by_role("complementary", name="Flow")
    expect(flow).to_contain_text("Thirty nodes failed")
    expect(flow.locator(".node.complete")).to_have_count(29)
    expect(flow.locator(".node.failed")).to_have_count(1)
    expect(flow.locator(".edge.fired")).to_have_count(42)
    expect(page.get_by_role("alert")).to_contain_text("The last node failed.")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.get_by_role("button", name="Flow", exact=True).click()
    expect(flow).to_be_hidden()


def test_each_layer_of_the_diagram_stands_in_the_middle(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "parallel please")
    expect(page.locator(".node rect")).to_have_count(30)
    middles = page.locator(".node rect").evaluate_all(
        "all => all.map(({ x, width }) => x.baseVal.value + width.baseVal.value / 2)"
    )
    assert middles[0] == middles[-1] == (middles[1] + middles[14]) / 2


def test_a_node_whose_first_part_is_a_tool_has_its_divider_before_it(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "parallel please")
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.get_by_label("Assistant").get_by_role("separator")).to_have_count(30)
    text = page.get_by_label("Assistant").inner_text()
    assert re.findall(r"^(Plan|Search \d+|Look|For: [\w-]+|Words of [\w-]+)", text, re.MULTILINE)[:8] == [
        *("Plan", "Look", "For: plan", "Words of plan"),  # the name of the tool, and what it looks for
        *("Search 0", "Look", "For: search-0", "Words of search-0"),
    ]


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_the_diagram_follows_the_node_that_runs(
    open_page: OpenPage, motion: Literal["no-preference", "reduce"]
) -> None:
    page = open_page()
    page.emulate_media(reduced_motion=motion)
    ask(page, "chain held")
    nodes = page.get_by_role("complementary", name="Flow").locator(".node")
    expect(nodes).to_have_count(20)
    expect(nodes.last).to_be_in_viewport()
    expect(nodes.first).not_to_be_in_viewport()
    go_on(page)
    wait_until_idle(page)


def test_the_edge_of_the_flow_is_dragged_and_stays_there(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "flow please")
    wait_until_idle(page)
    flow = page.get_by_role("complementary", name="Flow")
    edge = page.get_by_role("separator", name="Width of Flow")
    box = edge.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] / 2, 400)
    page.mouse.down()
    page.mouse.move(1280 - 500, 400, steps=4)
    page.mouse.up()
    expect(edge).to_have_attribute("aria-valuenow", "500")
    assert flow.evaluate("panel => panel.clientWidth") in (499, 500)
    page.reload()
    expect(edge).to_have_attribute("aria-valuenow", "500")


@pytest.mark.parametrize(("width", "is_open"), [(1280, True), (1279, False)])
def test_the_flow_opens_by_itself_where_there_is_room(open_page: OpenPage, width: int, is_open: bool) -> None:
    page = open_page()
    page.set_viewport_size({"width": width, "height": 860})
    page.reload()
    ask(page, "flow please")
    wait_until_idle(page)
    expect(page.get_by_role("button", name="Flow", exact=True)).to_have_attribute("aria-pressed", str(is_open).lower())
    expect(page.get_by_role("complementary", name="Flow")).to_have_count(int(is_open))
