"""What events tell about a run that lives elsewhere."""

from typing import Any

import pytest

from usechat.open_harness.remote.flows import RunView

START = {"type": "node:start", "nodeId": "a", "runId": "a-1"}
TEXT = {"type": "agent:text:delta", "nodeId": "a", "runId": "a-1", "content": "Hi"}
DONE = {"type": "node:complete", "nodeId": "a", "runId": "a-1", "output": 1}
PARALLEL = {"type": "node:start", "nodeId": "b", "runId": "b-1"}


def view_of(*events: dict[str, Any]) -> RunView:
    view = RunView()
    for event in events:
        view.receive(event)
    return view


@pytest.mark.parametrize(
    ("events", "status", "invocation"),
    [
        ([], "unknown", None),
        ([{"type": "command:received", "command": {}}], "unknown", None),
        ([{"type": "flow:start", "flowName": "f"}], "running", None),
        ([START], "running", "a-1"),
        ([TEXT], "running", "a-1"),
        ([START, DONE], "running", None),
        ([START, PARALLEL], "running", "b-1"),
        ([START, PARALLEL, DONE], "running", "b-1"),
        ([START, {"type": "node:error", "nodeId": "a", "runId": "a-1", "error": "no"}], "running", None),
        ([START, {"type": "flow:paused"}], "paused", None),
        ([START, {"type": "flow:paused"}, {**TEXT, "type": "agent:paused"}], "paused", None),
        ([START, {"type": "flow:aborted"}, {**TEXT, "type": "agent:aborted"}], "aborted", None),
        ([{"type": "flow:paused"}, {"type": "flow:resumed"}], "running", None),
        ([{"type": "flow:complete", "status": "failed"}], "complete", None),
        ([{"type": "node:start"}], "running", None),
        ([{"nodeId": "a"}], "unknown", None),
    ],
)
def test_status_and_the_invocation_that_takes_messages(
    events: list[dict[str, Any]], status: str, invocation: str | None
) -> None:
    view = view_of(*events)
    assert (view.status, view.invocation) == (status, invocation)


def test_the_snapshot_holds_outputs_and_the_status_of_nodes() -> None:
    skipped = {"type": "node:skipped", "nodeId": "c", "reason": "when"}
    failed = {"type": "node:error", "nodeId": "b", "runId": "b-1", "error": "no"}
    assert view_of(START, DONE, PARALLEL, failed, skipped).snapshot() == {
        "status": "running",
        "outputs": {"a": 1, "b": {"error": "no"}, "c": {"skipped": True, "reason": "when"}},
        "nodeStatus": {"a": "done", "b": "failed", "c": "done"},
    }


def test_a_run_of_which_nothing_is_known_looks_idle() -> None:
    assert view_of().snapshot()["status"] == "idle"
