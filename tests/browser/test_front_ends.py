"""Another real front end: ten lines of React."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from tests.browser.agent import answer
from tests.browser.building import EXAMPLES, front_end
from tests.browser.chatting import expect
from tests.conformance.served import PATIENCE, serving
from usechat.server import ChatApp

Serve = Callable[[Path], str]


class FrontEnd:
    """The files of a front end, and the agent at ``/api/chat``, which is where stock front ends post to."""

    def __init__(self, files: Path, agent: Any = answer, **more: Any) -> None:
        self.chats = ChatApp(agent, metrics=False, **more)
        self._files = Starlette(routes=[Mount("/", StaticFiles(directory=files, html=True))])

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await (self.chats if "/api/" in scope["path"] else self._files)(scope, receive, send)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Build and serve a front end; return its address."""
    with ExitStack() as stack:

        def serve_one(directory: Path) -> str:
            app = FrontEnd(front_end(directory, tmp_path / "built"))
            served = stack.enter_context(serving({"": app}))
            stack.callback(lambda: served.run(app.chats.shut_down()).result(PATIENCE))
            return f"http://127.0.0.1:{served.port}/"

        yield serve_one


def test_ten_lines_of_react(context: BrowserContext, serve: Serve) -> None:
    page = context.new_page()
    page.goto(serve(EXAMPLES / "react-minimal"))
    page.get_by_label("Message").fill("hello there")
    page.get_by_label("Message").press("Enter")
    expect(page.get_by_text("You said: hello there")).to_be_visible()
    integration = [line for line in (EXAMPLES / "react-minimal/src/chat.jsx").read_text().splitlines() if line.strip()]
    assert len(integration) <= 14, "ten lines, and braces"
