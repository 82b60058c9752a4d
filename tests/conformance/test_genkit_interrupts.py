"""Interrupted tools of real Genkit servers, several at once or again, before the real npm clients."""

import json
import re
import urllib.request
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.genkit_servers import NodeServer, node_server, python_app
from tests.conformance.http_client import WITH_APPROVALS, Browser, Page, View, text_of
from tests.conformance.served import Served, serving
from tests.genkit import go_server, scripted
from usechat.genkit import GenkitChatTransport, agent_input, messages_input, stateless_agent_input
from usechat.genkit.errors import CANNOT_TELL_APART
from usechat.server import ChatApp

RELEASE = WITH_APPROVALS[-1]
STEP = ("step-start", None)
INPUTS: dict[str, Any] = {
    "conversation": messages_input,
    "stateless": stateless_agent_input,
    "helper": agent_input,
}
OBJECTS = {"conversation": scripted.conversation, "stateless": scripted.stateless, "helper": scripted.agent}

every_place = pytest.mark.parametrize("place", ["process", "python", "node"])
every_input = pytest.mark.parametrize("name", INPUTS)


@pytest.fixture(scope="module")
def node() -> Iterator[NodeServer]:
    with node_server() as running:
        yield running


@pytest.fixture(scope="module")
def served(node: NodeServer) -> Iterator[Served]:
    with serving({"genkit": python_app(), "go": go_server.app()}) as python:
        url = f"http://127.0.0.1:{python.port}"
        flows = {
            "process": OBJECTS.__getitem__,
            "python": lambda name: f"{url}/genkit/{name}",
            "node": node.url,
        }
        apps = {
            f"{place}-{name}-{interrupts}": ChatApp(
                GenkitChatTransport(find(name), build_input=build_input, interrupts=interrupts)
            )
            for place, find in flows.items()
            for name, build_input in INPUTS.items()
            for interrupts in ("tool", "approval")
        }
        apps["go"] = ChatApp(GenkitChatTransport(f"{url}/go/agent", build_input=agent_input))
        with serving(apps) as running:
            yield running


@pytest.fixture(autouse=True)
def nothing_deleted_yet() -> None:
    scripted.DELETED.clear()


def shown(view: View) -> list[tuple[str, Any]]:
    """Return the parts of the last message in short: kinds, and texts, outputs or states."""
    return [
        (part["type"], part.get("text", part.get("output", part.get("state"))))
        for part in view["messages"][-1]["parts"]
    ]


def asked(browser: Browser, served: Served, app: str, text: str) -> Page:
    automatic = ["approvals"] if app.endswith("approval") else ["tools"]
    page = browser.open(RELEASE, f"{served.url(app)}?sdk={RELEASE}", chat_id=f"{app}-{text}", automatic=automatic)
    page.send(text)
    return page


def good(page: Page, requests: int) -> View:
    """Wait for the end of a good turn, which is that of this many requests."""
    page.until(lambda view: len(view["requests"]) >= requests)
    view = page.settled()
    assert (view["status"], view["error"], len(view["requests"])) == ("ready", None, requests)
    return view


def calls_of(view: View) -> list[Any]:
    return [part for part in view["messages"][-1]["parts"] if part["type"].startswith("tool-")]


def decide(page: Page, view: View, *decisions: bool, **more: Any) -> None:
    open_calls = [part for part in calls_of(view) if part["state"] == "approval-requested"]
    for part, approved in zip(open_calls, decisions, strict=True):
        page.call("addToolApprovalResponse", {"id": part["approval"]["id"], "approved": approved, **more})


# Two calls of one tool without refs: Genkit finds a call by its name and ref, so it gives both the first answer


@pytest.mark.parametrize("name", ["conversation", "stateless"])
@every_place
def test_each_of_two_calls_of_one_tool_gets_its_own_decision(
    browser: Browser, served: Served, node: NodeServer, place: str, name: str
) -> None:
    before = len(node.heard()["deleted"])
    page = asked(browser, served, f"{place}-{name}-approval", "twins")
    decide(page, good(page, 1), True, False)
    view = good(page, 2)
    deleted = node.heard()["deleted"][before:] if place == "node" else [list(each) for each in scripted.DELETED]
    assert sorted(deleted) == [["Paris", False], ["Rome", True]]
    rome, paris, paris_again = calls_of(view)
    assert (rome["output"], paris["state"]) == ("Rome is gone", "output-denied")
    assert (paris_again["output"], paris_again["input"]) == ("Paris is still there", paris["input"])
    assert text_of(view) == 'May I?["Paris is still there","Rome is gone"]'


@pytest.mark.parametrize("name", ["conversation", "stateless"])
@every_place
def test_each_of_two_calls_of_one_tool_gets_its_own_output(
    browser: Browser, served: Served, place: str, name: str
) -> None:
    page = asked(browser, served, f"{place}-{name}-tool", "twins")
    for part, output in zip(calls_of(good(page, 1)), ("first", "second"), strict=True):
        page.call("addToolOutput", {"tool": "delete", "toolCallId": part["toolCallId"], "output": output})
    view = good(page, 2)
    read = ("text", '["first","second"]')
    assert shown(view)[2:] == [("tool-delete", "first"), ("tool-delete", "second"), STEP, read]


