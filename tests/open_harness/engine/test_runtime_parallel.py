"""Nodes that are ready run at the same time, if the flow says so."""

import asyncio
from typing import Any

import pytest

from tests.open_harness import flow_functions
from tests.open_harness.flow_runs import EventLog, constant, edge, flow, python, run
from usechat.open_harness.engine.runtime import FlowRuntime


@pytest.fixture(autouse=True)
def _forget() -> None:
    flow_functions.together.clear()
    flow_functions.most_together.clear()


@pytest.mark.parametrize(("parallel", "most"), [(True, 3), (False, 1)])
async def test_independent_nodes_run_together_only_if_the_flow_says_parallel(parallel: bool, most: int) -> None:
    nodes = [python(name, "meets", input={"expected": most}) for name in "abc"]
    end = constant("end")
    log, _ = await run(flow(*nodes, end, edges=tuple(edge(f"{name}->end") for name in "abc"), parallel=parallel))
    assert max(flow_functions.most_together) == most
    assert log.brief()[-3:] == ["node:start end.1", "node:complete end.1", "flow:complete complete"]


async def test_a_join_within_a_loop_waits_for_all_of_its_round() -> None:
    described = flow(
        python("count", "counts"),
        python("quick", "without_arguments"),
        python("slow", "said_in_a_thread", input={"words": ["{{ $string(count.count) }}"]}),
        constant("join", "{{ slow.text }}"),
        edges=(
            edge("count->quick"),
            edge("count->slow"),
            edge("quick->join"),
            edge("slow->join"),
            edge("join->count", when="count.count < 3", maxIterations=9),
        ),
        parallel=True,
    )
    log, _ = await run(described)
    values = [event["output"]["value"] for event in log.of("node:complete") if event["nodeId"] == "join"]
    assert values == ["1", "2", "3"]


async def test_a_node_that_fails_stops_the_others_before_the_flow_ends() -> None:
    described = flow(python("good", "never_ends"), python("bad", "fails"), parallel=True)
    log, snapshot = await run(described)
    assert log.brief()[-2:] == ["node:error bad.1", "flow:complete failed"]
    assert snapshot["nodeStatus"] == {"good": "running", "bad": "failed"}


async def test_nodes_that_were_paused_together_go_on_together() -> None:
    runtime = FlowRuntime(flow(python("a", "asks_and_pauses"), python("b", "asks_and_pauses"), parallel=True))
    log = EventLog(runtime)
    await runtime.run()
    snapshot = await runtime.resume("both")
    answers: dict[str, Any] = {"answer": "both", "inbox": ["both"]}
    assert snapshot["outputs"] == {"a": answers, "b": answers}
    assert log.types.count("flow:paused") == 1


async def test_a_hundred_runs_at_a_time_never_mix() -> None:
    described = flow(python("a", "said_in_a_thread", input={"words": "{{ flow.input.words }}"}), python("b", "said"))

    async def one(number: int) -> bool:
        log, snapshot = await run(described, {"words": [f"{number}", "!"]})
        texts = [event["content"] for event in log.of("agent:text")]
        return texts == [f"{number}!", "Hello"] and snapshot["outputs"]["a"] == {"text": f"{number}!"}

    assert all(await asyncio.gather(*(one(number) for number in range(100))))
