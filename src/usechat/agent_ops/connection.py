"""The client of a session's WebSocket: one socket per request, and how many of them a session may have."""

import asyncio
import contextlib
import logging
import ssl
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, Self
from urllib.parse import quote

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI
from websockets.frames import CloseCode
from websockets.typing import Subprotocol

from usechat.agent_ops.errors import SessionClosed, SessionUnreachable, TooManySockets
from usechat.agent_ops.wire import Frame, read_frame
from usechat.errors import UnknownEvent

__all__ = ["SessionHabits", "SessionSocket", "SessionStreams", "SocketCounter", "session_url"]

_logger: Final = logging.getLogger("usechat.agent_ops")

PING_INTERVAL: Final = 30.0
"""Seconds between two ``ping`` commands, as the upstream's own client sends them."""
_CLOSE_TIMEOUT: Final = 1.0
_LAST_COMMAND_TIMEOUT: Final = 2.0
_REMEMBERED_CLAIMS: Final = 1024
_REMEMBERED_SESSIONS: Final = 10_000


class _Connect(connect):
    """Follows no redirect: the token, which may be in a subprotocol, is meant for this address alone."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


class SessionSocket:
    """An open WebSocket to a session. ``name`` is the session's name in log lines."""

    def __init__(self, socket: ClientConnection, name: str) -> None:
        self.frame_was_too_large = False
        """Whether the socket was closed here because of a frame that is too large."""
        self._socket = socket
        self._name = name
        self._pinging = asyncio.get_running_loop().create_task(self._ping(), name="usechat agent-ops ping")

    @classmethod
    async def open(
        cls,
        url: str,
        token: str | None,
        *,
        name: str = "",
        subprotocol: str | None = None,
        open_timeout: float = 10,
        maximum_frame_bytes: int = 32 * 1024 * 1024,
        tls: ssl.SSLContext | None = None,
    ) -> Self:
        """Open a socket. The token is sent in the ``Authorization`` header, or after ``subprotocol`` if that is given.

        ``tls`` replaces the usual settings of a ``wss://`` address.

        Raises :class:`~usechat.agent_ops.errors.SessionUnreachable`.
        """
        tls_options: dict[str, Any] = {} if tls is None else {"ssl": tls}  # an explicit None is refused
        headers = {} if token is None or subprotocol is not None else {"Authorization": f"Bearer {token}"}
        try:
            socket = await _Connect(
                url,
                additional_headers=headers,
                subprotocols=_subprotocols(subprotocol, token),
                open_timeout=open_timeout,
                close_timeout=_CLOSE_TIMEOUT,
                compression=None,  # frames are small, and each socket would keep a window of 32 KiB
                max_size=maximum_frame_bytes,
                **tls_options,
            )
        except (OSError, InvalidHandshake, InvalidURI, ValueError) as error:
            reason = _reason_of(error)
            _logger.warning("session %s: cannot connect: %s", name, reason)
            raise SessionUnreachable(f"the session's socket cannot be opened: {reason}") from error
        return cls(socket, name)

    async def receive(self) -> Frame:
        """Return the next frame; raise :class:`~usechat.agent_ops.errors.SessionClosed` if there is none.

        What is not a JSON object becomes a frame of an unknown type, so that it is counted.
        """
        try:
            return read_frame(await self._socket.recv())
        except ConnectionClosed as closed:
            self._log_closed(closed)
            raise SessionClosed("the session closed its socket") from closed
        except UnknownEvent as unknown:
            return {"type": unknown.kind}

    async def send(self, command: Frame) -> None:
        """Send a command; raise :class:`~usechat.agent_ops.errors.SessionClosed` if the socket is closed."""
        try:
            await self._socket.send(msgspec.json.encode(command).decode())
        except ConnectionClosed as closed:
            raise SessionClosed("the session closed its socket") from closed

    async def send_last(self, command: Frame) -> None:
        """Send a command before closing the socket; log it if that fails or takes too long."""
        try:
            async with asyncio.timeout(_LAST_COMMAND_TIMEOUT):
                await self.send(command)
        except (TimeoutError, SessionClosed):
            _logger.warning("session %s: disconnected before this command was sent: %s", self._name, command["type"])

    def _log_closed(self, closed: ConnectionClosed) -> None:
        self.frame_was_too_large = closed.sent is not None and closed.sent.code == CloseCode.MESSAGE_TOO_BIG
        if self.frame_was_too_large:
            _logger.warning("session %s: a frame was too large, so the socket was closed", self._name)
        elif closed.rcvd is None:
            _logger.warning("session %s: the connection was lost", self._name)
        else:
            _logger.warning("session %s: the session closed the socket with code %d", self._name, closed.rcvd.code)

    async def close(self) -> None:
        """Close the socket. Wait at most a second for the peer's close frame."""
        self._pinging.cancel()
        try:
            await asyncio.gather(self._socket.close(), self._discard_frames())
        finally:
            self._socket.transport.abort()  # also when the closing handshake timed out

    async def _discard_frames(self) -> None:
        """Read and drop what is still buffered: the peer's close frame comes after it."""
        with contextlib.suppress(ConnectionClosed):
            while True:
                await self._socket.recv()

    async def _ping(self) -> None:
        try:
            while True:
                await asyncio.sleep(PING_INTERVAL)
                await self._socket.send('{"type":"ping"}')
        except ConnectionClosed:
            return


