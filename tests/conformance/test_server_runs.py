"""Runs outlive connections: stop, disconnect, resume, a second tab; the newest clients against a real uvicorn."""

import asyncio
import http.client
import json
import logging
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, ClassVar

import pytest
from fastapi import FastAPI, Request

from tests.conformance.http_client import NEWEST, Browser, said, text_of
from tests.conformance.judge import RELEASES
from tests.conformance.served import Gates, Served, eventually, serving
from usechat import parts
from usechat.runs.settings import cancel_after
from usechat.server import ChatApp, Settings, chat_response
from usechat.server.observers.observer import Observer
from usechat.turn import Turn

GATES = Gates()
LEFT: dict[str, str] = {}
"""How the agent of each chat ended."""
STOPPED: dict[str, float] = {}
"""When the agent of each chat was stopped."""


async def paced(turn: Turn) -> AsyncIterator[str | parts.Part]:
    """Say three things, waiting behind each until the test lets it go on."""
    try:
        yield parts.Reasoning("Hm.")
        yield parts.ToolCall("c1", "look", {"at": "it"})
        yield parts.ToolResult("c1", "seen")
        yield parts.Data("progress", 1, "p")
        for name in ("one", "two"):
            for letter in f"{name} ":
                yield letter
            await GATES.passed(turn, name)
        yield "three"
        LEFT[turn.chat_id] = "finished"
    except (asyncio.CancelledError, GeneratorExit):
        STOPPED[turn.chat_id] = time.monotonic()
        LEFT[turn.chat_id] = "stopped" if turn.stopped else "closed"
        raise


class Readers(Observer):
    """Writes down when they left."""

    left: ClassVar[list[float]] = []

    def stream_closed(self, reason: str) -> None:  # noqa: ARG002
        self.left.append(time.monotonic())


async def with_an_open_tool(turn: Turn) -> AsyncIterator[str | parts.Part]:
    yield "Looking. "
    yield parts.ToolCall("c1", "look", {})
    await GATES.passed(turn)
    yield parts.ToolResult("c1", "seen")


async def for_seven(turn: Turn) -> AsyncIterator[str | parts.Part]:
    """Say what only AI SDK 7 can take."""
    yield parts.Custom("openai.thing", {"openai": {"x": 1}})
    yield parts.ToolCall("c1", "delete", {"path": "/"})
    yield parts.ApprovalRequest("a1", "c1", is_automatic=True, reason="rule")
    yield parts.ApprovalResponse("a1", approved=True)
    yield parts.ToolResult("c1", "gone")
    yield "one "
    await GATES.passed(turn, "one")
    yield parts.ResetStep()
    yield "two"


def fast_api() -> FastAPI:
    app = FastAPI()

    @app.post("/api/chat")
    async def chat(request: Request) -> Any:
        return await chat_response(request, paced)

    @app.middleware("http")
    async def stamp(request: Request, call_next: Any) -> Any:
        return await call_next(request)

    return app


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    apps = {
        "paced": ChatApp(paced),
        "short": ChatApp(paced, settings=Settings(disconnect=cancel_after(0.3)), observer=Readers()),
        "tool": ChatApp(with_an_open_tool),
        "seven": ChatApp(for_seven, settings=Settings(sdk="7")),
        "fastapi": fast_api(),
    }
    with serving(apps) as running:
        yield running


