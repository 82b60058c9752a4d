"""The two later dialects: events of sessions, and signals. What arrives decides which it is."""

from typing import Any

import pytest

from tests.open_harness.events.test_adapter import end, said, step
from usechat import parts as p
from usechat.open_harness.events.adapter import OpenHarnessAdapter
from usechat.open_harness.runtime_protocol import Event


def session(name: str, /, **payload: Any) -> Event:
    return {"id": "e", "name": name, "payload": payload, "timestamp": 1000}


def signal(name: str, agent: str | None = "a", /, **payload: Any) -> Event:
    source = {"source": {"agent": agent, "harness": "claude"}} if agent else {}
    return {"id": "s", "name": name, "payload": payload, "timestamp": "2026-01-11T10:00:00.250Z", **source}


SESSION = [
    session("workflow:started", sessionId="s", workflow="research", input="hi"),
    session("phase:entered", phase="plan"),
    session("agent:started", agent="a", phase="plan"),
    session("thinking:delta", agent="a", delta="Hm"),
    session("text:delta", agent="a", delta="Hel"),
    session("text:delta", agent="a", delta="lo"),
    session("tool:called", agent="a", toolId="t1", toolName="search", input={"q": 1}),
    session("tool:called", agent="a", toolId="t2", toolName="search", input={"q": 2}),
    session("tool:result", agent="a", toolId="t2", output="two", isError=False),
    session("tool:result", agent="a", toolId="t1", output="no such page", isError=True),
    session("state:intent", intentId="i", state={}, patches=[], inversePatches=[]),
    session("state:checkpoint", state={}, position=3, phase="plan"),
    session("agent:completed", agent="a", output={"n": 1}, durationMs=3),
    session("phase:exited", phase="plan", reason="next"),
    session("agent:started", agent="a"),
    session("text:delta", agent="a", delta="Again"),
    session("workflow:completed", sessionId="s", finalState={}),
]


def spoken(run_id: str, words: str) -> p.Text:
    return p.Text(words, {"openHarness": {"nodeId": "a", "runId": run_id}}, lane=run_id)


def called(call_id: str, query: int) -> p.ToolCall:
    by = {"openHarness": {"nodeId": "a", "runId": "a-1"}}
    return p.ToolCall(call_id, "search", {"q": query}, provider_metadata=by, lane="a-1")


def test_a_session_is_read() -> None:
    assert said(SESSION, send_node_outputs=True) == [
        step("a-1"),
        p.Reasoning("Hm", {"openHarness": {"nodeId": "a", "runId": "a-1"}}, lane="a-1"),
        *(spoken("a-1", "Hel"), spoken("a-1", "lo")),
        called("t1", 1),
        called("t2", 2),
        p.ToolResult("t2", "two", lane="a-1"),
        p.ToolError("t1", "search failed. Reference: 1", lane="a-1"),
        p.Data("node-output", {"nodeId": "a", "runId": "a-1", "output": {"n": 1}}, "output-a-1"),
        *(step("a-2"), spoken("a-2", "Again")),
        p.Finish(),
    ]


def test_a_phase_that_exits_in_an_error_fails_the_session() -> None:
    events = [session("workflow:started", workflow="w"), session("phase:exited", phase="x", reason="error")]
    assert said(events) == [p.Error("The flow failed.")]


@pytest.mark.parametrize(
    ("question", "call"),
    [
        (
            session("input:requested", id="q", prompt="Which?", type="choice", options=["x", "y"]),
            [p.ToolCall("q", "choose", {"prompt": "Which?", "options": ["x", "y"]})],
        ),
        (
            session("input:requested", id="q", prompt="Sure?", type="approval"),
            [p.ToolCall("q", "approve", {"prompt": "Sure?"}), p.ApprovalRequest("q", "q")],
        ),
    ],
    ids=["choice", "approval"],
)
def test_a_question_ends_the_message_with_a_call_that_waits_for_the_page(question: Event, call: list[p.Part]) -> None:
    assert said([session("workflow:started", workflow="w"), question, *SESSION]) == [*call, p.Finish()]


