"""A test whose program is missing says so at the end of its stage, and fails where the program should be installed."""

import os
import subprocess
import sys
from pathlib import Path

from tests.deploy.programs import REQUIRED

ROOT = Path(__file__).parents[2]
TESTS = """
import pytest
from tests.deploy.programs import program

@pytest.mark.parametrize("number", range(2))
def test_one(number):
    program("no-such-proxy")
"""
REASON = "no-such-proxy is not installed: `make test-deploy` installs it, as root of a system with apt"


def last_lines(directory: Path, required: str) -> tuple[int, list[str]]:
    """Run two tests that need a program which does not exist; return the exit code and the summary."""
    (directory / "test_one.py").write_text(TESTS, encoding="utf-8")
    (directory / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text(encoding="utf-8"), encoding="utf-8")
    environment = os.environ | {REQUIRED: required, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "test_one.py"]
    ran = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout.splitlines()


def test_a_skip_is_counted_with_its_reason(tmp_path: Path) -> None:
    status, lines = last_lines(tmp_path, "")
    assert status == 0
    assert any(line.startswith("SKIPPED [2] ") and line.endswith(REASON) for line in lines), lines
    assert "2 skipped" in lines[-1]


def test_nothing_is_skipped_where_all_programs_can_be_installed(tmp_path: Path) -> None:
    status, lines = last_lines(tmp_path, "1")
    assert status == 1
    assert lines.count(REASON) == 2, lines
    assert "2 failed" in lines[-1]
