"""The examples in docstrings are run, over the whole package. A module whose extra is not installed is skipped."""

import doctest
import functools
import inspect
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import usechat
from usechat.errors import MissingDependency

pytestmark = pytest.mark.core

PACKAGE = Path(usechat.__file__).parent
NAMES = Path(__file__).with_name("public_names.txt")
FILES = sorted(path.relative_to(PACKAGE.parent) for path in PACKAGE.rglob("*.py"))
# Neither __main__ nor migrations can be imported: they are run.
MODULES = [
    ".".join(path.with_suffix("").parts).removesuffix(".__init__")
    for path in FILES
    if path.stem != "__main__" and "migrations" not in path.parts
]

WITHOUT_EXAMPLE = {"usechat.open_harness.serve_runtime"}
"""This one returns when it is interrupted."""


def load(name: str) -> Any:
    module, _, below = name.rpartition(".")
    return inspect.unwrap(getattr(import_module(module), below))


def teaches(name: str) -> bool:
    """Tell whether a public name is a class or a function. Errors are explained by what raises them."""
    try:
        member = load(name)
    except MissingDependency:
        return True
    is_error = inspect.isclass(member) and issubclass(member, Exception)
    return (inspect.isclass(member) or inspect.isroutine(member)) and not is_error


PUBLIC = [name for name in NAMES.read_text(encoding="utf-8").splitlines() if teaches(name)]


@functools.cache
def examples_in(module: str) -> list[doctest.DocTest]:
    return [test for test in doctest.DocTestFinder().find(import_module(module)) if test.examples]


def run(examples: list[doctest.DocTest]) -> None:
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    output: list[str] = []
    failed = sum(runner.run(example, out=output.append).failed for example in examples)
    assert not failed, "".join(output)


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_a_module_are_true(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # examples may write files
    try:
        examples = examples_in(module)
    except ImportError as missing:
        if not isinstance(missing, MissingDependency) and (missing.name or "usechat").startswith("usechat"):
            raise
        pytest.skip(f"an extra is not installed: {missing}")
    run(examples)


@pytest.mark.parametrize("name", PUBLIC)
def test_an_example_needs_the_names_of_its_public_module_alone(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader can paste it: everything else is imported in it."""
    monkeypatch.chdir(tmp_path)
    try:
        member = load(name)
    except MissingDependency as missing:
        pytest.skip(f"an extra is not installed: {missing}")
    module = import_module(name.rpartition(".")[0])
    names = {each: getattr(module, each) for each in module.__all__}
    home = import_module(member.__module__)
    run(doctest.DocTestFinder().find(member, name, module=home, globs=names))


@pytest.mark.parametrize("name", sorted(set(PUBLIC) - WITHOUT_EXAMPLE))
def test_a_public_class_or_function_has_an_example(name: str) -> None:
    """It is in its docstring, or in that of a method."""
    try:
        member = load(name)
    except MissingDependency as missing:
        pytest.skip(f"an extra is not installed: {missing}")
    home = f"{member.__module__}.{member.__qualname__}."
    assert any(f"{each.name}.".startswith(home) for each in examples_in(member.__module__))