def request(served: Served, method: str, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
    connection.request(method, path)
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    return response.status, body


def state_of(served: Served, app: str, chat_id: str) -> str:
    status, body = request(served, "GET", f"/{app}/api/chat/{chat_id}")
    assert status == 200
    state: str = json.loads(body)["state"]
    return state


def types(message: Any) -> list[str]:
    return [part["type"] for part in message["parts"]]


PACED_PARTS = ["step-start", "reasoning", "tool-look", "data-progress", "step-start", "text"]


@pytest.mark.parametrize("release", NEWEST)
def test_stop_ends_the_stream_of_every_reader_with_the_partial_answer(
    browser: Browser, served: Served, release: str
) -> None:
    chat_id = f"stop-{release}"
    page = browser.open(release, served.url("paced"), chat_id=chat_id)
    page.send("hi")
    user = page.until_text("one ")["messages"][0]
    other = browser.open(release, served.url("paced"), chat_id=chat_id, messages=[user])
    other.resume()
    other.until_text("one ")
    assert request(served, "POST", f"/paced/api/chat/{chat_id}/stop") == (204, "")
    assert LEFT[chat_id] == "stopped"
    for one in (page, other):
        message = one.answer()
        assert text_of(one.look()) == "one "
        assert [part.get("state") for part in message["parts"] if part["type"] == "text"] == ["done"]
    assert state_of(served, "paced", chat_id) == "stopped"
    assert request(served, "POST", f"/paced/api/chat/{chat_id}/stop") == (204, "")


@pytest.mark.parametrize("release", NEWEST)
def test_stop_settles_the_open_tool_and_the_client_does_not_post_again(
    browser: Browser, served: Served, release: str
) -> None:
    chat_id = f"stop-tool-{release}"
    page = browser.open(release, served.url("tool"), chat_id=chat_id, automatic=["tools"])
    page.send("hi")
    page.until(lambda view: view["toolCalls"] != [])
    request(served, "POST", f"/tool/api/chat/{chat_id}/stop")
    message = page.answer()
    tool = next(part for part in message["parts"] if part["type"] == "tool-look")
    assert tool["state"] == "output-error"
    assert [one["method"] for one in page.look()["requests"]] == ["POST"]


@pytest.mark.parametrize("release", NEWEST)
def test_client_stop_closes_the_socket_and_the_run_is_stopped_when_it_lingered_long_enough(
    browser: Browser, served: Served, release: str
) -> None:
    chat_id = f"linger-{release}"
    page = browser.open(release, served.url("short"), chat_id=chat_id)
    page.send("hi")
    page.until_text("one ")
    page.stop()
    view = page.settled()
    assert view["status"] == "ready"
    assert view["finishes"][-1].get("isAbort") is True
    eventually(lambda: LEFT.get(chat_id) == "stopped", "the agent is stopped")
    assert STOPPED[chat_id] - Readers.left[-1] > 0.2
    eventually(lambda: state_of(served, "short", chat_id) == "stopped", "the run is stopped")


@pytest.mark.parametrize("release", NEWEST)
def test_a_bare_response_stops_the_agent_as_soon_as_the_client_goes(
    browser: Browser, served: Served, release: str
) -> None:
    chat_id = f"bare-{release}"
    page = browser.open(release, served.url("fastapi"), chat_id=chat_id)
    page.send("hi")
    page.until_text("one ")
    page.stop()
    eventually(lambda: LEFT.get(chat_id) == "stopped", "the agent is stopped")


@pytest.mark.parametrize("release", NEWEST)
def test_a_page_that_is_reloaded_gets_the_whole_answer_once(browser: Browser, served: Served, release: str) -> None:
    chat_id = f"reload-{release}"
    first = browser.open(release, served.url("paced"), chat_id=chat_id)
    first.send("hi")
    view = first.until_text("one ")
    user, partial = view["messages"]
    first.stop()
    first.settled()
    again = browser.open(release, served.url("paced"), chat_id=chat_id, messages=[user])
    again.resume()
    again.until_text("one ")
    GATES.open(chat_id, "one")
    again.until_text("one two ")
    GATES.open(chat_id, "two")
    message = again.answer()
    assert text_of(again.look()) == "one two three"
    assert types(message) == PACED_PARTS
    assert message["id"] == partial["id"]
    assert len(again.look()["messages"]) == 2
    assert LEFT[chat_id] == "finished"


@pytest.mark.parametrize("release", [release for releases in RELEASES.values() for release in releases])
def test_a_chat_with_an_odd_id_is_resumed(browser: Browser, served: Served, release: str) -> None:
    chat_id = f"tenant/1/Grüße {release}"
    page = browser.open(release, served.url("paced"), chat_id=chat_id)
    page.send("hi")
    user = page.until_text("one ")["messages"][0]
    other = browser.open(release, served.url("paced"), chat_id=chat_id, messages=[user])
    other.resume()
    other.until_text("one ")
    for name in ("one", "two"):
        GATES.open(chat_id, name)
    assert other.answer()["id"] == page.answer()["id"]
    assert text_of(other.look()) == "one two three"


@pytest.mark.parametrize("release", NEWEST)
def test_a_page_whose_history_holds_the_partial_answer_replaces_it(
    browser: Browser, served: Served, release: str
) -> None:
    chat_id = f"partial-{release}"
    first = browser.open(release, served.url("paced"), chat_id=chat_id)
    first.send("hi")
    history = first.until_text("one ")["messages"]
    again = browser.open(release, served.url("paced"), chat_id=chat_id, messages=history)
    again.resume()
    again.until_resumed()
    GATES.open(chat_id, "one")
    GATES.open(chat_id, "two")
    assert types(again.answer()) == PACED_PARTS
    assert text_of(again.look()) == "one two three"
    assert len(again.look()["messages"]) == 2
    first.answer()


@pytest.mark.parametrize("release", NEWEST)
def test_two_tabs_read_one_run(browser: Browser, served: Served, release: str) -> None:
    chat_id = f"tabs-{release}"
    first = browser.open(release, served.url("paced"), chat_id=chat_id)
    first.send("hi")
    user = first.until_text("one ")["messages"][0]
    second = browser.open(release, served.url("paced"), chat_id=chat_id, messages=[user])
    second.resume()
    second.until_text("one ")
    GATES.open(chat_id, "one")
    second.until_text("one two ")
    first.until_text("one two ")
    GATES.open(chat_id, "two")
    assert second.answer() == first.answer()
    assert text_of(first.look()) == "one two three"


def test_the_second_tab_may_stay_when_the_first_closes(browser: Browser, served: Served) -> None:
    first = browser.open(NEWEST[-1], served.url("short"), chat_id="stays")
    first.send("hi")
    user = first.until_text("one ")["messages"][0]
    second = browser.open(NEWEST[-1], served.url("short"), chat_id="stays", messages=[user])
    second.resume()
    second.until_text("one ")
    first.stop()
    first.settled()
    # Longer than the run lingers without readers; it has one.
    lingered = served.later(0.6)
    eventually(lingered.done, "time passes")
    assert "stays" not in LEFT
    GATES.open("stays", "one")
    GATES.open("stays", "two")
    second.answer()
    assert LEFT["stays"] == "finished"


@pytest.mark.parametrize("release", NEWEST)
def test_nothing_to_resume_leaves_the_page_ready(browser: Browser, served: Served, release: str) -> None:
    page = browser.open(release, served.url("paced"), chat_id=f"idle-{release}", messages=[said("user", "hi")])
    page.resume()
    view = page.until(lambda now: now["requests"] != [] and now["requests"][0]["status"] == 204)
    view = page.settled()
    assert (view["status"], view["error"], len(view["messages"])) == ("ready", None, 1)


@pytest.mark.parametrize("release", NEWEST)
def test_a_resume_that_names_another_release_is_written_for_it(browser: Browser, served: Served, release: str) -> None:
    chat_id = f"other-{release}"
    seven = browser.open(NEWEST[-1], served.url("seven"), chat_id=chat_id)
    seven.send("hi")
    user = seven.until_text("one ")["messages"][0]
    url = served.url("seven") + f"?sdk={release.partition('.')[0]}"
    page = browser.open(release, url, chat_id=chat_id, messages=[user])
    page.resume()
    page.until_text("one ")
    GATES.open(chat_id, "one")
    message = page.answer()
    tool = next(part for part in message["parts"] if part["type"] == "tool-delete")
    assert (tool["state"], tool["output"]) == ("output-available", "gone")
    assert text_of(page.look()).endswith("two")
    assert message["id"] == seven.answer()["id"]


def test_nothing_goes_wrong_in_the_log(browser: Browser, served: Served, caplog: pytest.LogCaptureFixture) -> None:
    """A client that goes away is no failure: neither the server nor the event loop has anything to say about it."""
    caplog.set_level(logging.WARNING)
    page = browser.open(NEWEST[-1], served.url("short"), chat_id="quiet")
    page.send("hi")
    page.until_text("one ")
    page.stop()
    eventually(lambda: LEFT.get("quiet") == "stopped", "the agent is stopped")
    assert caplog.messages == []
