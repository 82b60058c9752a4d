"""A person is asked about a tool call: the message waits with it, and goes on with the answer."""

from typing import Any

from tests.open_harness.scripted import event
from usechat import parts as p
from usechat.open_harness.events.adapter import OpenHarnessAdapter
from usechat.parts import Part

NODE = {"openHarness": {"nodeId": "a", "runId": "a1"}}
CALL = p.ToolCall("c1", "delete", {"path": "x"}, provider_metadata=NODE, lane="a1")
ASKED = [
    event("flow:start"),
    event("node:start", "a1"),
    event("agent:tool", "a1", toolCallId="c1", toolName="delete", toolInput={"path": "x"}),
    event("input:requested", "a1", id="c1", toolCallId="c1"),
    event("flow:waiting"),
]


def received(**decision: Any) -> Any:
    return event("input:received", "a1", id="c1", toolCallId="c1", **decision)


GONE = event("agent:tool", "a1", toolCallId="c1", toolName="delete", toolInput={"path": "x"}, toolOutput="gone")


def fed(adapter: OpenHarnessAdapter, *events: Any) -> list[Part]:
    return [part for each in events for part in adapter.feed(each)]


def waiting() -> OpenHarnessAdapter:
    adapter = OpenHarnessAdapter(send_step_markers=False)
    fed(adapter, *ASKED)
    return adapter


def test_a_call_waits_for_its_approval_when_the_flow_waits() -> None:
    adapter = OpenHarnessAdapter(send_step_markers=False)
    assert fed(adapter, *ASKED) == [CALL, p.ApprovalRequest("approval-c1", "c1", lane="a1"), p.Finish()]
    assert (adapter.ended, adapter.is_waiting) == (True, True)


def test_the_message_goes_on_with_the_result_of_a_call_that_was_allowed() -> None:
    adapter = waiting()
    assert adapter.take_over(continues=True) == []
    assert fed(adapter, received(approved=True), GONE) == [p.ToolResult("c1", "gone", lane="a1")]


def test_the_message_goes_on_with_a_call_that_was_denied() -> None:
    adapter = waiting()
    adapter.take_over(continues=True)
    assert fed(adapter, received(approved=False, reason="Mine.")) == [p.ToolDenied("c1", "Mine.", lane="a1")]


def test_a_call_that_another_message_has_followed_is_not_mentioned_again() -> None:
    adapter = waiting()
    assert adapter.take_over() == []
    assert fed(adapter, received(approved=False), GONE) == []


def test_a_question_about_a_call_that_nobody_knows_asks_nothing() -> None:
    adapter = OpenHarnessAdapter(send_step_markers=False)
    unknown = event("input:requested", "a1", id="c2", toolCallId="c2")
    assert fed(adapter, *ASKED[:3], unknown) == [CALL]


def test_the_states_of_a_flow_are_paused_while_a_person_is_asked() -> None:
    adapter = OpenHarnessAdapter(send_flow_metadata=True)
    data = [part.data["status"] for part in fed(adapter, *ASKED) if isinstance(part, p.Data)]
    assert data == ["running", "running", "paused", "paused"]
    again = [part.data["status"] for part in adapter.take_over(continues=True) if isinstance(part, p.Data)]
    assert again == ["running", "running"]
