"""Chats that the server stores: another browser shows them, and earlier versions stay within reach."""

import asyncio
import base64
import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.agent import answer
from tests.browser.chatting import ask, delete_chat, expect, go_on, sign_in, wait_until_idle
from tests.browser.conftest import OpenPage, page_served
from tests.conformance.served import eventually
from usechat.chats import MemoryChats
from usechat.errors import Unauthenticated
from usechat.turn import Identity


async def everyone_is_ada(_request: Any, _chat_id: str, _action: Any) -> Identity:
    return Identity("ada")


@pytest.fixture(scope="module")
def chats() -> MemoryChats:
    return MemoryChats()


@pytest.fixture(scope="module")
def address(chats: MemoryChats) -> Iterator[str]:
    with page_served(answer, chats=chats, authorize=everyone_is_ada) as served:
        yield f"http://127.0.0.1:{served.port}/chat/"


@pytest.fixture
def elsewhere(chromium: Browser) -> Iterator[Page]:
    """A page in another browser, which has kept nothing."""
    context = chromium.new_context(viewport={"width": 1280, "height": 860})
    yield context.new_page()
    context.close()


class SlowChats(MemoryChats):
    """Chats whose answers are stored a second after their last chunk, as under load."""

    async def finish(self, *arguments: Any, **options: Any) -> Any:
        await asyncio.sleep(1)
        return await super().finish(*arguments, **options)


def test_the_versions_of_an_answer_that_failed_are_there_once_it_is_stored(open_page: OpenPage) -> None:
    with page_served(answer, chats=SlowChats(), authorize=everyone_is_ada) as served:
        page = open_page(f"http://127.0.0.1:{served.port}/chat/")
        ask(page, "fail please")
        expect(page.get_by_role("alert")).to_be_visible()
        wait_until_idle(page)
        page.get_by_role("button", name="Regenerate").click()
        expect(page.get_by_role("group", name="Versions")).to_contain_text("2/2")


def test_another_browser_shows_the_chat_and_goes_on_with_it(open_page: OpenPage, address: str, elsewhere: Page) -> None:
    page = open_page(address)
    ask(page, "count elsewhere, held")
    expect(page.get_by_text("number-10 ")).to_be_visible()
    elsewhere.goto(address)
    elsewhere.get_by_role("button", name="count elsewhere, held", exact=True).click()
    expect(elsewhere.get_by_text("number-20 ")).to_be_visible()
    go_on(page)
    expect(elsewhere.get_by_text("end-of-count")).to_be_visible()
    wait_until_idle(elsewhere)
    ask(elsewhere, "hello from there")
    expect(elsewhere.get_by_text("You said: hello from there")).to_be_visible()
    wait_until_idle(elsewhere)
    page.reload()
    expect(page.get_by_text("You said: hello from there")).to_be_visible()


def test_a_chat_that_the_page_has_made_is_asked_for_when_it_is_shown_again(
    open_page: OpenPage, address: str, elsewhere: Page
) -> None:
    page = open_page(address)
    refused: list[str] = []
    page.on("response", lambda response: refused.append(response.url) if response.status >= 400 else None)
    page.goto(address)
    ask(page, "hello there")
    wait_until_idle(page)
    page.get_by_role("button", name="New chat").click()
    elsewhere.goto(page.url)
    ask(elsewhere, "written elsewhere")
    wait_until_idle(elsewhere)
    page.get_by_role("button", name="New chat").click()
    page.get_by_role("button", name="written elsewhere", exact=True).click()
    expect(page.get_by_text("You said: written elsewhere")).to_be_visible()
    assert refused == [], "the server is not asked for a chat that it cannot have"


