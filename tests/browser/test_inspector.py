"""The drawer that shows every frame, and what the checker says."""

import re
from pathlib import Path

from tests.browser.chatting import ask, expect, stored, wait_until_idle
from tests.browser.conftest import OpenPage
from usechat.cli import main
from usechat.client.recording import StreamRecording


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
    expect(inspector).to_contain_text("No problems found.")
    asked = re.search(r"The page asked for AI SDK (7\.[\d.]+):", inspector.inner_text())
    assert asked is not None
    expect(inspector).to_contain_text(f"AI SDK {asked[1]}: accepted")
    expect(inspector).not_to_contain_text("AI SDK 5: accepted")
    inspector.get_by_role("button", name="Would other releases accept it?").click()
    for major in (5, 6, 7):
        expect(inspector).to_contain_text(f"AI SDK {major}: accepted")


def test_what_another_release_rejects_is_no_problem_of_the_one_that_was_asked_for(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "approve this")
    wait_until_idle(page)
    page.get_by_role("button", name="Inspector").click()
    inspector = page.get_by_role("complementary", name="Inspector")
    inspector.get_by_role("tab", name="Check").click()
    expect(inspector).to_contain_text("No problems found.")
    expect(inspector).not_to_contain_text("rejected")
    inspector.get_by_role("button", name="Would other releases accept it?").click()
    expect(inspector).to_contain_text("AI SDK 5: rejected")
    inspector.get_by_role("button", name=re.compile(r"^frame \d+$")).first.click()
    shown = inspector.get_by_label(re.compile(r"^Frame \d+$"))
    expect(shown).to_contain_text('"type": "tool-approval-request"')


def test_a_recording_is_saved_and_opened_and_usechat_check_reads_it(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_page()
    ask(page, "tools please")
    wait_until_idle(page)
    page.get_by_role("button", name="Inspector").click()
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save a recording").click()
    path = tmp_path / saved.value.suggested_filename
    saved.value.save_as(path)
    assert path.name.endswith(".usechat.jsonl")
    recording = StreamRecording.read(path)
    message, error = recording.questions[0].message()
    assert message is not None, error
    assert message["parts"] == stored(page)[-1]["parts"]
    assert main(["check", str(path)]) == 0
    page.get_by_role("button", name="New chat").click()
    page.get_by_label("Recording", exact=True).set_input_files(path)
    inspector = page.get_by_role("complementary", name="Inspector")
    expect(inspector).to_contain_text("Recording: chat.usechat.jsonl")
    expect(inspector.get_by_role("button", name="tool-output-error")).to_be_visible()
    inspector.get_by_role("tab", name="Message").click()
    expect(inspector.get_by_label("Message", exact=True)).to_contain_text('"errorText": "Division by zero."')


def test_a_file_that_is_no_recording_is_refused_in_a_sentence(open_page: OpenPage) -> None:
    page = open_page()
    page.get_by_role("button", name="Inspector").click()
    broken = {
        "name": "a.jsonl",
        "mimeType": "application/jsonl",
        "buffer": b'{"usechat": "recording", "version": 1}\n{}\n',
    }
    page.get_by_label("Recording", exact=True).set_input_files(broken)  # type: ignore[arg-type]
    expect(page.get_by_role("alert")).to_contain_text("This is no recording: line 2: exchange undefined has no request")
