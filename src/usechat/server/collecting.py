"""The garbage collector of a process that holds many streams open."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["rare_collections"]

_THRESHOLDS: Final = (20_000, 10, 10)
"""An open stream has about a hundred objects, which live as long as it does. With the default of 700 the streams that
are opened, and the deltas of a busy moment, lead to full collections, which take 100 ms of everybody's time with 1,500
streams (CPython 3.11). A stream that has ended goes by its reference count; a cycle of others' waits a little longer.
"""


_before: Final[list[tuple[int, int, int]]] = []
"""The thresholds that each app which runs has found; the last to go leaves those that the first found."""


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let the collector leave alone what is there now, and come rarely."""
    if not _before:  # another app may have streams open, which must not be frozen
        gc.collect()
        gc.freeze()
    _before.append(gc.get_threshold())
    gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        # Apps need not go in the order in which they came.
        found = _before.pop()
        if not _before:
            gc.set_threshold(*found)
            gc.unfreeze()
