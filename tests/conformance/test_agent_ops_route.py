"""The integration tests 1 to 7 of the Agent Ops RFC: real clients, the gateway, a real session behind it."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from websockets.sync.client import connect

from tests.agent_ops.gateways import PATIENCE, Gateway, Upstream, eventually, gateway, upstream
from tests.conformance.http_client import NEWEST, WITH_APPROVALS, Browser, Page, View, text_of
from usechat.agent_ops.adapter import REMOVED, WITHDRAWN

SESSIONS = tuple(f"s{number}" for number in range(8))


@pytest.fixture(scope="module")
def behind() -> Iterator[Upstream]:
    with upstream() as running:
        yield running


@pytest.fixture(scope="module")
def gate(behind: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with gateway(tmp_path_factory.mktemp("sessions"), behind, SESSIONS) as running:
        yield running


class Chats:
    """Opens pages, each with a new chat."""

    def __init__(self, browser: Browser, gate: Gateway) -> None:
        self._browser = browser
        self._gate = gate
        self._count = 0

    def open(
        self,
        release: str,
        app: str = "client",
        *,
        session_id: str = "interactive",
        person: str = "carl",
        chat_id: str | None = None,
        sdk: str = "any",
        **options: Any,
    ) -> Page:
        self._count += 1
        return self._browser.open(
            release,
            self._gate.url(app, session_id),
            chat_id=chat_id or f"chat {self._count}",
            headers={**self._gate.headers(person), "x-ai-sdk": sdk},
            **options,
        )


@pytest.fixture(scope="module")
def chats(browser: Browser, gate: Gateway) -> Chats:
    return Chats(browser, gate)


def shape(view: View) -> list[tuple[str, str]]:
    """Return what the page shows of the last message: kinds of parts, with their text or state."""
    parts = [part for part in view["messages"][-1]["parts"] if part["type"] != "step-start"]
    return [(part["type"], part["text"] if part["type"] == "text" else part["state"]) for part in parts]


@pytest.mark.parametrize("app", ["client", "runner", "both", "later"])
@pytest.mark.parametrize("release", NEWEST)
def test_1_round_trip(chats: Chats, gate: Gateway, release: str, app: str) -> None:
    page = chats.open(release, app)
    for text in ("hello there", "and again"):
        page.send(text)
        page.answer()
        assert text_of(page.look()) == f"You said: {text}"
    view = page.look()
    assert (view["status"], view["error"]) == ("ready", None)
    assert [message["role"] for message in view["messages"]] == ["user", "assistant"] * 2
    assert [part["state"] for part in view["messages"][-1]["parts"] if part["type"] == "text"] == ["done"]
    answer = gate.post(app, "hello there")
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["x-vercel-ai-ui-message-stream"] == "v1"
    names = [name for name, _ in answer.events]
    assert [name for name in names if name not in ("start-step", "finish-step", "data-agent-status")] == [
        "message-start",
        "text-start",
        *["text-delta"] * 3,
        "text-end",
        "message-finish",
    ]
    chunks = dict(answer.events)
    assert chunks["message-start"]["messageId"] == chunks["text-start"]["id"]


@pytest.mark.parametrize("app", ["client", "runner", "both", "later"])
@pytest.mark.parametrize("release", NEWEST)
def test_2_abort(chats: Chats, gate: Gateway, release: str, app: str) -> None:
    session = gate.sessions[app]["s0"]
    page = chats.open(release, app, session_id="s0")
    page.send("slow")
    page.until(lambda view: text_of(view).startswith("tick tick"))
    page.stop()
    view = page.settled()
    assert (view["status"], view["error"]) == ("ready", None)
    assert text_of(view).startswith("tick tick")
    eventually(lambda: not session.busy and not session.clients, "the turn is canceled")
    assert [command["type"] for _, command in session.commands][-2:] == ["prompt", "abort"]
    page.send("hello")
    page.answer()
    assert text_of(page.look()) == "You said: hello"


@pytest.mark.parametrize("release", NEWEST)
def test_3_auth(browser: Browser, gate: Gateway, release: str) -> None:
    def refused(session_id: str, headers: dict[str, str]) -> tuple[str, str | None, int | None, int]:
        page = browser.open(release, gate.url("client", session_id), chat_id="refused", headers=headers)
        page.send("hello")
        view = page.settled()
        text = view["error"]["message"] if view["error"] else None
        return view["status"], text, view["requests"][-1]["status"], len(view["messages"])

    before = gate.sessions["client"].connections
    assert refused("interactive", {}) == ("error", "The request carries no bearer token.", 401, 1)
    nonsense = {"Authorization": "Bearer nonsense"}
    assert refused("interactive", nonsense) == ("error", "The token is not valid.", 401, 1)
    for person, session_id in [
        ("carl", "no-such-session"),
        ("vera", "interactive"),
        ("stranger", "interactive"),
        ("carl", "orchestrator"),
        ("carl", "workflow"),
    ]:
        assert refused(session_id, gate.headers(person)) == ("error", "No such session.", 404, 1)
    assert gate.sessions["client"].connections == before
    page = browser.open(release, gate.url("client", "workflow"), chat_id="own", headers=gate.headers("olivia"))
    page.send("hello")
    page.answer()
    assert text_of(page.look()) == "You said: hello"


@pytest.mark.parametrize("app", ["client", "runner", "both"])
@pytest.mark.parametrize("release", NEWEST)
def test_4_tool_execution(chats: Chats, gate: Gateway, release: str, app: str) -> None:
    page = chats.open(release, app)
    page.send("tool")
    message = page.answer()
    view = page.look()
    assert shape(view) == [("text", "Let me look."), ("dynamic-tool", "output-available"), ("text", "It is a title.")]
    [tool] = [part for part in message["parts"] if part["type"] == "dynamic-tool"]
    assert (tool["toolName"], tool["input"], tool["output"]) == ("read_file", {"path": "README.md"}, "# Agent Ops")
    assert (view["status"], view["error"]) == ("ready", None)
    tools = [(name, chunk) for name, chunk in gate.post(app, "tool").events if name.startswith("tool-")]
    assert [name for name, _ in tools] == ["tool-input-start", "tool-input-available", "tool-output-available"]
    assert len({chunk["toolCallId"] for _, chunk in tools}) == 1


ERRORS = {
    ("client", "fail"): "The model is overloaded.",
    ("client", "fail early"): "Turn failed",
    ("runner", "fail early"): "No model is set up.",
    ("client", "error"): "The sandbox is gone.",
    ("client", "die"): "Stream interrupted",
    ("nowhere", "hello"): "Connection failed",
    ("mute", "hello"): "Connection failed",
    ("impatient", "silent"): "The session was silent for too long, so the answer was stopped.",
    ("impatient", "hang"): "The session was silent for too long, so the answer was stopped.",
}


@pytest.mark.parametrize(("case", "sentence"), ERRORS.items(), ids=["-".join(case) for case in ERRORS])
@pytest.mark.parametrize("release", NEWEST)
def test_5_error_handling(chats: Chats, gate: Gateway, release: str, case: tuple[str, str], sentence: str) -> None:
    app, prompt = case
    upstream = gate.sessions.get(app)
    before = upstream.connections if upstream is not None else 0
    page = chats.open(release, app, session_id="s1")
    page.send(prompt)
    view = page.settled()
    assert (view["status"], view["error"]) == ("error", {"name": "Error", "message": sentence})
    assert view["requests"][-1]["status"] == 200
    events = gate.post(app, prompt, session_id="s1").events
    assert events[-2:] == [("error", {"type": "error", "errorText": sentence}), ("message-finish", {"type": "finish"})]
    if upstream is not None:
        session = upstream["s1"]
        eventually(lambda: not session.busy and not session.clients, "the session is left")
        assert upstream.connections == before + 2, "nothing is tried again"


@pytest.mark.parametrize("app", ["client", "runner"])
@pytest.mark.parametrize("release", NEWEST)
def test_5_error_handling_of_a_turn_that_fails_without_a_word(
    chats: Chats, gate: Gateway, behind: Upstream, release: str, app: str
) -> None:
    page = chats.open(release, app, session_id="s2")
    page.send("hang")
    view = page.until_text("Well")
    turn_id = view["messages"][-1]["id"]
    behind.publish(gate.sessions[app]["s2"], {"type": "message.finalize", "turnId": turn_id, "reason": "error"})
    view = page.settled()
    assert (view["status"], view["error"]) == ("error", {"name": "Error", "message": "Turn failed"})
    assert text_of(view) == "Well"
    leave(gate, behind, app, "s2")


@pytest.mark.parametrize("app", ["client", "runner"])
@pytest.mark.parametrize("release", NEWEST)
def test_5_error_handling_of_a_tool_that_fails_without_a_word(
    chats: Chats, gate: Gateway, behind: Upstream, release: str, app: str
) -> None:
    page = chats.open(release, app, session_id="s2")
    page.send("hang")
    turn_id = page.until_text("Well")["messages"][-1]["id"]
    session = gate.sessions[app]["s2"]
    tool = {"type": "message.part.tool-update", "turnId": turn_id, "callId": "c1", "toolName": "deploy", "args": {}}
    behind.publish(session, {**tool, "status": "running"})
    behind.publish(session, {**tool, "status": "error"})
    behind.publish(session, {"type": "message.part.text-delta", "turnId": turn_id, "delta": "It failed."})
    behind.publish(session, {"type": "message.finalize", "turnId": turn_id, "reason": "end_turn"})
    view = page.settled()
    assert (view["status"], view["error"]) == ("ready", None)
    assert shape(view) == [("text", "Well"), ("dynamic-tool", "output-error"), ("text", "It failed.")]
    assert [part.get("errorText") for part in view["messages"][-1]["parts"] if "errorText" in part] == [
        "Tool execution failed"
    ]
    leave(gate, behind, app, "s2")


def leave(gate: Gateway, behind: Upstream, app: str, session_id: str) -> None:
    """Stop what the session still does; its page has gone."""
    behind.run(gate.sessions[app][session_id].close())


@pytest.mark.parametrize("app", ["client", "runner", "both"])
@pytest.mark.parametrize("release", NEWEST)
def test_6_long_running_turn(chats: Chats, gate: Gateway, release: str, app: str) -> None:
    expected = "".join(f"{number} " for number in range(1500))
    page = chats.open(release, app)
    page.send("count 1500")
    page.answer()
    view = page.look()
    assert (view["status"], text_of(view)) == ("ready", expected)
    assert len([part for part in view["messages"][-1]["parts"] if part["type"] == "text"]) == 1
    deltas = [chunk["delta"] for name, chunk in gate.post(app, "count 1500").events if name == "text-delta"]
    assert deltas == [f"{number} " for number in range(1500)]


@pytest.mark.parametrize("release", NEWEST)
def test_7_performance_with_100_concurrent_streams_to_one_session(chats: Chats, gate: Gateway, release: str) -> None:
    pages = [chats.open(release, session_id="s3", person=("carl", "olivia")[number % 2]) for number in range(100)]
    for number, page in enumerate(pages):
        page.send(f"this is number {number}")
    for number, page in enumerate(pages):
        page.answer()
        view = page.look()
        assert (view["status"], text_of(view)) == ("ready", f"You said: this is number {number}")
    eventually(lambda: not gate.sessions["client"]["s3"].clients, "every socket is closed")


@pytest.mark.parametrize("app", ["client", "later"])
@pytest.mark.parametrize("release", NEWEST)
def test_an_abort_storm_leaves_nothing_behind(chats: Chats, gate: Gateway, release: str, app: str) -> None:
    pages = [chats.open(release, app, session_id=f"s{4 + number % 3}") for number in range(30)]
    before = gate.sessions[app].connections
    for page in pages:
        page.send("slow")
    sessions = [gate.sessions[app][f"s{number}"] for number in (4, 5, 6)]
    # Later releases withdraw the older of two queued prompts, so not all stay connected.
    eventually(lambda: gate.sessions[app].connections - before == 30, "all have connected")
    for page in pages:
        page.stop()
    # A prompt that waited may be withdrawn or removed before its own page stops; its page is told so.
    errors = [page.settled()["error"] for page in pages]
    ends = {error and error["message"] for error in errors}
    assert None in ends
    assert ends <= {None, REMOVED, WITHDRAWN}
    eventually(lambda: not any(session.clients or session.busy for session in sessions), "nothing runs")
    eventually(lambda: not [name for name in gate.served.tasks() if "usechat" in name], "every task has ended")
    page = chats.open(release, app, session_id="s4")
    page.send("hello")
    page.answer()
    assert text_of(page.look()) == "You said: hello"


@pytest.mark.parametrize("release", NEWEST)
def test_two_people_on_one_session_see_their_own_answers(chats: Chats, release: str) -> None:
    carl = chats.open(release, session_id="s7", person="carl", chat_id="the same id")
    olivia = chats.open(release, session_id="s7", person="olivia", chat_id="the same id")
    carl.send("count 300")
    olivia.send("tool")
    for page in (carl, olivia):
        assert page.settled()["status"] == "ready"
    assert text_of(carl.look()) == "".join(f"{number} " for number in range(300))
    assert shape(olivia.look())[-1] == ("text", "It is a title.")


@pytest.mark.parametrize("release", NEWEST)
def test_with_a_store_a_page_resumes_and_stops_its_run(chats: Chats, gate: Gateway, release: str) -> None:
    session = gate.sessions["kept"]["interactive"]
    chat_id = f"kept {release}"
    first = chats.open(release, "kept", chat_id=chat_id)
    first.send("slow")
    first.until(lambda view: text_of(view).startswith("tick"))
    first.stop()
    second = chats.open(release, "kept", chat_id=chat_id)
    second.resume()
    text = text_of(second.until(lambda view: text_of(view).startswith("tick tick")))
    assert session.busy
    run = f"{gate.url('kept')}/{quote(chat_id)}"
    state = httpx2.get(run, headers=gate.headers(), timeout=PATIENCE).json()
    assert (state["state"], state["messageId"]) == ("running", second.look()["messages"][-1]["id"])
    assert httpx2.post(f"{run}/stop", headers=gate.headers(), timeout=PATIENCE).status_code == 204
    view = second.settled()
    assert (view["status"], text_of(view).startswith(text)) == ("ready", True)
    assert httpx2.get(run, headers=gate.headers(), timeout=PATIENCE).json() == {**state, "state": "stopped"}
    eventually(lambda: not session.busy and not session.clients, "the turn is canceled")


@pytest.mark.parametrize("app", ["client", "later"])
@pytest.mark.parametrize("release", NEWEST)
def test_a_question_reaches_the_page_as_data(chats: Chats, gate: Gateway, release: str, app: str) -> None:
    page = chats.open(release, app, session_id="s7")
    page.send("ask")
    view = page.until(lambda now: any(part["type"] == "data-question" for part in now["data"]))
    [question] = [part for part in view["data"] if part["type"] == "data-question"]
    assert "Deploy to production?" in str(question["data"])
    assert view["status"] == "streaming"
    url = gate.sessions[app].url.replace("{id}", "s7")
    with connect(url, additional_headers={"Authorization": "Bearer somebody"}) as somebody:
        somebody.send(json.dumps({"type": "answer", "questionId": question["id"], "answer": "yes"}))
        page.answer()
    assert text_of(page.look()).endswith("You answered: yes")


def asked_by(page: Page, state: str) -> Any:
    """Wait for the end of the stream that asks, and return the part that does."""
    [part] = [part for part in page.answer()["parts"] if part.get("state") == state and "input" in part][-1:]
    return part


def answered(page: Page, gate: Gateway, session_id: str) -> None:
    """Check that the answer reached the same turn, which went on in the same message."""
    page.until(lambda now: len(now["requests"]) == 2)
    page.answer()
    view = page.look()
    assert (view["status"], len(view["messages"])) == ("ready", 2)
    assert text_of(view).endswith("You answered: yes")
    types = [command["type"] for _, command in gate.sessions["approval"][session_id].commands]
    assert types == ["prompt", "answer"]


@pytest.mark.parametrize(("release", "session_id"), [(WITH_APPROVALS[0], "s0"), (WITH_APPROVALS[1], "s1")])
def test_a_question_is_answered_as_an_approval(chats: Chats, gate: Gateway, release: str, session_id: str) -> None:
    page = chats.open(release, "approval", session_id=session_id, sdk=release, automatic=["approvals"])
    page.send("ask")
    question = asked_by(page, "approval-requested")
    assert gate.sessions["approval"][session_id].busy
    page.call("addToolApprovalResponse", {"id": question["approval"]["id"], "approved": True, "reason": "yes"})
    answered(page, gate, session_id)


@pytest.mark.parametrize(("release", "session_id"), list(zip(NEWEST, ("s2", "s3", "s4"), strict=True)))
def test_a_question_is_answered_by_a_tool_of_the_page(
    chats: Chats, gate: Gateway, release: str, session_id: str
) -> None:
    page = chats.open(release, "approval", session_id=session_id, sdk="5", automatic=["tools"])
    page.send("ask")
    question = asked_by(page, "input-available")
    assert question["type"] == "tool-approval"
    output = {"approved": True, "reason": "yes"}
    page.call("addToolOutput", {"tool": "approval", "toolCallId": question["toolCallId"], "output": output})
    answered(page, gate, session_id)


DECISIONS = [
    (True, {"type": "approve-action"}, "Approved."),
    (False, {"type": "deny-action", "reason": "no"}, "Denied: no"),
]


@pytest.mark.parametrize(("approved", "command", "text"), DECISIONS)
@pytest.mark.parametrize("release", NEWEST)
def test_the_approval_of_a_tool_runs_or_denies_it_upstream(
    chats: Chats, gate: Gateway, release: str, approved: bool, command: dict[str, str], text: str
) -> None:
    sdk = release if release in WITH_APPROVALS else "5"
    page = chats.open(
        release, "approval", session_id="s6", sdk=sdk, automatic=["approvals" if sdk == release else "tools"]
    )
    page.send("approve")
    question = asked_by(page, "approval-requested" if sdk == release else "input-available")
    decision = {"approved": approved, "reason": "no"}
    if sdk == release:
        page.call("addToolApprovalResponse", {"id": question["approval"]["id"], **decision})
    else:
        page.call("addToolOutput", {"tool": "approval", "toolCallId": question["toolCallId"], "output": decision})
    page.until(lambda now: len(now["requests"]) == 2)
    page.answer()
    view = page.look()
    assert (view["status"], len(view["messages"]), text_of(view).endswith(text)) == ("ready", 2, True)
    _, (_, message) = list(gate.sessions["approval"]["s6"].commands)[-2:]
    assert {key: message[key] for key in message if key != "invocationId"} == command
    assert message["invocationId"].startswith("invocation-")


@pytest.mark.parametrize("release", NEWEST)
def test_a_page_that_goes_on_without_a_new_message_sends_no_prompt(chats: Chats, gate: Gateway, release: str) -> None:
    page = chats.open(release, session_id="s5")
    page.send("tool")
    before = page.answer()
    count = len(gate.sessions["client"]["s5"].commands)
    page.call("sendMessage")
    page.until(lambda now: len(now["requests"]) == 2)
    after = page.answer()
    view = page.look()
    assert (view["status"], len(view["messages"])) == ("ready", 2)
    assert after["id"] == before["id"]
    assert [part for part in after["parts"] if part["type"] != "step-start"] == [
        part for part in before["parts"] if part["type"] != "step-start"
    ]
    assert len(gate.sessions["client"]["s5"].commands) == count
