"""A real Chromium that shows the real page of a real server."""

import re
from collections.abc import Callable, Generator, Iterator, Mapping
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
HAS_FAILED: Final = pytest.StashKey[bool]()
OpenPage = Callable[..., Page]


@pytest.fixture(scope="session")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as running:
        yield running


@pytest.fixture(scope="session")
def chromium(playwright: Playwright) -> Iterator[Browser]:
    installation = find_chromium()
    browser = playwright.chromium.launch(
        executable_path=installation.path, args=list(ARGUMENTS), env={**installation.environment}
    )
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
    look: Mapping[str, Any] | None = None,
    wrap: Callable[[Any], Any] = lambda app: app,
    around: Callable[[Any], Any] = lambda app: app,
    **more: Any,
) -> Iterator[Served]:
    """Serve an agent with the page in front, under the prefix ``/chat``.

    ``look`` is for the settings of the page, ``wrap`` puts something around the app of the chats, ``around`` puts it
    around the page, and ``more`` is for the app of the chats.
    """
    settings = Settings(limits=Limits(maximum_file_bytes=200_000, maximum_bytes=400_000))
    chats = ChatApp(agent, metrics=False, settings=settings, **more)
    page_settings = PageSettings(
        title=title,
        name=name,
        description=description,
        auth=auth,
        suggestions=suggestions,
        chats="chats" in more,
        share=more.get("share", False),
        **{"inspector": True, **(look or {})},
    )
    page = WithPage(wrap(chats), settings=page_settings, authorize=allow_all, directory=directory)
    with serving({"chat": around(page)}) as served:
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
    """Open the page; at the end the browser must not have complained. A test that fails leaves its last picture."""
    complaints: list[str] = []
    pages: list[Page] = []

    def open_one(url: str = "", *, shows: str = "#prompt") -> Page:
        page = context.new_page()
        page.on("console", lambda message: complaints.extend(_complaint(message)))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(url or f"http://127.0.0.1:{served.port}/chat/")
        page.wait_for_selector(shows)
        pages.append(page)
        return page

    yield open_one
    if complaints or request.node.stash.get(HAS_FAILED, False):
        _keep_pictures(request.node.name, pages)
    assert complaints == []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note that a test has failed, before its fixtures end."""
    report = yield
    item.stash[HAS_FAILED] = item.stash.get(HAS_FAILED, False) or report.failed
    return report


def _keep_pictures(test: str, pages: list[Page]) -> None:
    SCREENSHOTS.mkdir(exist_ok=True)
    name = re.sub(r"\W+", "-", test).strip("-")
    for number, page in enumerate(page for page in pages if not page.is_closed()):
        page.screenshot(path=SCREENSHOTS / f"{name}-{number}.png")


def _complaint(message: ConsoleMessage) -> list[str]:
    # Chromium reports each refused request; the page shows them itself.
    is_ours = message.type in ("error", "warning") and "Failed to load resource" not in message.text
    return [f"{message.type}: {message.text}"] if is_ours else []
