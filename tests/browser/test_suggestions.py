"""Messages that an answer suggests to go on with: buttons below the last answer."""

from collections.abc import AsyncIterator

from tests.browser.chatting import ask, expect, wait_until_idle
from tests.browser.conftest import OpenPage, page_served
from usechat import Turn
from usechat.parts import Data, Part


async def guide(turn: Turn) -> AsyncIterator[str | Part]:
    yield f"You said: {turn.text}"
    if turn.text == "values":
        yield Data("suggestions", {"not": "a list of texts"})
    else:
        yield Data("suggestions", ["More", "🧭 The way | Show me the way"])


def test_a_suggestion_of_the_last_answer_sends_its_message(open_page: OpenPage) -> None:
    with page_served(guide) as served:
        page = open_page(f"http://127.0.0.1:{served.port}/chat/")
        ask(page, "hello")
        buttons = page.get_by_role("group", name="Suggestions").get_by_role("button")
        expect(buttons).to_have_text(["More", "🧭The way"])
        buttons.last.click()
        expect(page.get_by_text("You said: Show me the way")).to_be_visible()
        wait_until_idle(page)
        expect(buttons).to_have_count(2)
        page.reload()
        expect(buttons).to_have_count(2)


def test_data_of_that_name_that_is_no_list_of_texts_is_shown_as_data(open_page: OpenPage) -> None:
    with page_served(guide) as served:
        page = open_page(f"http://127.0.0.1:{served.port}/chat/")
        ask(page, "values")
        wait_until_idle(page)
        expect(page.get_by_role("button", name="Suggestions")).to_be_visible()
        expect(page.get_by_role("group", name="Suggestions")).to_have_count(0)
