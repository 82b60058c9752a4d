"""Connections whose request never comes: the HTTP protocol of `usechat serve`.

A client that opens connections and sends half a request head on each holds a descriptor per connection, for as long as
it likes: uvicorn has a deadline between two requests, but none for a head that has begun, or never begins. When the
descriptors have run out, nobody can connect any more, and no log says why. So this protocol derives from uvicorn's and
adds three things:

- a deadline for each head: it starts with the connection, or with the first byte of a further request;
- a limit per address: at most three quarters of the process's descriptors may wait for heads of one address. Beyond it
  the oldest of them is closed, so that a new client of that address is answered all the same. A proxy in front sends
  whole heads, so its connections hardly ever wait here;
- one line in the log when nearly all descriptors are in use.

A handshake of a WebSocket is read twice: by uvicorn, and by the protocol of WebSockets, which does not answer one that
it cannot read (websockets 16: with a body, with a line of more than 8 KiB, with more than 128 lines). So the deadline
goes on until that protocol has read it.

Requests that are being answered, bodies (``Settings.body_timeout``), idle connections between requests (uvicorn) and
open WebSockets are not concerned.
"""

import asyncio
import logging
from collections import defaultdict
from typing import Any, Final

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from usechat.server.rare_lines import RareLines

__all__ = ["GuardedHttp"]

_HEAD_SECONDS: Final = 10.0
_SHARE_OF_ADDRESS: Final = 0.75
_SPARE: Final = 8
"""How many unused descriptors are few."""

_lines: Final = RareLines(logging.getLogger("usechat.server"))
_waiting: Final[defaultdict[str, dict["GuardedHttp", None]]] = defaultdict(dict)
"""The connections of each address that wait for a head, the oldest first."""


class GuardedHttp(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """uvicorn's protocol for HTTP, with a deadline for request heads and a limit of them per address."""

    cycle: Any
    """The request that is answered, or was answered last; set by uvicorn when a head is complete."""
    client: tuple[str, int] | None
    _deadline: asyncio.TimerHandle | None = None
    _web_socket: asyncio.BaseProtocol | None = None
    """What the connection was handed over to."""

    def connection_made(self, transport: Any) -> None:
        """Wait for the first head; close the oldest connection of this address if too many wait."""
        super().connection_made(transport)
        limit = _descriptor_limit()
        self._watch()
        waiting = _waiting[self._address]
        if limit is not None and len(waiting) > limit * _SHARE_OF_ADDRESS:
            text = "%s keeps %d connections open without a request; the oldest are closed"
            _lines.warning(("waiting", self._address), text, self._address, len(waiting))
            next(iter(waiting)).close_unfinished()
        if limit is not None and transport.get_extra_info("socket").fileno() >= limit - _SPARE:
            # A new descriptor has the lowest number that is free, so nearly all below it are in use.
            text = "nearly all %d descriptors are in use, so connections will fail; raise the limit (ulimit -n)"
            _lines.warning("descriptors", text, limit)

    def data_received(self, data: bytes) -> None:
        """Parse what was received, and see whether a head is unfinished."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._end_watch()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self, *request: Any) -> None:
        """Hand the connection over to the protocol of WebSockets."""
        super().handle_websocket_upgrade(*request)
        self._web_socket = self.transport.get_protocol()

    def close_unfinished(self) -> None:
        """Close the connection, whose client has not sent a whole head."""
        self._end_watch()
        if not self._is_open_web_socket:
            self.transport.abort()

    @property
    def _is_open_web_socket(self) -> bool:
        """Whether the protocol of WebSockets has read the handshake: all of uvicorn's make their scope of it."""
        return hasattr(self._web_socket, "scope")

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else ""

    def _watch(self) -> None:
        """Start the deadline of a head that is unfinished, unless it has started; end that of a complete one."""
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if is_answering or self._is_open_web_socket:
            self._end_watch()
        elif self._deadline is None:
            self._deadline = asyncio.get_running_loop().call_later(_HEAD_SECONDS, self.close_unfinished)
            _waiting[self._address][self] = None

    def _end_watch(self) -> None:
        if self._deadline is None:
            return
        self._deadline.cancel()
        self._deadline = None
        waiting = _waiting[self._address]
        del waiting[self]
        if not waiting:
            del _waiting[self._address]


def _descriptor_limit() -> int | None:
    """Return how many descriptors this process may have; ``None`` if there is no limit that is known."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if limit == resource.RLIM_INFINITY else limit
