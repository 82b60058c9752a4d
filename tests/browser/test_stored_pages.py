"""The pages of `docs/chats.md`, built as they stand there: assistant-ui's thread list, and one like the template."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, Route

from tests.browser.agent import answer, open_gates
from tests.browser.building import EXAMPLES, HERE, build, install
from tests.browser.chatting import expect
from tests.browser.test_front_ends import FrontEnd
from tests.browser.test_stored_chats import everyone_is_ada
from tests.conformance.served import PATIENCE, eventually, serving
from usechat.chats import MemoryChats

DOCS = EXAMPLES.parent / "docs" / "chats.md"
PACKAGES = {"threads": HERE / "assistant-ui", "template": EXAMPLES / "react-minimal"}
INDEX = '<!doctype html><html lang="en"><body><div id="root"></div><script type="module" src="/src/main.tsx"></script>'
Serve = Callable[[str], str]


def page_of(name: str) -> str:
    """Return a page of the documentation; its file name stands before the block."""
    match = re.search(
        rf"^`{name}\.tsx`:\n\n```tsx\n(.*?)^```", DOCS.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    assert match is not None
    return match[1]


@pytest.fixture
def chats() -> MemoryChats:
    return MemoryChats()


@pytest.fixture
def serve(chats: MemoryChats, tmp_path: Path) -> Iterator[Serve]:
    """Build and serve a page; return its address."""
    with ExitStack() as stack:

        def serve_one(name: str) -> str:
            packages = PACKAGES[name]
            install(packages)
            (tmp_path / "src").mkdir()
            (tmp_path / "src" / "page.tsx").write_text(page_of(name), encoding="utf-8")
            (tmp_path / "src" / "main.tsx").write_bytes((HERE / "stored-pages" / f"{name}.tsx").read_bytes())
            (tmp_path / "index.html").write_text(INDEX, encoding="utf-8")
            (tmp_path / "vite.config.js").write_bytes((packages / "vite.config.js").read_bytes())
            (tmp_path / "node_modules").symlink_to(packages / "node_modules")
            app = FrontEnd(build(tmp_path, tmp_path / "built"), answer, chats=chats, authorize=everyone_is_ada)
            served = stack.enter_context(serving({"": app}))
            stack.callback(lambda: served.run(app.chats.shut_down()).result(PATIENCE))
            return f"http://127.0.0.1:{served.port}/"

        yield serve_one


@pytest.mark.parametrize("name", PACKAGES)
def test_a_page_takes_less_than_40_lines(name: str) -> None:
    assert len(page_of(name).splitlines()) < 40


def send(page: Page, text: str) -> None:
    page.get_by_label("Message").fill(text)
    page.get_by_label("Message").press("Enter")


def test_assistant_ui_lists_opens_and_deletes_stored_chats(context: BrowserContext, serve: Serve) -> None:
    page = context.new_page()
    address = serve("threads")
    page.goto(address)
    listed = page.get_by_role("navigation", name="Chats")
    answers = page.locator("[data-role=assistant]")
    send(page, "first question")
    expect(answers.last).to_contain_text("You said: first question")
    expect(listed.get_by_role("button", name="first question")).to_be_visible()
    listed.get_by_role("button", name="New").first.click()
    send(page, "second question")
    expect(answers.last).to_contain_text("You said: second question")
    page.reload()
    listed.get_by_role("button", name="first question").click()
    expect(page.locator("[data-role=user]")).to_have_text(["first question"])
    expect(answers).to_have_count(1)
    send(page, "go on")
    expect(answers.last).to_contain_text("You said: go on")
    second = listed.locator("div", has=page.get_by_role("button", name="second question")).last
    with page.expect_response(lambda response: response.request.method == "DELETE") as deleted:
        second.get_by_text("Delete").click()
    assert deleted.value.status == 204
    first = listed.locator("div", has=page.get_by_role("button", name="first question")).last
    with page.expect_response(lambda response: response.request.method == "PATCH") as archived:
        first.get_by_text("Archive").click()
    assert archived.value.json()["archived"] is True
    page.reload()
    chats = page.request.get(f"{address}api/chats").json()["chats"]
    assert [(chat["title"], chat["archived"]) for chat in chats] == [("first question", True)]


def test_assistant_ui_goes_on_with_an_answer_that_runs_while_it_is_reloaded(
    context: BrowserContext, serve: Serve
) -> None:
    page = context.new_page()
    address = serve("threads")
    page.goto(address)
    listed = page.get_by_role("navigation", name="Chats").get_by_role("button", name="count here, held")
    answers = page.locator("[data-role=assistant]")
    send(page, "count here, held")
    expect(answers.last).to_contain_text("number-10 ")
    page.reload()
    listed.click()
    expect(answers.last).to_contain_text("number-10 ")
    [chat] = page.request.get(f"{address}api/chats").json()["chats"]
    open_gates(chat["id"])
    expect(answers.last).to_contain_text("end-of-count")
    expect(answers).to_have_count(1)
    send(page, "go on")
    expect(answers.last).to_contain_text("You said: go on")


def test_assistant_ui_loads_again_if_the_answer_has_ended_before_it_could_resume(
    context: BrowserContext, serve: Serve
) -> None:
    page = context.new_page()
    address = serve("threads")
    page.goto(address)
    answers = page.locator("[data-role=assistant]")
    send(page, "count here, held")
    expect(answers.last).to_contain_text("number-10 ")
    [chat] = page.request.get(f"{address}api/chats").json()["chats"]

    def end_first(route: Route) -> None:
        open_gates(chat["id"])
        eventually(lambda: not page.request.get(f"{address}api/chats").json()["chats"][0]["running"], "it has ended")
        route.continue_()

    page.route("**/stream?*", end_first)
    page.reload()
    page.get_by_role("navigation", name="Chats").get_by_role("button", name="count here, held").click()
    expect(answers.last).to_contain_text("end-of-count")
    expect(answers).to_have_count(1)


def test_a_page_like_the_template_edits_reloads_and_resumes(context: BrowserContext, serve: Serve) -> None:
    page = context.new_page()
    address = serve("template")
    page.goto(address)
    answers = page.get_by_label("assistant")
    send(page, "first version")
    expect(answers).to_have_text(["You said: first version"])
    expect(page.get_by_role("heading")).to_have_text("first version")
    page.on("dialog", lambda dialog: dialog.accept("second version"))
    page.get_by_role("button", name="Edit").click()
    expect(answers).to_have_text(["You said: second version"])
    page.reload()
    expect(page.get_by_label("user")).to_have_text(["second versionEdit"])
    expect(answers).to_have_text(["You said: second version"])
    send(page, "count here, held")
    expect(answers.last).to_contain_text("number-10 ")
    page.reload()
    expect(answers.last).to_contain_text("number-10 ")
    open_gates(page.url.partition("chat=")[2])
    expect(answers.last).to_contain_text("end-of-count")
    expect(answers).to_have_count(2)
    page.goto(address)
    page.get_by_role("navigation").get_by_role("button", name="first version").click()
    expect(answers.last).to_contain_text("end-of-count")
    chat_id = page.url.partition("chat=")[2]

    def tree_size() -> int:
        return len(page.request.get(f"{address}api/chat/{chat_id}/messages?tree=1").json()["messages"])

    eventually(lambda: tree_size() == 6, "both versions, their answers, and the last turn are stored")
