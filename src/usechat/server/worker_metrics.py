"""Several workers, one ``/metrics``: the directory in which prometheus-client keeps what each of them counts.

Nothing here imports prometheus-client, because that decides on import whether it counts in files.
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
    """Make all processes that are started inside count together; a directory named by the environment is kept."""
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
    """Return where the workers keep their counts; nothing when this process counts alone."""
    directory = os.environ.get(_VARIABLE)
    return Path(directory) if directory else None


def forget_dead_workers(directory: Path) -> None:
    """Drop the gauges of processes that are gone: their streams are not open any more. What they counted stays."""
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
    except PermissionError:  # somebody else's
        return True
    return True
