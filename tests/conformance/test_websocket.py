"""The real `WebSocketChatTransport` against a real uvicorn: turns, abort, resume and failures over one socket."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import pytest
from starlette.requests import Request

from tests.conformance.http_client import Browser, Page, View, text_of
from tests.conformance.judge import RELEASES
from tests.conformance.served import Gates, Served, eventually, serving
from usechat import parts
from usechat.errors import Unauthenticated
from usechat.server import ChatApp, Settings
from usechat.server.requests import Action
from usechat.turn import Identity, Turn

RELEASE: Final = RELEASES["7"][-1]
GATES = Gates()
STOPPED: set[str] = set()
SOCKETS = map("socket {}".format, itertools.count(1))


async def agent(turn: Turn) -> AsyncIterator[str | parts.Part]:
    """Say half of the answer, wait at the gate, say the rest."""
    try:
        yield parts.Reasoning("Let me think.")
        yield parts.ToolCall("c1", "weather", {"city": "Paris"})
        yield parts.ToolResult("c1", {"degrees": 21})
        yield f"You said {turn.text}"
        await GATES.passed(turn)
        if turn.text == "fail":
            raise ValueError("secret")
        yield " 🙂."
    except (asyncio.CancelledError, GeneratorExit):
        STOPPED.add(turn.chat_id)
        raise


async def ada_alone(request: Request, _chat_id: str, _action: Action) -> Identity | None:
    if request.headers.get("authorization") != "Bearer ada":
        raise Unauthenticated("Who are you?")
    return Identity("ada")


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    apps = {
        "agent": ChatApp(agent, drain=0),
        "strict": ChatApp(agent, settings=Settings(disconnect="cancel"), authorize=ada_alone, drain=0),
    }
    with serving(apps) as running:
        yield running


class Tab:
    """One page with one socket and any number of chats."""

    def __init__(self, browser: Browser, url: str, token: str = "ada") -> None:
        self._browser = browser
        self._url = url
        self._headers = {"authorization": f"Bearer {token}"}
        self._socket = next(SOCKETS)

    def open(self, chat_id: str, messages: Any = ()) -> Page:
        return self._browser.open(
            RELEASE, self._url, chat_id=chat_id, messages=messages, headers=self._headers, socket=self._socket
        )

    def frames(self) -> list[Any]:
        return self._browser.frames(self._socket)

    def close(self) -> None:
        self._browser.disconnect(self._socket)


@pytest.fixture
def tab(browser: Browser, server: Served) -> Tab:
    return Tab(browser, f"{server.url('agent')}/ws")


def summary(view: View) -> tuple[str, Any, list[str]]:
    """Return the status, the error, and the kinds of the answer's parts."""
    last = view["messages"][-1]
    error = view["error"]["message"] if view["error"] else None
    return view["status"], error, [part["type"] for part in last["parts"]] if last["role"] == "assistant" else []


WHOLE = ["step-start", "reasoning", "tool-weather", "step-start", "text"]


def test_a_full_turn(tab: Tab) -> None:
    GATES.open("full")
    page = tab.open("full")
    page.send("hello")
    view = page.settled()
    assert summary(view) == ("ready", None, WHOLE)
    assert text_of(view) == "You said hello 🙂."
    sequences = [frame["sequence"] for frame in tab.frames() if frame["type"] == "chunk"]
    assert sequences == list(range(len(sequences)))
    assert [frame["type"] for frame in tab.frames() if frame["type"] != "chunk"] == ["send", "start", "end"]


def test_a_second_turn_on_the_same_socket(tab: Tab) -> None:
    GATES.open("twice")
    page = tab.open("twice")
    for text in ("hello", "again"):
        page.send(text)
        assert text_of(page.settled()) == f"You said {text} 🙂."
    assert [message["role"] for message in page.look()["messages"]] == ["user", "assistant"] * 2


def test_two_chats_at_once_on_one_socket(tab: Tab) -> None:
    first, second = tab.open("first"), tab.open("second")
    first.send("one")
    second.send("two")
    first.until_text("You said one")
    second.until_text("You said two")
    GATES.open("second")
    assert text_of(second.settled()) == "You said two 🙂."
    assert first.look()["status"] == "streaming"
    GATES.open("first")
    view = first.settled()
    assert (summary(view), text_of(view)) == (("ready", None, WHOLE), "You said one 🙂.")


