"""Flows: order, edges, conditions, lists, loops, and the events that tell of them."""

import threading
import uuid
from typing import Any

import pytest

from tests.open_harness.flow_runs import EventLog, constant, echo, edge, flow, python, run
from usechat.open_harness.engine.runtime import FlowRuntime
from usechat.open_harness.engine.store import MemoryRunStore
from usechat.open_harness.errors import LoopLimitReached, NotResumable
from usechat.open_harness.runtime_protocol import Runtime


async def test_nodes_run_one_after_the_other_and_every_event_tells_what_it_should() -> None:
    log, _ = await run(flow(constant("a", 1), echo("b", "got {{ a.value }}"), edges=(edge("a->b", id="first"),)))
    assert log.named() == [
        {"type": "flow:start", "flowName": "test"},
        {"type": "node:start", "nodeId": "a", "runId": "a.1"},
        {"type": "node:complete", "nodeId": "a", "runId": "a.1", "output": {"value": 1}},
        {"type": "edge:fire", "edgeId": "first", "from": "a", "to": "b"},
        {"type": "node:start", "nodeId": "b", "runId": "b.1"},
        {"type": "node:complete", "nodeId": "b", "runId": "b.1", "output": {"text": "got 1"}},
        {"type": "flow:complete", "flowName": "test", "status": "complete"},
    ]


async def test_run_ids_are_fresh_and_times_are_milliseconds() -> None:
    log, snapshot = await run(flow(constant("a"), constant("b")))
    run_ids = {event["runId"] for event in log.of("node:start")}
    assert len({uuid.UUID(run_id) for run_id in run_ids} | {uuid.UUID(snapshot["runId"])}) == 3
    assert all(isinstance(event["timestamp"], int) and event["timestamp"] > 10**12 for event in log.events)


async def test_the_snapshot_tells_how_everything_stands() -> None:
    described = flow(constant("a", 1), constant("b", when="false"), edges=(edge("a->b"),), state={"initial": {"n": 0}})
    _, snapshot = await run(described, {"message": "hi"})
    assert {key: value for key, value in snapshot.items() if key not in ("runId", "startedAt", "process")} == {
        "status": "complete",
        "outputs": {"a": {"value": 1}, "b": {"skipped": True, "reason": "when"}},
        "state": {"n": 0},
        "nodeStatus": {"a": "done", "b": "done"},
        "edgeStatus": {"a->b": "fired"},
        "loopCounters": {"a->b": 0},
        "inbox": [],
        "agentSessions": {},
        "input": {"message": "hi"},
        "owner": "",
    }


async def test_a_run_that_has_ended_is_not_started_again() -> None:
    runtime = FlowRuntime(flow(constant("a")))
    assert isinstance(runtime, Runtime)
    await runtime.run()
    with pytest.raises(NotResumable, match=f"^Run {runtime.run_id} is not resumable$"):
        await runtime.run()
    with pytest.raises(NotResumable):
        await runtime.resume("hi")


@pytest.mark.parametrize(
    ("when", "status", "lines"),
    [
        ({}, "fired", ["edge:fire b->c", "node:start c.1", "node:complete c.1"]),  # as in Open Harness
        ({"when": "$not($exists(b.skipped))"}, "skipped", ["node:skipped c"]),
    ],
)
async def test_edges_behind_a_node_that_was_skipped_are_looked_at_like_any_other(
    when: Any, status: str, lines: list[str]
) -> None:
    edges = (edge("a->b", when="a.value = 2"), edge("b->c", **when))
    log, snapshot = await run(flow(constant("a", 1), constant("b"), constant("c"), edges=edges))
    assert log.brief()[3:-1] == ["node:skipped b", *lines]
    assert snapshot["outputs"]["b"] == {"skipped": True, "reason": "edge"}
    assert snapshot["edgeStatus"] == {"a->b": "skipped", "b->c": status}


