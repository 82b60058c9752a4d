"""One WebSocket to a flow server: events in, commands out."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final, Self
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from usechat.errors import InvalidAddress
from usechat.open_harness.errors import Unreachable
from usechat.open_harness.runtime_protocol import Command, Event
from usechat.values import json_text, json_value, read_json

__all__ = ["COMMANDS_HEADER", "Link", "backoff", "require_scheme", "without_secrets"]

COMMANDS_HEADER: Final = "open-harness-commands"
"""A response header of the handshake that lists commands beyond those of Open Harness: ``run``."""

_MAXIMUM_FRAME_BYTES: Final = 16 * 1024 * 1024
_logger: Final = logging.getLogger("usechat.open_harness")
_FIRST_DELAY: Final = 0.1
_LONGEST_DELAY: Final = 5.0
_GOODBYE: Final = 2.0
"""Seconds to send the last commands before closing."""


def require_scheme(url: str, schemes: tuple[str, ...]) -> None:
    """Raise InvalidAddress unless the URL has one of these schemes and a host."""
    try:
        parts = urlsplit(url)
        fits = parts.scheme in schemes and bool(parts.hostname)
    except ValueError:
        fits = False
    if not fits:
        allowed = " or ".join(f"{name}://" for name in schemes)
        raise InvalidAddress(f"{url!r} is not an address that begins with {allowed}")


def without_secrets(url: str) -> str:
    """Return a URL without password and query, for the log."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


async def backoff(seconds: float) -> AsyncIterator[None]:
    """Yield once per attempt, with growing pauses, until the time is over."""
    loop = asyncio.get_running_loop()
    deadline, delay = loop.time() + seconds, _FIRST_DELAY
    yield
    while (left := deadline - loop.time()) > 0:
        await asyncio.sleep(min(delay, left))
        delay = min(2 * delay, _LONGEST_DELAY)
        yield


class Link:
    """An open connection. ``on_event`` is called with each event, in order; ``on_lost`` when the connection is lost."""

    def __init__(
        self, connection: ClientConnection, on_event: Callable[[Event], None], on_lost: Callable[[], None]
    ) -> None:
        self._connection = connection
        self._on_event = on_event
        self._on_lost = on_lost
        self._outgoing: asyncio.Queue[Command | None] = asyncio.Queue()
        self.lost = False
        loop = asyncio.get_running_loop()
        self._reader = loop.create_task(self._read(), name="usechat flow events")
        self._writer = loop.create_task(self._write(), name="usechat flow commands")

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        headers: Mapping[str, str],
        seconds: float,
        on_event: Callable[[Event], None],
        on_lost: Callable[[], None],
    ) -> Self:
        """Connect, retrying for some seconds; raise Unreachable if every attempt fails."""
        async for _ in backoff(seconds):
            try:
                connection = await connect(url, additional_headers=headers, max_size=_MAXIMUM_FRAME_BYTES)
            except (OSError, InvalidHandshake, TimeoutError, EOFError) as error:
                _logger.warning("the flow at %s cannot be reached: %s", without_secrets(url), error)
                if isinstance(error, InvalidStatus) and error.response.status_code < 500:
                    break  # a refusal; another attempt gets the same answer
            else:
                return cls(connection, on_event, on_lost)
        raise Unreachable

    @property
    def starts_runs(self) -> bool:
        """Whether the server supports ``run`` and has one runtime per connection."""
        response = self._connection.response
        return response is not None and "run" in response.headers.get(COMMANDS_HEADER, "").split()

    def listen(self, on_event: Callable[[Event], None], on_lost: Callable[[], None]) -> None:
        """Call these functions from now on, instead of those before."""
        self._on_event, self._on_lost = on_event, on_lost

    def command(self, command: Command) -> None:
        """Queue a command. It is dropped if the connection is lost."""
        self._outgoing.put_nowait(command)

    async def close(self) -> None:
        """Send the queued commands and close the connection."""
        self._outgoing.put_nowait(None)
        await asyncio.wait([self._writer], timeout=_GOODBYE)
        for task in (self._writer, self._reader):
            task.cancel()
        await asyncio.gather(self._writer, self._reader, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GOODBYE):
                await self._connection.close()

    async def _read(self) -> None:
        try:
            async for frame in self._connection:
                event = _event_in(frame)
                if event is not None:
                    self._on_event(event)
        except ConnectionClosed as closed:
            _logger.warning("the connection to a flow was lost: %s", closed)
        finally:
            self.lost = True
            self._on_lost()

    async def _write(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            while (command := await self._outgoing.get()) is not None:
                await self._connection.send(json_text(json_value({"type": "command", "command": command})))


def _event_in(frame: str | bytes) -> Event | None:
    """Return the event in a frame; the protocol says to ignore everything else."""
    try:
        message: Any = read_json(frame if isinstance(frame, str) else frame.decode())
    except (ValueError, RecursionError):
        message = None
    if isinstance(message, dict) and message.get("type") == "event" and isinstance(message.get("event"), dict):
        event: Event = message["event"]
        return event
    _logger.warning("a frame of a flow server was ignored: it has no event")
    return None