@pytest.mark.parametrize(
    ("payload", "part"),
    [
        ({"value": "x"}, p.ToolResult("q", "x")),
        ({"value": "yes", "approved": True}, p.ToolResult("q", "yes")),
        ({"value": "", "approved": False}, p.ToolDenied("q")),
    ],
)
def test_an_answer_settles_its_question(payload: Any, part: p.Part) -> None:
    assert said([session("input:received", id="q", **payload)]) == [part]


SIGNALS = [
    signal("workflow:start", None, name="research"),
    signal("agent:activated", "a"),
    signal("harness:start", "a", input={}),
    signal("thinking:delta", "a", content="Hm"),
    signal("thinking:complete", "a", content="Hm"),
    signal("text:complete", "a", content="Hello"),
    signal("tool:call", "a", id="t1", name="search", input={"q": 1}),
    signal("tool:result", "a", id="t1", name="search", result="one"),
    signal("tool:call", "a", id="t2", name="search", input={"q": 2}),
    signal("tool:result", "a", id="t2", name="search", result=None, error="search timed out after 3 s"),
    signal("harness:end", "a", output={"content": "Hello", "usage": {"inputTokens": 2}}, durationMs=1),
    signal("agent:skipped", "b", reason="when"),
    signal("workflow:end", None, durationMs=9),
]


def test_signals_are_read() -> None:
    by = {"openHarness": {"nodeId": "a", "runId": "a-1"}}
    assert said(SIGNALS) == [
        step("a-1"),
        *(p.Reasoning("Hm", by, lane="a-1"), end("a-1"), p.Text("Hello", by, lane="a-1"), end("a-1")),
        *(called("t1", 1), p.ToolResult("t1", "one", lane="a-1")),
        called("t2", 2),
        p.ToolError("t2", "search timed out after 3 s", lane="a-1"),
        p.Metadata({"usage": {"inputTokens": 2}}),
        p.Finish(),
    ]


def test_a_bare_harness_ends_the_message() -> None:
    bare = [signal("harness:start"), signal("text:delta", content="Hi"), signal("harness:end", output={})]
    assert [type(part) for part in said([*bare, *bare])] == [p.Step, p.Text, p.BlockEnd, p.Finish]


def test_an_error_of_a_harness_ends_the_message_unless_it_recovers() -> None:
    failed = signal("harness:error", code="TURN_FAILED", message="boom", recoverable=False)
    recovering = signal("harness:error", code="TURN_FAILED", message="boom", recoverable=True)
    assert said([recovering, failed]) == [p.Error("The step “a” failed. Reference: 1")]


def test_a_workflow_that_ends_in_an_error_has_failed() -> None:
    events = [signal("workflow:start"), signal("workflow:end", error="x")]
    assert said(events) == [p.Error("The flow failed.")]


def test_a_signal_without_an_agent_is_named_after_its_harness() -> None:
    source = {
        "id": "s",
        "name": "text:delta",
        "payload": {"content": "Hi"},
        "timestamp": "x",
        "source": {"harness": "h"},
    }
    nobody = {"id": "s", "name": "text:delta", "payload": {"content": "Hi"}, "timestamp": "2026-01-11"}
    lanes = [part.lane for part in said([source, nobody])]
    assert lanes == ["h-1", "agent-1"]


def test_the_times_of_signals_are_texts() -> None:
    started = said([signal("agent:activated")], send_flow_metadata=True)[-1]
    assert isinstance(started, p.Data)
    assert started.data["startedAt"] == 1768125600250.0


def test_dialects_may_follow_each_other() -> None:
    adapter = OpenHarnessAdapter()
    events = [session("text:delta", agent="a", delta="x"), signal("text:delta", content="y")]
    assert [type(part) for each in events for part in adapter.feed(each)] == [p.Text, p.Text]
