"""The ids of text and reasoning blocks: each names one block of a message."""

from collections.abc import Callable

__all__ = ["BlockIds"]


class BlockIds:
    """Gives ids to blocks: the one that a source wants if no block had it, else the next of ``new_id``."""

    __slots__ = ("_given", "_new_id", "_number")

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        self._new_id = new_id
        self._number = 0
        self._given: dict[str, bool] = {}  # and whether a source wanted it

    def give(self, wanted: str | None = None) -> str:
        """Return the id of a new block."""
        if wanted is not None and wanted not in self._given:
            self._given[wanted] = True
            return wanted
        new = self._next()
        while self._given.get(new):
            new = self._next()
        self._given[new] = False
        return new

    def _next(self) -> str:
        if self._new_id is not None:
            return str(self._new_id())
        self._number += 1
        return str(self._number)
