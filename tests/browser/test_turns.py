"""What a newcomer sees first: a message goes out, an answer streams in, and it looks right."""

import re
from base64 import b64decode
from pathlib import Path

import pytest
from playwright.sync_api import Route

from tests.browser.agent import PICTURE
from tests.browser.chatting import (
    ask,
    delete_chat,
    expect,
    go_on,
    stored,
    text_file,
    wait_for_limits,
    wait_until_idle,
    wait_until_stored,
)
from tests.browser.conftest import OpenPage
from tests.conformance.served import eventually


def test_a_plain_turn(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "hello there")
    expect(page.get_by_label("Assistant")).to_contain_text("You said: hello there")
    wait_until_idle(page)
    expect(page.get_by_role("navigation", name="Chats")).to_contain_text("hello there")
    wait_until_stored(page, "user", "assistant")


def test_a_suggestion_is_asked_by_a_click(open_page: OpenPage) -> None:
    page = open_page()
    page.get_by_role("button", name="hello there").click()
    expect(page.get_by_label("Assistant")).to_contain_text("You said: hello there")


def test_markdown_with_code_and_a_table(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "markdown")
    answer = page.get_by_label("Assistant")
    expect(answer.get_by_role("heading", name="A title")).to_be_visible()
    expect(answer.get_by_role("cell", name="2")).to_be_visible()
    expect(answer).to_contain_text("It costs $5 here and $6 there.")  # a dollar begins no formula
    expect(answer.locator("pre")).to_contain_text("return 2 * number")
    assert answer.locator("pre code > span").count() == 2, "each line of code is a line"


def test_thoughts_fold_when_they_are_done(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "think hard, held")
    expect(page.get_by_text("Let me think about that.")).to_be_visible()
    go_on(page)
    expect(page.get_by_text("I have thought.")).to_be_visible()
    expect(page.get_by_text("Let me think about that.")).to_be_hidden()
    page.get_by_role("button", name="Thought for").click()
    expect(page.get_by_text("Let me think about that.")).to_be_visible()


def test_a_tool_call_and_a_failed_one(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "tools please")
    expect(page.get_by_text("One tool worked, one did not.")).to_be_visible()
    expect(page.get_by_role("button", name="Search")).to_have_count(0)
    page.get_by_role("button", name=re.compile(r"^Used 2 tools 1 failed [\d.]+ m?s$")).click()
    expect(page.get_by_role("button", name="Search Done Query: usechat")).to_be_visible()
    expect(page.get_by_role("button", name="Divide Failed")).to_be_visible()
    expect(page.get_by_text("Division by zero.")).to_be_visible()
    page.get_by_role("button", name="Search Done").click()
    expect(page.get_by_role("group", name="Output", exact=True)).to_contain_text("Found3")


def test_a_tool_of_the_page_runs_and_its_output_is_sent(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "clock please")
    zone = page.evaluate("Intl.DateTimeFormat().resolvedOptions().timeZone")
    expect(page.get_by_text(f"Your zone is {zone}.")).to_be_visible()
    wait_until_idle(page)
    expect(page.get_by_label("Assistant")).to_have_count(1)


def test_sources_pictures_and_data(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "sources")
    expect(page.get_by_role("link", name="The page")).to_have_attribute("href", "https://example.org/page")
    expect(page.get_by_role("img", name="GIF image")).to_be_visible()
    page.get_by_role("button", name="weather").click()
    expect(page.get_by_role("group", name="Weather")).to_contain_text("Lisbon")


def test_tokens_and_duration_are_under_the_answer(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "usage please")
    expect(page.get_by_label("Assistant")).to_contain_text("1,234 tokens · 2.5 s")


def test_attached_files_reach_the_agent(open_page: OpenPage) -> None:
    page = open_page()
    attached = [{"name": "notes.txt", "mimeType": "text/plain", "buffer": b"some notes"}]
    page.set_input_files("input[type=file]", attached)  # type: ignore[arg-type]
    expect(page.get_by_role("list", name="Attached files")).to_contain_text("notes.txt")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_label("Assistant")).to_contain_text("Files: notes.txt (text/plain)")


def test_a_file_that_is_attached_after_typing_is_sent(open_page: OpenPage) -> None:
    page = open_page()
    page.locator("#prompt").press_sequentially("files please")
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Attach files").click()
    chooser.value.set_files(text_file("notes.txt"))
    expect(page.get_by_role("list", name="Attached files")).to_contain_text("notes.txt")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_label("Assistant")).to_contain_text("Files: notes.txt (text/plain)")


def test_a_file_that_is_too_large_is_refused_before_it_is_sent(open_page: OpenPage) -> None:
    page = open_page()
    wait_for_limits(page)
    large = [{"name": "large.bin", "mimeType": "application/octet-stream", "buffer": b"x" * 160_000}]
    page.set_input_files("input[type=file]", large)  # type: ignore[arg-type]
    expect(page.get_by_role("alert")).to_have_text("large.bin is too large: 160 kB. A file may have 150 kB.")
    expect(page.get_by_role("list", name="Attached files")).to_be_hidden()


