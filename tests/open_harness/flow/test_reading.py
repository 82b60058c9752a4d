"""Flow files: what they become, and every problem of one that cannot run, with its line."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.open_harness.flow_runs import FLOWS, constant, edge, flow
from usechat.open_harness.errors import InvalidFlow
from usechat.open_harness.flow.definition import Edge, FlowDefinition, FlowState, ForEach, Node, Policy, Retry
from usechat.open_harness.flow.reading import load_flow

FULL = """\
name: full
version: 1
parallel: true
state:
  initial: {count: 0}
nodes:
  - id: a
    type: constant
    input: {value: yes}
    ui: {x: 1, y: 2, label: A}
  - id: b
    type: echo
    input:
      text: "{{ item }}"
    when: {equals: {var: state.count, value: 0}}
    policy:
      retry: {maxAttempts: 3, backoffMs: 10}
      timeoutMs: 500
      continueOnError: true
edges:
  - {id: e, from: a, to: b, gate: any, when: a.value = 'yes', forEach: {in: "{{ a.list }}", as: item}}
  - {from: b, to: a, maxIterations: 5}
"""


def test_a_file_becomes_a_flow() -> None:
    assert load_flow(FULL) == FlowDefinition(
        "full",
        (
            Node("a", "constant", {"value": "yes"}, ui={"x": 1, "y": 2, "label": "A"}),
            Node(
                "b",
                "echo",
                {"text": "{{ item }}"},
                {"equals": {"var": "state.count", "value": 0}},
                Policy(Retry(3, 10), 500, True),
            ),
        ),
        (
            Edge("a", "b", "e", "a.value = 'yes'", "any", ForEach("{{ a.list }}", "item")),
            Edge("b", "a", max_iterations=5),
        ),
        1,
        FlowState({"count": 0}),
        True,
    )


@pytest.mark.parametrize("name", ["chat-flow", "research-flow", "article-flow"])
def test_the_examples_are_flows(name: str) -> None:
    path = FLOWS / f"{name}.yaml"
    assert load_flow(path) == load_flow(str(path)) == load_flow(path.read_text(encoding="utf-8"))
    assert load_flow(path).name == name


def test_json_is_a_flow_file_too_and_so_is_the_form_in_which_the_name_stands_below_flow() -> None:
    nodes = '[{"id": "a", "type": "echo", "input": {"text": "x"}}]'
    assert load_flow(f'{{"flow": {{"name": "old", "nodePacks": ["core"]}}, "nodes": {nodes}}}').name == "old"


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        ("yes", "yes"),
        ("on", "on"),
        ("true", True),
        ("010", 10),
        ("1_0", "1_0"),
        ("12:30", "12:30"),
        ("~", None),
        ("", None),
        ("2024-01-01", "2024-01-01"),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("-7", -7),
        ('"true"', "true"),
        ("No", "No"),
    ],
)
def test_yaml_is_read_as_its_release_1_2_says(scalar: str, value: Any) -> None:
    text = f"name: x\nnodes:\n  - id: a\n    type: constant\n    input:\n      value: {scalar}\n"
    assert load_flow(text).nodes[0].input == {"value": value}


LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in itertools.pairwise("abcdefgh")
)

BROKEN = """\
name: 7
nodes:
  - id: a
    type: ecoh
    input: {text: x}
  - id: a
    typ: echo
  - just text
  - id: b
    type: echo
    input:
      text: |
        Hello {{ a. }}
    when: {equals: {var: x}}
    policy:
      retry: {maxAttempts: 0}
      timeoutMs: soon
      continueOnError: 1
edges:
  - from: a
    to: nowhere
  - from: b
    to: b
    gate: some
  - {from: a, to: b, forEach: {in: "{{ a }}"}, maxIterations: -1}
