"""Long flows stay linear in time and flat in memory (SC-005)."""

import gc
import time
import tracemalloc
from collections.abc import Iterator

from tests.open_harness.scripted import event
from usechat.open_harness.adapter import OpenHarnessAdapter
from usechat.open_harness.interface import Event

CALLS = 200


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


def test_sc_005_an_adapter_keeps_nothing_of_the_calls_that_have_ended() -> None:
    adapter = OpenHarnessAdapter(send_flow_metadata=True, send_node_outputs=True)
    adapter.feed(event("flow:start", flowName="f"))

    def grown(run: int) -> int:
        for each in tool_events(CALLS, f"a{run}"):
            adapter.feed(each)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        first = grown(1)
        later = [grown(run) for run in range(2, 12)]
    finally:
        tracemalloc.stop()
    assert max(later) - first < 4096
