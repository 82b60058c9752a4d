"""Every test file has its class, and every class is run by a stage of the Makefile."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from scripts.other_pythons import EVERY_PYTHON, PLAIN_ASGI
from tests.classes import CLASSES, DIRECTORIES, STAGES, TESTS, classes_of, is_selected

pytestmark = pytest.mark.once

ROOT = TESTS.parent
WITHOUT_PLAYWRIGHT = "import sys, pytest; sys.modules['playwright'] = None; sys.exit(pytest.main(sys.argv[1:]))"
"""Runs pytest as in the environments of other Pythons and of live frameworks, which drive no browser."""
FILES = sorted(TESTS.rglob("test_*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(TESTS).as_posix())
def test_every_file_is_in_one_stage(path: Path) -> None:
    assert len(classes_of(path) & STAGES) == 1


def test_a_directory_without_classes_is_named() -> None:
    with pytest.raises(pytest.UsageError, match="tests/new has no class: add it to DIRECTORIES"):
        classes_of(TESTS / "new" / "test_it.py")


def test_every_directory_with_classes_has_test_files() -> None:
    assert [name for name in DIRECTORIES if not list((TESTS / name).glob("test_*.py"))] == []


def test_pytest_knows_every_class() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
    assert {line.partition(":")[0] for line in options["markers"]} == CLASSES


def test_the_makefile_runs_every_class() -> None:
    expressions = re.findall(r"-m (?:'([^']+)'|(\w+))", (ROOT / "Makefile").read_text(encoding="utf-8"))
    text = " ".join([EVERY_PYTHON, PLAIN_ASGI, *("".join(pair) for pair in expressions)])
    assert CLASSES - set(re.findall(r"\w+", text)) == set()


def test_classes_are_those_of_files_and_not_of_single_tests() -> None:
    decorator = re.compile(rf"@pytest\.mark\.({'|'.join(sorted(CLASSES))})\b")
    assert [path for path in FILES if decorator.search(path.read_text(encoding="utf-8"))] == []


def test_no_file_that_drives_a_browser_has_coroutines() -> None:
    """The loop of Playwright runs in the thread of the tests: a test that is a coroutine fails behind it."""
    coroutine = re.compile(r"^ *async def test_", re.MULTILINE)
    driving = [path for path in FILES if classes_of(path) & {"browser", "browsers", "alone"}]
    assert [path for path in driving if coroutine.search(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    ("name", "classes"),
    [
        ("protocol/stream/test_calling.py", {"core", "quick"}),
        ("protocol/test_states.py", {"core", "quick", "slow"}),
        ("test_layers.py", {"once"}),
        ("server/test_agent_processes.py", {"once", "plain_asgi"}),
        ("contracts/test_adapters.py", {"unit"}),
        ("conformance/test_live_crewai.py", {"live", "crewai"}),
    ],
)
def test_a_file_has_the_classes_of_its_directory_and_its_own(name: str, classes: set[str]) -> None:
    assert classes_of(TESTS / name) == classes


@pytest.mark.parametrize(
    ("expression", "selected"),
    [
        ("", True),
        ("core", True),
        ("unit or core", True),
        ("quick and not slow", False),
        ("browser", False),
        ("asyncio", True),  # a mark of single tests: the file has to be imported
        ("browser or asyncio", True),
    ],
)
def test_an_expression_selects_files_by_their_classes(expression: str, selected: bool) -> None:
    assert is_selected(TESTS / "protocol/test_states.py", expression) is selected


def test_files_of_which_nothing_is_selected_are_not_imported() -> None:
    options = ("--collect-only", "-q", "-n", "0", "-p", "no:cacheprovider")
    process = subprocess.run(
        [sys.executable, "-c", WITHOUT_PLAYWRIGHT, *options, "-m", "core and slow"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    slow = [path for path in FILES if {"core", "slow"} <= classes_of(path)]
    files = {line.partition("::")[0] for line in process.stdout.splitlines() if "::" in line}
    assert files == {path.relative_to(ROOT).as_posix() for path in slow}
    assert "deselected" not in process.stdout
