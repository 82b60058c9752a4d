"""The data parts from which a page draws a flow."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from tests.open_harness.events.test_adapter import said
from tests.open_harness.flow_runs import constant, echo, edge
from tests.open_harness.flow_runs import flow as described
from tests.open_harness.scripted import event, flow
from usechat import parts as p
from usechat.open_harness.events.adapter import OpenHarnessAdapter
from usechat.open_harness.events.metadata import graph_of
from usechat.open_harness.flow.reading import load_flow

GRAPH = {"nodes": [{"id": "a", "type": "agent"}], "edges": [{"from": "a", "to": "a", "maxIterations": 3}], "x": 1}


def data(events: list[Any], **options: Any) -> list[p.Data]:
    return [part for part in said(events, send_flow_metadata=True, **options) if isinstance(part, p.Data)]


def status(now: str, name: str = "flow") -> p.Data:
    return p.Data("flow-status", {"status": now, "flowName": name}, "flow-status")


def state(run_id: str, now: str, started: Any = 1000, duration: Any = None) -> p.Data:
    node_id = run_id.rstrip("0123456789")
    fields = {"nodeId": node_id, "runId": run_id, "status": now, "startedAt": started, "durationMs": duration}
    return p.Data("node-status", fields, f"node-{run_id}")


def test_nothing_is_sent_unless_it_is_wanted() -> None:
    events = flow(event("node:start", "a1"), event("edge:fire", **{"from": "a", "to": "b"}))
    assert [part for part in said(events, graph=GRAPH) if isinstance(part, p.Data)] == []


def test_the_graph_comes_first_and_once() -> None:
    graph = p.Data("flow-graph", {"nodes": GRAPH["nodes"], "edges": GRAPH["edges"]}, "flow-graph")
    assert data(flow(), graph=GRAPH) == [graph, status("running"), status("complete")]


@pytest.mark.parametrize(
    ("ending", "now"),
    [
        (event("flow:complete", status="complete", flowName="flow"), "complete"),
        (event("flow:complete", status="failed"), "failed"),
        (event("flow:paused"), "paused"),
        (event("flow:aborted"), "aborted"),
    ],
)
def test_the_status_is_updated_in_place_and_keeps_the_name(ending: Mapping[str, Any], now: str) -> None:
    assert data([event("flow:start", flowName="flow"), ending]) == [status("running"), status(now)]


def test_a_resumed_flow_runs() -> None:
    assert data([event("flow:resumed")]) == [status("running", "")]
    graph = p.Data("flow-graph", {"nodes": GRAPH["nodes"], "edges": GRAPH["edges"]}, "flow-graph")
    assert data([event("flow:resumed")], graph={**GRAPH, "name": "f"}) == [graph, status("running", "f")]


def test_every_invocation_has_a_status_that_is_updated_in_place() -> None:
    events = [
        event("flow:start", flowName="flow"),
        event("node:start", "a1"),
        event("node:complete", "a1", timestamp=1250),
        event("node:start", "a2", timestamp=1300),
        event("node:error", "a2", timestamp=1301, error="oops"),
        event("node:skipped", nodeId="b", reason="when", timestamp=1400),
        event("node:skipped", nodeId="c", reason="edge"),
        event("flow:complete", status="complete"),
    ]
    skipped = {"runId": None, "status": "skipped", "durationMs": 0}
    assert data(events)[1:-1] == [
        state("a1", "running"),
        state("a1", "complete", duration=250),
        state("a2", "running", 1300),
        state("a2", "failed", 1300, 1),
        p.Data("node-status", {"nodeId": "b", **skipped, "startedAt": 1400}, "skipped-1"),
        p.Data("node-status", {"nodeId": "c", **skipped, "startedAt": 1000}, "skipped-2"),
    ]


@pytest.mark.parametrize("now", ["paused", "aborted"])
def test_nodes_end_with_their_flow(now: str) -> None:
    events = [event("flow:start", flowName="flow"), event("node:start", "a1"), event(f"flow:{now}", timestamp=1500)]
    assert data(events)[1:] == [state("a1", "running"), state("a1", now, duration=500), status(now)]


def test_a_node_that_ran_beside_one_that_failed_is_aborted() -> None:
    events = [
        event("flow:start", flowName="flow"),
        event("node:start", "a1"),
        event("node:start", "b1"),
        event("node:error", "b1", error="oops"),
        event("flow:complete", status="failed", timestamp=1500),
    ]
    assert data(events)[-2:] == [state("a1", "aborted", duration=500), status("failed")]


def test_a_node_whose_agent_failed_has_failed_even_without_an_end_of_its_own() -> None:
    events = [
        event("flow:start", flowName="flow"),
        event("node:start", "a1"),
        event("agent:error", "a1", message="oops"),
        event("flow:complete", status="failed", timestamp=1500),
    ]
    assert data(events)[-2:] == [state("a1", "failed", duration=500), status("failed")]


def test_an_edge_tells_its_iteration_when_it_is_a_loop() -> None:
    fired = event("edge:fire", **{"from": "a", "to": "a", "edgeId": "again"})
    events = [event("edge:fire", **{"from": "a", "to": "b"}), fired, event("loop:iterate", edgeId="again", iteration=1)]
    assert data(events) == [
        p.Data("edge", {"from": "a", "to": "b"}, "edge-1"),
        p.Data("edge", {"from": "a", "to": "a"}, "edge-2"),
        p.Data("edge", {"from": "a", "to": "a", "iteration": 1}, "edge-2"),
    ]
    assert data([event("loop:iterate", iteration=1)]) == []


def test_a_message_that_takes_over_begins_with_how_things_stand() -> None:
    adapter = OpenHarnessAdapter(send_flow_metadata=True, graph=GRAPH, send_step_markers=False)
    for each in (event("flow:start", flowName="flow"), event("node:start", "a1")):
        adapter.feed(each)
    adapter.hand_over()
    graph = p.Data("flow-graph", {"nodes": GRAPH["nodes"], "edges": GRAPH["edges"]}, "flow-graph")
    assert adapter.take_over() == [graph, status("running"), state("a1", "running")]


def test_while_a_person_is_asked_nothing_runs_and_it_is_told_who_asks() -> None:
    started = [event("flow:start", flowName="flow"), event("node:start", "a1")]
    asks = {**event("input:requested", id="q", prompt="Sure?"), "kind": "approval"}
    adapter = OpenHarnessAdapter(send_flow_metadata=True, send_step_markers=False)
    for each in started:
        adapter.feed(each)
    asked_by = {"openHarness": {"nodeId": "a", "runId": "a1"}}
    assert adapter.feed(asks) == [
        p.ToolCall("q", "approve", {"prompt": "Sure?"}, provider_metadata=asked_by),
        p.ApprovalRequest("q", "q"),
        state("a1", "paused"),
        status("paused"),
        p.Finish(),
    ]
    assert adapter.take_over() == [status("running"), state("a1", "running")]


def test_of_several_nodes_the_one_that_is_named_asks() -> None:
    started = [event("node:start", "a1"), event("node:start", "b2")]
    unnamed, named = event("input:requested", id="q"), event("input:requested", "b2", id="q")
    for asks, node_id in ((unnamed, None), (named, "b")):
        call = next(part for part in said([*started, asks]) if isinstance(part, p.ToolCall))
        metadata = call.provider_metadata or {"openHarness": {"nodeId": None}}
        assert metadata["openHarness"]["nodeId"] == node_id


def test_a_broken_clock_leaves_the_times_open() -> None:
    events = [event("node:start", "a1", timestamp="noon"), event("node:complete", "a1", timestamp=True)]
    assert data(events) == [state("a1", "running", None), state("a1", "complete", None)]


def test_usage_that_is_no_number_is_left_out() -> None:
    events = [event("flow:start"), event("agent:complete", "a1", usage={"inputTokens": "many", "outputTokens": True})]
    assert said([*events, event("agent:complete", "a1", usage="much")]) == []


def test_the_graph_shows_nodes_and_edges_and_no_prompts() -> None:
    loop = edge("a->b", id="e", maxIterations=3)
    assert graph_of(load_flow(described(echo("a", "secret", ui={"x": 1}), constant("b"), edges=(loop,)))) == {
        "name": "test",
        "nodes": [{"id": "a", "type": "echo", "ui": {"x": 1}}, {"id": "b", "type": "constant"}],
        "edges": ({"id": "e", "from": "a", "to": "b", "maxIterations": 3},),
    }


def test_a_turn_that_is_stopped_leaves_flow_and_nodes_aborted_and_no_ending() -> None:
    adapter = OpenHarnessAdapter(send_flow_metadata=True)
    for each in (event("flow:start", flowName="flow"), event("node:start", "a1")):
        adapter.feed(each)
    assert adapter.close(asyncio.CancelledError()) == [state("a1", "aborted"), status("aborted")]
    assert adapter.feed(event("flow:aborted")) == []
    assert OpenHarnessAdapter().close(asyncio.CancelledError()) == []
