"""Notice that a server shall exit, where the server does not say so in time.

ASGI tells an app of the exit when all responses have ended, and some servers never do. Open streams would delay the
exit until the server gives up, and agents would end without their ``finally``. Such a server has a handler of SIGTERM.
The handler here takes its place: it disconnects the readers, lets runs end where no lifespan does it, and then calls
the server's own. A second signal goes to the server at once.

There is nothing to do if the signal has no handler in Python, or if the app runs outside of the main thread, which
alone may set handlers.
"""

import asyncio
import signal
import threading
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from usechat.runs.manager import RunManager
from usechat.server.connection import Finish

__all__ = ["disconnect_readers_at_signal"]


def disconnect_readers_at_signal(manager: RunManager, finish: Finish) -> None:
    """Disconnect the manager's readers at SIGTERM, and await ``finish`` before the server's own handler is called."""
    handler = signal.getsignal(signal.SIGTERM)
    if not isinstance(handler, _ExitHandler):
        if not callable(handler) or threading.current_thread() is not threading.main_thread():
            return
        handler = _ExitHandler(handler, asyncio.get_running_loop())
        signal.signal(signal.SIGTERM, handler)
    handler.managers.setdefault(manager, finish)


class _ExitHandler:
    """Stands in for a server's handler of SIGTERM."""

    def __init__(self, previous: Callable[[int, Any], Any], loop: asyncio.AbstractEventLoop) -> None:
        self.managers: WeakKeyDictionary[RunManager, Finish] = WeakKeyDictionary()
        self._previous = previous
        self._loop = loop
        self._task: asyncio.Task[None] | None = None
        self._has_begun = False

    def __call__(self, number: int, frame: Any) -> None:
        """Begin the exit; Python calls it between any two instructions of the main thread."""
        if self._has_begun:
            self._previous(number, frame)
            return
        self._has_begun = True
        self._loop.call_soon_threadsafe(self._begin, number)

    def _begin(self, number: int) -> None:
        for manager in self.managers:
            manager.disconnect_readers()
        self._task = self._loop.create_task(self._finish(number))

    async def _finish(self, number: int) -> None:
        try:
            await asyncio.gather(*[finish(None) for finish in self.managers.values()])
        finally:
            self._previous(number, None)