@pytest.mark.parametrize(("gate", "runs"), [("all", False), (None, False), ("any", True)])
async def test_a_gate_decides_whether_all_edges_must_fire(gate: str | None, runs: bool) -> None:
    more = {} if gate is None else {"gate": gate}
    described = flow(
        constant("a"),
        constant("b"),
        constant("c"),
        edges=(edge("a->c", when="true", **more), edge("b->c", when="false", **more)),
    )
    log, _ = await run(described)
    assert ("node:start c.1" in log.brief(), "node:skipped c" in log.brief()) == (runs, not runs)


async def test_for_each_runs_the_target_once_for_each_item() -> None:
    described = flow(
        constant("list", ["x", "y", "z"]),
        echo("item", "{{ it }} {{ $iteration }} {{ $first }} {{ $last }} {{ $maxIterations }}", when="it != 'y'"),
        edges=(edge("list->item", forEach={"in": "{{ list.value }}", "as": "it"}),),
    )
    log, snapshot = await run(described)
    assert snapshot["outputs"]["item"] == {
        "iterations": [
            {"item": "x", "output": {"text": "x 0 true false 3"}},
            {"item": "y", "skipped": True},
            {"item": "z", "output": {"text": "z 2 false true 3"}},
        ]
    }
    assert log.brief()[4:8] == [
        "node:start item.1",
        "node:complete item.1",
        "node:start item.2",
        "node:complete item.2",
    ]


@pytest.mark.parametrize(
    ("goes_on", "status", "outputs"),
    [
        (False, "failed", {}),
        (True, "complete", {"item": {"iterations": [{"item": item, "error": "it broke"} for item in (1, 2)]}}),
    ],
)
async def test_an_item_that_fails_ends_the_list_unless_the_policy_goes_on(
    goes_on: bool, status: str, outputs: dict[str, Any]
) -> None:
    """As Open Harness: a list that a failure has ended has no output."""
    described = flow(
        constant("list", [1, 2]),
        python("item", "fails", policy={"continueOnError": goes_on}),
        edges=(edge("list->item", forEach={"in": "{{ list.value }}", "as": "it"}),),
    )
    log, snapshot = await run(described)
    del snapshot["outputs"]["list"]
    assert (log.events[-1]["status"], snapshot["outputs"]) == (status, outputs)
    assert snapshot["nodeStatus"]["item"] == ("done" if goes_on else "failed")


@pytest.mark.parametrize("goes_on", [False, True])
async def test_a_list_that_is_none_ends_the_flow_whatever_the_policy_says(goes_on: bool) -> None:
    described = flow(
        constant("a", 1),
        {**constant("b"), "policy": {"continueOnError": goes_on}},
        constant("c"),
        edges=(edge("a->b", forEach={"in": "{{ a.value }}", "as": "it"}), edge("b->c")),
    )
    log, _ = await run(described)
    error = "forEach expects a list at {{ a.value }}"
    assert log.named()[-2:] == [
        {"type": "node:error", "nodeId": "b", "runId": "b.1", "error": error},
        {"type": "flow:complete", "flowName": "test", "status": "failed"},
    ]


def counting_loop(rounds: int, maximum: int) -> dict[str, Any]:
    again = edge("check->count", id="again", when=f"check.value < {rounds}", maxIterations=maximum)
    return flow(
        python("count", "counts"),
        constant("check", "{{ count.count }}"),
        constant("end"),
        edges=(edge("count->check"), again, edge("check->end", when=f"check.value = {rounds}")),
    )


async def test_a_loop_runs_its_nodes_again_until_its_condition_ends() -> None:
    log, snapshot = await run(counting_loop(3, 10))
    assert [line for line in log.brief() if not line.startswith(("state", "node:complete"))] == [
        "flow:start",
        "node:start count.1",
        "edge:fire count->check",
        "node:start check.1",
        "edge:fire check->count",
        "loop:iterate 1",
        "node:start count.2",
        "edge:fire count->check",
        "node:start check.2",
        "edge:fire check->count",
        "loop:iterate 2",
        "node:start count.3",
        "edge:fire count->check",
        "node:start check.3",
        "edge:fire check->end",
        "node:start end.1",
        "flow:complete complete",
    ]
    assert (snapshot["state"], snapshot["loopCounters"]["again"]) == ({"count": 3}, 2)


