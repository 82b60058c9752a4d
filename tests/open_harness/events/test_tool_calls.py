"""Tool events carry no id: which belong together, and what becomes of those that do not."""

from typing import Any

import pytest

from tests.open_harness.events.test_adapter import by, said
from tests.open_harness.scripted import event, flow, node
from usechat import parts as p
from usechat.open_harness.events.adapter import OpenHarnessAdapter


def tool(run_id: str = "a1", **fields: Any) -> Any:
    return event("agent:tool", run_id, **fields)


def call(number: int, name: str, arguments: Any, run_id: str = "a1") -> p.ToolCall:
    return p.ToolCall(f"{run_id}-{number}", name, arguments, provider_metadata=by(run_id), lane=run_id)


def result(number: int, output: Any, run_id: str = "a1") -> p.ToolResult:
    return p.ToolResult(f"{run_id}-{number}", output, lane=run_id)


def failed(number: int, text: str, run_id: str = "a1") -> p.ToolError:
    return p.ToolError(f"{run_id}-{number}", text, lane=run_id)


@pytest.mark.parametrize(
    ("events", "parts"),
    [
        pytest.param(
            [tool(toolName="t", toolInput={"q": 1}, toolOutput=2)], [call(1, "t", {"q": 1}), result(1, 2)], id="whole"
        ),
        pytest.param(
            [tool(toolName="t", toolInput={"q": 1}), tool(toolName="t", toolOutput=2)],
            [call(1, "t", {"q": 1}), result(1, 2)],
            id="start-and-complete",
        ),
        pytest.param([tool(toolName="t", toolOutput=2)], [call(1, "t", {}), result(1, 2)], id="no-input"),
        pytest.param([tool(toolOutput=2)], [call(1, "unknown", {}), result(1, 2)], id="no-name"),
        pytest.param(
            [tool(toolName="unknown", toolOutput=2)],
            [call(1, "unknown", {}), result(1, 2)],
            id="as-upstream-records-it",
        ),
        pytest.param(
            [tool(toolName="t", toolInput=None, toolOutput=None)], [call(1, "t", None), result(1, None)], id="nulls"
        ),
        pytest.param(
            [
                *(tool(toolName="t", toolInput=1), tool(toolName="t", toolInput=2)),
                *(tool(toolName="t", toolOutput="first"), tool(toolName="t", toolOutput="second")),
            ],
            [call(1, "t", 1), call(2, "t", 2), result(1, "first"), result(2, "second")],
            id="first-in-first-out",
        ),
        pytest.param(
            [
                *(tool(toolName="t", toolInput=1), tool(toolName="u", toolInput=2)),
                *(tool(toolName="u", toolOutput="u"), tool(toolName="t", toolOutput="t")),
            ],
            [call(1, "t", 1), call(2, "u", 2), result(2, "u"), result(1, "t")],
            id="by-name",
        ),
        pytest.param(
            [
                *(tool("a1", toolName="t", toolInput=1), tool("b1", toolName="t", toolInput=2)),
                *(tool("b1", toolName="t", toolOutput="b"), tool("a1", toolName="t", toolOutput="a")),
            ],
            [call(1, "t", 1), call(2, "t", 2, "b1"), result(2, "b", "b1"), result(1, "a")],
            id="by-node",
        ),
        pytest.param(
            [tool(toolName="t", toolInput=1), tool(toolName="t", toolInput=1, toolOutput=2)],
            [call(1, "t", 1), result(1, 2)],
            id="completion-that-repeats-the-input",
        ),
        pytest.param(
            [tool(toolName="t", toolInput=1), tool(toolName="t", toolInput=3, toolOutput=2)],
            [call(1, "t", 1), call(2, "t", 3), result(2, 2)],
            id="whole-call-beside-an-open-one",
        ),
        pytest.param(
            [tool(toolName="t", toolInput=1), tool(toolOutput=2)], [call(1, "t", 1), result(1, 2)], id="nameless-end"
        ),
        pytest.param([tool(toolName="t"), tool(toolName="t")], [call(1, "t", {}), result(1, None)], id="nothing-in-it"),
        pytest.param(
            [tool(toolName="t", toolInput=1), tool(toolName="t", error="t timed out after 2.5 s")],
            [call(1, "t", 1), failed(1, "t timed out after 2.5 s")],
            id="timeout",
        ),
        pytest.param(
            [tool(toolName="t", toolInput=1, error="ECONNREFUSED")],
            [call(1, "t", 1), failed(1, "t could not reach a service that it needs. Please try again.")],
            id="network",
        ),
        pytest.param(
            [tool(toolName="t", toolInput=1, toolOutput=None, error="/etc/secret: no such file")],
            [call(1, "t", 1), failed(1, "t failed. Reference: 1")],
            id="error",
        ),
    ],
)
def test_events_are_paired(events: list[Any], parts: list[p.Part]) -> None:
    assert said(events) == parts


@pytest.mark.parametrize("last", [event("agent:complete", "a1"), event("node:complete", "a1")])
def test_a_call_that_never_completed_is_settled_with_its_node(last: Any) -> None:
    events = [event("flow:start"), tool(toolName="t", toolInput=1), last]
    assert said(events) == [call(1, "t", 1), failed(1, "t did not finish.")]


@pytest.mark.parametrize("ending", ["flow:complete", "flow:paused", "flow:aborted"])
def test_a_call_that_never_completed_is_settled_with_the_flow(ending: str) -> None:
    *before, last = said([event("flow:start"), tool(toolName="t", toolInput=1), event(ending)])
    assert before == [call(1, "t", 1), failed(1, "t did not finish.")]
    assert isinstance(last, p.Finish | p.Error)


def test_ids_are_unique_over_nodes_and_loops() -> None:
    whole = {"toolName": "t", "toolInput": 1, "toolOutput": 2}
    events = flow(*(each for run in ("a1", "a2", "b1") for each in node(run, *[tool(run, **whole) for _ in range(3)])))
    ids = [part.tool_call_id for part in said(events) if isinstance(part, p.ToolCall)]
    assert len(set(ids)) == len(ids) == 9


def test_a_nameless_tool_is_counted() -> None:
    adapter = OpenHarnessAdapter()
    adapter.feed(tool(toolOutput=2))
    assert [(notice.kind, notice.event) for notice in adapter.take_notices()] == [("nameless-tool", "agent:tool")]


def test_the_raw_text_of_a_tools_failure_goes_to_the_log() -> None:
    adapter = OpenHarnessAdapter()
    adapter.feed(tool(toolName="t", toolInput=1, error="/etc/secret: no such file"))
    assert [(notice.text, notice.reference) for notice in adapter.take_notices()] == [
        ("tool 't' of node 'a' failed: '/etc/secret: no such file'", "1")
    ]


def test_a_call_goes_on_in_the_next_message_when_a_turn_is_handed_over() -> None:
    adapter = OpenHarnessAdapter()
    adapter.feed(event("flow:start"))
    adapter.feed(tool(toolName="t", toolInput=1))
    assert adapter.hand_over() == [failed(1, "t continues in the next message.")]
    assert adapter.feed(tool(toolName="t", toolOutput=2)) == []
    assert adapter.take_over() == [p.Step(), call(2, "t", 1)]
    assert adapter.feed(tool(toolName="t", toolOutput=2)) == [result(2, 2)]