@every_place
def test_an_agent_with_a_store_that_cannot_tell_two_answers_apart_is_not_given_them(
    browser: Browser, served: Served, node: NodeServer, place: str
) -> None:
    before = len(node.heard()["deleted"])
    page = asked(browser, served, f"{place}-helper-approval", "twins")
    decide(page, good(page, 1), True, False)
    page.until(lambda view: len(view["requests"]) == 2)
    view = page.settled()
    assert view["error"] is not None
    assert view["error"]["message"] == CANNOT_TELL_APART
    assert (node.heard()["deleted"][before:], scripted.DELETED) == ([], [])


# Tools that have run when another one is interrupted


@every_input
@every_place
def test_tools_that_returned_nothing_or_false_beside_an_interrupt_are_shown_once_and_the_agent_goes_on(
    browser: Browser, served: Served, place: str, name: str
) -> None:
    page = asked(browser, served, f"{place}-{name}-approval", "beside")
    view = good(page, 1)
    run = [("tool-nothing", None), ("tool-never", False)]
    assert shown(view)[2:] == [("tool-delete", "approval-requested"), *run]
    decide(page, view, True)
    assert shown(good(page, 2))[2:] == [("tool-delete", "Rome is gone"), *run, STEP, ("text", "Thanks.")]


@every_input
@pytest.mark.parametrize("place", ["process", "python"])  # JavaScript fails when a restarted tool is interrupted again
def test_a_tool_that_is_interrupted_again_asks_again(browser: Browser, served: Served, place: str, name: str) -> None:
    page = asked(browser, served, f"{place}-{name}-approval", "twice")
    decide(page, good(page, 1), True)
    view = good(page, 2)
    run = ("tool-weather", {"city": "Oslo", "celsius": 4})
    assert shown(view)[2:] == [("tool-twice", "approval-requested"), run]
    decide(page, view, True, reason="Really.")
    assert shown(good(page, 3))[2:] == [("tool-twice", "Rome is gone"), run, STEP, ("text", "Thanks.")]


def test_a_tool_that_reports_progress_before_its_interrupt_waits_for_the_page(browser: Browser, served: Served) -> None:
    page = asked(browser, served, "go", "check and delete")
    view = good(page, 1)
    (call,) = calls_of(view)
    assert (call["state"], call.get("output"), call.get("preliminary")) == ("input-available", None, None)
    page.call("addToolOutput", {"tool": "delete", "toolCallId": call["toolCallId"], "output": "by hand"})
    assert shown(good(page, 2))[1:] == [("text", "May I?"), ("tool-delete", "by hand"), STEP, ("text", "Thanks.")]


# What JavaScript's defineInterrupt tells: the facts behind docs/decisions/0012


@every_input
def test_the_output_of_the_page_answers_a_tool_of_define_interrupt(browser: Browser, served: Served, name: str) -> None:
    page = asked(browser, served, f"node-{name}-tool", "confirm")
    (call,) = calls_of(good(page, 1))
    assert (call["type"], call["state"]) == ("tool-confirm", "input-available")
    page.call("addToolOutput", {"tool": "confirm", "toolCallId": call["toolCallId"], "output": {"confirmed": True}})
    assert shown(good(page, 2))[2:] == [("tool-confirm", {"confirmed": True}), STEP, ("text", "Thanks.")]


def stream(url: str, data: Any, **more: Any) -> list[str]:
    """Return the frames of an answer."""
    body = json.dumps({"data": data, **more}).encode()
    headers = {"content-type": "application/json", "accept": "text/event-stream"}
    with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as response:
        frames: str = response.read().decode()
    return [frame for frame in frames.split("\n\n") if frame.strip()]


def restarted_by_flow(node: NodeServer, tool: str) -> list[str]:
    """Interrupt and restart a tool of a flow; return the frames of both answers."""
    question = {"role": "user", "content": [{"text": tool}]}
    frames = stream(node.url("conversation"), {"messages": [question]})
    message = json.loads(frames[-1].removeprefix("data: "))["result"]["message"]
    restart = {"toolRequest": message["content"][-1]["toolRequest"], "metadata": {"resumed": {"approved": True}}}
    again = stream(node.url("conversation"), {"messages": [question, message], "resume": {"restart": [restart]}})
    return [frame.replace(tool, "TOOL") for frame in (*frames, *again)]


def restarted_by_agent(node: NodeServer, tool: str) -> list[str]:
    """Do the same with an agent; return the frames without the ids of its session and snapshots."""
    init = {"sessionId": str(uuid.uuid4())}
    frames = stream(node.url("helper"), {"message": {"role": "user", "content": [{"text": tool}]}}, init=init)
    message = json.loads(frames[-1].removeprefix("data: "))["result"]["message"]
    restart = {"toolRequest": message["content"][-1]["toolRequest"], "metadata": {"resumed": {"approved": True}}}
    again = stream(node.url("helper"), {"resume": {"restart": [restart]}}, init=init)
    return [re.sub(r"[0-9a-f-]{36}", "ID", frame.replace(tool, "TOOL")) for frame in (*frames, *again)]


@pytest.mark.parametrize("restarted", [restarted_by_flow, restarted_by_agent])
def test_a_restart_of_an_interrupt_looks_like_one_of_a_tool_that_has_run(node: NodeServer, restarted: Any) -> None:
    """So a failed restart does not prove that nothing was run, and no response may follow it."""
    before = len(node.heard()["deleted"])
    confirm = restarted(node, "confirm")
    assert node.heard()["deleted"][before:] == []
    assert restarted(node, "relapse") == confirm
    assert node.heard()["deleted"][before:] == [["Rome", True]]
    assert '"status":"INTERNAL"' in confirm[-1]
