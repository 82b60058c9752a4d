"""Take the pictures of the page for the documentation: ``python -m scripts.screenshots``."""

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.agent import answer
from tests.browser.building import front_end
from tests.browser.chatting import ask, go_on, wait_until_idle
from tests.browser.chromium import ARGUMENTS, find_chromium
from tests.browser.conftest import page_served
from tests.browser.test_front_ends import FrontEnd
from tests.browser.test_states import STATES as SHOWN
from tests.browser.test_stored_chats import ada_with_a_token, everyone_is_ada
from tests.conformance.served import PATIENCE, serving
from usechat import Turn
from usechat.chats import MemoryChats
from usechat.demo import show
from usechat.demo.app import TITLE, describe
from usechat.demo.models import SCRIPT
from usechat.open_harness import FlowRuntimes, OpenHarnessChatTransport, load_flow
from usechat.parts import Part
from usechat.runs.settings import Settings

IMAGES: Final = Path(__file__).parent.parent / "docs" / "images"
STATES: Final = {
    "markdown": "markdown",
    "tasks": "tasks",
    "tools": "tools please",
    "approval": "approve this",
    "question": "question form",
    "data": "drawn please",
    "flow": "flow please",
}
"""The pictures by name, and what the agent of the tests is asked for each."""

STORED_STATES: Final = {
    "streaming": "streaming",
    "error": "error",
    "branches": "branches",
    "palette": "command palette",
    "help": "help sheet",
    "menu": "menu of a chat",
    "drawer": "drawer",
}
"""More pictures by name, and the states of the tests that they show; the last is on a phone."""


def main() -> None:
    """Take each picture in light and in dark."""
    IMAGES.mkdir(exist_ok=True)
    chromium = find_chromium()
    with (
        page_served(answer, description="Answers questions about your orders.") as served,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(
            executable_path=chromium.path, args=list(ARGUMENTS), env={**chromium.environment}
        )
        for theme in ("light", "dark"):
            _take(browser, f"http://127.0.0.1:{served.port}/chat/", theme)
            with page_served(
                {"support": support, "coder": coder},
                title="",
                chats=MemoryChats(),
                authorize=everyone_is_ada,
                share=True,
            ) as stored:
                _take_stored(browser, f"http://127.0.0.1:{stored.port}/chat/", theme)
            with page_served(
                answer, description="Answers questions about your orders.", auth=True, authorize=ada_with_a_token
            ) as guarded:
                _take_guarded(browser, f"http://127.0.0.1:{guarded.port}/chat/", theme)
            take_flow(browser, theme)
            _take_demo(browser, theme)
        _take_assistant_ui(browser)
        browser.close()


def _open(browser: Browser, address: str, theme: str) -> Page:
    context = browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme=theme)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(address)
    return page


def _take(browser: Browser, address: str, theme: str) -> None:
    page = _open(browser, address, theme)
    page.wait_for_selector("#prompt")
    _save(page, f"empty-{theme}")
    for name, text in STATES.items():
        page.get_by_role("button", name="New chat").click()
        ask(page, text)
        wait_until_idle(page)
        page.wait_for_load_state("networkidle")  # code is highlighted
        _save(page, f"{name}-{theme}")
    page.get_by_role("button", name="Inspector").click()
    page.get_by_role("button", name="[DONE]", exact=True).click()
    _save(page, f"inspector-{theme}")
    page.get_by_role("button", name="Inspector", exact=True).click()
    page.set_viewport_size({"width": 390, "height": 800})
    page.get_by_role("button", name="New chat").click()
    ask(page, "tools please")
    wait_until_idle(page)
    _save(page, f"phone-{theme}")
    page.context.close()


