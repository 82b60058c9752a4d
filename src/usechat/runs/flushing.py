"""Handing over what was written to the logs of one event loop: all of them together, when a turn of it ends."""

import asyncio
import contextvars
import logging
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from usechat.runs.log import Log

__all__ = ["Flusher", "flusher_of"]

_logger: Final = logging.getLogger("usechat.runs")


class Flusher:
    """The logs of one event loop that were written to in this turn of it.

    One callback flushes them all: one for each log would cost as much as the framing of a delta. And while a process
    that reads is awake for the first, the kernel need not wake it for the others.
    """

    __slots__ = ("_context", "_logs")

    def __init__(self) -> None:
        self._context = contextvars.Context()  # not that of whoever writes first, which belongs to one request
        self._logs: list[Log] = []

    def add(self, log: "Log") -> None:
        """Flush a log when everybody who says something in this turn has done so."""
        if not self._logs:
            log.loop.call_soon(self._flush_all, context=self._context)
        self._logs.append(log)

    def _flush_all(self) -> None:
        logs, self._logs = self._logs, []
        for log in logs:
            try:
                log.flush()
            except Exception:  # one log that fails is no reason for the others to wait
                _logger.exception("what was said could not be handed over")


_flushers: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Flusher]] = WeakKeyDictionary()


def flusher_of(loop: asyncio.AbstractEventLoop) -> Flusher:
    """Return the one flusher of an event loop."""
    return _flushers.get(loop) or _flushers.setdefault(loop, Flusher())
