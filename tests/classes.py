"""The classes of the test files: they say which stages of the Makefile run a file.

A directory has classes, and so have all files below it. A module that differs says so in its ``pytestmark``: a stage
takes the place of the directory's stage, any other class is added. ``pyproject.toml`` says what each class means.

The classes are read from the text of a file, without an import: with `-m quick` pytest imports the quick files alone,
where imports and collection of all files take longer than the tests that are selected.
"""

import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).parent
STAGES: Final = frozenset(
    {"alone", "browser", "browsers", "core", "deploy", "live", "npm", "once", "stores", "temporal", "unit"}
)
"""Every file has one of them."""
CLASSES: Final = STAGES | {
    "crewai",
    "every_python",
    "external_agents",
    "frameworks",
    "llama_index",
    "plain_asgi",
    "quick",
    "slow",
}
DIRECTORIES: Final = {
    "": "unit",
    "adapters": "unit",
    "agent_ops": "unit",
    "agent_ops/access": "stores",
    "browser": "browser",
    "browsers": "browsers",
    "chats": "unit",
    "check": "core quick",
    "cli": "unit",
    "client": "unit every_python plain_asgi",
    "conformance": "npm",
    "contracts": "stores",
    "demo": "unit",
    "deploy": "deploy",
    "genkit": "unit",
    "open_harness": "unit",
    "open_harness/engine": "unit quick",
    "open_harness/events": "unit quick",
    "pauses": "unit quick",
    "protocol": "core quick",
    "runs": "unit quick",
    "runs/redis": "stores",
    "server": "unit plain_asgi",
    "server/auth": "unit quick plain_asgi",
    "server/observers": "unit quick external_agents plain_asgi",
    "starter": "once",
    "temporal": "temporal",
    "testing": "unit every_python plain_asgi",
}
"""The classes of the files in a directory. Those below it have them too, unless they are listed themselves."""
_MODULE_MARKS: Final = re.compile(r"^pytestmark = .+?(?=^\S|\Z)", re.MULTILINE | re.DOTALL)
_MARK: Final = re.compile(r"pytest\.mark\.(\w+)")
_WORD: Final = re.compile(r"\w+")


@cache
def classes_of(path: Path) -> frozenset[str]:
    """Return the classes of a test file. Raises an error for a file in a directory that has none."""
    directory = _classes_of_directory(path.parent.relative_to(TESTS).as_posix())
    marks = _MODULE_MARKS.search(path.read_text(encoding="utf-8"))
    module = CLASSES.intersection(_MARK.findall(marks[0]) if marks else ())
    return module | (directory - STAGES if module & STAGES else directory)


def is_selected(path: Path, expression: str) -> bool:
    """Return whether the expression of `-m` selects tests of a file; true also if it names marks of single tests."""
    words = set(_WORD.findall(expression)) - {"and", "or", "not"}
    if not words or not words <= CLASSES:
        return True
    names = defaultdict(bool, dict.fromkeys(classes_of(path), True))
    return bool(eval(expression, {"__builtins__": {}}, names))


def _classes_of_directory(name: str) -> frozenset[str]:
    name = "" if name == "." else name
    while name not in DIRECTORIES and "/" in name:
        name = name.rpartition("/")[0]
    if name not in DIRECTORIES:
        raise pytest.UsageError(f"tests/{name} has no class: add it to DIRECTORIES in tests/classes.py.")
    return frozenset(DIRECTORIES[name].split())
