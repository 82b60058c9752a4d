"""The HTTP response that streams a run, as a plain ASGI callable: no task group, no queue.

The happy path is this; the class around it is about clients that leave, stall or read too slowly:

.. code-block:: python

    await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
    await sender.send(STREAM_OPEN)  # a comment: proxies pass the head on, and the page knows that it is connected
    while (frames := await reading.read()) is not None:
        await sender.send(frames)
    await sender.send(b"", more=False)

A reading returns frames, ``None`` at the end of the run, or a :class:`~usechat.runs.log.Wake`: the client has left, the
page must hear something after a long silence, the client is too slow, or the server shuts down. One timer for all
responses (``tick``) notices silence, and connections that take nothing. Whoever can resume gets a reset connection;
whoever cannot is told by an error first (``_disconnect``).
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from starlette.responses import Response

from usechat.protocol.chunks import ErrorChunk
from usechat.protocol.sse import KEEP_ALIVE, STREAM_OPEN, encode_frame
from usechat.runs.log import Wake
from usechat.runs.manager import Reading
from usechat.runs.timers import timer_for
from usechat.server.connection import AsgiServer, Sender, all_written, reset_at_once, unsent_bytes
from usechat.server.observers.observer import Observer

__all__ = ["DISCONNECTED", "STREAM_HEADERS", "ShortStream", "StreamResponse", "collect_streams"]

STREAM_HEADERS: Final = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"connection", b"keep-alive"),
    (b"x-vercel-ai-ui-message-stream", b"v1"),
    (b"x-accel-buffering", b"no"),
    (b"content-encoding", b"identity"),
)
"""The AI SDK's own headers (``UI_MESSAGE_STREAM_HEADERS``), and what keeps proxies and middleware from buffering."""

_REASONS: Final = {Wake.GONE: "client", Wake.TOO_SLOW: "slow", Wake.SHUTDOWN: "disconnected"}
_STREAMS: Final = "usechat.streams"
_LAST_WORDS: Final = 5.0
"""Seconds that a client which is disconnected gets to take the last frames; a slow one gets them again and again while
it takes something."""
_TURNS: Final = 3
"""Turns of the event loop after which the server knows that the connection is closed, and does not report an incomplete
response. A socket takes one, TLS two (asyncio.sslproto)."""
_SENT: Final[list[tuple[bytes, bytes]]] = []
_STUCK_TIMEOUT: Final = 60.0
"""Seconds after which a client that has unread data and takes none of it is disconnected."""
DISCONNECTED: Final = ErrorChunk("The server disconnected; reload the page to see the whole answer.")
"""Sent where the connection cannot be reset; our page recognises it by its beginning, and resumes."""


class ShortStream(Response):
    """A stream that is complete: its frames are known."""

    def __init__(self, frames: bytes) -> None:
        super().__init__(frames)
        self.raw_headers = [*STREAM_HEADERS, (b"content-length", str(len(frames)).encode())]


def collect_streams(scope: Any) -> "list[StreamResponse]":
    """Make streaming responses to this request collect in the returned list, for the caller to send.

    So the framework's dozen coroutines per request do not wait for the end of a stream, and the stream is sent with the
    server's own ``send``, which frameworks wrap.
    """
    scope[_STREAMS] = streams = list[StreamResponse]()
    return streams


class Stall(NamedTuple):
    """A connection, how many bytes its client has not taken, and since when that number has not changed."""

    transport: asyncio.WriteTransport | None
    unsent: int
    since: float