def test_a_file_that_was_attached_before_the_limits_were_known_is_not_sent(open_page: OpenPage) -> None:
    page = open_page()
    routes: list[Route] = []

    def hold(route: Route) -> None:
        routes.append(route)

    page.route("**/api/limits", hold)
    page.reload()
    eventually(lambda: page.evaluate("1") == 1 and len(routes) == 1, "the page asks for the limits")
    large = [{"name": "large.bin", "mimeType": "application/octet-stream", "buffer": b"x" * 160_000}]
    page.set_input_files("input[type=file]", large)  # type: ignore[arg-type]
    expect(page.get_by_role("list", name="Attached files")).to_contain_text("large.bin")
    with page.expect_response("**/api/limits"):
        routes[0].continue_()
    wait_until_idle(page)
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("alert")).to_have_text("large.bin is too large: 160 kB. A file may have 150 kB.")
    expect(page.get_by_label("You", exact=True)).to_have_count(0)


def test_a_file_that_would_make_the_chat_too_large_is_not_attached(open_page: OpenPage) -> None:
    """The page sends the files of earlier messages again, because this server stores no chats."""
    page = open_page()
    wait_for_limits(page)
    for number in range(2):
        page.set_input_files(
            "input[type=file]", {"name": f"{number}.bin", "mimeType": "text/plain", "buffer": b"x" * 140_000}
        )
        expect(page.get_by_role("list", name="Attached files")).to_contain_text(f"{number}.bin")
        ask(page, "files please")
        wait_until_idle(page)
    page.set_input_files("input[type=file]", {"name": "2.bin", "mimeType": "text/plain", "buffer": b"x" * 20_000})
    expect(page.get_by_role("alert")).to_have_text(
        "2.bin is not attached: all files of the chat together may have 300 kB."
    )
    ask(page, "hello there")
    wait_until_idle(page)
    expect(page.get_by_text("You said: hello there")).to_be_visible()


