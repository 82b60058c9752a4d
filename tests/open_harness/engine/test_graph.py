"""The order of nodes: whatever the graph, each runs once, after all that comes before it."""

import itertools
import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.open_harness.flow_runs import constant, edge, flow, run
from usechat.open_harness.engine.graph import Graph, NodeStatus
from usechat.open_harness.flow.reading import load_flow


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, Any]:
    """Return a flow without loops, its nodes in any order."""
    names = [f"n{number}" for number in range(draw(st.integers(1, 8)))]
    pairs = [(names[i], names[j]) for i in range(len(names)) for j in range(i + 1, len(names))]
    sample = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=12)) if pairs else []
    nodes = [constant(name) for name in draw(st.permutations(names))]
    return flow(*nodes, edges=tuple(edge(f"{source}->{target}") for source, target in sample))


@given(graphs(), st.booleans())
async def test_every_node_runs_once_after_all_that_comes_before_it(described: dict[str, Any], parallel: bool) -> None:
    log, snapshot = await run({**described, "parallel": parallel})
    started = [event["nodeId"] for event in log.of("node:start")]
    ended = [event["nodeId"] for event in log.of("node:complete")]
    assert sorted(started) == sorted(ended) == sorted(node["id"] for node in described["nodes"])
    order = log.brief()
    for each in described["edges"]:
        assert order.index(f"node:complete {each['from']}.1") < order.index(f"node:start {each['to']}.1")
    assert set(snapshot["edgeStatus"].values()) <= {"fired"}


@given(graphs(), st.randoms(use_true_random=False))
def test_something_is_ready_until_everything_is_done(described: dict[str, Any], chance: random.Random) -> None:
    graph = Graph(load_flow(described))
    statuses: dict[str, NodeStatus] = dict.fromkeys(graph.nodes, "pending")
    while "pending" in statuses.values():
        ready = graph.ready(statuses)
        assert ready, "no node waits for itself"
        statuses[chance.choice(ready)] = "done"


@given(graphs(), st.data())
async def test_a_node_runs_if_its_edges_let_it_and_is_skipped_if_not(
    described: dict[str, Any], data: st.DataObject
) -> None:
    edges = [{**each, "when": data.draw(st.sampled_from(["true", "false"]))} for each in described["edges"]]
    log, _ = await run({**described, "edges": edges})
    started = {event["nodeId"] for event in log.of("node:start")}
    skipped = {event["nodeId"] for event in log.of("node:skipped")}
    for node in described["nodes"]:
        incoming = [each["when"] == "true" for each in edges if each["to"] == node["id"]]
        assert (node["id"] in started, node["id"] in skipped) == (all(incoming), not all(incoming))


def test_a_chain_of_thousands_is_no_problem() -> None:
    names = [f"n{number}" for number in range(2000)]
    edges = tuple(edge(f"{source}->{target}") for source, target in itertools.pairwise(names))
    graph = Graph(load_flow(flow(*(constant(name) for name in names), edges=edges)))
    assert graph.ready(dict.fromkeys(names, "pending")) == ["n0"]