def session_url(template: str, session_id: str) -> str:
    """Return the address of a session's socket: the template with the id in place of ``{id}``."""
    return template.replace("{id}", quote(session_id, safe="")).replace("{session_id}", quote(session_id, safe=""))


def _reason_of(error: Exception) -> str:
    """Return why a socket was not opened. The text of an error may repeat the address, which may hold a secret."""
    if isinstance(error, InvalidStatus):
        return f"HTTP status {error.response.status_code}"
    return type(error).__name__


def _subprotocols(name: str | None, token: str | None) -> list[Subprotocol] | None:
    if name is None:
        return None
    return [Subprotocol(name), *([Subprotocol(f"bearer.{token}")] if token is not None else [])]


class SessionHabits:
    """What a session is known to send; sessions of one upstream may run different releases.

    ``echoes`` tells whether it sends every prompt to everyone as a user message, ``reports_queued`` whether it reports
    prompts that are queued.
    """

    def __init__(self) -> None:
        self.echoes = False
        self.reports_queued = False


class SessionStreams:
    """The streams of one session in this process: how many are open, and which messages and turns they have claimed.

    ``habits`` is what the session has shown; ``upstream`` counts the sockets of all sessions.
    """

    def __init__(self, upstream: "SocketCounter", habits: SessionHabits) -> None:
        self.open = 0
        self.habits = habits
        self._upstream = upstream
        self._prompts = 0
        self._waiting: list[asyncio.Future[None]] = []
        self._claimed: deque[str] = deque(maxlen=_REMEMBERED_CLAIMS)

    def claim(self, message_id: str) -> bool:
        """Claim a message or turn for one stream; return ``False`` if another stream has it."""
        if message_id in self._claimed:
            return False
        self._claimed.append(message_id)
        return True

    @property
    def must_wait(self) -> bool:
        """Whether the answer to a further prompt could not be told from the answer to one that is under way."""
        return self._prompts > 0 and not self.habits.echoes

    @asynccontextmanager
    async def prompting(self) -> AsyncIterator[None]:
        """Wait until a prompt may be sent; it is under way for the duration of the context."""
        while self.must_wait:
            await self._wait()
        self._prompts += 1
        try:
            yield
        finally:
            self._prompts -= 1
            self._wake()

    async def _wait(self) -> None:
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        try:
            await waiting
        finally:
            self._waiting.remove(waiting)

    def _wake(self) -> None:
        """Let every prompt that waits check again whether it may be sent."""
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)

    def note_echo(self) -> None:
        """Note that the session sends prompts as user messages, so that none has to wait for another."""
        if not self.habits.echoes:
            self.habits.echoes = True
            self._wake()

    def note_queued(self) -> None:
        """Note that the session reports prompts that are queued."""
        self.habits.reports_queued = True

    def note_missing_echo(self) -> None:
        """Note that a turn started without a user message, and warn once: prompts cannot be told apart then."""
        self._upstream.note_missing_echo()


class SocketCounter:
    """Counts the sockets of each session of an upstream. ``maximum`` is how many one session may have.

    What a session has shown is remembered after its last socket was closed. The sessions that were used least recently
    are forgotten: their next prompts are sent one at a time until there is an echo.
    """

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._sessions: dict[str, SessionStreams] = {}
        self._habits: OrderedDict[str, SessionHabits] = OrderedDict()
        self._has_warned = False

    def note_missing_echo(self) -> None:
        """Warn once that a session does not send prompts as user messages."""
        if not self._has_warned:
            self._has_warned = True
            _logger.warning(
                "the upstream does not send prompts as user messages, so the prompts of a session are sent one at a"
                " time; use one worker, and do not prompt its sessions in any other way, or answers may be mixed up"
            )

    def _habits_of(self, session_id: str) -> SessionHabits:
        habits = self._habits.setdefault(session_id, SessionHabits())
        self._habits.move_to_end(session_id)
        if len(self._habits) > _REMEMBERED_SESSIONS:
            self._habits.popitem(last=False)
        return habits

    def open_to(self, session_id: str) -> int:
        """Return how many sockets are open to a session."""
        streams = self._sessions.get(session_id)
        return 0 if streams is None else streams.open

    @contextmanager
    def reserve(self, session_id: str) -> Iterator[SessionStreams]:
        """Reserve a socket for the duration of the context; raise :class:`~usechat.agent_ops.errors.TooManySockets`."""
        streams = self._sessions.get(session_id)
        if streams is None:
            streams = self._sessions[session_id] = SessionStreams(self, self._habits_of(session_id))
        if streams.open >= self._maximum:
            raise TooManySockets(f"the session {session_id} has {self._maximum} sockets, which is the limit")
        streams.open += 1
        try:
            yield streams
        finally:
            streams.open -= 1
            if streams.open == 0:
                del self._sessions[session_id]
