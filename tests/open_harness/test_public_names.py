"""The public names: each is documented, its examples run, and its modules import each other in one direction."""

import ast
import doctest
import inspect
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import pytest

from tests.syntax_trees import nodes_of
from usechat import open_harness

PACKAGE = Path(open_harness.__file__).parent
NAMES = {name: getattr(open_harness, name) for name in open_harness.__all__}


@pytest.mark.parametrize("name", sorted(NAMES))
def test_the_examples_of_a_public_name_run(name: str) -> None:
    known: dict[str, Any] = {**NAMES, "Any": Any}
    tests = [
        test
        for test in doctest.DocTestFinder(recurse=False).find(NAMES[name], name, globs=dict(known))
        if test.examples
    ]
    results = [doctest.DocTestRunner().run(test) for test in tests]
    assert [result.failed for result in results] == [0] * len(results)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_public_name_is_documented_with_an_example(name: str) -> None:
    text = inspect.getdoc(NAMES[name]) or ""
    is_example = ">>> " in text or ".. code-block:: python" in text
    assert is_example or name in ("FileRecordings", "SqliteRecordings", "InvalidFlow"), text


def test_modules_import_each_other_in_one_direction() -> None:
    """Count imports within functions and for type checkers, too."""
    root = "usechat.open_harness"
    modules = {
        ".".join([root, *path.relative_to(PACKAGE).with_suffix("").parts]): path for path in PACKAGE.rglob("*.py")
    }
    modules = {name: path for name, path in modules.items() if path.name != "__init__.py"}
    graph: dict[str, set[str]] = {}
    for name, path in modules.items():
        found = [node for node in nodes_of(path) if isinstance(node, ast.ImportFrom) and node.module is not None]
        below = {f"{node.module}.{alias.name}" for node in found for alias in node.names}
        graph[name] = ({str(node.module) for node in found} | below) & modules.keys()
    assert set(TopologicalSorter(graph).static_order()) == modules.keys()
