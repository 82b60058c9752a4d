"""The site of the documentation, built for a test."""

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.generate_docs import ROOT


def build_site(factory: pytest.TempPathFactory) -> Path:
    """Build the site into an empty directory; a warning of the generator is an error."""
    into = factory.mktemp("site")
    command = [sys.executable, "-m", "scripts.build_site", "--into", str(into)]
    with (factory.getbasetemp().parent / "site.lock").open("w") as lock:  # the generator has one cache for all
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout + process.stderr
    assert "No issues found" in process.stdout + process.stderr
    return into
