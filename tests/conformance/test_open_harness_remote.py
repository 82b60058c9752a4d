"""Flows that run elsewhere, on the pages of the newest clients: WebSockets, sessions, and what goes wrong.

The servers of Open Harness are scripted: they repeat what the real ones did on the wire.
"""

import itertools
from collections.abc import AsyncIterator, Iterator, Mapping
from functools import partial
from typing import Any

import pytest
from prometheus_client import REGISTRY

from tests.conformance.http_client import NEWEST, WITH_APPROVALS, Browser, Page, text_of
from tests.conformance.served import Served, eventually, serving, unanswered_port
from tests.open_harness.remote.session_server import SessionServer
from usechat.open_harness import (
    FlowRuntime,
    NodeContext,
    OpenHarnessChatTransport,
    RemoteRuntime,
    RemoteSessions,
    default_registry,
    runtime_app,
)
from usechat.open_harness.remote.flows import LOST
from usechat.server import ChatApp, Settings

STOPPED: list[str] = []
_numbers = itertools.count(1)


async def talk(inputs: Mapping[str, Any], context: NodeContext) -> AsyncIterator[str]:
    """Do what the message says: say it, wait for more messages, pause, or fail."""
    if context.resume_message is not None:
        yield f"You answered {context.resume_message}."
        return
    yield f"You said {inputs['text']}."
    try:
        match inputs["text"]:
            case "wait":
                command = await context.inbox.receive()
                yield f" And then {command['message']}."
            case "ask":
                context.pause()
                await context.inbox.receive()
            case "fail":
                raise ValueError("the password is hunter2")
    finally:
        if context.stopped:
            STOPPED.append(inputs["text"])


def flow() -> FlowRuntime:
    registry = default_registry()
    registry.add("talk", talk)
    node = {"id": "talker", "type": "talk", "input": {"text": "{{ flow.input.message }}"}}
    return FlowRuntime({"name": "talk", "nodes": [node], "edges": []}, registry=registry)


def chats(factory: Any) -> ChatApp:
    return ChatApp(OpenHarnessChatTransport(factory), settings=Settings(disconnect="cancel"))


@pytest.fixture(scope="module")
def back() -> Iterator[Served]:
    """The servers of flows."""
    with serving({"flows": runtime_app(flow), "workflows": SessionServer().app}) as running:
        yield running


@pytest.fixture(scope="module")
def front(back: Served) -> Iterator[Served]:
    """The server of pages."""
    with unanswered_port() as nobody:
        apps = {
            "flows": chats(partial(RemoteRuntime, f"ws://127.0.0.1:{back.port}/flows/ws")),
            "workflows": chats(RemoteSessions(f"http://127.0.0.1:{back.port}/workflows")),
            "absent": chats(partial(RemoteRuntime, f"ws://127.0.0.1:{nobody}/ws", connect_seconds=0.1)),
            "absent-workflows": chats(RemoteSessions(f"http://127.0.0.1:{nobody}", connect_seconds=0.1)),
        }
        with serving(apps) as running:
            yield running


def open_page(browser: Browser, front: Served, release: str, name: str, **options: Any) -> Page:
    return browser.open(release, front.url(name), chat_id=f"remote-{next(_numbers)}", **options)


def texts(message: Any) -> list[str]:
    return [part["text"] for part in message["parts"] if part["type"] == "text"]


@pytest.mark.parametrize("release", NEWEST)
def test_a_remote_flow_answers_one_turn_after_another(browser: Browser, front: Served, release: str) -> None:
    page = open_page(browser, front, release, "flows")
    for text in ("one", "two"):
        page.send(text)
        assert texts(page.answer()) == [f"You said {text}."]


@pytest.mark.parametrize("release", NEWEST)
def test_a_paused_remote_flow_goes_on_with_the_next_message(browser: Browser, front: Served, release: str) -> None:
    page = open_page(browser, front, release, "flows")
    page.send("ask")
    assert texts(page.answer()) == ["You said ask."]
    page.send("yes")
    assert texts(page.answer()) == ["You answered yes."]


@pytest.mark.parametrize("release", NEWEST)
def test_a_message_to_a_running_remote_flow_is_taken_by_its_node(browser: Browser, front: Served, release: str) -> None:
    first = open_page(browser, front, release, "flows")
    first.send("wait")
    view = first.until_text("You said wait.")
    second = browser.open(
        release, front.url("flows"), chat_id=f"remote-{next(_numbers) - 1}", messages=view["messages"][:1]
    )
    second.send("more")
    assert "".join(texts(second.answer())) == " And then more."
    assert texts(first.answer()) == ["You said wait."]


