"""The drawer that shows every frame, and what the checker says."""

from tests.browser.chatting import ask, expect, wait_until_idle
from tests.browser.conftest import OpenPage


def test_every_frame_as_it_arrived(open_page: OpenPage) -> None:
    page = open_page()
    page.get_by_role("button", name="Inspector").click()
    ask(page, "tools please")
    expect(page.get_by_text("One tool worked")).to_be_visible()
    wait_until_idle(page)
    inspector = page.get_by_role("complementary", name="Inspector")
    for kind in ("start", "tool-input-available", "tool-output-error", "finish", "[DONE]"):
        expect(inspector.get_by_role("button", name=kind, exact=True).first).to_be_visible()
    inspector.get_by_label("Filter frames").fill("tool-output-error")
    inspector.get_by_role("button", name="tool-output-error").click()
    expect(inspector.get_by_label("Frame", exact=False).last).to_contain_text('"errorText": "Division by zero."')


def test_the_capture_is_copied_as_a_stream(open_page: OpenPage) -> None:
    page = open_page()
    page.get_by_role("button", name="Inspector").click()
    ask(page, "hello there")
    wait_until_idle(page)
    page.get_by_role("button", name="Copy as .sse").click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.endswith("data: [DONE]\n\n")
    assert '"delta":"You said: hello there"' in copied


def test_the_message_and_the_verdict(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "hello there")
    wait_until_idle(page)
    page.get_by_role("button", name="Inspector").click()
    inspector = page.get_by_role("complementary", name="Inspector")
    inspector.get_by_role("tab", name="Message").click()
    expect(inspector.get_by_label("Message", exact=True)).to_contain_text('"role": "assistant"')
    inspector.get_by_role("tab", name="Check").click()
    for major in (5, 6, 7):
        expect(inspector).to_contain_text(f"AI SDK {major}: accepted")
    expect(inspector).to_contain_text("No problems found.")
