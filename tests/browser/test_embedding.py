"""The page behind a button in a page of another origin, which hands over the token of its user."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, FrameLocator, Page, Request
from starlette.responses import HTMLResponse

from tests.browser.agent import answer
from tests.browser.chatting import expect
from tests.browser.conftest import page_served
from tests.browser.test_access import serious_findings
from tests.browser.test_sign_in import TOKEN, Doorkeeper
from tests.conformance.served import serving

HEAD = "<!doctype html><html lang='en'><title>A shop</title><h1>Shoes</h1>"


class Shop:
    """A site with the widget, and what the visitor's token is; at ``frame`` it shows the page in a frame of its own."""

    def __init__(self) -> None:
        self.url = ""
        self.chat = ""
        self.tokens = [TOKEN]
        self.door = Doorkeeper()
        self.asked = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"].endswith("/token"):
            self.asked += 1
            response = HTMLResponse(self.tokens[min(self.asked, len(self.tokens)) - 1])
        elif scope["path"].endswith("/frame"):
            response = HTMLResponse(f"{HEAD}<iframe src='{self.chat}'></iframe>")
        else:
            token = '<script>usechatToken = async () => (await fetch("token")).text()</script>'
            script = f'<script src="{self.chat}widget.js" data-label="Ask us" async></script>'
            # What a site of some age allows: its own scripts, and those of the chat.
            policy = f"script-src 'unsafe-inline' {self.chat}; style-src 'self'"
            response = HTMLResponse(HEAD + token + script, headers={"content-security-policy": policy})
        await response(scope, receive, send)


@pytest.fixture
def shop() -> Iterator[Shop]:
    shop = Shop()
    with serving({"shop": shop}) as site:
        shop.url = f"http://127.0.0.1:{site.port}/shop/"
        look = {"embed": (f"http://127.0.0.1:{site.port}",)}
        with page_served(answer, auth=True, authorize=shop.door, look=look) as served:
            shop.chat = f"http://localhost:{served.port}/chat/"
            yield shop


@pytest.fixture
def page(context: BrowserContext) -> Page:
    return context.new_page()


def chat_in(page: Page) -> FrameLocator:
    """Open the chat of a site."""
    page.get_by_role("button", name="Ask us").click()
    return page.frame_locator("iframe")


def ask_in(chat: FrameLocator, text: str) -> None:
    chat.locator("#prompt").fill(text)
    chat.locator("#prompt").press("Enter")


def test_the_widget_opens_the_chat_and_signs_in_with_the_token_of_the_site(page: Page, shop: Shop) -> None:
    page.goto(shop.url)
    assert page.locator("iframe").count() == 0, "nothing is loaded before it is needed"
    chat = chat_in(page)
    ask_in(chat, "hello there")
    expect(chat.get_by_label("Assistant")).to_contain_text("hello there")
    assert chat.locator("body").evaluate("JSON.stringify({...sessionStorage}).includes('a-token')") is False
    expect(chat.get_by_role("button", name="Inspector")).to_have_count(0)
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Ask us").click()
    expect(page.locator("iframe")).to_be_hidden()
    page.get_by_role("button", name="Ask us").click()
    expect(chat.get_by_label("Assistant")).to_contain_text("hello there")
    assert shop.asked == 1
    assert serious_findings(page) == []


@pytest.mark.parametrize("viewport", [(1440, 900), (390, 844)], ids=["desktop", "phone"])
def test_the_chat_fits_beside_its_button(page: Page, shop: Shop, viewport: tuple[int, int]) -> None:
    page.set_viewport_size({"width": viewport[0], "height": viewport[1]})
    page.goto(shop.url)
    expect(chat_in(page).locator("#prompt")).to_be_visible()
    expect(page.locator("iframe")).to_be_in_viewport(ratio=1)
    expect(page.get_by_role("button", name="Ask us")).to_be_in_viewport(ratio=1)


def test_a_token_that_has_expired_is_replaced_and_the_message_sent(page: Page, shop: Shop) -> None:
    shop.tokens = [TOKEN, "another"]
    page.goto(shop.url)
    chat = chat_in(page)
    ask_in(chat, "hello there")
    expect(chat.get_by_label("Assistant")).to_contain_text("hello there")
    expect(chat.get_by_role("button", name="Send")).to_be_visible()
    shop.door.has_expired = True
    ask_in(chat, "hello again")
    expect(chat.get_by_label("Assistant").last).to_contain_text("hello again")
    assert shop.asked == 2


def test_a_site_without_a_token_shows_the_sign_in(page: Page, shop: Shop) -> None:
    page.goto(shop.url)
    page.evaluate("usechatToken = undefined")
    expect(chat_in(page).get_by_label("Access token")).to_be_visible()


def test_no_other_origin_can_show_the_page_in_a_frame(page: Page, shop: Shop) -> None:
    refused: list[str] = []
    page.on("console", lambda message: refused.append(message.text))
    page.goto(shop.url.replace("127.0.0.1", "localhost") + "frame")
    page.wait_for_load_state("networkidle")
    assert any("frame-ancestors" in text for text in refused)
    expect(page.frame_locator("iframe").locator("#prompt")).to_have_count(0)


def test_no_other_window_can_hand_over_a_token_or_hear_that_one_is_wanted(page: Page, shop: Shop) -> None:
    """The frame of a site is reached by every window that has the site's: only the page around it is believed."""
    sent: list[str] = []
    page.context.on("request", lambda request: sent.append(_token_of(request)))
    shop.tokens = [""]
    page.goto(shop.url)
    chat = chat_in(page)
    expect(chat.get_by_label("Access token")).to_be_visible()
    hostile = shop.url.replace("127.0.0.1", "localhost")
    with page.expect_popup() as popup:
        page.evaluate("(url) => void open(url)", hostile)
    heard = popup.value
    heard.evaluate("""() => {
        window.heard = [];
        addEventListener("message", ({ data }) => heard.push(data));
        const frames = [opener, ...Array.from({ length: opener.length }, (_, index) => opener[index])];
        for (const each of frames) each.postMessage({ usechat: "token", token: "stolen" }, "*");
        for (const each of frames) each.postMessage({ usechat: "wants-token" }, "*");
    }""")
    chat.get_by_label("Access token").fill("typed")
    chat.get_by_role("button", name="Sign in").click()
    expect(chat.get_by_role("alert")).to_be_visible()
    assert "typed" in sent
    assert "stolen" not in sent
    assert heard.evaluate("heard") == []
    assert shop.asked == 1


def _token_of(request: Request) -> str:
    return request.headers.get("authorization", "").removeprefix("Bearer ")
