"""Nodes that ask a person: the flow waits for the answer, and says so."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.open_harness.asking_nodes import node, registry
from tests.open_harness.flow_runs import DEADLINE, EventLog, constant, edge, flow
from usechat.open_harness.engine.runtime import FlowRuntime
from usechat.open_harness.runtime_protocol import Event, Snapshot


async def run(described: Any, answer: Callable[[FlowRuntime, EventLog], None]) -> tuple[EventLog, Snapshot]:
    """Run a flow; call ``answer`` each time it waits."""
    runtime = FlowRuntime(described, registry=registry())
    log = EventLog(runtime)

    def hear(event: Event) -> None:
        if event["type"] == "flow:waiting":
            answer(runtime, log)

    runtime.on_event(hear)
    async with asyncio.timeout(DEADLINE):
        return log, await runtime.run()


def reply(runtime: FlowRuntime, log: EventLog, path: str, content: str) -> None:
    question = next(event for event in log.of("input:requested") if event["id"] == f"call_{path}")
    command = {"type": "reply", "promptId": question["id"], "content": content, "runId": question["runId"]}
    runtime.dispatch(command)


@pytest.mark.parametrize(
    ("content", "decided", "text"),
    [
        ("yes", {"approved": True}, "a is gone. "),
        ("Y", {"approved": True}, "a is gone. "),
        ("no", {"approved": False}, "a stays: None. "),
        ("no: I need it.", {"approved": False, "reason": "I need it."}, "a stays: I need it.. "),
    ],
)
async def test_a_node_that_asks_waits_for_the_reply(content: str, decided: dict[str, Any], text: str) -> None:
    log, snapshot = await run(flow(node("a")), lambda runtime, log: reply(runtime, log, "a", content))
    assert log.named()[2:6] == [
        {
            "type": "agent:tool",
            "nodeId": "a",
            "runId": "a.1",
            "toolCallId": "call_a",
            "toolName": "delete",
            "toolInput": {"path": "a"},
        },
        {
            "type": "input:requested",
            "nodeId": "a",
            "runId": "a.1",
            "id": "call_a",
            "kind": "approval",
            "toolCallId": "call_a",
        },
        {"type": "flow:waiting"},
        {"type": "command:received", "command": log.of("command:received")[0]["command"]},
    ]
    [received] = [event for event in log.named() if event["type"] == "input:received"]
    assert received == {
        "type": "input:received",
        "nodeId": "a",
        "runId": "a.1",
        "id": "call_a",
        "toolCallId": "call_a",
        **decided,
    }
    assert (snapshot["outputs"]["a"]["text"], snapshot["inbox"]) == (text, [])


async def test_parallel_nodes_wait_together_and_may_be_answered_in_reverse_order() -> None:
    def answer(runtime: FlowRuntime, log: EventLog) -> None:
        reply(runtime, log, "b", "yes")
        reply(runtime, log, "a", "no: Mine.")

    log, snapshot = await run({**flow(node("a"), node("b")), "parallel": True}, answer)
    assert log.types.count("flow:waiting") == 1
    assert [event["id"] for event in log.of("input:received")] == ["call_b", "call_a"]
    texts = {name: output["text"] for name, output in snapshot["outputs"].items()}
    assert texts == {"a": "a stays: Mine.. ", "b": "b is gone. "}


async def test_a_flow_does_not_wait_while_another_node_has_something_to_do() -> None:
    question = asyncio.Event()

    async def busy(_fields: Any) -> str:
        await question.wait()
        return "done"

    types = registry()
    types.add("busy", busy)
    nodes = [node("a"), {"id": "busy", "type": "busy", "input": {}}, constant("end", 1)]
    runtime = FlowRuntime({**flow(*nodes, edges=(edge("busy->end"),)), "parallel": True}, registry=types)
    log = EventLog(runtime)

    def hear(event: Event) -> None:
        if event["type"] == "input:requested":
            question.set()
        elif event["type"] == "flow:waiting":
            reply(runtime, log, "a", "yes")

    runtime.on_event(hear)
    async with asyncio.timeout(DEADLINE):
        await runtime.run()
    brief = log.brief()
    assert brief.index("input:requested a.1") < brief.index("node:complete busy.1")
    assert brief.index("node:complete end.1") < brief.index("flow:waiting")


async def test_the_time_limit_of_a_node_does_not_count_the_time_of_a_person() -> None:
    def answer(runtime: FlowRuntime, log: EventLog) -> None:
        asyncio.get_running_loop().call_later(3.1, reply, runtime, log, "a", "yes")

    log, snapshot = await run(flow(node("a", policy={"timeoutMs": 3000})), answer)
    assert (log.of("node:error"), snapshot["outputs"]["a"]["text"]) == ([], "a is gone. ")


async def test_a_flow_that_waits_can_be_stopped_and_paused() -> None:
    log, snapshot = await run(flow(node("a")), lambda runtime, _: runtime.stop())
    assert (log.types[-1], snapshot["status"]) == ("flow:aborted", "aborted")
    log, snapshot = await run(flow(node("a")), lambda runtime, _: runtime.pause())
    assert (log.types[-1], snapshot["status"]) == ("flow:paused", "paused")


async def test_a_reply_to_no_question_is_a_command_like_others() -> None:
    def answer(runtime: FlowRuntime, log: EventLog) -> None:
        run_id = log.of("input:requested")[0]["runId"]
        runtime.dispatch({"type": "reply", "promptId": "other", "message": "x", "runId": run_id})
        reply(runtime, log, "a", "yes")

    _, snapshot = await run(flow(node("a")), answer)
    assert snapshot["outputs"]["a"]["text"] == "a is gone. You wrote 'x'. "