parallel: "true"
"""


def test_every_problem_is_told_at_once_each_with_its_line() -> None:
    with pytest.raises(InvalidFlow) as raised:
        load_flow(BROKEN)
    assert [(problem.line, problem.where) for problem in raised.value.problems] == [
        (1, "name"),
        (4, 'node "a", type'),
        (6, 'node "a", type'),
        (6, 'node "a", id'),
        (7, 'node "a", typ'),
        (8, "node 3"),
        (12, 'node "b", input.text'),
        (14, 'node "b", when.equals'),
        (16, 'node "b", policy.retry.maxAttempts'),
        (17, 'node "b", policy.timeoutMs'),
        (18, 'node "b", policy.continueOnError'),
        (19, "edges"),
        (21, 'edge "a->nowhere", to'),
        (24, 'edge "b->b", gate'),
        (25, 'edge "a->b", forEach.as'),
        (25, 'edge "a->b", maxIterations'),
        (26, "parallel"),
    ]
    assert str(raised.value).splitlines()[:2] == [
        "flow: 17 problems",
        "  line 1: name: must be a text that is not empty",
    ]


@pytest.mark.parametrize(
    ("described", "problem"),
    [
        ({"name": "x", "nods": [], "edges": [edge("a->b")]}, "nods: is not known; did you mean nodes?"),
        (flow(constant("a"), edges=(edge("a->a", maxIterations="5"),)), 'edge "a->a", maxIterations: must be a whole'),
    ],
)
def test_a_mistake_is_not_told_again_in_what_follows_from_it(described: Any, problem: str) -> None:
    with pytest.raises(InvalidFlow) as raised:
        load_flow(described)
    others = [str(each) for each in raised.value.problems if str(each) != "nodes: is missing; it is a list"]
    assert [each[: len(problem)] for each in others] == [problem]


@pytest.mark.parametrize(
    ("described", "problem"),
    [
        ({}, "name: is missing; it is a text"),
        ({"name": "x", "nodes": ()}, "nodes: a flow needs at least one node"),
        (
            flow(constant("a"), constant("b"), edges=(edge("a->b", forEach={"in": "a.value", "as": "x"}),)),
            'edge "a->b", forEach.in: must be a binding: {{ a.value }}',
        ),
        ({"name": "x"}, "nodes: is missing; it is a list"),
        ({"name": "x", "nodes": "a"}, "nodes: must be a list"),
        (flow(), "nodes: a flow needs at least one node"),
        (flow(constant("flow")), 'node "flow", id: is a name that bindings use already'),
        (flow(constant("a"), edges=(edge("a->a"),)), "edges: a -> a wait for each other"),
        (
            flow(constant("a"), constant("b"), edges=(edge("a->b"), edge("b->a"))),
            "wait for each other; the edge that leads back needs maxIterations",
        ),
        (flow(constant("a"), constant("b"), edges=(edge("a->b"), edge("a->b"))), 'edge "a->b": occurs twice'),
        (
            flow(
                *(constant(name) for name in "abc"),
                edges=(edge("a->c", gate="any"), edge("b->c", gate="all")),
            ),
            'edge "b->c", gate: another edge into "c" says any',
        ),
        (flow({**constant("a"), "polcy": {}}), 'node "a", polcy: is not known; did you mean policy?'),
        (flow(constant("a"), state=[]), "state: must be an object"),
        (flow({"id": "a", "type": "agent", "input": {"prompt": "x"}}), 'node "a", input.model: is missing'),
    ],
)
def test_a_problem_names_the_node_and_the_field(described: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidFlow) as raised:
        load_flow(described)
    assert problem in str(raised.value)


def test_keys_that_are_not_known_and_not_misspelt_are_left_alone() -> None:
    described = {**flow({**constant("a"), "description": "x"}), "author": "me", "nodePacks": ["core"]}
    assert load_flow(described).nodes == (Node("a", "constant", {"value": None}),)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("name: x\nnodes: [", "line 2: not YAML: expected the node content"),
        ("name: x\nname: y\nnodes: []\n", "line 2: the key 'name' occurs twice"),
        ("- a\n- b\n", "line 1: a flow is an object"),
        ("name: x\nnodes: !!python/object:os.system {}\n", "line 2: not YAML: could not determine a constructor"),
        ("name: x\nnodes: &a [*a]\n", "line 2: the value here is part of itself"),
        (
            "name: x\nnodes:\n  - {id: a, type: echo, when: &a {not: *a}}\n",
            "line 3: the value here is part of itself",
        ),
        (LAUGHS, "line 5: the value here is more than 100000 values"),
        ("# nothing\n\n", "a flow is an object"),
        ("name: x\nnodes: \x07\n", "not YAML"),
    ],
)
def test_a_file_that_is_no_yaml_is_refused_with_its_line(text: str, problem: str) -> None:
    with pytest.raises(InvalidFlow) as raised:
        load_flow(text)
    assert problem in str(raised.value)


def test_a_file_that_cannot_be_read_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidFlow, match=r"missing\.yaml: 1 problem\n  cannot be read"):
        load_flow(tmp_path / "missing.yaml")


def test_a_file_without_a_name_is_called_like_the_file(tmp_path: Path) -> None:
    path = tmp_path / "old-flow.yaml"
    path.write_text("nodes:\n  - {id: a, type: constant, input: {value: 1}}\n", encoding="utf-8")
    assert load_flow(path).name == "old-flow"


@pytest.mark.parametrize(
    ("name", "mend"),
    [
        ("mock.agent", 'Add your own: registry.add("mock.agent", function), --registry my_module:registry'),
        ("agnet", "Did you mean agent? Or add your own: registry"),
        ("condition.equals", "an older type of Open Harness: write its condition as `when` of the edges behind it"),
        ("control.foreach", "an older type of Open Harness: write `forEach: {in, as}` at the edge into the node"),
        ("http.get", "an older type of Open Harness: use python, with a function that makes the request"),
        ("map", "an older type of Open Harness: use constant, with bindings in its value"),
        ("anthropic.text", "an older type of Open Harness: use agent, with model and prompt"),
    ],
)
def test_a_type_that_is_not_there_is_told_with_the_line_that_mends_it(name: str, mend: str) -> None:
    with pytest.raises(InvalidFlow) as raised:
        load_flow(f"name: x\nnodes:\n  - id: a\n    type: {name}\n")
    [problem] = raised.value.problems
    assert str(problem).startswith(f'line 4: node "a", type: there is no type "{name}"; there are agent, claude.agent')
    assert mend in str(problem)
