"""Nodes that ask a person: the flow waits for the answer, and says so."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.open_harness.asking_nodes import node, registry
from tests.open_harness.flow_runs import DEADLINE, Heard, constant, edge, flow
from usechat.open_harness.engine.runtime import FlowRuntime
from usechat.open_harness.runtime_protocol import Event, Snapshot


async def run(described: Any, answer: Callable[[FlowRuntime, Heard], None]) -> tuple[Heard, Snapshot]:
    """Run a flow; call ``answer`` each time it waits."""
    runtime = FlowRuntime(described, registry=registry())
    heard = Heard(runtime)

    def hear(event: Event) -> None:
        if event["type"] == "flow:waiting":
            answer(runtime, heard)

    runtime.on_event(hear)
    async with asyncio.timeout(DEADLINE):
        return heard, await runtime.run()


def reply(runtime: FlowRuntime, heard: Heard, path: str, content: str) -> None:
    asked = next(event for event in heard.of("input:requested") if event["id"] == f"call_{path}")
    command = {"type": "reply", "promptId": asked["id"], "content": content, "runId": asked["runId"]}
    runtime.dispatch(command)


@pytest.mark.parametrize(
    ("content", "decided", "said"),
    [
        ("yes", {"approved": True}, "a is gone. "),
        ("Y", {"approved": True}, "a is gone. "),
        ("no", {"approved": False}, "a stays: None. "),
        ("no: I need it.", {"approved": False, "reason": "I need it."}, "a stays: I need it.. "),
    ],
)
async def test_a_node_that_asks_waits_for_the_reply(content: str, decided: dict[str, Any], said: str) -> None:
    heard, snapshot = await run(flow(node("a")), lambda runtime, heard: reply(runtime, heard, "a", content))
    assert heard.named()[2:6] == [
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
        {"type": "command:received", "command": heard.of("command:received")[0]["command"]},
    ]
    [received] = [event for event in heard.named() if event["type"] == "input:received"]
    assert received == {
        "type": "input:received",
        "nodeId": "a",
        "runId": "a.1",
        "id": "call_a",
        "toolCallId": "call_a",
        **decided,
    }
    assert (snapshot["outputs"]["a"]["text"], snapshot["inbox"]) == (said, [])


async def test_parallel_nodes_wait_together_and_may_be_answered_in_reverse_order() -> None:
    def answer(runtime: FlowRuntime, heard: Heard) -> None:
        reply(runtime, heard, "b", "yes")
        reply(runtime, heard, "a", "no: Mine.")

    heard, snapshot = await run({**flow(node("a"), node("b")), "parallel": True}, answer)
    assert heard.types.count("flow:waiting") == 1
    assert [event["id"] for event in heard.of("input:received")] == ["call_b", "call_a"]
    texts = {name: output["text"] for name, output in snapshot["outputs"].items()}
    assert texts == {"a": "a stays: Mine.. ", "b": "b is gone. "}


async def test_a_flow_does_not_wait_while_another_node_has_something_to_do() -> None:
    asked = asyncio.Event()

    async def busy(_given: Any) -> str:
        await asked.wait()
        return "done"

    types = registry()
    types.add("busy", busy)
    nodes = [node("a"), {"id": "busy", "type": "busy", "input": {}}, constant("end", 1)]
    runtime = FlowRuntime({**flow(*nodes, edges=(edge("busy->end"),)), "parallel": True}, registry=types)
    heard = Heard(runtime)

    def hear(event: Event) -> None:
        if event["type"] == "input:requested":
            asked.set()
        elif event["type"] == "flow:waiting":
            reply(runtime, heard, "a", "yes")

    runtime.on_event(hear)
    async with asyncio.timeout(DEADLINE):
        await runtime.run()
    brief = heard.brief()
    assert brief.index("input:requested a.1") < brief.index("node:complete busy.1")
    assert brief.index("node:complete end.1") < brief.index("flow:waiting")


async def test_the_time_limit_of_a_node_does_not_count_the_time_of_a_person() -> None:
    def answer(runtime: FlowRuntime, heard: Heard) -> None:
        asyncio.get_running_loop().call_later(0.5, reply, runtime, heard, "a", "yes")

    heard, snapshot = await run(flow(node("a", policy={"timeoutMs": 200})), answer)
    assert (heard.of("node:error"), snapshot["outputs"]["a"]["text"]) == ([], "a is gone. ")


async def test_a_flow_that_waits_can_be_stopped_and_paused() -> None:
    heard, snapshot = await run(flow(node("a")), lambda runtime, _: runtime.stop())
    assert (heard.types[-1], snapshot["status"]) == ("flow:aborted", "aborted")
    heard, snapshot = await run(flow(node("a")), lambda runtime, _: runtime.pause())
    assert (heard.types[-1], snapshot["status"]) == ("flow:paused", "paused")


async def test_a_reply_to_no_question_is_a_command_like_others() -> None:
    def answer(runtime: FlowRuntime, heard: Heard) -> None:
        run_id = heard.of("input:requested")[0]["runId"]
        runtime.dispatch({"type": "reply", "promptId": "other", "message": "x", "runId": run_id})
        reply(runtime, heard, "a", "yes")

    _, snapshot = await run(flow(node("a")), answer)
    assert snapshot["outputs"]["a"]["text"] == "a is gone. You wrote 'x'. "
