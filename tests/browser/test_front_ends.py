"""Other real front ends: ten lines of React, a page that reconnects by itself, and one with a queue."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, get_args

import pytest
from playwright.sync_api import BrowserContext
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from tests.browser.agent import answer
from tests.browser.building import EXAMPLES, HERE, front_end
from tests.browser.chatting import expect
from tests.conformance.served import PATIENCE, Gates, serving
from usechat.chats import MemoryChats
from usechat.runs.settings import Conflict
from usechat.server import ChatApp, Settings
from usechat.turn import Turn

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


GATES = Gates()


async def paced(turn: Turn) -> AsyncIterator[str]:
    """Say three words, waiting behind each until the test lets it go on."""
    for word in ("one", "two", "three"):
        yield f"{word} "
        await GATES.passed(turn, word)


def test_a_page_with_the_transport_of_workflows_goes_on_after_cuts_and_a_reload(
    context: BrowserContext, tmp_path: Path
) -> None:
    app = FrontEnd(front_end(EXAMPLES / "react-reconnecting", tmp_path / "built"), paced, chats=MemoryChats())
    with serving({"": app}) as served:
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{served.port}/")
        page.get_by_label("Message").fill("Count")
        page.get_by_label("Message").press("Enter")
        chat_id = page.url.partition("chat=")[2]
        answer = page.get_by_label("assistant")
        for so_far, word in (("one ", "one"), ("one two ", "two")):
            expect(answer).to_have_text(so_far)
            with page.expect_response(lambda response: "startIndex=" in response.url and response.status == 200):
                served.cut()
            GATES.open(chat_id, word)
        expect(answer).to_have_text("one two three ")
        page.reload()
        expect(answer).to_have_text("one two three ")
        page.get_by_role("button", name="Stop").click()
        expect(page.get_by_role("button", name="Stop")).to_have_count(0)
        expect(page.get_by_role("alert")).to_have_count(0)
        expect(answer).to_have_text("one two three ")
        served.run(app.chats.shut_down()).result(PATIENCE)


async def echo(turn: Turn) -> AsyncIterator[str]:
    """Repeat a message, and end when the test lets it."""
    yield f"{turn.text}: "
    await GATES.passed(turn, turn.text)
    yield "done."


@pytest.mark.parametrize("policy", get_args(Conflict))
def test_a_message_that_waits_in_the_queue_of_a_page_is_sent_now(
    context: BrowserContext, tmp_path: Path, policy: Conflict
) -> None:
    app = FrontEnd(front_end(HERE / "queue", tmp_path / "built"), echo, settings=Settings(conflict=policy))
    words = {name: f"{name} with {policy}" for name in ("one", "two", "three")}
    with serving({"": app}) as served:
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{served.port}/")
        for text in words.values():
            page.get_by_label("Message").fill(text)
            page.get_by_label("Message").press("Enter")
            expect(page.get_by_label("Message")).to_have_value("")
        answers = page.get_by_label("assistant")
        expect(answers).to_have_text([f"{words['one']}: "])
        page.get_by_role("button", name="Send the last one now").click()
        expect(answers).to_have_text([f"{words['one']}: ", f"{words['three']}: "])
        GATES.open("queue", words["three"])
        expect(answers.last).to_have_text(f"{words['two']}: ")
        GATES.open("queue", words["two"])
        expect(answers).to_have_text([f"{words['one']}: ", *(f"{words[name]}: done." for name in ("three", "two"))])
        expect(page.locator("form")).to_have_attribute("data-status", "ready")
        served.run(app.chats.shut_down()).result(PATIENCE)
