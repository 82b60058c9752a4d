"""One timer per event loop and interval, shared by all objects that have a time limit.

A timer for each stream would cost half a kilobyte, and every delta would have to reset one. Instead each run and each
stream notes what happened, and compares it with the clock when the shared timer ticks.
"""

import asyncio
import contextvars
from typing import Final, Protocol
from weakref import WeakKeyDictionary

__all__ = ["SharedTimer", "TimerListener", "timer_for"]

_SHORTEST: Final = 0.001
_LONGEST: Final = 1.0
_TICKS_PER_LIMIT: Final = 20


class TimerListener(Protocol):
    """Something with a time limit."""

    def tick(self, now: float) -> None:
        """Check time limits; ``now`` is the loop's clock."""
        ...


class SharedTimer:
    """Calls ``tick`` of all its listeners every ``interval`` seconds; it runs only while there are listeners."""

    __slots__ = ("_context", "_listeners", "_timer", "interval")

    def __init__(self, interval: float) -> None:
        self.interval = interval
        """Seconds between two ticks."""
        # An empty one: the context of the first listener belongs to one request.
        self._context = contextvars.Context()
        self._listeners: dict[TimerListener, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, listener: TimerListener) -> None:
        """Call the listener's ``tick`` from now on."""
        self._listeners[listener] = None
        if self._timer is None:
            self._schedule(asyncio.get_running_loop())

    def discard(self, listener: TimerListener) -> None:
        """Call the listener no more."""
        self._listeners.pop(listener, None)
        if not self._listeners and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(self.interval, self._tick, loop, context=self._context)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._schedule(loop)
        now = loop.time()
        for listener in tuple(self._listeners):
            listener.tick(now)


_timers_by_loop: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, dict[float, SharedTimer]]] = WeakKeyDictionary()


def timer_for(limit: float) -> SharedTimer:
    """Return the running loop's timer for a time limit: it ticks every twentieth of it, at least every second."""
    interval = max(_SHORTEST, min(_LONGEST, limit / _TICKS_PER_LIMIT))
    timers = _timers_by_loop.setdefault(asyncio.get_running_loop(), {})
    return timers.get(interval) or timers.setdefault(interval, SharedTimer(interval))
