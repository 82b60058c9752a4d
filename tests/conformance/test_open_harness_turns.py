"""Turns over our own runtime, and the later dialects (scripted), on pages of the real clients 5, 6 and 7."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import pytest

from tests.conformance.http_client import NEWEST, Browser, text_of
from tests.conformance.open_harness import Stage, good, last, parts_of, said_by
from tests.conformance.served import eventually
from tests.open_harness.scripted import ScriptedRuntime
from usechat.errors import PublicError
from usechat.open_harness import FlowRuntime, NodeContext, OpenHarnessChatTransport, default_registry
from usechat.open_harness.runtime_protocol import Event
from usechat.server import ChatApp
from usechat.turn import Turn

STOPPED: list[str] = []


async def listening(inputs: Mapping[str, Any], context: NodeContext) -> AsyncIterator[str]:
    """Answer messages until one says `end`."""
    yield f"Hello {inputs['text']}. "
    try:
        while (message := (await context.inbox.receive())["message"]) != "end":
            yield f"Heard {message}. "
    except asyncio.CancelledError:
        STOPPED.append(inputs["text"])
        raise
    yield "Bye."


async def asking(_inputs: Mapping[str, Any], context: NodeContext) -> AsyncIterator[str]:
    """Ask once, pause, and go on with the answer."""
    if context.resume_message is None:
        yield "Which? "
        context.pause()
        await asyncio.Event().wait()
    yield f"{context.resume_message} it is."


async def refusing(inputs: Mapping[str, Any]) -> None:
    raise PublicError("The file is too large.") if inputs["text"] == "public" else KeyError("secret")


async def counting(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"n": (inputs.get("n") or 0) + 1}


def speaking(inputs: Mapping[str, Any]) -> Iterator[str]:
    yield f"{inputs['text']}."


def node(name: str, kind: str, **fields: Any) -> Any:
    return {"id": name, "type": kind, "input": {"text": "{{ flow.input.message }}", **fields}}


FLOWS: dict[str, Any] = {
    "listening": {"name": "listening", "nodes": [node("a", "listening")], "edges": []},
    "asking": {"name": "asking", "nodes": [node("a", "asking")], "edges": []},
    "refusing": {"name": "refusing", "nodes": [node("a", "refusing")], "edges": []},
    "branches": {
        "name": "branches",
        "parallel": True,
        "nodes": [
            {**node("start", "speaking", text="Start"), "ui": {"x": 1, "y": 2}},
            node("left", "speaking", text="Left"),
            node("right", "speaking", text="Right"),
            {"id": "again", "type": "counting", "input": {"n": "{{ again.n }}"}},
            node("end", "speaking", text="End"),
        ],
        "edges": [
            {"from": "start", "to": "left"},
            {"from": "start", "to": "right"},
            {"from": "left", "to": "again"},
            {"from": "right", "to": "again"},
            {"from": "again", "to": "again", "when": "again.n < 3", "maxIterations": 5},
            {"from": "again", "to": "end", "when": "again.n = 3"},
        ],
    },
}


def session(name: str, **payload: Any) -> Event:
    return {"id": name, "name": name, "payload": payload, "timestamp": 1000}


async def session_asks(runtime: ScriptedRuntime) -> AsyncIterator[Event]:
    yield session("workflow:started", workflow="w")
    yield session("agent:started", agent="a")
    yield session("text:delta", agent="a", delta="Let me ask. ")
    kind = runtime.input["message"]
    options = ["tea", "coffee"] if kind == "choice" else None
    yield session("input:requested", id="q1", prompt="Sure?", type=kind, options=options)
    runtime.status = "paused"


async def session_goes_on(runtime: ScriptedRuntime) -> AsyncIterator[Event]:
    answer = runtime.resumed_with[-1]
    approved = {"approved": answer == "yes"} if answer in ("yes", "no") else {}
    yield session("input:received", id="q1", value=answer, **approved)
    yield session("text:delta", agent="a", delta=f"So: {answer}.")
    yield session("workflow:completed")


def signals(_turn: Turn) -> ScriptedRuntime:
    async def script(_runtime: ScriptedRuntime) -> AsyncIterator[Event]:
        for name, payload in [
            ("harness:start", {}),
            ("thinking:delta", {"content": "Hm"}),
            ("text:delta", {"content": "Hel"}),
            ("text:delta", {"content": "lo"}),
            ("text:complete", {"content": "Hello"}),
            ("tool:call", {"id": "t1", "name": "shell", "input": {"command": "ls"}}),
            ("tool:result", {"id": "t1", "name": "shell", "result": "a b"}),
            ("harness:end", {"output": {"usage": {"inputTokens": 3}}, "durationMs": 1}),
        ]:
            yield {
                "id": "s",
                "name": name,
                "payload": payload,
                "timestamp": "2026-01-11T10:00:00Z",
                "source": {"agent": "a"},
            }

    return ScriptedRuntime(script)


STAGE = Stage({})
each_release = pytest.mark.parametrize("release", NEWEST)


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    registry = default_registry()
    for function in (listening, asking, refusing, counting, speaking):
        registry.add(function.__name__, function)

    def app(flow: Any) -> ChatApp:
        return ChatApp(OpenHarnessChatTransport(lambda: FlowRuntime(flow, registry=registry), send_flow_metadata=True))

    apps = {name: app(flow) for name, flow in FLOWS.items()}
    sessions = OpenHarnessChatTransport(lambda: ScriptedRuntime(session_asks, session_goes_on))
    others = {"sessions": ChatApp(sessions), "signals": ChatApp(OpenHarnessChatTransport(signals))}
    with STAGE.serving(**apps, **others) as running:
        yield running


@each_release
def test_fr_016_a_python_node_reads_further_messages_from_its_inbox(
    browser: Browser, stage: Stage, release: str
) -> None:
    chat = stage.open(browser, release, "listening")
    chat.page.send("you")
    chat.page.until_text("Hello you. ")
    other = browser.open(release, stage.url("listening"), chat_id=chat.chat_id)
    other.send("one")
    assert good(chat.page.settled())
    other.until_text("Heard one. ")
    third = browser.open(release, stage.url("listening"), chat_id=chat.chat_id)
    third.send("end")
    third.answer()
    views = [other.settled(), third.look()]
    assert [text_of(view) for view in views] == ["Heard one. ", "Bye."]
    assert all(good(view) for view in views)
    assert [part["data"]["status"] for part in parts_of(views[1], "data-flow-status")] == ["complete"]


@each_release
def test_fr_016_the_same_page_may_send_again_while_the_flow_runs(browser: Browser, stage: Stage, release: str) -> None:
    chat = stage.open(browser, release, "listening")
    chat.page.send("you")
    chat.page.until_text("Hello you. ")
    chat.page.send("end")
    view = chat.page.settled()
    assert (good(view), text_of(view)) == (True, "Bye.")
    assert {request["status"] for request in view["requests"]} == {200}


@each_release
def test_fr_009_a_stop_reaches_the_node(browser: Browser, stage: Stage, release: str) -> None:
    chat = stage.open(browser, release, "listening")
    chat.page.send(f"stop {release}")
    chat.page.until_text(f"Hello stop {release}. ")
    chat.stop()
    view = chat.page.settled()
    assert good(view)
    eventually(lambda: f"stop {release}" in STOPPED, "the node is stopped")


@each_release
def test_a_paused_flow_goes_on_with_the_next_message(browser: Browser, stage: Stage, release: str) -> None:
    chat = stage.open(browser, release, "asking")
    chat.page.send("hi")
    paused = chat.page.settled()
    assert (good(paused), text_of(paused)) == (True, "Which? ")
    assert last(paused)["metadata"]["openHarness"] == {"status": "paused"}
    assert [part["data"]["status"] for part in parts_of(paused, "data-node-status")] == ["paused"]
    chat.page.send("Tea")
    chat.page.answer()
    assert text_of(chat.page.look()) == "Tea it is."


@each_release
def test_a_node_may_tell_people_why_it_failed(browser: Browser, stage: Stage, release: str) -> None:
    view = stage.answer(browser, release, "public", "refusing")
    assert (view["status"], view["error"] and view["error"]["message"]) == ("error", "The file is too large.")
    hidden = stage.answer(browser, release, "private", "refusing")
    assert hidden["error"] is not None
    assert hidden["error"]["message"].startswith("The step “a” failed. Reference: ")
    assert "secret" not in str(hidden)


@each_release
def test_us5_3_branches_and_a_loop_can_be_drawn_from_the_parts(browser: Browser, stage: Stage, release: str) -> None:
    view = stage.answer(browser, release, "hi", "branches")
    assert good(view)
    assert sorted(said_by(view)) == [("end", "End."), ("left", "Left."), ("right", "Right."), ("start", "Start.")]
    [graph] = parts_of(view, "data-flow-graph")
    assert graph["data"]["nodes"][:2] == [
        {"id": "start", "type": "speaking", "ui": {"x": 1, "y": 2}},
        {"id": "left", "type": "speaking"},
    ]
    loop = {"from": "again", "to": "again", "when": "again.n < 3", "maxIterations": 5}
    assert loop in graph["data"]["edges"]
    edges = [part["data"] for part in parts_of(view, "data-edge")]
    assert sorted((edge["from"], edge["to"]) for edge in edges[:4]) == [
        *(("left", "again"), ("right", "again"), ("start", "left"), ("start", "right"))
    ]
    assert edges[4:] == [
        *({"from": "again", "to": "again", "iteration": number} for number in (1, 2)),
        {"from": "again", "to": "end"},
    ]
    statuses = [(part["data"]["nodeId"], part["data"]["status"]) for part in parts_of(view, "data-node-status")]
    assert sorted(statuses) == sorted(
        (name, "complete") for name in ("start", "left", "right", "again", "again", "again", "end")
    )


@each_release
def test_a_session_that_asks_for_a_choice_goes_on_with_the_pages_answer(
    browser: Browser, stage: Stage, release: str
) -> None:
    chat = stage.open(browser, release, "sessions", automatic=["tools"])
    chat.page.send("choice")
    view = chat.page.settled()
    [call] = parts_of(view, "tool-")
    assert (call["type"], call["state"]) == ("tool-choose", "input-available")
    assert call["input"] == {"prompt": "Sure?", "options": ["tea", "coffee"]}
    answer = {"tool": "choose", "toolCallId": call["toolCallId"], "output": "tea"}
    chat.page.call("addToolResult" if release.startswith("5") else "addToolOutput", answer)
    done = chat.page.until(lambda now: text_of(now) == "Let me ask. So: tea." and now["status"] == "ready")
    assert (good(done), len(done["messages"])) == (True, 2)
    assert [part["output"] for part in parts_of(done, "tool-")] == ["tea"]


@pytest.mark.parametrize("approved", [True, False])
@pytest.mark.parametrize("release", NEWEST[1:])
def test_a_session_that_asks_for_approval_goes_on_with_the_pages_answer(
    browser: Browser, stage: Stage, release: str, approved: bool
) -> None:
    query = f"?sdk={release}"
    chat_id = f"approval-{release}-{approved}"
    page = browser.open(release, stage.url("sessions") + query, chat_id=chat_id, automatic=["approvals"])
    page.send("approval")
    view = page.settled()
    [call] = parts_of(view, "tool-")
    assert (call["type"], call["state"], call["input"]) == ("tool-approve", "approval-requested", {"prompt": "Sure?"})
    page.call("addToolApprovalResponse", {"id": call["approval"]["id"], "approved": approved})
    decision = "yes" if approved else "no"
    done = page.until(lambda now: text_of(now) == f"Let me ask. So: {decision}." and now["status"] == "ready")
    assert (good(done), len(done["messages"])) == (True, 2)
    assert [part["state"] for part in parts_of(done, "tool-")] == ["output-available" if approved else "output-denied"]


@each_release
def test_signals_are_shown(browser: Browser, stage: Stage, release: str) -> None:
    view = stage.answer(browser, release, "hi", "signals")
    assert good(view)
    types = [part["type"] for part in last(view)["parts"]]
    assert types == ["step-start", "reasoning", "text", "tool-shell"]
    assert (text_of(view), last(view)["metadata"]["usage"]) == ("Hello", {"inputTokens": 3})
