"""Hanging up: when the server goes, readers are broken off first, so that no open stream keeps the process alive.

uvicorn waits until all connections have finished before it tells the app (0.54, ``Server.shutdown``), and an app that
is mounted in another is told nothing. A stream would hold it up for as long as the agent speaks. But it takes SIGTERM
with a method of its server, so the handler leads to the server, and to the flag that is raised first of all.
"""

import asyncio
import signal
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet

from usechat.runs.keeper import Keeper

__all__ = ["hang_up_in_time"]

_PAUSE: Final = 0.1
"""Seconds between two looks, as many as between uvicorn's own."""


_keepers: Final[WeakKeyDictionary[Any, WeakSet[Keeper]]] = WeakKeyDictionary()
"""Whose readers to break off when a server goes."""


def hang_up_in_time(keeper: Keeper) -> None:
    """Break the keeper's readers off as soon as the uvicorn that runs in this process is told to exit."""
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    if not hasattr(server, "should_exit"):
        return  # another server, or one in a thread
    if server not in _keepers:
        _keepers[server] = WeakSet()
        _look_at(server, _keepers[server])
    _keepers[server].add(keeper)


def _look_at(server: Any, keepers: WeakSet[Keeper]) -> None:
    if server.should_exit:
        for keeper in keepers:
            keeper.break_off()
    asyncio.get_running_loop().call_later(_PAUSE, _look_at, server, keepers)
