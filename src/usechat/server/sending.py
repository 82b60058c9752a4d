"""Sending the body of a stream: in the task of the response, or all streams of a turn of the event loop together."""

import asyncio
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, MutableMapping
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

from usechat.server.observer import Observer

__all__ = ["Sender"]

Send: TypeAlias = Callable[[MutableMapping[str, Any]], Coroutine[Any, Any, None]]


class Outbox:
    """The senders of one event loop that have something to send in this turn of it.

    They send in one go: while a process that reads is awake for the first, the kernel need not wake it for the others.
    On a busy machine that is a quarter of what a delta costs.
    """

    __slots__ = ("_senders",)

    def __init__(self) -> None:
        self._senders: list[Sender] = []

    def add(self, sender: "Sender", loop: asyncio.AbstractEventLoop) -> None:
        """Let a sender send when all who say something in this turn of its loop have done so."""
        if not self._senders:
            loop.call_soon(self._send_all)
        self._senders.append(sender)

    def _send_all(self) -> None:
        senders, self._senders = self._senders, []
        for sender in senders:
            sender.send_pushed()


_outboxes: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Outbox]] = WeakKeyDictionary()


class Sender:
    """Sends pieces of a body and counts their bytes; ``unsent`` is called when a task has to wait with ``finish``.

    A coroutine of uvicorn's ``send`` (0.54) ends with its first step, unless the client does not read fast enough. So
    anybody can take that step; a task is needed only to wait. For a chunked body over its httptools protocol that step
    does no more than to write a chunk to the connection, so while nothing waits there it is written here.

    Behind middleware that does something with what is sent, such as compression, ``send`` is not uvicorn's own, and
    every step needs the task.
    """

    # Used for every delta of every stream: no __dict__, see usechat.runs.log.
    __slots__ = ("_loop", "_observer", "_outbox", "_pushed", "_send", "_transport", "_unsent", "_when_unsent", "at")

    def __init__(self, send: Any, observer: Observer, unsent: Callable[[], None]) -> None:
        self.at = 0.0
        """When something was last sent."""
        self._loop = loop = asyncio.get_running_loop()
        self._send: Send = send
        self._observer = observer
        self._outbox = _outboxes.get(loop) or _outboxes.setdefault(loop, Outbox())
        self._pushed = b""
        self._unsent: Awaitable[None] | Exception | None = None
        self._when_unsent = unsent
        self._transport: asyncio.WriteTransport | None = None

    def can_push(self, receive: Any) -> bool:
        """Tell whether ``push`` may be used from now on; asked when the response has begun."""
        server = getattr(self._send, "__self__", None)
        protocol = type(server).__module__
        if not protocol.startswith("uvicorn.") or server is not getattr(receive, "__self__", None):
            return False
        if protocol.endswith(".httptools_impl") and getattr(server, "chunked_encoding", False):
            self._transport = getattr(server, "transport", None)
        return True

    async def send(self, body: bytes) -> None:
        """Send in the calling task, behind all that was pushed."""
        await self.finish()
        self.at = self._loop.time()
        await self._send({"type": "http.response.body", "body": body, "more_body": True})
        self._observer.bytes_sent(len(body))

    def push(self, frames: bytes) -> None:
        """Send soon, in no task."""
        if self._pushed:
            self._pushed += frames
        else:
            self._pushed = frames
            self._outbox.add(self, self._loop)

    def send_pushed(self) -> None:
        """Take the first step of sending what was pushed; never raises."""
        frames, self._pushed = self._pushed, b""
        if not frames:
            return
        self.at = self._loop.time()
        self._observer.bytes_sent(len(frames))
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
        self._when_unsent()

    async def finish(self) -> None:
        """Send in the calling task what was pushed and is not through, or raise what went wrong with it."""
        self.send_pushed()
        unsent, self._unsent = self._unsent, None
        if isinstance(unsent, Exception):
            raise unsent
        if unsent is not None:
            await unsent

    def close(self) -> None:
        """Send nothing more."""
        self._pushed = b""
        self._unsent = None


@types.coroutine
def _go_on(sending: Coroutine[Any, Any, None], waiting: Any) -> Generator[Any, Any, None]:
    """Go on in this task with what was begun elsewhere; ``waiting`` is what it waits for."""
    while True:
        error: BaseException | None = None
        try:
            yield waiting
        except BaseException as raised:  # such as a cancellation, which is for what is being sent
            error = raised
        try:
            waiting = sending.send(None) if error is None else sending.throw(error)
        except StopIteration:
            return
