"""A tool that asks first."""

import pytest

from tests.browser.chatting import ask, expect, wait_until_idle
from tests.browser.conftest import OpenPage


@pytest.mark.parametrize(
    ("button", "state", "answer"), [("Approve", "Done", "It is gone."), ("Deny", "Denied", "It stays.")]
)
def test_approval_and_denial(open_page: OpenPage, button: str, state: str, answer: str) -> None:
    page = open_page()
    ask(page, "approve this")
    expect(page.get_by_role("group", name="Allow: Delete file?")).to_be_visible()
    expect(page.get_by_role("group", name="Input", exact=True)).to_contain_text("notes.txt")
    page.get_by_role("button", name=button, exact=True).click()
    expect(page.get_by_role("button", name=f"Delete file {state}")).to_be_visible()
    expect(page.get_by_text(answer)).to_be_visible()
    wait_until_idle(page)
    expect(page.get_by_label("Assistant")).to_have_count(1)


def test_an_approval_that_was_passed_over_can_no_longer_be_given(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "approve this")
    expect(page.get_by_role("button", name="Approve", exact=True)).to_be_visible()
    ask(page, "hello there")
    wait_until_idle(page)
    expect(page.get_by_role("button", name="Delete file Not answered")).to_be_visible()
    expect(page.get_by_role("button", name="Approve", exact=True)).to_have_count(0)