def _take_stored(browser: Browser, address: str, theme: str) -> None:
    """Take the pictures of what a server with several agents and stored chats offers."""
    page = _open(browser, address, theme)
    page.get_by_role("button", name="Agent: support").click()
    _save(page, f"picker-{theme}")
    page.keyboard.press("Escape")
    ask(page, "tools please")
    wait_until_idle(page)
    page.get_by_role("button", name="tools please", exact=True).hover()
    page.get_by_role("button", name="Options of tools please").click()
    page.get_by_role("menuitem", name="Share").click()
    page.get_by_role("button", name="Create a link").click()
    link = page.get_by_label("Link", exact=True).input_value()
    _save(page, f"share-{theme}")
    page.goto(link)
    page.get_by_text("One tool worked").wait_for()
    _save(page, f"shared-{theme}")
    for name, state in STORED_STATES.items():
        page.goto(address)
        SHOWN[state](page)
        _save(page, f"{name}-{theme}")
        if name == "streaming":
            go_on(page)
            wait_until_idle(page)
    page.context.close()


def _take_guarded(browser: Browser, address: str, theme: str) -> None:
    """Take the picture of a page that asks for a token."""
    page = _open(browser, address, theme)
    page.get_by_label("Access token").wait_for()
    _save(page, f"token-{theme}")
    page.context.close()


def take_flow(browser: Browser, theme: str) -> None:
    """Take the picture of the flow of the demo while its last node writes."""
    vars(show)["PACE"] = 0.2  # slow enough for a picture
    flow = load_flow(Path(show.__file__).with_name("party.yaml"))
    transport = OpenHarnessChatTransport(FlowRuntimes(flow), send_flow_metadata=True)
    with page_served(transport, title="Party planner") as served:
        page = _open(browser, f"http://127.0.0.1:{served.port}/chat/", theme)
        page.set_viewport_size({"width": 1280, "height": 560})
        ask(page, "Plan a party with a flow")
        page.get_by_text("Two nodes worked side").wait_for()
        _save(page, f"running-{theme}")
        wait_until_idle(page)
        page.context.close()


def _take_demo(browser: Browser, theme: str) -> None:
    """Take the pictures of scenes of the demo: the plan of a weekend, and the image that an agent has drawn."""
    weekend, *_, files, _ = show.SCENES
    with page_served(show.Show(pace=0), title=TITLE, description=describe(SCRIPT)) as served:
        page = _open(browser, f"http://127.0.0.1:{served.port}/chat/", theme)
        ask(page, files)
        wait_until_idle(page)
        page.get_by_role("button", name="View PNG image").click()
        _save(page, f"viewer-{theme}")
        page.keyboard.press("Escape")
        page.get_by_role("button", name="New chat").click()
        page.set_viewport_size({"width": 1280, "height": 1000})
        ask(page, weekend)
        page.get_by_role("button", name="Approve", exact=True).click()
        page.get_by_text("The Python behind it").wait_for()
        page.get_by_role("figure").scroll_into_view_if_needed()
        _save(page, f"demo-{theme}")
        page.context.close()


def _take_assistant_ui(browser: Browser) -> None:
    """Take pictures of assistant-ui's page, with the same agent and the same messages."""
    with tempfile.TemporaryDirectory() as directory:
        files = front_end(Path(__file__).parent / "assistant-ui", Path(directory))
        app = FrontEnd(files, answer, settings=Settings(sdk="6"))
        with serving({"": app}) as served:
            for name in ("markdown", "tools"):
                page = _open(browser, f"http://127.0.0.1:{served.port}/", "light")
                page.get_by_role("textbox").fill(STATES[name])
                page.get_by_role("textbox").press("Enter")
                page.get_by_role("button", name="Refresh").wait_for()
                _save(page, f"{name}-assistant-ui")
                page.context.close()
            served.run(app.chats.shut_down()).result(PATIENCE)


async def coder(turn: Turn) -> AsyncIterator[str]:
    """Writes and explains code."""
    yield turn.text


async def support(turn: Turn) -> AsyncIterator[str | Part]:
    """Answers questions about your orders."""
    async for part in answer(turn):
        yield part


def _save(page: Page, name: str) -> None:
    page.mouse.move(0, 0)
    page.wait_for_timeout(400)  # transitions end
    page.screenshot(path=IMAGES / f"page-{name}.png")


if __name__ == "__main__":
    main()
