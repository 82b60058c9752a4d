"""Modules that are imported from the files of a test."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType


@contextmanager
def forgotten_modules(directory: Path) -> Iterator[None]:
    """Forget in the end what was imported from a directory, and nothing else.

    A library that a test imports for the first time stays: imported again, its classes would be others than those that
    the rest of the program knows. For the same reason ``sys.modules`` is never replaced by a copy.
    """
    try:
        yield
    finally:
        for name in [name for name, module in sys.modules.items() if _is_below(module, directory)]:
            del sys.modules[name]


def _is_below(module: ModuleType | None, directory: Path) -> bool:
    file = getattr(module, "__file__", None)
    paths = [file] if file else list(getattr(module, "__path__", []))
    return any(Path(path).is_relative_to(directory) for path in paths)
