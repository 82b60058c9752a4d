"""Nodes that are functions: plain, async, generators, and types of one's own."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from tests.open_harness.flow_runs import echo, flow, python, run
from usechat.open_harness.engine.runtime import FlowRuntime
from usechat.open_harness.errors import InvalidFlow
from usechat.open_harness.flow.definition import Place
from usechat.open_harness.nodes.builtin import default_registry
from usechat.open_harness.nodes.context import NodeContext


@pytest.mark.parametrize(
    ("function", "fields", "output"),
    [
        ("plain", {"number": 21}, {"doubled": 42, "thread": True}),
        ("asynchronous", {"x": "{{ 1 + 1 }}"}, "a got {'x': 2}"),
        ("without_arguments", {}, "nothing was asked"),
        ("said", {}, {"text": "Hello"}),
        ("said_in_a_thread", {"words": ["a", "b"]}, {"text": "ab"}),
        ("said_and_returned", {}, {"answer": 42}),
    ],
)
async def test_a_function_of_any_kind_is_a_node(function: str, fields: dict[str, Any], output: Any) -> None:
    _, snapshot = await run(flow(python("a", function, input=fields)))
    assert snapshot["outputs"]["a"] == output


async def test_what_a_generator_yields_is_said_at_once() -> None:
    log, _ = await run(flow(python("a", "said")))
    contents = [{key: event[key] for key in ("type", "content")} for event in log.named() if "content" in event]
    assert contents == [
        {"type": "agent:thinking:delta", "content": "hm"},
        {"type": "agent:thinking", "content": "hm"},
        {"type": "agent:text:delta", "content": "Hel"},
        {"type": "agent:text:delta", "content": "lo"},
        {"type": "agent:text", "content": "Hello"},
    ]


async def test_a_thread_says_its_words_in_order_before_it_ends() -> None:
    words = [f"{number} " for number in range(500)]
    log, _ = await run(flow(python("a", "said_in_a_thread", input={"words": words})))
    assert [event["content"] for event in log.of("agent:text:delta")] == words
    assert log.brief()[-3:] == ["agent:text a.1", "node:complete a.1", "flow:complete complete"]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (None, "must be a text such as my_module:my_function, not None"),
        ("json.dumps", "must be a text such as my_module:my_function, not 'json.dumps'"),
        ("no_such_module:x", "'no_such_module:x' cannot be imported: No module named 'no_such_module'"),
        ("json:nothing", "'json:nothing' cannot be imported: module 'json' has no attribute 'nothing'"),
        ("json:__doc__", "'json:__doc__' is not a function"),
    ],
)
async def test_a_function_that_cannot_be_used_is_a_problem_of_the_file(name: Any, problem: str) -> None:
    with pytest.raises(InvalidFlow) as raised:
        FlowRuntime(flow({"id": "a", "type": "python", "input": {"function": name}}))
    assert [str(each) for each in raised.value.problems] == [f'node "a", input.function: {problem}']


async def test_a_function_can_be_a_type_of_its_own() -> None:
    registry = default_registry()
    registry.add("shout", lambda fields: fields["text"].upper())
    described = flow({"id": "a", "type": "shout", "input": {"text": "{{ flow.input.message }}"}})
    _, snapshot = await run(described, {"message": "hey"}, registry=registry)
    assert snapshot["outputs"]["a"] == "HEY"


class Squares:
    """A type with a check of its own."""

    def problems(self, fields: Mapping[str, Any]) -> Iterable[tuple[Place, str]]:
        if "side" not in fields:
            yield ("side",), "is missing"

    async def run(self, fields: Mapping[str, Any], context: NodeContext) -> Any:
        context.emit({"type": "agent:text", "content": "a square"})
        return fields["side"] ** 2


async def test_a_type_of_ones_own_checks_its_input_and_speaks() -> None:
    registry = default_registry()
    registry.add("square", Squares())
    log, snapshot = await run(flow({"id": "a", "type": "square", "input": {"side": 3}}), registry=registry)
    assert (snapshot["outputs"]["a"], log.of("agent:text")[0]["nodeId"]) == (9, "a")
    with pytest.raises(InvalidFlow, match=r'node "a", input.side: is missing'):
        FlowRuntime(flow({"id": "a", "type": "square"}), registry=registry)


async def test_an_unknown_type_is_a_problem_that_tells_the_known_ones() -> None:
    with pytest.raises(InvalidFlow, match=r'there is no type "ecoh"; there are agent, claude\.agent, constant, echo'):
        FlowRuntime(flow({**echo("a", "x"), "type": "ecoh"}))


@pytest.mark.parametrize(
    ("read", "output"),
    [(lambda given: given.get("depth", 3), 3), (lambda given: given["depth"], {"error": "'depth'"})],
    ids=["get", "index"],
)
async def test_an_input_whose_binding_leads_to_nothing_is_absent(read: Any, output: Any) -> None:
    registry = default_registry()
    registry.add("read", read)
    node = {"id": "a", "type": "read", "input": {"depth": "{{ state.nothing }}"}}
    _, snapshot = await run(flow(node), registry=registry)
    assert snapshot["outputs"]["a"] == output
