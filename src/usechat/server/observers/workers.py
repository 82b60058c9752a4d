"""The directory in which the workers of a server keep their counts, so that any of them can report all.

It needs no metrics library: `usechat serve --workers` sets it up whether or not one is installed.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

__all__ = ["counted_together", "forget_dead_workers", "worker_directory"]

_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"


@contextmanager
def counted_together() -> Iterator[None]:
    """Make all processes that are started inside the block count together.

    A directory that the environment names already (``PROMETHEUS_MULTIPROC_DIR``) is used and kept; otherwise a
    temporary one is made and removed. Call it in the process that starts the workers, before the workers start.

    >>> import os
    >>> with counted_together():  # start a process manager with several workers here
    ...     "PROMETHEUS_MULTIPROC_DIR" in os.environ
    True
    """
    if worker_directory() is not None:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="usechat-metrics-") as directory:
        os.environ[_VARIABLE] = directory
        try:
            yield
        finally:
            del os.environ[_VARIABLE]


def worker_directory() -> Path | None:
    """Return where the workers keep their counts; ``None`` when this process counts alone."""
    directory = os.environ.get(_VARIABLE)
    return Path(directory) if directory else None


def forget_dead_workers(directory: Path) -> None:
    """Remove the gauges of processes that have exited: their streams are not open any more. Their counters stay."""
    for file in directory.glob("gauge_live*_*.db"):
        if not _lives(int(file.stem.rpartition("_")[2])):
            file.unlink(missing_ok=True)


def _lives(process_id: int) -> bool:
    if sys.platform == "win32":
        return True  # signal 0 would end it there
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's process
        return True
    return True
