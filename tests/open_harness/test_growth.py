"""Long flows stay linear in time and flat in memory (SC-005)."""

import asyncio
import gc
import time
import tracemalloc
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.open_harness.scripted import event
from usechat.open_harness import FlowRuntime, NodeContext, OpenHarnessChatTransport, default_registry
from usechat.open_harness.events.adapter import OpenHarnessAdapter
from usechat.open_harness.runtime_protocol import Event
from usechat.parts import Part
from usechat.protocol.request import ChatRequest
from usechat.protocol.sse import FrameStream
from usechat.protocol.stream import MessageStream
from usechat.turn import TurnContext, TurnInput

pytestmark = pytest.mark.stores

CALLS = 200
LARGE = 10_000
"""Characters of the input of a call, and of its output."""


def tool_events(count: int, run_id: str) -> Iterator[Event]:
    """Calls in two events each, in a node with some text between them."""
    yield event("node:start", run_id)
    for number in range(count):
        yield event("agent:text:delta", run_id, content="x")
        yield event("agent:tool", run_id, toolName="search", toolInput={"q": number})
        yield event("agent:tool", run_id, toolName="search", toolOutput={"hits": number})
    yield event("node:complete", run_id, output=None)


def seconds(count: int) -> float:
    adapter = OpenHarnessAdapter()
    events = list(tool_events(count, "a1"))
    began = time.thread_time()
    for each in events:
        adapter.feed(each)
    return time.thread_time() - began


def test_sc_005_ten_times_the_tool_calls_take_about_ten_times_the_time() -> None:
    few = min(seconds(CALLS) for _ in range(10))
    many = min(seconds(10 * CALLS) for _ in range(5))
    assert many < 40 * few  # were it quadratic, it would be a hundred times


def seconds_of_list(count: int) -> float:
    nodes = [
        {"id": "list", "type": "constant", "input": {"value": [{"n": number} for number in range(count)]}},
        {"id": "each", "type": "echo", "input": {"text": "{{ item.n }} of {{ list.value[0].n }}"}},
    ]
    edges = [{"from": "list", "to": "each", "forEach": {"in": "{{ list.value }}", "as": "item"}}]
    runtime = FlowRuntime({"name": "list", "nodes": nodes, "edges": edges})
    began = time.thread_time()
    snapshot = asyncio.run(runtime.run())
    assert len(snapshot["outputs"]["each"]["iterations"]) == count
    return time.thread_time() - began


def test_ten_times_the_items_of_a_list_take_about_ten_times_the_time() -> None:
    few = min(seconds_of_list(100) for _ in range(5))
    many = min(seconds_of_list(1000) for _ in range(3))
    assert many < 30 * few  # it was a hundred times, when each evaluation walked through all outputs


def test_sc_005_an_adapter_keeps_nothing_of_the_calls_that_have_ended() -> None:
    adapter = OpenHarnessAdapter(send_flow_metadata=True, send_node_outputs=True)
    adapter.feed(event("flow:start", flowName="f"))

    def grown(run: int) -> int:
        for each in tool_events(CALLS, f"a{run}"):
            adapter.feed(each)
        gc.collect()
        ours = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/usechat/*")])
        return sum(trace.size for trace in ours.traces)

    tracemalloc.start()
    try:
        first = grown(1)
        later = [grown(run) for run in range(2, 12)]
    finally:
        tracemalloc.stop()
    assert max(later) - first < 4096


async def use_tools(fields: Mapping[str, Any], context: NodeContext) -> None:
    """Use a tool as often as the message says, with large values."""
    for number in range(int(fields["text"])):
        context.emit({"type": "agent:text:delta", "content": "x"})
        context.emit({"type": "agent:tool", "toolName": "search", "toolInput": f"{number:{LARGE}}"})
        context.emit({"type": "agent:tool", "toolName": "search", "toolOutput": f"{number:{LARGE}}"})
        await asyncio.sleep(0)


async def answer(calls: int) -> None:
    """Answer a turn with runtime, adapter and frames, which nobody keeps; a run's log would, for those who reload."""
    registry = default_registry()
    registry.add("use_tools", use_tools)
    node = {"id": "a", "type": "use_tools", "input": {"text": "{{ flow.input.message }}"}}
    flow = {"name": "tools", "nodes": [node], "edges": []}
    message = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": str(calls)}]}
    turn = TurnContext(TurnInput(ChatRequest.parse({"id": "c1", "messages": [message]})))
    frames = FrameStream(MessageStream(message_id="m1"))

    def hear(part: Part) -> None:
        frames.send(part)

    turn.connect(hear)
    runtime = FlowRuntime(flow, registry=registry)
    await OpenHarnessChatTransport(runtime, send_flow_metadata=True, send_node_outputs=True).drive(turn)


def peak(calls: int) -> int:
    """Return how many bytes a turn with so many calls takes at most."""
    gc.collect()
    tracemalloc.start()
    try:
        asyncio.run(answer(calls))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_sc_005_a_turn_keeps_less_than_a_kilobyte_of_a_call_however_large_it_was() -> None:
    peak(1)  # what is made once
    assert (peak(5 * CALLS) - peak(CALLS)) / (4 * CALLS) < 1024
