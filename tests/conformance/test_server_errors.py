"""Failures before and during the stream, and what the page shows of them; the newest clients against a real uvicorn."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple, cast

import pytest
from starlette.requests import Request

from tests.conformance.http_client import NEWEST, Browser, View, text_of
from tests.conformance.served import Gates, Served, eventually, serving
from usechat import parts
from usechat.errors import PublicError, Unauthenticated
from usechat.protocol.request import Limits
from usechat.runs.settings import Timeouts
from usechat.server import ChatApp, Settings
from usechat.turn import Identity, Turn

GATES = Gates()
CANCELLED: set[str] = set()


async def waiting(turn: Turn) -> AsyncIterator[str]:
    yield "one "
    await GATES.passed(turn)


async def failing(turn: Turn) -> AsyncIterator[str | parts.Part]:
    yield "So far, "
    yield parts.ToolCall("c1", "look", {})
    match turn.text:
        case "public":
            raise PublicError("The model is busy; try again.")
        case _:
            raise ValueError("the password is hunter2")


async def failing_at_once(turn: Turn) -> AsyncIterator[str]:
    if turn.text:
        raise ValueError("the password is hunter2")
    yield ""


def failing_in_a_thread(_turn: Turn) -> Iterator[str]:
    yield "So far, "
    raise ValueError("the password is hunter2")


async def speaking_nonsense(_turn: Turn) -> AsyncIterator[Any]:
    yield "So far, "
    yield 42


async def hanging(turn: Turn) -> AsyncIterator[str | parts.Part]:
    """Hang before, after or while saying something, as the user wants it."""
    try:
        if turn.text != "first":
            yield "So far, "
            yield parts.ToolCall("c1", "look", {})
        while turn.text == "total":
            yield parts.Data("tick", 1, "t")
            await asyncio.sleep(0.02)
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        CANCELLED.add(turn.chat_id)
        raise


async def rule(request: Request, chat_id: str, _action: str) -> Identity | None:
    token = request.headers.get("authorization")
    if token is None:
        raise Unauthenticated("Who are you? Send a token.")
    return Identity(token) if chat_id.startswith(token) else None


def unfriendly(_error: Exception) -> str:
    raise RuntimeError("on_error is broken")


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    apps = {
        "waiting": ChatApp(waiting),
        "small": ChatApp(waiting, settings=Settings(limits=Limits(maximum_bytes=300))),
        "guarded": ChatApp(waiting, authorize=rule),
        "failing": ChatApp(failing),
        "at-once": ChatApp(failing_at_once),
        "thread": ChatApp(failing_in_a_thread),
        "nonsense": ChatApp(speaking_nonsense),
        "friendly": ChatApp(failing, settings=Settings(on_error=lambda error: f"Sorry: {type(error).__name__}")),
        "unfriendly": ChatApp(failing, settings=Settings(on_error=unfriendly)),
        "wordless": ChatApp(failing, settings=Settings(on_error=lambda _error: cast("str", None))),
        "first": ChatApp(hanging, settings=Settings(timeouts=Timeouts(first_event=0.2))),
        "idle": ChatApp(hanging, settings=Settings(timeouts=Timeouts(idle=0.2))),
        "total": ChatApp(hanging, settings=Settings(timeouts=Timeouts(total=0.5))),
    }
    with serving(apps) as running:
        yield running


def failed(browser: Browser, release: str, url: str, text: str = "hi", **options: Any) -> View:
    """Send a message that cannot be answered well."""
    page = browser.open(release, url, **({"chat_id": f"chat-{release}"} | options))
    page.send(text)
    view = page.settled()
    assert view["status"] == "error"
    assert view["finishes"][-1].get("isError") is True
    return view


def error_of(view: View) -> str:
    assert view["error"] is not None
    return view["error"]["message"]


def tool_states(view: View) -> list[str]:
    return [part["state"] for part in view["messages"][-1]["parts"] if part["type"].startswith("tool-")]


class Refusal(NamedTuple):
    status: int
    app: str
    sentence: str
    query: str = ""
    text: str = "hi"
    token: str = ""


REFUSALS = [
    Refusal(400, "waiting", ".*9.*", query="?sdk=9"),
    Refusal(401, "guarded", "Who are you[?] Send a token[.]"),
    Refusal(404, "guarded", "No such chat[.]", token="somebody"),
    Refusal(413, "small", ".*300.*", text="x" * 300),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: str(refusal.status))
@pytest.mark.parametrize("release", NEWEST)
def test_a_refusal_is_a_status_and_the_page_shows_our_sentence(
    browser: Browser, served: Served, release: str, refusal: Refusal
) -> None:
    headers = {"authorization": refusal.token} if refusal.token else {}
    view = failed(browser, release, served.url(refusal.app) + refusal.query, refusal.text, headers=headers)
    assert [request["status"] for request in view["requests"]] == [refusal.status]
    assert re.fullmatch(refusal.sentence, error_of(view), re.DOTALL)
    assert [message["role"] for message in view["messages"]] == ["user"]


@pytest.mark.parametrize("release", NEWEST)
def test_a_second_question_while_the_chat_is_answered_is_a_conflict(
    browser: Browser, served: Served, release: str
) -> None:
    chat_id = f"busy-{release}"
    first = browser.open(release, served.url("waiting"), chat_id=chat_id)
    first.send("hi")
    first.until_text("one ")
    view = failed(browser, release, served.url("waiting"), "something else", chat_id=chat_id)
    assert view["requests"][0]["status"] == 409
    assert error_of(view) == "This chat is being answered already."
    GATES.open(chat_id)
    first.answer()


@pytest.mark.parametrize("release", NEWEST)
def test_someone_elses_chat_cannot_be_sent_to_or_resumed(browser: Browser, served: Served, release: str) -> None:
    chat_id = f"ann-{release}"
    ann = browser.open(release, served.url("guarded"), chat_id=chat_id, headers={"authorization": "ann"})
    ann.send("hi")
    ann.until_text("one ")
    # The rule lets "a" near every chat that begins so; the run belongs to "ann" all the same.
    view = failed(browser, release, served.url("guarded"), chat_id=chat_id, headers={"authorization": "a"})
    assert (view["requests"][0]["status"], error_of(view)) == (404, "No such chat.")
    page = browser.open(release, served.url("guarded"), chat_id=chat_id, headers={"authorization": "a"})
    page.resume()
    page.until(lambda now: [request["status"] for request in now["requests"]] == [204])
    assert page.settled()["messages"] == []
    GATES.open(chat_id)
    ann.answer()


@pytest.mark.parametrize("app", ["failing", "at-once", "thread", "nonsense"])
@pytest.mark.parametrize("release", NEWEST)
def test_a_failure_shows_a_reference_and_the_log_holds_the_trace_under_it(
    browser: Browser, served: Served, caplog: pytest.LogCaptureFixture, release: str, app: str
) -> None:
    with caplog.at_level(logging.ERROR):
        view = failed(browser, release, served.url(app))
    match = re.fullmatch("An error occurred. Reference: ([0-9a-f]{8,})", error_of(view))
    assert match
    record = next(record for record in caplog.records if match[1] in record.getMessage())
    assert record.exc_info is not None
    assert ("hunter2" in str(record.exc_info[1])) == (app != "nonsense")
    assert text_of(view) == ("" if app == "at-once" else "So far, ")
    assert all(state == "output-error" for state in tool_states(view))


@pytest.mark.parametrize("release", NEWEST)
def test_the_text_of_a_failure_can_be_chosen(browser: Browser, served: Served, release: str) -> None:
    assert error_of(failed(browser, release, served.url("friendly"))) == "Sorry: ValueError"
    public = failed(browser, release, served.url("failing"), "public", chat_id=f"public-{release}")
    assert error_of(public) == "The model is busy; try again."


@pytest.mark.parametrize("release", NEWEST)
def test_a_broken_on_error_does_not_keep_the_stream_from_ending(browser: Browser, served: Served, release: str) -> None:
    assert error_of(failed(browser, release, served.url("unfriendly"))).startswith("An error occurred.")


@pytest.mark.parametrize("release", NEWEST)
def test_a_run_whose_ending_cannot_be_written_ends_all_the_same(browser: Browser, served: Served, release: str) -> None:
    view = failed(browser, release, served.url("wordless"))
    assert error_of(view) == "The answer ended in an error."
    # The chat is free for another question.
    assert failed(browser, release, served.url("wordless"))["requests"][0]["status"] == 200


@pytest.mark.parametrize("limit", ["first", "idle", "total"])
@pytest.mark.parametrize("release", NEWEST)
def test_an_agent_that_takes_too_long_is_cancelled_and_the_stream_ends_with_an_error(
    browser: Browser, served: Served, release: str, limit: str
) -> None:
    chat_id = f"{limit}-{release}"
    view = failed(browser, release, served.url(limit), limit, chat_id=chat_id)
    assert "too long" in error_of(view)
    assert tool_states(view) == ([] if limit == "first" else ["output-error"])
    eventually(lambda: chat_id in CANCELLED, "the agent is cancelled")