def test_stop_leaves_the_partial_answer_and_the_run_ends(browser: Browser, server: Served) -> None:
    tab = Tab(browser, f"{server.url('strict')}/ws")
    page = tab.open("stopped")
    page.send("hello")
    page.until_text("You said hello")
    page.stop()
    view = page.settled()
    assert (summary(view), text_of(view)) == (("ready", None, WHOLE), "You said hello")
    assert view["finishes"][-1]["isAbort"] is True
    eventually(lambda: "stopped" in STOPPED, "the agent is stopped, because nobody reads it")
    assert [frame["type"] for frame in tab.frames()].count("abort") == 1
    GATES.open("stopped")
    page.send("again")
    assert text_of(page.settled()) == "You said again 🙂.", "the socket is still good"


def test_a_reloaded_page_resumes_on_a_new_socket(tab: Tab, browser: Browser, server: Served) -> None:
    page = tab.open("reloaded")
    page.send("hello")
    messages = page.until_text("You said hello")["messages"][:1]
    tab.close()
    assert "transport was closed" in str(page.settled()["error"])
    again = Tab(browser, f"{server.url('agent')}/ws")
    resumed = again.open("reloaded", messages)
    resumed.resume()
    resumed.until_text("You said hello")
    GATES.open("reloaded")
    view = resumed.settled()
    assert (summary(view), text_of(view)) == (("ready", None, WHOLE), "You said hello 🙂.")
    assert len(view["messages"]) == 2
    assert "reloaded" not in STOPPED


def test_a_second_tab_reads_along(tab: Tab, browser: Browser, server: Served) -> None:
    page = tab.open("shared")
    page.send("hello")
    messages = page.until_text("You said hello")["messages"][:1]
    other = Tab(browser, f"{server.url('agent')}/ws").open("shared", messages)
    other.resume()
    other.until_text("You said hello")
    GATES.open("shared")
    assert [text_of(page.settled()), text_of(other.settled())] == ["You said hello 🙂."] * 2


def test_there_is_nothing_to_resume(tab: Tab) -> None:
    page = tab.open("fresh")
    page.resume()
    view = page.settled()
    assert (view["status"], view["error"], view["messages"]) == ("ready", None, [])
    assert [frame["type"] for frame in tab.frames()] == ["resume", "no-active"]


def test_an_error_before_the_stream(browser: Browser, server: Served) -> None:
    page = Tab(browser, f"{server.url('strict')}/ws", token="eve").open("refused")
    page.send("hello")
    assert summary(page.settled()) == ("error", "Who are you?", [])
    page.resume()
    assert summary(page.settled()) == ("error", "Who are you?", [])


def test_a_chat_that_is_answered_already_is_refused(tab: Tab, browser: Browser, server: Served) -> None:
    page = tab.open("busy")
    page.send("hello")
    page.until_text("You said hello")
    other = Tab(browser, f"{server.url('agent')}/ws").open("busy")
    other.send("me too")
    assert summary(other.settled()) == ("error", "This chat is being answered already.", [])
    GATES.open("busy")
    assert text_of(page.settled()) == "You said hello 🙂."


def test_an_error_during_the_stream(tab: Tab) -> None:
    GATES.open("broken")
    page = tab.open("broken")
    page.send("fail")
    view = page.settled()
    status, error, kinds = summary(view)
    assert (status, kinds, text_of(view)) == ("error", WHOLE, "You said fail")
    assert error.startswith("An error occurred. Reference: ")
    page.send("hello")
    assert text_of(page.settled()) == "You said hello 🙂.", "the socket is still good"


def test_a_server_that_goes_is_a_network_error(browser: Browser) -> None:
    app = ChatApp(agent, drain=0)
    with serving({"agent": app}) as server:
        page = Tab(browser, f"{server.url('agent')}/ws").open("going")
        page.send("hello")
        page.until_text("You said hello")
        assert server.loop is not None
        server.loop.call_soon_threadsafe(app.disconnect_readers)
        view = page.settled()
    assert view["status"] == "error"
    assert view["finishes"][-1]["isDisconnect"] is True, "so useChat resumes when the page is seen again"
