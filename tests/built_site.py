"""The site of the documentation, built for a test."""

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.generate_docs import ROOT
from tests.built_once import built_once


def build_site(factory: pytest.TempPathFactory) -> Path:
    """Build the site, once for all tests; a warning of the generator is an error."""
    return built_once(factory, "site", _build)


def _build(into: Path) -> None:
    command = [sys.executable, "-m", "scripts.build_site", "--into", str(into)]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout + process.stderr
    assert "No issues found" in process.stdout + process.stderr
