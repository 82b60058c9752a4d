"""Two questions at once, connections that break, servers that go: what the newest clients make of our policies."""

import asyncio
import contextvars
import logging
import threading
import time
from collections.abc import AsyncIterator, Iterator

import anyio
import pytest
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import Response

from tests.conformance.http_client import NEWEST, Browser, said, text_of
from tests.conformance.served import PATIENCE, Gates, Served, eventually, serving
from usechat import parts
from usechat.server import ChatApp, Settings
from usechat.turn import Turn

GATES = Gates()
ENDED: dict[str, list[str]] = {}
"""How the runs of each chat ended, in order."""
THREADS_LEFT: set[str] = set()
LATEST = NEWEST[-1]
CURRENT: contextvars.ContextVar[str] = contextvars.ContextVar("current")


async def paced(turn: Turn) -> AsyncIterator[str]:
    ends = ENDED.setdefault(turn.chat_id, [])
    try:
        yield f"{turn.text}: "
        await GATES.passed(turn, turn.text)
        yield "done"
        ends.append("finished")
    except asyncio.CancelledError:
        ends.append("stopped")
        raise


async def scoped(turn: Turn) -> AsyncIterator[str]:
    """Hold a cancel scope, a task group and a context variable open across everything that is said."""
    token = CURRENT.set(turn.chat_id)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.sleep, 3600)
            with anyio.CancelScope():
                yield "one "
                await GATES.passed(turn)
            tasks.cancel_scope.cancel()
        yield CURRENT.get()
    finally:
        CURRENT.reset(token)


async def talking_on(turn: Turn) -> AsyncIterator[str | parts.Part]:
    """Go on after the last word."""
    yield "all said"
    yield parts.Finish()
    await GATES.passed(turn)


def in_a_thread(turn: Turn) -> Iterator[str]:
    """Check the flag from time to time, as code in threads must."""
    yield "one "
    while not turn.stopped:
        time.sleep(0.01)
    THREADS_LEFT.add(threading.current_thread().name)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    apps = {
        "reject": ChatApp(paced),
        "attach": ChatApp(paced, settings=Settings(conflict="attach")),
        "queue": ChatApp(paced, settings=Settings(conflict="queue")),
        "interrupt": ChatApp(paced, settings=Settings(conflict="interrupt")),
        "continue": ChatApp(paced, settings=Settings(disconnect="continue")),
        "scoped": ChatApp(scoped),
        "talking": ChatApp(talking_on),
        "thread": ChatApp(in_a_thread),
    }
    with serving(apps) as running:
        yield running


@pytest.mark.parametrize("release", NEWEST)
def test_the_same_question_asked_again_joins_the_answer(browser: Browser, served: Served, release: str) -> None:
    chat_id = f"again-{release}"
    first = browser.open(release, served.url("reject"), chat_id=chat_id)
    first.call("sendMessage", said("user", "hi", "u1"))
    first.until_text("hi: ")
    second = browser.open(release, served.url("reject"), chat_id=chat_id)
    second.call("sendMessage", said("user", "hi", "u1"))
    second.until_text("hi: ")
    GATES.open(chat_id, "hi")
    assert first.answer() == second.answer()
    assert ENDED[chat_id] == ["finished"]


@pytest.mark.parametrize("conflict", ["reject", "attach", "queue", "interrupt"])
@pytest.mark.parametrize("release", NEWEST)
def test_an_edited_message_gets_the_answer_to_its_new_text(
    browser: Browser, served: Served, release: str, conflict: str
) -> None:
    chat_id = f"edited-{release}-{conflict}"
    page = browser.open(release, served.url(conflict), chat_id=chat_id)
    page.call("sendMessage", said("user", "OLD", "u1"))
    page.until_text("OLD: ")
    page.stop()
    page.call("sendMessage", {"text": "NEW", "messageId": "u1"})
    page.until_text("NEW: ")
    GATES.open(chat_id, "NEW")
    page.answer()
    assert ENDED[chat_id] == ["stopped", "finished"]


@pytest.mark.parametrize("conflict", ["attach", "queue"])
def test_another_message_is_answered_after_the_one_before(browser: Browser, served: Served, conflict: str) -> None:
    first = browser.open(LATEST, served.url(conflict), chat_id=conflict)
    first.send("first")
    first.until_text("first: ")
    second = browser.open(LATEST, served.url(conflict), chat_id=conflict)
    second.send("second")
    GATES.open(conflict, "second")
    second.until(lambda view: view["requests"] != [])
    assert second.look()["status"] == "submitted"
    GATES.open(conflict, "first")
    first.answer()
    second.answer()
    assert (text_of(first.look()), text_of(second.look())) == ("first: done", "second: done")


