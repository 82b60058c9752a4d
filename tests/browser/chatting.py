"""What a person does on the page, and sees there."""

import json
from typing import Any

from playwright.sync_api import FilePayload, Page, Route, expect

from tests.browser.agent import open_gates
from tests.conformance.served import eventually

__all__ = [
    "ask",
    "chat_id",
    "clipboard",
    "delete_chat",
    "expect",
    "expect_copied",
    "go_on",
    "hold_the_next",
    "settle",
    "sign_in",
    "stored",
    "text_file",
    "wait_for_limits",
    "wait_until_idle",
    "wait_until_stored",
]

expect.set_options(timeout=30_000)

KEPT = """() => {
    const id = new URLSearchParams(location.search).get("chat");
    const key = Object.keys(localStorage).find((each) => each.endsWith(`:${id}`) && !each.includes(":draft:"));
    return JSON.parse(localStorage.getItem(key) ?? '{"messages": []}').messages;
}"""


def ask(page: Page, text: str) -> None:
    """Type a message, press Enter, and see that it is sent: before that, the page is still idle."""
    page.fill("#prompt", text)
    page.press("#prompt", "Enter")
    expect(page.get_by_label("You", exact=True).last).to_contain_text(text)


def sign_in(page: Page, token: str) -> None:
    """Give the page the token that it asks for, and see the chat."""
    page.get_by_label("Access token").fill(token)
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("#prompt")).to_be_focused()


def wait_until_idle(page: Page) -> None:
    """Wait until the answer is complete, shown and kept: one can send again.

    The page shows what the hook has every 50 ms and keeps it after that. Its timers fire in their order.
    """
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    settle(page)


def settle(page: Page) -> None:
    """Let the timers of the page run: what a dialog shows is visible before it hears a tap beside it."""
    for _ in range(2):
        page.evaluate("() => new Promise((done) => setTimeout(done, 100))")


def wait_for_limits(page: Page) -> None:
    """Wait until the page knows what the server takes: before that, it attaches files of any size."""
    page.wait_for_function("""() => ["/agents", "/limits"].every((path) =>
        performance.getEntriesByType("resource").some(({ name }) => name.endsWith(path))
    )""")
    settle(page)


def chat_id(page: Page) -> str:
    """Return the id of the chat that is looked at."""
    return page.url.partition("chat=")[2]


def go_on(page: Page) -> None:
    """Let the held answer of this chat go on to its end."""
    open_gates(chat_id(page))


def hold_the_next(page: Page, url: str) -> list[Route]:
    """Hold the next request to an address; it is in the list once it was made."""
    routes: list[Route] = []

    def hold(route: Route) -> None:
        if routes:
            route.fallback()
        else:
            routes.append(route)

    page.route(url, hold)  # with `times=1` the last handler that expires lets go what others hold
    return routes


def expect_copied(page: Page, text: str) -> None:
    """Wait until the clipboard has this text. `wait_for_function` does not wait for what a promise gives."""
    eventually(lambda: clipboard(page) == text, f"copied: {text}")


def clipboard(page: Page) -> str:
    """Return the text in the clipboard, which may be there a moment after what copies it was pressed."""
    text: str = page.evaluate("navigator.clipboard.readText()")
    return text


def text_file(name: str, size: int = 1) -> FilePayload:
    """Return a file to choose."""
    return {"name": name, "mimeType": "text/plain", "buffer": b"x" * size}


def delete_chat(page: Page, title: str) -> None:
    """Delete a chat with the menu of its entry in the list."""
    page.get_by_role("button", name=title, exact=True).hover()
    page.get_by_role("button", name=f"Options of {title}").click()
    page.get_by_role("menuitem", name="Delete").click()


def stored(page: Page) -> list[Any]:
    """Return the messages that the page keeps of its chat."""
    messages: list[Any] = page.evaluate(KEPT)
    return messages


def wait_until_stored(page: Page, *roles: str) -> None:
    """Wait until the page keeps messages of these roles, in this order."""
    has_them = f"JSON.stringify(({KEPT})().map((message) => message.role)) === JSON.stringify({json.dumps(roles)})"
    page.wait_for_function(f"() => {has_them}")
