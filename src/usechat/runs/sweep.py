"""One timer for many who want to look at the time now and then."""

import asyncio
from collections.abc import Callable
from typing import Final, TypeAlias
from weakref import WeakKeyDictionary

__all__ = ["Sweep", "sweep_for"]

Look: TypeAlias = Callable[[float], None]
"""Is told the time of the loop."""

_SHORTEST: Final = 0.001
_LONGEST: Final = 1.0
_SHARE: Final = 20


class Sweep:
    """Calls everybody every so many seconds.

    A timer each would take half a kilobyte of every stream, and every delta would find more timers in its way.
    """

    __slots__ = ("_every", "_looking", "_timer")

    def __init__(self, every: float) -> None:
        self._every = every
        self._looking: dict[Look, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, look: Look) -> None:
        """Call ``look`` from now on."""
        self._looking[look] = None
        if self._timer is None:
            self._plan(asyncio.get_running_loop())

    def discard(self, look: Look) -> None:
        """Call it no more."""
        self._looking.pop(look, None)
        if not self._looking and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _plan(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(self._every, self._go_round, loop)

    def _go_round(self, loop: asyncio.AbstractEventLoop) -> None:
        self._plan(loop)
        now = loop.time()
        for look in tuple(self._looking):
            look(now)


_sweeps: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, dict[float, Sweep]]] = WeakKeyDictionary()


def sweep_for(limit: float) -> Sweep:
    """Return the sweep of the running loop that is exact enough for a time limit: to a twentieth of it, or a second."""
    every = max(_SHORTEST, min(_LONGEST, limit / _SHARE))
    sweeps = _sweeps.setdefault(asyncio.get_running_loop(), {})
    return sweeps.get(every) or sweeps.setdefault(every, Sweep(every))
