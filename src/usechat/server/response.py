"""The HTTP response that streams a run, as a plain ASGI callable: no task group, no queue."""

import asyncio
import contextlib
from typing import Any, Final

from starlette.responses import Response

from usechat.chunks import Error
from usechat.runs.keeper import Reading
from usechat.runs.log import Wake
from usechat.runs.sweep import sweep_for
from usechat.server.connection import all_written, transport_of
from usechat.server.leaving import Leaving
from usechat.server.observer import Observer
from usechat.server.sending import Sender
from usechat.sse import KEEP_ALIVE, STREAM_OPEN, encode_frame

__all__ = ["BROKEN_OFF", "STREAM_HEADERS", "StreamResponse", "collect_streams"]

STREAM_HEADERS: Final = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"connection", b"keep-alive"),
    (b"x-vercel-ai-ui-message-stream", b"v1"),
    (b"x-accel-buffering", b"no"),
    (b"content-encoding", b"identity"),
)
"""The AI SDK's own headers (``UI_MESSAGE_STREAM_HEADERS``), and what keeps proxies and middleware from buffering."""

_REASONS: Final = {Wake.GONE: "client", Wake.TOO_SLOW: "slow", Wake.BROKEN_OFF: "broken-off"}
_STREAMS: Final = "usechat.streams"
_LAST_WORDS: Final = 5.0
"""Seconds that a client too slow to follow gets for the last frames."""
_TURNS: Final = 3
"""Turns of the loop in which the server hears of a broken connection, and does not call the response incomplete. A
socket takes one, TLS two (asyncio.sslproto)."""
BROKEN_OFF: Final = Error("The connection was broken off; reload the page to see the whole answer.")
"""Where the connection cannot be broken; the page knows it by its beginning, and resumes."""


def collect_streams(scope: Any) -> "list[StreamResponse]":
    """Return a list in which the streams appear that an app answers this request with, for the caller to send.

    So nothing of the app waits for the end of a stream, of which a framework would keep a dozen coroutines, and the
    stream is sent with the server's own ``send``, which a framework wraps.
    """
    scope[_STREAMS] = streams = list[StreamResponse]()
    return streams


class StreamResponse(Response):
    """Sends what a reading gives, until it ends, the client goes, or the client cannot follow.

    A ``Response`` by name, because FastAPI serialises everything else.
    """

    def __init__(
        self,
        reading: Reading,
        *,
        keep_alive: float,
        observer: Observer,
        received: float,
        event_names: bool = False,
    ) -> None:
        self.status_code = 200
        self.background = None
        self.body = b""
        self.raw_headers = list(STREAM_HEADERS)
        self._reading = reading
        self._keep_alive = keep_alive
        self._observer = observer
        self._received = received
        self._event_names = event_names
        self._first = True
        self._sweep = sweep_for(keep_alive)
        self._sender: Sender | None = None
        self._quiet_since = received
        self._task: asyncio.Task[Any] | None = None
        self._too_slow = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request, or leave that to whoever collects streams."""
        if (streams := scope.get(_STREAMS)) is None:
            await self.stream(scope, receive, send)
        else:
            streams.append(self)

    async def stream(self, scope: Any, receive: Any, send: Any) -> None:
        """Send. A reader that is broken off sees a broken connection, never an end: it may resume."""
        self._task = asyncio.current_task()
        self._reading.on_too_slow(self._interrupt)
        self._sender = sender = Sender(send, self._observer, self._reading)
        reason = "client"
        self._observer.stream_opened()
        leaving = Leaving(self._reading)
        try:
            leaving.listen(receive)
            reason = await self._pass_on(receive, send, sender)
            if reason == "ended":
                await sender.finish()
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            elif reason != "client":
                await self._break_off(transport_of(scope, receive), sender)
        except asyncio.CancelledError:
            if reason == "client" and not leaving.gone:
                reason = "broken-off"  # the server has no more time
            raise
        finally:
            leaving.close()
            sender.close()
            self._sweep.discard(self)
            self._reading.close()
            self._observer.stream_closed(reason)

    def look(self, now: float) -> None:
        """Fill a silence that has lasted too long."""
        if self._sender is None or not self._sender.is_quiet:
            self._quiet_since = now
        elif now - self._quiet_since >= self._keep_alive - 1.5 * self._sweep.every:  # the next look would be too late
            self._reading.wake(Wake.SILENCE)
        if self._sender is not None:
            self._sender.is_quiet = True

    async def _pass_on(self, receive: Any, send: Any, sender: Sender) -> str:
        """Send frames; tell why there are no more."""
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await sender.send(STREAM_OPEN)
            self._sweep.add(self)
            while True:
                match await self._reading.read():
                    case None:
                        return "ended"
                    case Wake.SILENCE:
                        await sender.send(KEEP_ALIVE)
                    case Wake.UNSENT:
                        await sender.finish()
                    case Wake() as reason:
                        return _REASONS[reason]
                    case frames:
                        await sender.send(frames)
                        if self._first:
                            self._first = False
                            self._observer.first_frame(asyncio.get_running_loop().time() - self._received)
                            if sender.can_push(receive):
                                self._reading.push_to(sender)
        except asyncio.CancelledError:
            if not self._too_slow or self._task is None:
                raise
            self._task.uncancel()
            return "slow"

    async def _break_off(self, transport: asyncio.WriteTransport | None, sender: Sender) -> None:
        """Break the connection: closing it would wait until the client has read everything, perhaps for ever."""
        last_words = self._reading.give_up() if self._too_slow else b""
        if transport is None:
            # An unknown server, or middleware in front of it, may end the response well, whatever happens here.
            last_words = last_words or encode_frame(BROKEN_OFF, event_names=self._event_names)
        if last_words:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LAST_WORDS):
                    await sender.send(last_words)
                    if transport is not None:
                        await all_written(transport)
        if transport is not None:
            transport.abort()
            for _ in range(_TURNS):
                await asyncio.sleep(0)

    def _interrupt(self) -> None:
        if not self._too_slow and self._task is not None:
            self._too_slow = True
            self._task.cancel()
