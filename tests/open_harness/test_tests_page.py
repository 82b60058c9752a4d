"""docs/open-harness-tests.md names the tests of every sentence of the specification, and stays true."""

import ast
import re
from pathlib import Path

import pytest

from tests.syntax_trees import tree_of

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "open-harness-tests.md"
FILES = ("stories", "requirements", "criteria", "edges", "turns", "interleaving")
SCENARIOS = {1: 4, 2: 4, 3: 3, 4: 3, 5: 3}
EVENTS = [
    *(f"agent:{name}" for name in ("text:delta", "text", "thinking:delta", "thinking", "tool", "error")),
    *("agent:complete", "agent:paused", "agent:aborted", "node:start", "node:complete", "flow:paused", "flow:complete"),
]
CHUNKS = [
    *(f"{kind}-{moment}" for kind in ("text", "reasoning") for moment in ("start", "delta", "end")),
    *("tool-input-available", "tool-output-available", "step-start", "error"),
]
IDS = [
    *(f"US{story}-{number}" for story, count in SCENARIOS.items() for number in range(1, count + 1)),
    *(f"FR-{number:03}" for number in range(1, 21)),
    *(f"SC-{number:03}" for number in range(1, 11)),
    *(f"Edge: {name}" for name in ("abort", "concurrent messages", "not started", "long answers", "tool timeout")),
    *("Edge: reconnection", "Edge: simultaneous nodes"),
    *(f"Event `{name}`" for name in EVENTS),
    *(f"Chunk `{name}`" for name in CHUNKS),
]


def rows() -> dict[str, set[tuple[str, str]]]:
    """Return the tests that each row names, by its id."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    table = [line for line in lines if line.startswith("|") and not line.startswith(("| Id |", "|---"))]
    return {line.split("|")[1].strip(): named_in(line) for line in table}


def named_in(text: str) -> set[tuple[str, str]]:
    return set(re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", text))


def names_in(path: Path) -> set[str]:
    tree = tree_of(path)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {function.name for function in functions if function.name.startswith("test_")}


@pytest.mark.parametrize("identity", IDS)
def test_every_sentence_has_a_test(identity: str) -> None:
    assert rows().get(identity)


def test_every_test_that_the_page_names_exists() -> None:
    named = named_in(PAGE.read_text(encoding="utf-8"))
    assert {(path, name) for path, name in named if name not in names_in(ROOT / path)} == set()


@pytest.mark.parametrize("name", FILES)
def test_the_page_names_every_test_of_the_scenarios(name: str) -> None:
    place = f"tests/conformance/test_open_harness_{name}.py"
    assert {(place, test) for test in names_in(ROOT / place)} - named_in(PAGE.read_text(encoding="utf-8")) == set()


@pytest.mark.parametrize("identity", [identity for identity in IDS if identity[:2] in ("US", "FR", "SC")])
def test_a_test_is_named_after_its_sentence(identity: str) -> None:
    prefix = "test_" + identity.lower().replace("-", "_") + "_"
    assert [name for _, name in rows()[identity] if not name.startswith(prefix)] == []
