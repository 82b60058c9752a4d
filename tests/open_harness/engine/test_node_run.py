"""Nodes that fail or do not end: the policy decides, people and log are told."""

import asyncio
import itertools
import time
from typing import Any

import pytest

from tests.open_harness import flow_functions
from tests.open_harness.flow_runs import constant, echo, edge, flow, python, run
from usechat.open_harness.engine import node_run
from usechat.open_harness.errors import NodeTimedOut
from usechat.open_harness.flow.definition import Policy, Retry


async def test_a_node_that_fails_ends_the_flow_and_the_log_has_the_trace(caplog: pytest.LogCaptureFixture) -> None:
    log, snapshot = await run(flow(python("a", "fails"), constant("b"), edges=(edge("a->b"),)))
    assert log.named()[2:] == [
        {"type": "node:error", "nodeId": "a", "runId": "a.1", "error": "it broke"},
        {"type": "flow:complete", "flowName": "test", "status": "failed"},
    ]
    assert (snapshot["status"], snapshot["outputs"], snapshot["nodeStatus"]) == (
        "complete",
        {"a": {"error": "it broke"}},
        {"a": "failed", "b": "pending"},
    )
    assert "RuntimeError: it broke" in caplog.text


async def test_continue_on_error_goes_on_with_the_error_as_output() -> None:
    described = flow(
        python("a", "fails", policy={"continueOnError": True}),
        echo("b", "a said: {{ a.error }}"),
        edges=(edge("a->b"),),
    )
    log, snapshot = await run(described)
    assert log.events[-1]["status"] == "complete"
    assert snapshot["outputs"]["b"] == {"text": "a said: it broke"}


async def test_retries_are_one_invocation_and_stop_at_the_first_success() -> None:
    flow_functions.attempts.clear()
    described = python("a", "fails_until", input={"name": "x", "good": 3}, policy={"retry": {"maxAttempts": 5}})
    log, snapshot = await run(flow(described))
    assert log.brief() == [
        "flow:start",
        "node:start a.1",
        "node:retry a.1",
        "node:retry a.1",
        "node:complete a.1",
        "flow:complete complete",
    ]
    assert [(event["attempt"], event["error"]) for event in log.of("node:retry")] == [
        (1, "attempt 1"),
        (2, "attempt 2"),
    ]
    assert snapshot["outputs"]["a"] == 3


async def test_retries_that_are_used_up_fail_with_the_last_error() -> None:
    flow_functions.attempts.clear()
    described = python("a", "fails_until", input={"name": "y", "good": 9}, policy={"retry": {"maxAttempts": 2}})
    log, _ = await run(flow(described))
    assert log.of("node:error")[0]["error"] == "attempt 2"


async def test_the_pause_between_attempts_doubles() -> None:
    times: list[float] = []

    async def fail() -> Any:
        times.append(time.monotonic())
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        await node_run.run_with_policy(fail, Policy(Retry(4, 20)), on_timeout=lambda: None, on_retry=lambda *_: None)
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert [pause >= least for pause, least in zip(pauses, (0.019, 0.039, 0.079), strict=True)] == [True] * 3


@pytest.mark.parametrize("function", ["never_ends", "says_and_never_ends", "blocks"])
async def test_a_node_that_never_ends_times_out(function: str) -> None:
    flow_functions.left_behind.clear()
    log, _ = await run(flow(python("a", function, policy={"timeoutMs": 50})))
    assert log.named()[-2:] == [
        {"type": "node:error", "nodeId": "a", "runId": "a.1", "error": "Node execution timed out after 50ms"},
        {"type": "flow:complete", "flowName": "test", "status": "failed"},
    ]
    if function == "blocks":
        assert await asyncio.to_thread(flow_functions.left_behind.wait, 30), "its thread sees that it was stopped"


async def test_a_node_with_the_shortest_time_limit_begins_before_it_times_out() -> None:
    attempts = []

    async def at_once() -> str:
        attempts.append(1)
        return "done"

    async def slow() -> None:
        attempts.append(2)
        await asyncio.Event().wait()

    at_least = Policy(timeout_ms=1)
    assert await node_run.run_with_policy(at_once, at_least, on_timeout=print, on_retry=print) == "done"
    with pytest.raises(NodeTimedOut):
        await node_run.run_with_policy(slow, at_least, on_timeout=lambda: None, on_retry=print)
    assert attempts == [1, 2]


async def test_a_node_that_cannot_be_cancelled_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_run, "_GRACE", 0.01)
    go_on = asyncio.Event()

    async def stubborn() -> None:
        while not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                continue

    began = time.monotonic()
    with pytest.raises(NodeTimedOut):
        await node_run.run_with_policy(
            stubborn, Policy(timeout_ms=10), on_timeout=lambda: None, on_retry=lambda *_: None
        )
    assert time.monotonic() - began < 20
    go_on.set()
    await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("nodes", "edges", "node", "error"),
    [
        ((echo("a", "{{ $number('x') }}"),), (), "a", "the expression \"$number('x')\" failed"),
        ((constant("a", when="$number('x')"),), (), "a", "the expression \"$number('x')\" failed"),
        ((constant("a"), constant("b")), (edge("a->b", when="$number('x')"),), "b", "the expression"),
        ((echo("a", "{{ flow.input.missing }}"),), (), "a", "input.text: must be a text"),
        ((python("a", "garbage"),), (), "a", "a node yields texts and events, not object"),
        ((python("a", "leaves"),), (), "a", "SystemExit('good bye')"),
        (({"id": "a", "type": "python", "input": {"function": "{{ 'nowhere:x' }}"}},), (), "a", "input.function:"),
    ],
    ids=[
        "binding",
        "condition of a node",
        "condition of an edge",
        "missing value",
        "garbage",
        "exit",
        "missing function",
    ],
)
async def test_bad_input_fails_the_node_that_it_meets(nodes: Any, edges: Any, node: str, error: str) -> None:
    log, _ = await run(flow(*nodes, edges=edges))
    assert log.brief()[-2:] == [f"node:error {node}.1", "flow:complete failed"]
    assert error in log.of("node:error")[0]["error"]


async def test_a_binding_that_fails_obeys_continue_on_error() -> None:
    described = flow(
        echo("a", "{{ $number('x') }}", policy={"continueOnError": True}), constant("b"), edges=(edge("a->b"),)
    )
    log, _ = await run(described)
    assert log.brief()[-3:] == ["node:start b.1", "node:complete b.1", "flow:complete complete"]