@pytest.mark.parametrize("release", NEWEST)
def test_interrupt_stops_the_answer_that_is_being_given(browser: Browser, served: Served, release: str) -> None:
    chat_id = f"interrupt-{release}"
    first = browser.open(release, served.url("interrupt"), chat_id=chat_id)
    first.send("first")
    first.until_text("first: ")
    second = browser.open(release, served.url("interrupt"), chat_id=chat_id)
    GATES.open(chat_id, "second")
    second.send("second")
    second.answer()
    first.answer()
    assert (text_of(first.look()), text_of(second.look())) == ("first: ", "second: done")
    assert ENDED[chat_id] == ["stopped", "finished"]


@pytest.mark.parametrize("release", NEWEST)
def test_a_broken_connection_is_an_error_that_a_resume_mends(browser: Browser, served: Served, release: str) -> None:
    chat_id = f"cut-{release}"
    page = browser.open(release, served.url("reject"), chat_id=chat_id)
    page.send("hi")
    user = page.until_text("hi: ")["messages"][0]
    served.cut()
    view = page.settled()
    assert view["status"] == "error"
    if release == NEWEST[0]:
        # 5 doubles every part when one and the same chat resumes; a page that is loaded anew does not.
        page = browser.open(release, served.url("reject"), chat_id=chat_id, messages=[user])
    page.resume()
    page.until_resumed()
    GATES.open(chat_id, "hi")
    message = page.answer()
    assert [part["type"] for part in message["parts"]] == ["step-start", "text"]
    assert text_of(page.look()) == "hi: done"
    assert ENDED[chat_id] == ["finished"]


def test_a_run_may_go_on_without_readers(browser: Browser, served: Served) -> None:
    page = browser.open(LATEST, served.url("continue"), chat_id="continue")
    page.send("hi")
    page.until_text("hi: ")
    page.stop()
    page.settled()
    GATES.open("continue", "hi")
    eventually(lambda: ENDED["continue"] == ["finished"], "the agent comes to its end")


@pytest.mark.parametrize("stop", [True, False])
def test_cancel_scopes_and_context_variables_work_across_what_is_said(
    browser: Browser, served: Served, caplog: pytest.LogCaptureFixture, stop: bool
) -> None:
    caplog.set_level(logging.WARNING)
    chat_id = f"scoped-{stop}"
    page = browser.open(LATEST, served.url("scoped"), chat_id=chat_id)
    page.send("hi")
    page.until_text("one ")
    if stop:
        assert served.post(f"/scoped/api/chat/{chat_id}/stop") == 204
    else:
        GATES.open(chat_id)
    page.answer()
    assert text_of(page.look()) == ("one " if stop else f"one {chat_id}")
    assert caplog.messages == []


def test_an_agent_that_goes_on_after_its_last_word_can_be_stopped(browser: Browser, served: Served) -> None:
    page = browser.open(LATEST, served.url("talking"), chat_id="talking")
    page.send("hi")
    page.until_text("all said")
    assert served.post("/talking/api/chat/talking/stop") == 204
    page.answer()
    assert text_of(page.look()) == "all said"


def test_an_agent_in_a_thread_sees_that_it_was_stopped(browser: Browser, served: Served) -> None:
    page = browser.open(LATEST, served.url("thread"), chat_id="thread")
    page.send("hi")
    page.until_text("one ")
    assert served.post("/thread/api/chat/thread/stop") == 204
    page.answer()
    assert text_of(page.look()) == "one "
    eventually(lambda: THREADS_LEFT, "the thread ends")


@pytest.mark.parametrize("middleware", [False, True])
@pytest.mark.parametrize("release", NEWEST)
def test_a_server_that_goes_looks_like_a_broken_connection_and_not_like_the_end(
    browser: Browser, release: str, middleware: bool
) -> None:
    async def pass_on(request: Request, call_next: RequestResponseEndpoint) -> Response:
        return await call_next(request)

    app = ChatApp(paced, drain=0)
    chat_id = f"going-{release}-{middleware}"
    with serving({"going": BaseHTTPMiddleware(app, dispatch=pass_on) if middleware else app}) as going:
        page = browser.open(release, going.url("going"), chat_id=chat_id)
        page.send("hi")
        page.until_text("hi: ")
        going.run(app.shut_down()).result(PATIENCE)
        view = page.settled()
    assert view["status"] == "error"
    assert ENDED[chat_id] == ["stopped"]
