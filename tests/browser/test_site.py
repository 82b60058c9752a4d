"""The site of the documentation in a real browser, on a desk and on a phone."""

import functools
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.chatting import expect
from tests.built_site import build_site
from usechat import __version__

pytest.importorskip("zensical", reason="the site is built where the group `docs` is installed: Python 3.11")

PAGES: Final = (
    "index",
    "start",
    "tutorial",
    "frameworks",
    "frameworks/langgraph",
    "adapters",
    "chats",
    "survive",
    "page",
    "deploy",
    "operate",
    "platforms",
    "compare",
    "cli",
    "options",
    "rules",
    "specification",
    "open-harness",
    "temporal",
    "examples/index",
    "reference/usechat.server",
    "decisions/index",
)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the name of the base class)
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Build the site and serve it; return the address of this version."""
    serve = functools.partial(Quiet, directory=str(build_site(tmp_path_factory)))
    with ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}/{__version__}"
        server.shutdown()


@pytest.fixture(scope="module", params=[1440, 390])
def page(request: pytest.FixtureRequest, chromium: Browser) -> Iterator[Page]:
    context = chromium.new_context(viewport={"width": request.param, "height": 900})
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_shown_without_complaints_and_fits_its_width(name: str, page: Page, site: str) -> None:
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("response", lambda response: complaints.append(response.url) if response.status >= 400 else None)
    page.goto(f"{site}/{name}.html", wait_until="networkidle")
    expect(page.locator("article h1").first).to_be_visible()
    assert complaints == []
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
    cut_off = """() => [...document.querySelectorAll("article :is(p, li, h1, h2, h3)")]
        .filter((each) => each.checkVisibility() && each.getBoundingClientRect().right > innerWidth + 1
            && !each.closest("table, pre, .mermaid"))
        .map((each) => each.textContent)"""
    assert page.evaluate(cut_off) == []
