"""One timer for many who want to look at the time now and then."""

import asyncio
import contextvars
from typing import Final, Protocol
from weakref import WeakKeyDictionary

__all__ = ["SharedTimer", "TimerListener", "timer_for"]

_SHORTEST: Final = 0.001
_LONGEST: Final = 1.0
_SHARE: Final = 20


class TimerListener(Protocol):
    """Somebody who wants to look at the time."""

    def tick(self, now: float) -> None:
        """It is so late, by the clock of the loop."""
        ...


class SharedTimer:
    """Lets everybody look every so many seconds.

    A timer each would take half a kilobyte of every stream, and every delta would find more timers in its way.
    """

    __slots__ = ("_context", "_timer", "_watching", "every")

    def __init__(self, every: float) -> None:
        self.every = every
        """Seconds between two looks."""
        # Not that of whoever comes first, which belongs to one request.
        self._context = contextvars.Context()
        self._watching: dict[TimerListener, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, who: TimerListener) -> None:
        """Let somebody look from now on."""
        self._watching[who] = None
        if self._timer is None:
            self._plan(asyncio.get_running_loop())

    def discard(self, who: TimerListener) -> None:
        """Let them look no more."""
        self._watching.pop(who, None)
        if not self._watching and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _plan(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(self.every, self._go_round, loop, context=self._context)

    def _go_round(self, loop: asyncio.AbstractEventLoop) -> None:
        self._plan(loop)
        now = loop.time()
        for who in tuple(self._watching):
            who.tick(now)


_timers_by_loop: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, dict[float, SharedTimer]]] = WeakKeyDictionary()


def timer_for(limit: float) -> SharedTimer:
    """Return the timer of the running loop that is exact enough for a time limit: to a twentieth of it, or a second."""
    every = max(_SHORTEST, min(_LONGEST, limit / _SHARE))
    timers = _timers_by_loop.setdefault(asyncio.get_running_loop(), {})
    return timers.get(every) or timers.setdefault(every, SharedTimer(every))
