"""The HTTP response that streams a run, as a plain ASGI callable: no task group, no queue."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final

from starlette.responses import Response

from usechat.chunks import Error
from usechat.runs.keeper import Reading
from usechat.runs.log import Wake
from usechat.server.observer import Observer
from usechat.sse import KEEP_ALIVE, STREAM_OPEN, encode_frame

__all__ = ["STREAM_HEADERS", "StreamResponse"]

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
_LAST_WORDS: Final = 5.0
"""Seconds that a client too slow to follow gets for the last frames."""
_BROKEN_OFF: Final = encode_frame(Error("The connection was broken off; reload the page to see the whole answer."))


class StreamResponse(Response):
    """Sends what a reading gives, until it ends, the client goes, or the client cannot follow.

    A ``Response`` by name, because FastAPI serialises everything else.
    """

    def __init__(self, reading: Reading, *, keep_alive: float, observer: Observer, received: float) -> None:
        self.status_code = 200
        self.background = None
        self.body = b""
        self.raw_headers = list(STREAM_HEADERS)
        self._reading = reading
        self._keep_alive = keep_alive
        self._observer = observer
        self._received = received
        self._first = True
        self._timer: asyncio.TimerHandle | None = None
        self._sent = 0.0
        self._task: asyncio.Task[Any] | None = None
        self._too_slow = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG002
        """Answer one request. A reader that is broken off sees a broken connection, never an end: it may resume."""
        self._task = asyncio.current_task()
        self._reading.on_too_slow(self._interrupt)
        reason = "client"
        self._observer.stream_opened()
        listener = asyncio.get_running_loop().create_task(_until_gone(receive, self._reading.wake))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await self._send(send, STREAM_OPEN)
            self._plan_keep_alive()
            reason = await self._pass_on(send)
            if reason == "ended":
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            elif reason != "client":
                await self._break_off(receive, send)
        finally:
            listener.cancel()
            if self._timer is not None:
                self._timer.cancel()
            self._reading.close()
            self._observer.stream_closed(reason)

    async def _pass_on(self, send: Any) -> str:
        """Send frames; tell why there are no more."""
        try:
            while True:
                match await self._reading.read():
                    case None:
                        return "ended"
                    case Wake.SILENCE:
                        await self._send(send, KEEP_ALIVE)
                    case Wake() as reason:
                        return _REASONS[reason]
                    case frames:
                        await self._send(send, frames)
                        if self._first:
                            self._first = False
                            self._observer.first_frame(self._sent - self._received)
        except asyncio.CancelledError:
            if not self._too_slow or self._task is None:
                raise
            self._task.uncancel()
            return "slow"

    async def _break_off(self, receive: Any, send: Any) -> None:
        """Break the connection: closing it would wait until the client has read everything, perhaps for ever."""
        last_words = self._reading.give_up() if self._too_slow else b""
        transport = _transport_of(receive)
        if transport is None:
            # Middleware (starlette 1.10, BaseHTTPMiddleware) ends the response well, whatever happens here.
            last_words = last_words or _BROKEN_OFF
        if last_words:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LAST_WORDS):
                    await self._send(send, last_words)
        if transport is not None:
            transport.abort()
            await asyncio.sleep(0)  # the server learns of it, and does not call the response incomplete

    async def _send(self, send: Any, body: bytes) -> None:
        self._sent = asyncio.get_running_loop().time()
        await send({"type": "http.response.body", "body": body, "more_body": True})
        self._observer.bytes_sent(len(body))

    def _interrupt(self) -> None:
        if not self._too_slow and self._task is not None:
            self._too_slow = True
            self._task.cancel()

    def _plan_keep_alive(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() - self._sent >= self._keep_alive:
            self._reading.wake(Wake.SILENCE)
            self._sent = loop.time()
        self._timer = loop.call_at(self._sent + self._keep_alive, self._plan_keep_alive)


def _transport_of(receive: Any) -> asyncio.WriteTransport | None:
    """Return the connection behind uvicorn's ``receive`` (0.54, both HTTP protocols): ASGI has no word for a reset."""
    transport = getattr(getattr(receive, "__self__", None), "transport", None)
    return transport if isinstance(transport, asyncio.WriteTransport) else None


async def _until_gone(receive: Any, wake: Callable[[Wake], None]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    wake(Wake.GONE)
