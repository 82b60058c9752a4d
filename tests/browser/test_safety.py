"""What an answer may not do, a browser that keeps nothing more, and those who may not ask."""

from playwright.sync_api import BrowserContext

from tests.browser.agent import answer
from tests.browser.chatting import ask, delete_chat, expect, sign_in, stored, wait_until_idle
from tests.browser.conftest import OpenPage, page_served
from tests.browser.test_stored_chats import ada_with_a_token, everyone_is_ada
from usechat.chats import MemoryChats

FULL = """() => {
    for (let size = 2 ** 22; size >= 1; size /= 2)
        for (;;) try { localStorage.setItem("filler", (localStorage.getItem("filler") ?? "") + "x".repeat(size)); }
                 catch { break; }
}"""


def test_nothing_that_an_answer_holds_runs(open_page: OpenPage) -> None:
    page = open_page()
    page.on("dialog", lambda dialog: dialog.dismiss())
    ask(page, "evil")
    answer = page.get_by_label("Assistant")
    expect(answer).to_contain_text("All is well.")
    wait_until_idle(page)
    page.wait_for_load_state("networkidle")
    for selector in ("script", "iframe", "svg:not(.lucide)", "style", "[onclick]", "[onerror]", "img[src*='spy']"):
        assert answer.locator(selector).count() == 0, selector
    links = [link.get_attribute("href") or "" for link in answer.locator("a").all()]
    assert [link for link in links if link.startswith("javascript:")] == []
    data_links = answer.locator("a[href^='data:']")
    assert [link.get_attribute("download") for link in data_links.all()] == [""], "it is saved, not opened"
    assert page.evaluate("window.hacked") is None


def test_a_full_store_costs_attachments_first_and_is_told(open_page: OpenPage) -> None:
    page = open_page()
    page.evaluate(FULL)
    page.evaluate("localStorage.setItem('filler', localStorage.getItem('filler').slice(0, -20000))")
    attached = [{"name": "big.txt", "mimeType": "text/plain", "buffer": b"x" * 100_000}]
    page.set_input_files("input[type=file]", attached)  # type: ignore[arg-type]
    ask(page, "files please")
    expect(page.get_by_label("Assistant")).to_contain_text("Files: big.txt (text/plain)")
    wait_until_idle(page)
    page.wait_for_function("() => JSON.stringify(localStorage).includes('Files: big.txt')")
    assert stored(page)[0]["parts"][0]["url"] == "data:,"
    page.evaluate(FULL)
    ask(page, "hello " + "there " * 5000)
    expect(page.get_by_label("Assistant").last).to_contain_text("You said: hello")
    expect(page.get_by_text("Browser storage is full or blocked: this chat will be lost on reload")).to_be_visible()


def test_a_full_store_loses_no_chat_that_the_server_has(open_page: OpenPage) -> None:
    with page_served(answer, chats=MemoryChats(), authorize=everyone_is_ada) as served:
        page = open_page(f"http://127.0.0.1:{served.port}/chat/")
        page.evaluate(FULL)
        ask(page, "hello there")
        expect(page.get_by_text("You said: hello there")).to_be_visible()
        wait_until_idle(page)
        expect(page.get_by_text("Browser storage")).to_have_count(0)
        page.reload()
        expect(page.get_by_text("You said: hello there")).to_be_visible()


def test_a_full_store_changes_nothing_about_the_look(open_page: OpenPage) -> None:
    page = open_page()
    page.evaluate(FULL)
    page.get_by_role("button", name="Dark mode").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.get_by_role("button", name="Inspector").click()
    edge = page.get_by_role("separator", name="Width of Inspector")
    before = int(edge.get_attribute("aria-valuenow") or 0)
    edge.press("ArrowLeft")
    expect(edge).to_have_attribute("aria-valuenow", str(before + 32))


BLOCKED = """for (const name of ["localStorage", "sessionStorage"])
    Object.defineProperty(window, name, { get() { throw new DOMException("Access is denied.", "SecurityError"); } });"""
"""As a browser does that blocks cookies."""


def test_a_browser_that_keeps_nothing_can_chat(open_page: OpenPage, context: BrowserContext) -> None:
    context.add_init_script(BLOCKED)
    page = open_page()
    ask(page, "hello there")
    expect(page.get_by_text("You said: hello there")).to_be_visible()
    expect(page.get_by_text("Browser storage is full or blocked: this chat will be lost on reload")).to_be_visible()
    page.get_by_role("navigation").get_by_role("button", name="New chat").click()
    expect(page.get_by_text("You said: hello there")).to_be_hidden()
    page.get_by_role("navigation").get_by_role("button", name="hello there", exact=True).click()
    expect(page.get_by_text("You said: hello there")).to_be_visible()
    delete_chat(page, "hello there")
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("You said: hello there")).to_be_visible()


def test_a_browser_that_keeps_nothing_sends_the_token(open_page: OpenPage, context: BrowserContext) -> None:
    context.add_init_script(BLOCKED)
    with page_served(answer, authorize=ada_with_a_token, auth=True) as served:
        page = open_page(f"http://127.0.0.1:{served.port}/chat/", shows="form")
        sign_in(page, "secret")
        ask(page, "hello there")
        expect(page.get_by_text("You said: hello there")).to_be_visible()
