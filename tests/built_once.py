"""What takes long to build is built once for all test workers of a run."""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


def built_once(factory: pytest.TempPathFactory, name: str, build: Callable[[Path], object]) -> Path:
    """Return a directory that ``build`` fills. The first worker that needs it builds it, the others wait.

    Tests must not write into it: other workers read it. A build that fails leaves nothing behind.
    """
    base = factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base  # a worker's is below that of the run
    directory, unfinished = shared / name, shared / f"{name}-unfinished"
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not directory.exists():
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            build(unfinished)
            unfinished.rename(directory)
    return directory