async def run_beyond_limit(described: dict[str, Any], **options: Any) -> tuple[EventLog, FlowRuntime]:
    """Run a flow whose loop reaches its limit of two."""
    runtime = FlowRuntime(described, **options)
    log = EventLog(runtime)
    with pytest.raises(LoopLimitReached, match=r"^Loop edge check -> count exceeded 2$"):
        await runtime.run()
    return log, runtime


async def test_a_loop_that_reaches_its_limit_raises_from_run() -> None:
    """As Open Harness: the loop is the last event, the target waits for a round that does not come."""
    log, runtime = await run_beyond_limit(counting_loop(100, 2))
    assert log.brief()[-2:] == ["edge:fire check->count", "loop:iterate 2"]
    snapshot = runtime.get_snapshot()
    assert {key: snapshot[key] for key in ("status", "outputs", "nodeStatus", "edgeStatus", "loopCounters")} == {
        "status": "running",
        "outputs": {"count": {"count": 2}, "check": {"value": 2}},
        "nodeStatus": {"count": "pending", "check": "done", "end": "pending"},
        "edgeStatus": {"count->check": "fired", "again": "fired", "check->end": "skipped"},
        "loopCounters": {"count->check": 0, "again": 2, "check->end": 0},
    }


@pytest.mark.parametrize("is_parallel", [False, True])
async def test_a_loop_that_reaches_its_limit_ends_the_flow_at_once(is_parallel: bool) -> None:
    """As Open Harness: whatever the policy of its target says, and no other edge fires."""
    count, check, end = counting_loop(100, 2)["nodes"]
    again = edge("check->count", when="check.value < 100", maxIterations=2)
    edges = (edge("count->check"), again, edge("check->end", when="check.value = 2"))
    described = flow(end, {**count, "policy": {"continueOnError": True}}, check, edges=edges)
    log, runtime = await run_beyond_limit({**described, "parallel": is_parallel})
    assert log.brief()[-1] == "loop:iterate 2"
    assert runtime.get_snapshot()["nodeStatus"] == {"end": "pending", "count": "pending", "check": "done"}


async def test_a_loop_that_reaches_its_limit_leaves_a_stored_run_that_nobody_continues() -> None:
    store = MemoryRunStore()
    _, runtime = await run_beyond_limit(counting_loop(100, 2), store=store)
    stored = store.load_snapshot(runtime.run_id)
    assert stored is not None
    assert stored["status"] == "complete"
    _, ending = store.load_events(runtime.run_id)[-1]
    assert {key: ending[key] for key in ending if key != "timestamp"} == {
        "type": "flow:complete",
        "flowName": "test",
        "status": "failed",
    }


async def test_state_is_shared_and_its_changes_are_told() -> None:
    described = flow(python("a", "counts"), echo("b", "count {{ state.count }}"), edges=(edge("a->b"),))
    log, snapshot = await run({**described, "state": {"initial": {"count": 4}}})
    assert [event["patch"] for event in log.of("state:patch")] == [{"op": "set", "path": "count", "value": 5}]
    assert snapshot["outputs"]["b"] == {"text": "count 5"}


async def test_a_change_made_in_a_thread_is_told_in_the_thread_of_the_loop() -> None:
    runtime = FlowRuntime(flow(python("a", "counts_in_a_thread")))
    threads: list[bool] = []
    runtime.on_event(lambda _event: threads.append(threading.current_thread() is threading.main_thread()))
    snapshot = await runtime.run()
    assert snapshot["state"] == {"threads": {"main": False}}
    assert threads == [True] * 5


async def test_a_listener_that_fails_is_logged_and_the_others_hear_on(caplog: pytest.LogCaptureFixture) -> None:
    runtime = FlowRuntime(flow(constant("a")))

    def fail(_event: Any) -> None:
        raise RuntimeError("deaf")

    types: list[str] = []
    runtime.on_event(fail)
    leave = runtime.on_event(lambda event: types.append(event["type"]))
    runtime.on_event(lambda event: leave() if event["type"] == "node:complete" else None)
    await runtime.run()
    assert types == ["flow:start", "node:start", "node:complete"]
    assert "a listener failed at flow:start" in caplog.text
