"""What a person does on the page, and sees there."""

from typing import Any

from playwright.sync_api import Page, expect

__all__ = ["ask", "expect", "stored", "wait_until_idle"]

expect.set_options(timeout=30_000)


def ask(page: Page, text: str) -> None:
    """Type a message and press Enter."""
    page.fill("#prompt", text)
    page.press("#prompt", "Enter")


def wait_until_idle(page: Page) -> None:
    """Wait until the answer is complete: one can send again."""
    expect(page.get_by_role("button", name="Send")).to_be_visible()


def stored(page: Page) -> list[Any]:
    """Return the messages that the page keeps of its chat."""
    script = """() => {
        const id = new URLSearchParams(location.search).get("chat");
        return JSON.parse(localStorage.getItem(`usechat:${location.pathname}:${id}`) ?? '{"messages": []}').messages;
    }"""
    messages: list[Any] = page.evaluate(script)
    return messages
