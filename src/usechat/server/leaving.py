"""Noticing that a client goes away, while its stream is sent."""

import asyncio
from typing import Any, Final

from usechat.runs.log import Wake
from usechat.runs.reading import Reading

__all__ = ["Leaving", "is_uvicorn"]

_GONE: Final = {"type": "http.disconnect"}


def is_uvicorn(method: Any) -> bool:
    """Tell whether ``receive`` or ``send`` is uvicorn's own (0.54), with nothing in between."""
    return type(getattr(method, "__self__", None)).__module__.startswith("uvicorn.")


class Leaving:
    """Receives until the client is gone, then wakes the reading.

    A task for each stream would take a kilobyte of it. uvicorn's ``receive`` waits for one future after the other and
    asks for no task, so a plain callback can do its steps. Others may ask, and get one.
    """

    __slots__ = ("_reading", "_receive", "_receiving", "_task", "gone")

    def __init__(self, reading: Reading) -> None:
        self.gone = False
        self._reading = reading
        self._receive: Any = None
        self._receiving: Any = None
        self._task: asyncio.Task[None] | None = None

    def listen(self, receive: Any) -> None:
        """Begin."""
        self._receive = receive
        if is_uvicorn(receive):
            self._step()
        else:
            self._task = asyncio.get_running_loop().create_task(self._until_gone())

    def close(self) -> None:
        """Listen no further."""
        if self._task is not None:
            self._task.cancel()
        if self._receiving is not None:
            self._receiving.close()
            self._receiving = None

    def _step(self, waited: "asyncio.Future[Any] | None" = None) -> None:
        if waited is not None and self._receiving is None:
            return  # closed meanwhile
        while not self.gone:
            self._receiving = self._receiving or self._receive()
            try:
                waiting = self._receiving.send(None)
            except StopIteration as received:
                self._receiving = None
                self._hear(received.value)
            except Exception:  # a connection that cannot be listened to is lost
                self._receiving = None
                self._hear(_GONE)
            else:
                waiting.add_done_callback(self._step)
                return

    async def _until_gone(self) -> None:
        while not self.gone:
            try:
                message = await self._receive()
            except Exception:  # as above
                message = _GONE
            self._hear(message)

    def _hear(self, message: Any) -> None:
        if message["type"] == _GONE["type"]:
            self.gone = True
            self._reading.wake(Wake.GONE)
