"""All stages run, and the summary names those that failed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.classes import TESTS

pytestmark = pytest.mark.once

STAGES = TESTS.parent / "scripts" / "stages.py"
MAKEFILE = "first:\n\t@echo one\nbroken:\n\t@echo two; exit 3\nlast:\n\t@echo three\n"


def run_stages(directory: Path, *targets: str) -> tuple[int, list[str]]:
    (directory / "Makefile").write_text(MAKEFILE, encoding="utf-8")
    command = [sys.executable, str(STAGES), *targets]
    process = subprocess.run(command, cwd=directory, stdout=subprocess.PIPE, text=True, check=False)
    return process.returncode, re.sub(r"\d+ s", "0 s", process.stdout).splitlines()


def test_a_stage_that_fails_does_not_hide_the_later_ones(tmp_path: Path) -> None:
    assert run_stages(tmp_path, "first", "broken", "last") == (
        1,
        [
            *("== first", "one", "== first: 0 s"),
            *("== broken", "two", "== broken: 0 s, FAILED"),
            *("== last", "three", "== last: 0 s"),
            *("== Summary", "== first: 0 s", "== broken: 0 s, FAILED", "== last: 0 s", "== FAILED: broken"),
        ],
    )


def test_stages_that_pass_succeed(tmp_path: Path) -> None:
    assert run_stages(tmp_path, "first") == (
        0,
        ["== first", "one", "== first: 0 s", "== Summary", "== first: 0 s", "== All passed."],
    )
