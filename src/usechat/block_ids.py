"""The ids of text and reasoning blocks: each names one block of a message."""

import itertools
from collections.abc import Callable

__all__ = ["BlockIds"]


class BlockIds:
    """Gives ids to blocks: the one that a source wants if no block had it, else the next of ``new_id``."""

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        self._new_id = new_id or map(str, itertools.count(1)).__next__
        self._wanted: set[str] = set()
        self._given: set[str] = set()

    def give(self, wanted: str | None = None) -> str:
        """Return the id of a new block."""
        if wanted is None or wanted in self._given:
            wanted = str(self._new_id())
            while wanted in self._wanted:
                wanted = str(self._new_id())
        else:
            self._wanted.add(wanted)
        self._given.add(wanted)
        return wanted
