"""The AI SDK's own hooks, what AI Elements is built of, and assistant-ui, against what `usechat serve` serves."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
from playwright.sync_api import BrowserContext, Page
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from tests.browser.agent import PICTURE, open_gates
from tests.browser.building import HERE, front_end
from tests.browser.chatting import expect
from tests.built_once import built_once
from tests.conformance.served import PATIENCE, serving
from tests.server.process import eventually
from usechat.cli.plan import Plan, make_app

NAMED_CHAT: Final = {
    "react": "react.html?chat={}",
    "vue": "vue.html?chat={}",
    "svelte": "svelte.html?chat={}",
    "AI Elements": "elements.html?chat={}",
    "assistant-ui, useAISDKRuntime": "assistant-ui/index.html?chat={}",
}
"""The pages that open the chat which their address names."""
BELOW: Final = """
log => {
  const scrolls = (one) => one.scrollHeight > one.clientHeight + 1 && getComputedStyle(one).overflowY !== "visible";
  const box = [log, ...log.querySelectorAll("*")].find(scrolls);
  return box.scrollHeight - box.clientHeight - box.scrollTop;
}
"""
"""How much of a conversation is below what is visible."""
PAGES: Final = {**NAMED_CHAT, "assistant-ui, useChatRuntime": "assistant-ui/index.html"}


class WithFiles:
    """The app of `usechat serve` for the agent of the tests, with the files of the front ends beside it."""

    def __init__(self, files: Path) -> None:
        self.served = make_app(Plan(target="tests.browser.agent:answer", page=False))
        self._files = Starlette(routes=[Mount("/", StaticFiles(directory=files))])

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await (self.served.app if "/api/" in scope["path"] else self._files)(scope, receive, send)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    app = WithFiles(built_once(tmp_path_factory, "stock-hooks", _build))
    with ExitStack() as stack:
        served = stack.enter_context(serving({"": app}))
        stack.callback(lambda: [served.run(chats.shut_down()).result(PATIENCE) for chats in app.served.chats])
        yield f"http://127.0.0.1:{served.port}/"


def _build(files: Path) -> None:
    front_end(HERE / "stock-hooks", files)
    front_end(HERE / "assistant-ui", files / "assistant-ui")


@pytest.fixture
def chat() -> str:
    return uuid4().hex


@pytest.fixture(params=PAGES)
def page(request: pytest.FixtureRequest, context: BrowserContext, address: str, chat: str) -> Page:
    page = context.new_page()
    page.goto(f"{address}{PAGES[request.param].format(chat)}")
    return page


def send(page: Page, text: str) -> None:
    page.get_by_label("Message").fill(text)
    page.get_by_role("button", name="Send").click()


def answer_part(page: Page, kind: str) -> Any:
    return page.locator(f"[data-role=assistant] [data-part={kind}]")


def test_text_reasoning_and_tools_are_shown(page: Page) -> None:
    send(page, "hello there")
    expect(answer_part(page, "text")).to_have_text("You said: hello there")
    expect(page.locator("form")).to_have_attribute("data-status", "ready")
    send(page, "think hard")
    expect(answer_part(page, "reasoning")).to_have_text("Let me think about that.")
    expect(answer_part(page, "text").last).to_have_text("I have thought.")
    expect(page.locator("form")).to_have_attribute("data-status", "ready")
    send(page, "tools please")
    expect(answer_part(page, "text").last).to_have_text("One tool worked, one did not.")
    expect(answer_part(page, "tool").first).to_contain_text('search: output-available {"found":3}')
    expect(answer_part(page, "tool").last).to_contain_text('divide: output-error "Division by zero."')


@pytest.mark.parametrize("page", ["AI Elements"], indirect=True)
def test_sc_007_the_parts_of_ai_elements_draw_markdown_and_follow_the_answer(page: Page, chat: str) -> None:
    """SC-007 of Open Harness: Conversation, Message and PromptInput work without an adjustment."""
    send(page, "markdown please")
    expect(page.locator("form")).to_have_attribute("data-status", "ready")
    text = answer_part(page, "text")
    expect(text.get_by_role("heading", name="A title")).to_be_visible()
    expect(text.get_by_role("cell", name="1")).to_have_count(1)
    expect(text.locator("code").filter(has_text="def double").first).to_be_visible()
    send(page, "count for me, held")
    expect(text.last).to_contain_text("number-20 ")
    open_gates(chat)
    expect(text.last).to_contain_text("end-of-count")
    eventually(lambda: page.get_by_role("log").evaluate(BELOW) < 2, "the conversation follows the answer")


def test_an_approval_goes_on_by_itself(page: Page) -> None:
    send(page, "approve this")
    expect(answer_part(page, "tool")).to_contain_text("delete_file: approval-requested")
    expect(page.locator("form")).to_have_attribute("data-status", "ready")
    page.get_by_role("button", name="Approve").click()
    expect(answer_part(page, "text").last).to_have_text("It is gone.")
    expect(answer_part(page, "tool")).to_contain_text('delete_file: output-available {"deleted":"notes.txt"}')
    expect(page.locator("section")).to_have_count(2)


def test_a_denial_goes_on_by_itself_and_the_tool_does_not_run(page: Page) -> None:
    send(page, "approve this")
    expect(answer_part(page, "tool")).to_contain_text("delete_file: approval-requested")
    expect(page.locator("form")).to_have_attribute("data-status", "ready")
    page.get_by_role("button", name="Deny").click()
    expect(answer_part(page, "text").last).to_have_text("It stays.")
    expect(answer_part(page, "tool")).to_contain_text("delete_file: output-denied")
    expect(page.locator("section")).to_have_count(2)


def test_files_go_both_ways(page: Page) -> None:
    send(page, "sources please")
    expect(answer_part(page, "file")).to_have_attribute("src", PICTURE)
    expect(page.locator("form")).to_have_attribute("data-status", "ready")
    with page.expect_file_chooser() as chooser:
        page.get_by_label("Files").click()
    chooser.value.set_files({"name": "note.txt", "mimeType": "text/plain", "buffer": b"Some words."})
    send(page, "files please")
    expect(answer_part(page, "text").last).to_have_text("Files: note.txt (text/plain)")


@pytest.mark.parametrize("page", NAMED_CHAT, indirect=True)
def test_a_reload_resumes_the_answer(page: Page, chat: str) -> None:
    send(page, "count for me, held")
    expect(answer_part(page, "text")).to_contain_text("number-10 ")
    page.reload()
    expect(answer_part(page, "text")).to_contain_text("number-20 ")
    expect(page.locator("form")).to_have_attribute("data-status", "streaming")
    open_gates(chat)
    expect(answer_part(page, "text")).to_contain_text("number-99 number-100 end-of-count")
    expect(page.locator("form")).to_have_attribute("data-status", "ready")
    assert answer_part(page, "text").inner_text().count("number-10 ") == 1


def test_a_stopped_answer_grows_no_more_and_the_chat_goes_on(page: Page, address: str) -> None:
    with page.expect_request("**/api/chat") as request_info:
        send(page, "long story")
    expect(answer_part(page, "text")).to_contain_text("word3 ")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("form")).to_have_attribute("data-status", "ready")
    chat = json.loads(request_info.value.post_data or "")["id"]
    stopped = page.request.post(f"{address}api/chat/{chat}/stop")
    assert stopped.status == 204
    assert page.request.get(f"{address}api/chat/{chat}").json()["state"] == "stopped"
    text = answer_part(page, "text").inner_text()
    send(page, "hello there")
    expect(answer_part(page, "text").last).to_have_text("You said: hello there")
    assert answer_part(page, "text").first.inner_text() == text
