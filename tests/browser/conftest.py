"""A real Chromium that shows the real page of a real server."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Playwright, sync_playwright

from tests.browser.agent import answer
from tests.browser.chromium import ARGUMENTS, find_chromium
from tests.conformance.served import PATIENCE, Served, serving
from usechat.protocol.request import Limits
from usechat.server import ChatApp, Settings
from usechat.server.page import PageSettings, WithPage
from usechat.server.requests import allow_all

SCREENSHOTS: Final = Path(__file__).parent / "screenshots"
OpenPage = Callable[..., Page]


@pytest.fixture(scope="session")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as running:
        yield running


@pytest.fixture(scope="session")
def chromium(playwright: Playwright) -> Iterator[Browser]:
    found = find_chromium()
    browser = playwright.chromium.launch(executable_path=found.path, args=list(ARGUMENTS), env={**found.environment})
    yield browser
    browser.close()


@contextmanager
def page_served(
    agent: Any,
    *,
    directory: Path | None = None,
    title: str = "Support",
    name: str = "",
    description: str = "",
    auth: bool = False,
    suggestions: tuple[str, ...] = ("hello there",),
    **more: Any,
) -> Iterator[Served]:
    """Serve an agent with the page in front, under the prefix ``/chat``; ``more`` is for its app."""
    settings = Settings(limits=Limits(maximum_file_bytes=200_000, maximum_bytes=400_000))
    chats = ChatApp(agent, metrics=False, settings=settings, **more)
    told = PageSettings(
        title=title,
        name=name,
        description=description,
        auth=auth,
        suggestions=suggestions,
        chats="chats" in more,
        share=more.get("share", False),
    )
    with serving({"chat": WithPage(chats, settings=told, authorize=allow_all, directory=directory)}) as served:
        yield served
        served.run(chats.shut_down()).result(PATIENCE)


@pytest.fixture(scope="session")
def served() -> Iterator[Served]:
    with page_served(answer) as running:
        yield running


@pytest.fixture
def context(chromium: Browser) -> Iterator[BrowserContext]:
    context = chromium.new_context(viewport={"width": 1280, "height": 860}, locale="en-GB")
    context.set_default_timeout(PATIENCE * 1000)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    yield context
    context.close()


@pytest.fixture
def open_page(context: BrowserContext, served: Served, request: pytest.FixtureRequest) -> Iterator[OpenPage]:
    """Open the page; at the end the browser must not have complained, and its last picture is kept."""
    complaints: list[str] = []
    pages: list[Page] = []

    def open_one(url: str = "") -> Page:
        page = context.new_page()
        page.on("console", lambda message: complaints.extend(_complaint(message)))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(url or f"http://127.0.0.1:{served.port}/chat/")
        page.wait_for_selector("#prompt")
        pages.append(page)
        return page

    yield open_one
    SCREENSHOTS.mkdir(exist_ok=True)
    for number, page in enumerate(pages):
        name = re.sub(r"\W+", "-", request.node.name).strip("-")
        page.screenshot(path=SCREENSHOTS / f"{name}-{number}.png")
    assert complaints == []


def _complaint(message: ConsoleMessage) -> list[str]:
    # Chromium reports each refused request; the page shows them itself.
    is_ours = message.type in ("error", "warning") and "Failed to load resource" not in message.text
    return [f"{message.type}: {message.text}"] if is_ours else []