def test_a_file_that_is_dropped_anywhere_is_attached(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_page()
    address = page.url
    path = tmp_path / "dropped.txt"
    path.write_text("some notes")
    mouse = page.context.new_cdp_session(page)
    for kind in ("dragEnter", "dragOver", "drop"):
        data = {"items": [], "files": [str(path)], "dragOperationsMask": 1}
        mouse.send("Input.dispatchDragEvent", {"type": kind, "x": 700, "y": 30, "data": data})
        if kind == "dragOver":
            expect(page.get_by_text("Drop files to attach them")).to_be_visible()
    expect(page.get_by_role("list", name="Attached files")).to_contain_text("dropped.txt")
    expect(page.get_by_text("Drop files to attach them")).to_be_hidden()
    assert page.url == address, "the browser does not open the file"


def test_a_file_that_is_pasted_is_attached(open_page: OpenPage) -> None:
    page = open_page()
    page.evaluate(
        """async () => {
            const canvas = Object.assign(document.createElement("canvas"), { width: 8, height: 8 });
            const drawn = await new Promise((done) => canvas.toBlob(done));
            await navigator.clipboard.write([new ClipboardItem({ "image/png": drawn })]);
        }"""
    )
    page.locator("#prompt").press("Control+v")
    attached = page.get_by_role("list", name="Attached files")
    expect(attached).to_contain_text("image.png")
    expect(attached.locator("img")).to_be_visible()
    ask(page, "files please")
    expect(page.get_by_label("Assistant")).to_contain_text("(image/png)")


@pytest.mark.parametrize("key", ["Enter", "Control+Enter"])
def test_a_key_sends_an_edit(open_page: OpenPage, key: str) -> None:
    page = open_page()
    ask(page, "first words")
    wait_until_idle(page)
    page.locator("#prompt").press("ArrowUp")
    field = page.get_by_label("Edit message")
    field.fill("other words")
    field.press("Shift+Enter")
    field.press_sequentially("and more")
    field.press(key)
    expect(page.get_by_label("Assistant")).to_contain_text("You said: other words and more")


def test_an_edit_keeps_the_attached_files(open_page: OpenPage) -> None:
    page = open_page()
    attached = [{"name": "dot.gif", "mimeType": "image/gif", "buffer": b64decode(PICTURE.partition(",")[2])}]
    page.set_input_files("input[type=file]", attached)  # type: ignore[arg-type]
    ask(page, "files please")
    expect(page.get_by_label("You", exact=True).get_by_role("img", name="dot.gif")).to_be_visible()
    expect(page.get_by_label("Assistant")).to_contain_text("Files: dot.gif (image/gif)")
    wait_until_idle(page)
    page.get_by_role("button", name="Edit").click()
    page.get_by_label("Edit message").fill("files again")
    page.locator(".edit button[type=submit]").click()
    expect(page.get_by_label("You", exact=True)).to_contain_text("files again")
    expect(page.get_by_label("Assistant")).to_contain_text("Files: dot.gif (image/gif)")
    expect(page.get_by_label("You", exact=True).get_by_role("img", name="dot.gif")).to_be_visible()


def test_an_attached_file_can_be_taken_back(open_page: OpenPage) -> None:
    page = open_page()
    files = [{"name": name, "mimeType": "text/plain", "buffer": b"x"} for name in ("one.txt", "two.txt")]
    page.set_input_files("input[type=file]", files)  # type: ignore[arg-type]
    page.get_by_role("button", name="Remove one.txt").click()
    ask(page, "files please")
    expect(page.get_by_label("Assistant")).to_contain_text("Files: two.txt (text/plain)")
    expect(page.get_by_role("list", name="Attached files")).to_be_hidden()


def test_an_earlier_answer_is_given_again_and_what_followed_is_gone(open_page: OpenPage) -> None:
    page = open_page()
    for text in ("one please", "two please"):
        ask(page, text)
        expect(page.get_by_label("Assistant").last).to_contain_text(f"You said: {text}")
        wait_until_idle(page)
    page.get_by_role("button", name="Regenerate").first.click()
    expect(page.get_by_label("You", exact=True)).to_have_count(1)
    expect(page.get_by_label("Assistant")).to_contain_text("You said: one please")
    wait_until_idle(page)
    page.wait_for_function("() => !JSON.stringify(localStorage).includes('two please')")
    wait_until_stored(page, "user", "assistant")


def test_edit_asks_anew_from_there(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "first words")
    expect(page.get_by_label("Assistant")).to_contain_text("You said: first words")
    wait_until_idle(page)
    page.get_by_role("button", name="Edit").click()
    page.get_by_label("Edit message").fill("other words")
    page.locator(".edit button[type=submit]").click()
    expect(page.get_by_label("Assistant")).to_contain_text("You said: other words")
    wait_until_idle(page)
    wait_until_stored(page, "user", "assistant")


def test_answer_again(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "hello there")
    expect(page.get_by_label("Assistant")).to_contain_text("You said")
    wait_until_idle(page)
    before = stored(page)[-1]["id"]
    page.get_by_role("button", name="Regenerate").click()
    page.wait_for_function("before => JSON.stringify(localStorage).includes(before) === false", arg=before)
    expect(page.get_by_label("Assistant")).to_contain_text("You said: hello there")
    wait_until_idle(page)
    wait_until_stored(page, "user", "assistant")


def test_a_failure_is_a_sentence_with_a_way_on(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "fail please")
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("The model is overloaded.")
    expect(page.get_by_text("It begins well.")).to_be_visible()
    page.get_by_role("button", name="Edit").click()
    page.get_by_label("Edit message").fill("hello again")
    page.locator(".edit button[type=submit]").click()
    expect(page.get_by_label("Assistant")).to_contain_text("You said: hello again")
    expect(alert).to_be_hidden()


def test_a_failure_is_between_the_answer_and_what_can_be_done_with_it(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "fail please")
    answer = page.get_by_label("Assistant")
    wait_until_idle(page)
    top = "element => element.getBoundingClientRect().top"
    elements = [
        page.get_by_text("It begins well."),
        page.get_by_role("alert"),
        answer.get_by_role("button", name="Copy"),
    ]
    tops = [element.evaluate(top) for element in elements]
    assert tops == sorted(tops)


def test_a_failure_that_speaks_of_the_network_is_no_lost_connection(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "fail over the network")
    expect(page.get_by_role("alert")).to_contain_text("The model's network is down.")


def test_an_internal_error_is_redacted_and_can_be_tried_again(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "fail inside")
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("An error occurred. Reference:")
    assert "internal detail" not in page.content()
    first = alert.inner_text()
    page.get_by_role("button", name="Try again").click()
    expect(alert).not_to_have_text(first)


def test_several_chats_in_the_list_and_in_the_address(open_page: OpenPage) -> None:
    page = open_page()
    ask(page, "the first chat")
    expect(page.get_by_label("Assistant")).to_contain_text("You said: the first chat")
    wait_until_idle(page)
    first = page.url
    page.get_by_role("button", name="New chat").click()
    expect(page).not_to_have_url(first)
    ask(page, "the second chat")
    expect(page.get_by_label("Assistant")).to_contain_text("You said: the second chat")
    wait_until_idle(page)
    page.get_by_role("button", name="the first chat", exact=True).click()
    expect(page).to_have_url(first)
    expect(page.get_by_label("Assistant")).to_contain_text("You said: the first chat")
    page.go_back()
    expect(page.get_by_label("Assistant")).to_contain_text("You said: the second chat")
    delete_chat(page, "the first chat")
    expect(page.get_by_role("navigation", name="Chats")).not_to_contain_text("the first chat")