class StreamResponse(Response):
    """Sends the frames of a reading until the run ends, the client leaves, or the client is disconnected.

    ``finish`` is awaited after that, while the request still has what its framework opened for it, such as sessions.

    It derives from ``Response`` because FastAPI serialises everything else.
    """

    def __init__(
        self,
        reading: Reading,
        *,
        server: AsgiServer,
        keep_alive: float,
        observer: Observer,
        received: float,
        event_names: bool = False,
        stuck_timeout: float = _STUCK_TIMEOUT,
        finish: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.status_code = 200
        self.background = None
        self.body = b""
        self.raw_headers = list(STREAM_HEADERS)
        self._reading = reading
        self._server = server
        self._keep_alive = keep_alive
        self._observer = observer
        self._received = received
        self._event_names = event_names
        self._finish = finish
        self._first = True
        self._loop = asyncio.get_running_loop()
        self._timer = timer_for(keep_alive)
        self._sender: Sender | None = None
        self._quiet_since = received
        self._task: asyncio.Task[Any] | None = None
        self._cut: Wake | None = None
        self._stuck_timeout = stuck_timeout
        self._scope: Any = None
        self._receive: Any = None
        self._stall: Stall | None = None
        self._last_words: asyncio.Timeout | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Send the response, or leave that to the caller of :func:`collect_streams`."""
        if (streams := scope.get(_STREAMS)) is None:
            await self.stream(scope, receive, send)
        else:
            streams.append(self)

    async def stream(self, scope: Any, receive: Any, send: Any) -> None:
        """Send the response. A client that is disconnected sees a reset connection, never an end: it may resume."""
        self._task = asyncio.current_task()
        self._scope, self._receive = scope, receive
        self._reading.on_cut(self._interrupt)
        self._sender = sender = self._server.sender(send, receive, self._observer, self._reading)
        reason = "client"
        self._observer.stream_opened()
        client = self._server.watch_client(receive, self._reading)
        try:
            client.start()
            why = await self._send_all(send, sender)
            reason = "ended" if why is None else _REASONS[why]
            if why in (Wake.TOO_SLOW, Wake.SHUTDOWN):
                self._cut = why  # once is enough
                await self._disconnect(sender, why)
        except asyncio.CancelledError:
            if reason == "client" and not client.is_gone:
                reason = "disconnected"  # the server has no more time
            raise
        finally:
            client.close()
            sender.close()
            self._timer.discard(self)
            self._reading.close()
            self._observer.stream_closed(reason)
        if self._finish is not None:
            await self._finish()

    def tick(self, now: float) -> None:
        """Report what was sent, send a comment after a long silence, and disconnect a client that takes nothing."""
        sender = self._sender
        if sender is None or sender.report():
            self._quiet_since = now
        elif now - self._quiet_since >= self._keep_alive - 1.5 * self._timer.interval:  # the next tick is too late
            self._reading.wake(Wake.SILENCE)
        if sender is not None:
            if sender.waits or self._last_words is not None:
                self._check_progress(now)
            else:
                self._stall = None

    def _check_progress(self, now: float) -> None:
        transport = (
            self._server.transport_of(self._scope, self._receive) if self._stall is None else self._stall.transport
        )
        unsent = 0 if transport is None else unsent_bytes(transport)
        if self._stall is None or unsent != self._stall.unsent:
            self._stall = Stall(transport, unsent, now)
            if self._last_words is not None:
                self._last_words.reschedule(self._loop.time() + _LAST_WORDS)
        elif transport is not None and now - self._stall.since >= self._stuck_timeout:
            self._interrupt(Wake.TOO_SLOW)

    async def _send_all(self, send: Any, sender: Sender) -> Wake | None:
        """Send frames to the end, and return ``None``; or return why there are no more."""
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            self.raw_headers = _SENT  # every open stream would keep them
            await sender.send(STREAM_OPEN)
            self._timer.add(self)
            while True:
                match await self._reading.read():
                    case None:
                        await sender.send(b"", more=False)
                        return None
                    case Wake.SILENCE:
                        await sender.send(KEEP_ALIVE)
                    case Wake.UNSENT:
                        await sender.finish()
                    case Wake() as why:
                        return why
                    case frames:
                        await sender.send(frames)
                        if self._first:
                            self._first = False
                            self._observer.first_frame(asyncio.get_running_loop().time() - self._received)
                            sender.start_pushing()
                        del frames  # every open stream would keep them, too
        except asyncio.CancelledError:
            if self._cut is None or self._task is None:
                raise
            self._task.uncancel()
            return self._cut

    async def _disconnect(self, sender: Sender, why: Wake) -> None:
        """Reset the connection: closing it would wait until the client has read everything, which may never happen.

        Where it cannot be reset, the response may end as if it were complete. So the client gets an error instead; a
        slow client gets it when it reads on, because an answer that just ends would look complete. So does a slow
        client that cannot resume, before its connection is closed.
        """
        transport = self._server.transport_of(self._scope, self._receive)
        last_words = self._reading.give_up() if why is Wake.TOO_SLOW else b""
        if transport is None:
            last_words = last_words or encode_frame(DISCONNECTED, event_names=self._event_names)
        waits = transport is None and why is Wake.TOO_SLOW
        is_written = False
        if last_words:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if waits else _LAST_WORDS) as limit:
                    self._last_words = limit if why is Wake.TOO_SLOW and not waits else None
                    await sender.send(last_words)
                    if transport is not None:
                        await all_written(transport)
                    is_written = True
        if transport is not None:
            if not is_written:
                reset_at_once(transport)
            transport.abort()
            for _ in range(_TURNS):
                await asyncio.sleep(0)

    def _interrupt(self, why: Wake) -> None:
        """Stop sending, although the task may wait for a client that takes nothing."""
        if self._cut is None and self._task is not None:
            self._cut = why
            self._task.cancel()

    def __del__(self) -> None:
        """Close the reading if the response was never sent, because the route failed after it was made."""
        if self._task is None:
            with contextlib.suppress(RuntimeError):  # the loop is gone, and everything with it
                self._loop.call_soon_threadsafe(self._reading.close)  # any thread may collect the garbage