def test_an_edit_and_a_regenerated_answer_keep_the_earlier_versions(open_page: OpenPage, address: str) -> None:
    page = open_page(address)
    ask(page, "first version")
    wait_until_idle(page)
    page.get_by_role("button", name="Edit").click()
    page.get_by_label("Edit message").fill("second version")
    page.get_by_label("Edit message").press("Enter")
    expect(page.get_by_label("Assistant")).to_contain_text("You said: second version")
    wait_until_idle(page)
    versions = page.get_by_label("You", exact=True).get_by_role("group", name="Versions")
    expect(versions).to_contain_text("2/2")
    versions.get_by_role("button", name="Earlier version").click()
    expect(page.get_by_label("Assistant")).to_contain_text("You said: first version")
    expect(versions).to_contain_text("1/2")
    page.get_by_role("button", name="Regenerate").click()
    of_answer = page.get_by_label("Assistant").get_by_role("group", name="Versions")
    expect(of_answer).to_contain_text("2/2")
    page.reload()
    expect(of_answer).to_contain_text("2/2")
    expect(versions).to_contain_text("1/2")


def test_a_rating_is_stored_with_the_message(open_page: OpenPage, address: str) -> None:
    page = open_page(address)
    ask(page, "rate me")
    wait_until_idle(page)
    good = page.get_by_role("button", name="Good answer")
    with page.expect_response(lambda response: response.url.endswith("/feedback")) as stored:
        good.click()
    assert stored.value.status == 204
    expect(good).to_have_attribute("aria-pressed", "true")
    page.reload()
    expect(good).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_role("button", name="Bad answer")).to_have_attribute("aria-pressed", "false")


def test_a_title_and_a_deletion_reach_the_server(open_page: OpenPage, address: str, elsewhere: Page) -> None:
    page = open_page(address)
    ask(page, "call me something")
    wait_until_idle(page)
    page.get_by_role("button", name="call me something", exact=True).hover()
    page.get_by_role("button", name="Options of call me something").click()
    page.get_by_role("menuitem", name="Rename").click()
    with page.expect_response(lambda response: response.request.method == "PATCH"):
        page.get_by_label("Title").fill("Something else")
        page.get_by_label("Title").press("Enter")
    elsewhere.goto(address)
    there = elsewhere.get_by_role("navigation", name="Chats")
    expect(there).to_contain_text("Something else")
    delete_chat(page, "Something else")
    page.goto("about:blank")  # leaving the page ends the time for an undo

    def is_gone() -> bool:
        elsewhere.reload()
        elsewhere.wait_for_selector("#prompt")
        return "Something else" not in there.inner_text()

    eventually(is_gone, "the server has deleted the chat")


def test_a_search_finds_what_was_said(open_page: OpenPage, address: str) -> None:
    page = open_page(address)
    ask(page, "tools for the quadrant")
    wait_until_idle(page)
    page.get_by_label("Search chats").fill("quadrant")
    expect(
        page.get_by_role("navigation", name="Chats").get_by_role("button", name="tools for the quadrant", exact=True)
    ).to_be_visible()
    page.get_by_label("Search chats").fill("no such words")
    expect(page.get_by_text("No matching chats.")).to_be_visible()


async def ada_with_a_token(request: Any, _chat_id: str, _action: Any) -> Identity:
    if request.headers.get("authorization") != "Bearer secret":
        raise Unauthenticated("A bearer token is needed.")
    return Identity("ada")


def test_stored_images_are_shown_where_a_token_is_needed(open_page: OpenPage) -> None:
    """A picture of 40 kB is stored beside its message, at an address of the server that needs the token."""
    with page_served(answer, chats=MemoryChats(), authorize=ada_with_a_token, auth=True) as served:
        page = open_page(f"http://127.0.0.1:{served.port}/chat/", shows="form")
        sign_in(page, "secret")
        picture = page.evaluate("""() => {
            const canvas = Object.assign(document.createElement("canvas"), { width: 120, height: 120 });
            const drawn = canvas.getContext("2d");
            const noise = drawn.createImageData(120, 120);
            crypto.getRandomValues(noise.data);
            drawn.putImageData(noise, 0, 0);
            return canvas.toDataURL().split(",")[1];
        }""")
        page.locator("input[type=file]").set_input_files(
            {"name": "noise.png", "mimeType": "image/png", "buffer": base64.b64decode(picture)}
        )
        ask(page, "look at this")
        wait_until_idle(page)
        page.reload()
        image = page.get_by_role("img", name="noise.png")
        expect(image).to_have_attribute("src", re.compile("^blob:"))
        page.wait_for_function("document.querySelector('img[alt=\"noise.png\"]').naturalWidth === 120")
