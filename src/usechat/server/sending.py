"""Sending the body of a stream: in the task of the response, or by a plain call from wherever frames are made."""

import asyncio
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, MutableMapping
from typing import Any, TypeAlias

from usechat.runs.log import Wake
from usechat.runs.reading import Reading
from usechat.server.leaving import is_uvicorn
from usechat.server.observer import Observer

__all__ = ["Sender"]

Send: TypeAlias = Callable[[MutableMapping[str, Any]], Coroutine[Any, Any, None]]


class Sender:
    """Sends pieces of a body and counts their bytes; the reading is woken when its task has to wait with ``finish``.

    A coroutine of uvicorn's ``send`` (0.54) ends with its first step, unless the client does not read fast enough. So
    anybody can take that step; a task is needed only to wait. For a chunked body over its httptools protocol that step
    does no more than to write a chunk to the connection, so while nothing waits there it is written here.

    Behind middleware that does something with what is sent, such as compression, ``send`` is not uvicorn's own, and
    every step needs the task.
    """

    # Used for every delta of every stream: no __dict__, see usechat.runs.log.
    __slots__ = ("_count_bytes", "_reading", "_send", "_transport", "_unsent", "is_quiet", "waits")

    def __init__(self, send: Any, observer: Observer, reading: Reading) -> None:
        self.is_quiet = True
        """Whether nothing was sent since somebody set this."""
        self.waits = False
        """Whether the task waits until the client has taken something."""
        self._send: Send = send
        self._count_bytes = observer.bytes_sent
        self._unsent: Awaitable[None] | Exception | None = None
        self._reading = reading
        self._transport: asyncio.WriteTransport | None = None

    def can_push(self, receive: Any) -> bool:
        """Tell whether ``push`` may be used from now on; asked when the response has begun."""
        server = getattr(self._send, "__self__", None)
        if not is_uvicorn(receive) or server is not receive.__self__:
            return False
        if type(server).__module__.endswith(".httptools_impl") and getattr(server, "chunked_encoding", False):
            self._transport = getattr(server, "transport", None)
        return True

    async def send(self, body: bytes, *, more: bool = True) -> None:
        """Send in the calling task, behind all that was pushed; if there is no ``more``, the response is complete."""
        await self.finish()
        self.is_quiet = False
        await self._wait_for(self._send({"type": "http.response.body", "body": body, "more_body": more}))
        self._count_bytes(len(body))

    def push(self, frames: bytes) -> None:
        """Take the first step of sending, in no task; never raises."""
        self.is_quiet = False
        self._count_bytes(len(frames))
        transport = self._transport
        try:
            if transport is not None and not transport.get_write_buffer_size() and not transport.is_closing():
                transport.write(b"%x\r\n%b\r\n" % (len(frames), frames))  # RFC 9112, 7.1
                return
            sending = self._send({"type": "http.response.body", "body": frames, "more_body": True})
            waiting = sending.send(None)
        except StopIteration:
            return
        except Exception as error:
            self._unsent = error
        else:
            self._unsent = _go_on(sending, waiting)
        self._reading.wake(Wake.UNSENT)

    async def finish(self) -> None:
        """Send in the calling task what was pushed and is not through, or raise what went wrong with it."""
        unsent, self._unsent = self._unsent, None
        if isinstance(unsent, Exception):
            raise unsent
        if unsent is not None:
            await self._wait_for(unsent)

    async def _wait_for(self, sending: Awaitable[None]) -> None:
        self.waits = True
        try:
            await sending
        finally:
            self.waits = False

    def close(self) -> None:
        """Send nothing more."""
        self._unsent = None


@types.coroutine
def _go_on(sending: Coroutine[Any, Any, None], waiting: Any) -> Generator[Any, Any, None]:
    """Go on in this task with what was begun elsewhere; ``waiting`` is what it waits for."""
    error: BaseException | None = None
    try:
        while True:
            try:
                yield waiting
            except BaseException as raised:  # such as a cancellation, which is for what is being sent
                error = raised
            waiting = sending.send(None) if error is None else sending.throw(error)
            error = None
    except StopIteration:
        return
    finally:
        error = None  # it knows this frame by its traceback
