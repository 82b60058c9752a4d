"""A long answer is drawn bit by bit, and looks as if it had been read and drawn in one go."""

import re
import subprocess
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Error, Page

from tests.browser.chatting import ask, expect, go_on, stored, wait_until_idle, wait_until_stored
from tests.browser.chromium import NODE
from tests.browser.conftest import OpenPage
from tests.browser.markdown_texts import END, ODD

WHOLE: Final = Path(__file__).parent / "whole-markdown.mjs"
SHAPE: Final = """
    const shapeOf = (node) => {
        if (node.nodeType === Node.TEXT_NODE) return [node.nodeValue];
        if (node.nodeType !== Node.ELEMENT_NODE || node.matches(".screen-only")) return [];
        const tag = node.localName;
        if (node.matches(".katex, pre")) return [`<${tag}: ${node.textContent.trim()}>`];
        const inside = [...node.childNodes].flatMap(shapeOf);
        if (node.matches("div[class]")) return inside;
        const target = node.getAttribute("href") ?? "";
        const link = target.startsWith("#") ? target.replace(/.*(fn(ref)?-)/, "$1") : target && new URL(target).href;
        const facts = [link, node.checked, node.start > 1 && node.start].filter(Boolean);
        return [`<${[tag, ...facts].join(" ")}>`, ...inside, `</${tag}>`];
    };
    // What the browser shows: white space is one blank, and none at the edge of a block.
    const inOne = (shape) => shape.join("").replace(/\\s+/g, " ").replace(/ ?(<[^>]*>) ?/g, "$1")
        .replaceAll("</tbody><tbody>", ""); // the rows of a long table are in groups
    const shapeIn = (root) => inOne([...root.childNodes].flatMap(shapeOf));
"""
"""What an answer shows: its text and its elements, without those that the page draws around them."""


def shape_of_html(page: Page, text: str) -> str:
    """Return what a text in Markdown is, read in one go."""
    done = subprocess.run([NODE / "node", WHOLE], input=text, check=True, capture_output=True, text=True)
    html = re.sub(r' style="[^"]*"', "", done.stdout)  # the policy of the page forbids it
    shape: str = page.evaluate(
        f"(html) => {{ {SHAPE} return shapeIn(new DOMParser().parseFromString(html, 'text/html').body); }}", html
    )
    return shape


def expect_shape(page: Page, expected: str) -> None:
    """Wait until the last answer is drawn; say where it differs."""
    shape = f"() => {{ {SHAPE} return shapeIn([...document.querySelectorAll('.markdown')].at(-1)); }}"
    try:
        page.wait_for_function(f"(expected) => ({shape})() === expected", arg=expected, polling=300)
    except Error:
        actual = page.evaluate(shape)
        same = next((at for at, pair in enumerate(zip(actual, expected, strict=False)) if len({*pair}) > 1), 0)
        assert actual[max(0, same - 100) : same + 300] == expected[max(0, same - 100) : same + 300]
        raise


def wait_until_complete(page: Page) -> None:
    """Wait until the answer is complete and kept. A query by role or text would take long in so much of it."""
    complete = "() => document.querySelector('[role=log]').ariaBusy === 'false'"
    wait_until_stored(page, "user", "assistant")
    page.wait_for_function(complete, polling=300, timeout=120_000)
    page.evaluate("() => new Promise((done) => setTimeout(done, 200))")


def wait_until_drawn(page: Page) -> None:
    """Wait for the end of an odd answer."""
    has_end = "(end) => document.querySelector('.markdown')?.textContent.includes(end)"
    page.wait_for_function(has_end, arg=END.strip(), polling=300, timeout=120_000)
    wait_until_complete(page)


@pytest.mark.parametrize("question", [*(f"mixed {seed}" for seed in range(4)), "odd footnotes", "odd nested at once"])
def test_an_answer_looks_as_if_it_had_been_read_in_one_go(open_page: OpenPage, question: str) -> None:
    page = open_page()
    ask(page, question)
    wait_until_complete(page)
    text = stored(page)[-1]["parts"][-1]["text"]
    assert len(text) > 10_000
    expected = shape_of_html(page, text)
    expect_shape(page, expected)
    page.reload()
    expect_shape(page, expected)


@pytest.mark.parametrize("name", ["bold", "footnotes", "nested", "quote", "table"])
def test_while_an_answer_arrives_what_is_above_its_end_is_not_drawn_again(open_page: OpenPage, name: str) -> None:
    page = open_page()
    ask(page, f"odd {name} held")
    page.wait_for_function("() => document.querySelectorAll('.markdown *').length > 1500")
    page.evaluate("""() => {
        window.changes = 0;
        window.above = [...document.querySelectorAll(".markdown *")].slice(100, 1000).filter((one) => !one.contains(
            [...document.querySelectorAll(".markdown *")].at(-1)));
        const observer = new MutationObserver((all) => { window.changes += all.length; });
        for (const one of window.above) observer.observe(one, { childList: true, characterData: true, subtree: true });
    }""")
    go_on(page)
    wait_until_drawn(page)
    assert page.evaluate("window.above.filter((one) => one.isConnected).length") > 500
    assert page.evaluate("window.above.filter((one) => !one.isConnected).length + window.changes") == 0


@pytest.mark.parametrize("name", ["bold", "footnotes", "nested", "quote", "table"])
def test_an_answer_that_arrives_at_once_is_drawn_over_many_frames(open_page: OpenPage, name: str) -> None:
    page = open_page()
    page.evaluate("""() => {
        window.frames_ = [0];
        const count = () => { window.frames_.push(0); requestAnimationFrame(count); };
        count();
        const sizeOf = (one) => one.nodeType === Node.ELEMENT_NODE ? 1 + one.querySelectorAll("*").length : 0;
        new MutationObserver((all) => {
            const added = all.flatMap(({ addedNodes }) => [...addedNodes]);
            window.frames_[window.frames_.length - 1] += added.reduce((size, one) => size + sizeOf(one), 0);
        }).observe(document.querySelector("main"), { childList: true, subtree: true });
    }""")
    ask(page, f"odd {name} at once")
    wait_until_drawn(page)
    sizes = page.evaluate("window.frames_.filter(Boolean)")
    assert sum(sizes) > 2500
    assert max(sizes) < 1500


def test_all_that_was_said_is_drawn_if_the_reader_cannot_be_loaded(open_page: OpenPage) -> None:
    page = open_page()
    page.route("**/markdown-worker*", lambda route: route.abort())
    ask(page, "odd quote at once")
    wait_until_drawn(page)


def test_an_answer_that_is_stopped_in_its_middle_is_drawn_so_far(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "odd table held")
    page.wait_for_function("() => document.querySelectorAll('.markdown tr').length > 500")
    page.get_by_role("button", name="Stop").click()
    wait_until_idle(page)
    text = stored(page)[-1]["parts"][-1]["text"]
    assert text == ODD["table"][: len(ODD["table"]) // 2]
    expect_shape(page, shape_of_html(page, text))


def test_the_view_follows_an_answer_that_arrives_at_once(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "odd nested at once")
    page.get_by_role("button", name="Scroll to the end").click()
    expect(page.get_by_text(END.strip())).to_be_in_viewport(timeout=60_000)
