"""Log lines that strangers cause, as often as they like: one a minute about the same thing."""

import logging
import time
from collections.abc import Callable, Hashable, Iterator
from typing import Final

__all__ = ["RareLines"]

_SECONDS: Final = 60.0


class RareLines:
    """Writes a line to a log, and counts those about the same thing that follow within a minute.

    The first line after that minute, about anything, brings the count. Beyond ``maximum`` things in a minute all others
    are one thing, so an attacker with many addresses fills neither the log nor the memory.
    """

    def __init__(
        self,
        logger: logging.Logger,
        *,
        maximum: int = 1000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._logger = logger
        self._maximum = maximum
        self._clock = clock
        self._lines: dict[Hashable, _Line] = {}
        """The lines of the last minute, the oldest first."""

    def warning(self, key: Hashable, text: str, *values: object) -> None:
        """Write a line about a thing; leave it out if there was one within a minute."""
        now = self._clock()
        old = dict(self._pop_old(now))
        before = old.pop(key, None)
        for line in old.values():
            if line.left_out:
                self._logger.warning("%s%s", line.text, line.count(now))
        if key not in self._lines and len(self._lines) >= self._maximum:
            key = _OTHERS
            text += "; more lines of others are left out"
        if key in self._lines:
            self._lines[key].left_out += 1
            return
        self._lines[key] = _Line(text % values, now)
        self._logger.warning("%s%s", self._lines[key].text, before.count(now) if before else "")

    def _pop_old(self, now: float) -> Iterator[tuple[Hashable, "_Line"]]:
        while self._lines:
            key, line = next(iter(self._lines.items()))
            if now - line.since < _SECONDS:
                return
            yield key, self._lines.pop(key)


class _Line:
    """A line that was written, and how many about the same thing were left out since."""

    def __init__(self, text: str, since: float) -> None:
        self.text = text
        self.since = since
        self.left_out = 0

    def count(self, now: float) -> str:
        """Return what the next line says about those that were left out."""
        return f" ({self.left_out} more in the last {now - self.since:.0f} s)" if self.left_out else ""


_OTHERS: Final = object()
"""The thing that lines are about which come when there are too many things."""
