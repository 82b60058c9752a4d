"""The drawer that shows every frame, and what the checker says."""

import re
from pathlib import Path

from playwright.sync_api import Page, Route

from tests.browser.agent import answer
from tests.browser.chatting import ask, clipboard, expect, expect_copied, stored, wait_until_idle
from tests.browser.conftest import OpenPage, page_served
from tests.conformance.served import eventually
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
    eventually(lambda: clipboard(page).endswith("data: [DONE]\n\n"), "the stream is copied")
    assert '"delta":"You said: hello there"' in clipboard(page)


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
    match = re.search(r"The page requested AI SDK (7\.[\d.]+),", inspector.inner_text())
    assert match is not None
    expect(inspector).to_contain_text(f"AI SDK {match[1]}: accepted")
    expect(inspector).not_to_contain_text("AI SDK 5: accepted")
    inspector.get_by_role("button", name="Would other releases accept it?").click()
    for major in (5, 6, 7):
        expect(inspector).to_contain_text(f"AI SDK {major}: accepted")


def add_a_comment(route: Route) -> None:
    response = route.fetch()
    route.fulfill(response=response, body=": no frame\n\n" + response.text())


def test_what_another_release_rejects_is_no_problem_of_the_one_that_was_asked_for(open_page: OpenPage) -> None:
    page = open_page()
    page.route("**/api/chat", add_a_comment)
    ask(page, "approve this")
    wait_until_idle(page)
    page.get_by_role("button", name="Inspector").click()
    inspector = page.get_by_role("complementary", name="Inspector")
    inspector.get_by_role("tab", name="Check").click()
    expect(inspector).to_contain_text("No problems found.")
    expect(inspector).not_to_contain_text("rejected")
    inspector.get_by_role("button", name="Would other releases accept it?").click()
    expect(inspector).to_contain_text("AI SDK 5: rejected")
    expect(inspector.get_by_role("listitem").first).to_contain_text(re.compile(r"^UC\d+ note frame \d+"))
    expect(inspector.locator(".text-bad")).to_have_count(0)
    frame = inspector.get_by_role("button", name=re.compile(r"^frame \d+$")).first
    number = frame.inner_text().removeprefix("frame ")
    frame.click()
    expect(inspector.get_by_label(f"Frame {number}", exact=True)).to_contain_text('"type": "tool-approval-request"')
    row = inspector.get_by_role("row").filter(has_text="tool-approval-request")
    expect(row.get_by_role("cell").first).to_have_text(number)
    page.get_by_role("button", name="Close inspector").click()
    expect(inspector).to_be_hidden()


def test_a_recording_is_saved_and_opened_and_usechat_check_reads_it(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_page()
    ask(page, "tools please")
    wait_until_idle(page)
    page.get_by_role("button", name="Inspector").click()
    path = save_recording(page, tmp_path)
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


def save_recording(page: Page, directory: Path) -> Path:
    """Save a recording with the inspector, which is open; return its path."""
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save a recording").click()
    path = directory / saved.value.suggested_filename
    saved.value.save_as(path)
    return path


def test_an_answer_that_was_stopped_is_left_in_the_recording_and_not_broken(
    open_page: OpenPage, tmp_path: Path
) -> None:
    page = open_page()
    page.route("**/api/chat/*/stop", lambda route: route.fulfill(status=404))  # an endpoint without that route
    page.get_by_role("button", name="Inspector").click()
    ask(page, "think hard, held")
    expect(page.get_by_text("Let me think about that.")).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    wait_until_idle(page)
    inspector = page.get_by_role("complementary", name="Inspector")
    expect(inspector).to_contain_text("then the page stopped reading")
    path = save_recording(page, tmp_path)
    assert [exchange.end for exchange in StreamRecording.read(path).questions] == ["left"]
    assert main(["check", str(path), "--sdk", "7"]) == 0
    inspector.get_by_role("tab", name="Check").click()
    expect(inspector).to_contain_text("The page stopped reading before the end of the answer, so it is not checked.")


def test_the_body_of_a_refusal_is_shown_and_recorded(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_page()
    page.route(
        "**/api/chat", lambda route: route.fulfill(status=429, body="Too many.\n\nWait.", content_type="text/plain")
    )
    page.get_by_role("button", name="Inspector").click()
    ask(page, "hello there")
    inspector = page.get_by_role("complementary", name="Inspector")
    expect(inspector.get_by_label("Refusal")).to_have_text("Too many.\n\nWait.")
    path = save_recording(page, tmp_path)
    [refused] = StreamRecording.read(path).questions
    assert (refused.status, refused.content, refused.end) == (429, b"Too many.\n\nWait.", "complete")
    assert refused.message() == (None, "Too many.\n\nWait.")
    page.get_by_role("button", name="New chat").click()
    page.get_by_label("Recording", exact=True).set_input_files(path)
    expect(inspector.get_by_label("Refusal")).to_have_text("Too many.\n\nWait.")
    inspector.get_by_role("tab", name="Check").click()
    expect(inspector).to_contain_text("The request was refused with status 429; there is no stream to check.")


def test_a_frame_that_is_cut_off_is_shown_and_recorded(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_page()
    body = 'data: {"type":"start"}\n\ndata: {"type":"text-st'
    page.route("**/api/chat", lambda route: route.fulfill(body=body, content_type="text/event-stream"))
    page.get_by_role("button", name="Inspector").click()
    ask(page, "hello there")
    inspector = page.get_by_role("complementary", name="Inspector")
    requests = inspector.get_by_label("Request", exact=True)
    expect(requests).to_contain_text("POST")
    requests.select_option(index=0)  # not those by which the page looks for the rest
    expect(inspector.get_by_label("Incomplete frame")).to_have_text('data: {"type":"text-st')
    path = save_recording(page, tmp_path)
    assert StreamRecording.read(path).questions[0].content == body.encode()
    page.get_by_role("button", name="Copy as .sse").click()
    expect_copied(page, body)


def test_a_file_that_is_no_recording_is_refused_in_a_sentence(open_page: OpenPage) -> None:
    page = open_page()
    page.get_by_role("button", name="Inspector").click()
    file = {
        "name": "a.jsonl",
        "mimeType": "application/jsonl",
        "buffer": b'{"usechat": "recording", "version": 1}\n{}\n',
    }
    page.get_by_label("Recording", exact=True).set_input_files(file)  # type: ignore[arg-type]
    expect(page.get_by_role("alert")).to_contain_text(
        "This is not a recording: line 2: exchange undefined has no request"
    )


def test_users_have_no_inspector(open_page: OpenPage) -> None:
    with page_served(answer, look={"inspector": False}) as served:
        page = open_page(f"http://127.0.0.1:{served.port}/chat/")
        ask(page, "hello there")
        wait_until_idle(page)
        expect(page.get_by_role("button", name="Inspector")).to_have_count(0)
        page.get_by_role("button", name="Commands").click()
        expect(page.get_by_role("dialog")).to_contain_text("Keyboard shortcuts")
        expect(page.get_by_role("dialog")).not_to_contain_text("inspector")