@pytest.mark.parametrize("release", NEWEST)
def test_a_stop_reaches_the_remote_flow(browser: Browser, front: Served, release: str) -> None:
    page = open_page(browser, front, release, "flows")
    page.send("wait")
    page.until_text("You said wait.")
    count = len(STOPPED)
    page.stop()
    assert page.settled()["status"] == "ready"
    eventually(lambda: len(STOPPED) > count, "the node is stopped")


@pytest.mark.parametrize("release", NEWEST)
def test_a_node_that_fails_elsewhere_is_an_error_in_words(browser: Browser, front: Served, release: str) -> None:
    page = open_page(browser, front, release, "flows")
    page.send("fail")
    view = page.settled()
    assert view["error"] is not None
    assert view["error"]["message"].startswith("The step “talker” failed. Reference: ")


@pytest.mark.parametrize("release", NEWEST)
def test_a_link_that_breaks_is_an_error_that_the_user_sees(
    browser: Browser, back: Served, front: Served, release: str
) -> None:
    page = open_page(browser, front, release, "flows")
    page.send("wait")
    page.until_text("You said wait.")
    back.cut()
    view = page.settled()
    assert view["error"] is not None
    assert view["error"]["message"] == LOST
    assert text_of(view) == "You said wait."


@pytest.mark.parametrize("name", ["absent", "absent-workflows"])
@pytest.mark.parametrize("release", NEWEST)
def test_a_server_that_is_not_there_is_told_and_counted(
    browser: Browser, front: Served, release: str, name: str
) -> None:
    before = REGISTRY.get_sample_value("adapter_ws_open_failures_total") or 0
    page = open_page(browser, front, release, name)
    page.send("hi")
    view = page.settled()
    assert view["error"] is not None
    assert view["error"]["message"] == "The flow cannot be reached at the moment. Please try again later."
    assert REGISTRY.get_sample_value("adapter_ws_open_failures_total") == before + 1


@pytest.mark.parametrize("release", NEWEST)
def test_a_session_answers_with_text_and_tools(browser: Browser, front: Served, release: str) -> None:
    page = open_page(browser, front, release, "workflows")
    page.send("one tool two")
    message = page.answer()
    assert texts(message) == ["one ", "two "]
    (tool,) = [part for part in message["parts"] if part["type"] == "tool-look"]
    assert (tool["state"], tool["input"], tool["output"]) == ("output-available", {"at": 1}, [1])


def tool_part(message: Any, kind: str) -> Any:
    (part,) = [part for part in message["parts"] if part["type"] == kind]
    return part


@pytest.mark.parametrize("release", NEWEST)
def test_a_session_that_requests_a_choice_goes_on_with_what_the_page_answers(
    browser: Browser, front: Served, release: str
) -> None:
    page = open_page(browser, front, release, "workflows", automatic=["tools"])
    page.send("one ask two")
    call = tool_part(page.answer(), "tool-choose")
    assert call["state"] == "input-available"
    assert call["input"] == {"prompt": "Really?", "options": ["yes", "no"]}
    page.call("addToolOutput", {"tool": "choose", "toolCallId": call["toolCallId"], "output": "yes"})
    page.until(lambda view: len(view["requests"]) == 2)
    message = page.answer()
    assert texts(message) == ["one ", "two "]
    assert (tool_part(message, "tool-choose")["state"], len(page.look()["messages"])) == ("output-available", 2)


@pytest.mark.parametrize("approved", [True, False])
@pytest.mark.parametrize("release", WITH_APPROVALS)
def test_a_session_that_requests_an_approval_goes_on_with_what_the_page_answers(
    browser: Browser, front: Served, release: str, approved: bool
) -> None:
    url = f"{front.url('workflows')}?sdk={release}"
    page = browser.open(release, url, chat_id=f"remote-{next(_numbers)}", automatic=["approvals", "tools"])
    page.send("one approve two")
    call = tool_part(page.answer(), "tool-approve")
    assert (call["state"], call["input"]) == ("approval-requested", {"prompt": "Really?"})
    page.call("addToolApprovalResponse", {"id": call["approval"]["id"], "approved": approved})
    page.until(lambda view: len(view["requests"]) == 2)
    message = page.answer()
    assert texts(message) == ["one ", "two "]
    assert tool_part(message, "tool-approve")["state"] == ("output-available" if approved else "output-denied")


@pytest.mark.parametrize("release", NEWEST)
def test_a_session_that_requests_input_goes_on_with_the_next_message(
    browser: Browser, front: Served, release: str
) -> None:
    page = open_page(browser, front, release, "workflows")
    page.send("one ask two")
    page.answer()
    page.send("yes")
    assert "two " in texts(page.answer())
