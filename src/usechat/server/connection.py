"""The connection of a stream, as every ASGI server offers it: send the body, notice that the client has gone.

:class:`AsgiServer` is all that the rest of the package knows of the server. It uses nothing but ASGI and works
everywhere. :class:`usechat.server.uvicorn.UvicornServer` does the same with fewer tasks and less time per write, and
can reset a connection, for which ASGI has no word.
"""

import array
import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any, Final, TypeAlias

from usechat.runs.log import Wake
from usechat.runs.manager import RunManager
from usechat.runs.reading import Reading
from usechat.server.observers.observer import Observer

__all__ = ["GONE", "AsgiServer", "ClientWatch", "Finish", "Sender", "all_written", "reset_at_once", "unsent_bytes"]

Send: TypeAlias = Callable[[MutableMapping[str, Any]], Coroutine[Any, Any, None]]

Finish: TypeAlias = Callable[[float | None], Coroutine[Any, Any, None]]
"""Ends the runs of an app; called with the seconds that the server waits, if there is a limit."""

GONE: Final = {"type": "http.disconnect"}
_POLL_SECONDS: Final = 0.02
_EMPTY_POLLS: Final = 3


class AsgiServer:
    """Uses what every ASGI server offers."""

    def watch_client(self, receive: Any, reading: Reading) -> "ClientWatch":
        """Return what wakes ``reading`` when the client has gone."""
        return ClientWatch(receive, reading)

    def sender(self, send: Any, receive: Any, observer: Observer, reading: Reading) -> "Sender":  # noqa: ARG002
        """Return what sends the body of one response."""
        return Sender(send, observer)

    def transport_of(self, scope: Any, receive: Any = None) -> asyncio.WriteTransport | None:  # noqa: ARG002
        """Return the connection below a request or a WebSocket; nothing where the server does not show it."""
        return None

    def disconnect_readers_at_exit(self, manager: RunManager, finish: "Finish") -> None:
        """Disconnect the manager's readers as soon as the server gets a signal to exit, if that can be noticed.

        Then the server waits for ``finish``, as long as it waits for responses.
        """


class ClientWatch:
    """Receives in a task until the client has gone, then wakes the reading."""

    __slots__ = ("_reading", "_receive", "_task", "is_gone")

    def __init__(self, receive: Any, reading: Reading) -> None:
        self.is_gone = False
        self._reading = reading
        self._receive = receive
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to receive."""
        self._task = asyncio.get_running_loop().create_task(self._until_gone())

    def close(self) -> None:
        """Stop receiving."""
        if self._task is not None:
            self._task.cancel()
            self._task = None  # its exception knows this object by its traceback

    async def _until_gone(self) -> None:
        while not self.is_gone:
            try:
                message = await self._receive()
            except Exception:  # a connection that cannot be listened to is lost
                message = GONE
            self._handle(message)

    def _handle(self, message: Any) -> None:
        if message["type"] == GONE["type"]:
            self.is_gone = True
            self._reading.wake(Wake.GONE)


class Sender:
    """Sends pieces of a body in the task of the response, and counts their bytes.

    They are reported at intervals: an observer that is called for every delta costs as much as framing the delta.
    """

    # Used for every delta of every stream: no __dict__, see usechat.runs.log.
    __slots__ = ("_report_bytes", "_send", "unreported", "waits")

    def __init__(self, send: Send, observer: Observer) -> None:
        self.unreported = 0
        """How many bytes were sent since the last report."""
        self.waits = False
        """Whether the task waits until the client has taken something."""
        self._send = send
        self._report_bytes = observer.bytes_sent

    def start_pushing(self) -> None:
        """Send without the task from now on, if the server allows it; called when the response has begun."""

    async def send(self, body: bytes, *, more: bool = True) -> None:
        """Send in the calling task; if there is no ``more``, the response is complete."""
        self.unreported += len(body)
        await self._wait_for(self._send({"type": "http.response.body", "body": body, "more_body": more}))

    def report(self) -> bool:
        """Report the bytes that were sent since the last report; return whether there were any."""
        count, self.unreported = self.unreported, 0
        if count:
            self._report_bytes(count)
        return count > 0

    async def finish(self) -> None:
        """Send in the calling task what was pushed and is not yet written, or raise what went wrong with it."""

    def close(self) -> None:
        """Send nothing more."""
        self.report()

    async def _wait_for(self, sending: Awaitable[None]) -> None:
        self.waits = True
        try:
            await sending
        finally:
            self.waits = False


async def all_written(transport: asyncio.WriteTransport, *, polls: int = _EMPTY_POLLS) -> None:
    """Wait until everything sent has left the process: the buffer was empty ``polls`` times in a row.

    Once is not enough behind middleware, of which each layer holds a message for some turns of the event loop.
    """
    empty = 0 if transport.get_write_buffer_size() else 1
    while empty < polls:
        await asyncio.sleep(_POLL_SECONDS)
        empty = 0 if transport.get_write_buffer_size() else empty + 1


def unsent_bytes(transport: asyncio.WriteTransport) -> int:
    """Return how many bytes the client has not taken: those buffered here and those in the system's send queue.

    The system takes more from here only when a third of its queue is free, which for a slow client may be minutes.
    """
    queued = array.array("i", [0])
    # Windows has neither; other servers' connections may have no socket, or it is closed already.
    with contextlib.suppress(ImportError, OSError, AttributeError, TypeError, ValueError):
        import fcntl
        import termios

        fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, queued)
    return transport.get_write_buffer_size() + queued[0]


def reset_at_once(transport: asyncio.WriteTransport) -> None:
    """Make the connection end with a reset: a client takes a plain close for the end of a body without a length."""
    # Not all that a server calls a connection is one; uvloop raises ValueError for one that is closed already.
    with contextlib.suppress(OSError, AttributeError, TypeError, ValueError):
        at_once = struct.pack("ii", 1, 0)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
