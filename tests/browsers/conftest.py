"""Firefox and WebKit, each with the real page of a real server."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import pytest

from tests.browser.agent import answer
from tests.browser.conftest import page_served
from tests.browser.test_embedding import shop
from tests.browsers.driver import OpenDriver
from tests.browsers.firefox import running_firefox
from tests.browsers.tab import Tab
from tests.browsers.webkit import running_webkit
from tests.conformance.served import Served

__all__ = ["shop"]

RUNNING: Final[dict[str, Callable[[Path], AbstractContextManager[OpenDriver]]]] = {
    "firefox": running_firefox,
    "webkit": running_webkit,
}


@pytest.fixture(scope="session", params=RUNNING)
def open_driver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenDriver]:
    with RUNNING[request.param](tmp_path_factory.mktemp(request.param)) as opened:
        yield opened


@pytest.fixture(scope="session")
def served() -> Iterator[Served]:
    with page_served(answer) as running:
        yield running


@pytest.fixture
def tab(open_driver: OpenDriver) -> Iterator[Tab]:
    """An empty tab; at the end the page must not have complained."""
    with open_driver() as driver:
        driver.resize(1280, 860)
        tab = Tab(driver)
        yield tab
        tab.note_complaints()
    assert tab.complaints == []


@pytest.fixture
def chat(tab: Tab, served: Served) -> Tab:
    """A tab with a new chat."""
    tab.open(f"http://127.0.0.1:{served.port}/chat/")
    return tab
