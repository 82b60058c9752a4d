"""The client of a session's WebSocket: one socket per request, opened and closed with it."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Self
from urllib.parse import quote

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI
from websockets.typing import Subprotocol

from usechat.agent_ops.adapter import SessionAdapter
from usechat.agent_ops.prompt_tracker import Phase
from usechat.agent_ops.questions import answered_parts
from usechat.agent_ops.wire import Channel, Frame, read_frame
from usechat.errors import PublicError, SessionClosed, SessionUnreachable, TooManySockets, UnknownEvent
from usechat.protocol.parts import Part
from usechat.protocol.ui_messages import FileUIPart
from usechat.turn import TurnContext

__all__ = [
    "Conversation",
    "Room",
    "Session",
    "Sockets",
    "in_channel",
    "prompt_of",
    "url_of",
]


_logger: Final = logging.getLogger("usechat.agent_ops")

PING_INTERVAL: Final = 30.0
"""Seconds between two ``ping`` frames, as the upstream's own client sends them."""
_CLOSING: Final = 1.0
_COMMAND: Final = 2.0
"""Seconds that a last command may take to leave."""


class _Connect(connect):
    """Follows no redirect: the token, which may stand in a subprotocol, is for this address alone."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


class Session:
    """An open socket to a session."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._pinging = asyncio.get_running_loop().create_task(self._ping(), name="usechat agent-ops ping")

    @classmethod
    async def open(
        cls,
        url: str,
        token: str | None,
        *,
        subprotocol: str | None = None,
        open_timeout: float = 10,
        maximum_frame_bytes: int = 32 * 1024 * 1024,
    ) -> Self:
        """Open a socket; the token goes into the ``Authorization`` header, or behind a named subprotocol."""
        headers = {} if token is None or subprotocol is not None else {"Authorization": f"Bearer {token}"}
        try:
            socket = await _Connect(
                url,
                additional_headers=headers,
                subprotocols=_subprotocols(subprotocol, token),
                open_timeout=open_timeout,
                close_timeout=_CLOSING,
                compression=None,  # frames are small, and each socket would keep a window of 32 KiB
                max_size=maximum_frame_bytes,
            )
        except (OSError, InvalidHandshake, InvalidURI, ValueError) as error:
            _logger.warning("the session cannot be reached: %s", type(error).__name__)
            raise SessionUnreachable from error
        return cls(socket)

    async def receive(self) -> Frame:
        """Return the next frame. What is no JSON object has a type that nobody knows."""
        try:
            return read_frame(await self._socket.recv())
        except ConnectionClosed as closed:
            raise SessionClosed from closed
        except UnknownEvent as unknown:
            return {"type": unknown.kind}

    async def send(self, command: Mapping[str, Any]) -> None:
        """Send a command."""
        try:
            await self._socket.send(msgspec.json.encode(command).decode())
        except ConnectionClosed as closed:
            raise SessionClosed from closed

    async def send_last(self, command: Mapping[str, Any]) -> None:
        """Send a command before the socket is closed, if that can be done in time."""
        try:
            async with asyncio.timeout(_COMMAND):
                await self.send(command)
        except (TimeoutError, SessionClosed):
            _logger.warning("the session was gone before it could be told: %s", command["type"])

    async def close(self) -> None:
        """Close the socket; a peer that does not answer is not waited for long."""
        self._pinging.cancel()
        try:
            await asyncio.gather(self._socket.close(), self._read_the_rest())
        finally:
            self._socket.transport.abort()  # nothing is left to say, also when there was no time for a farewell

    async def _read_the_rest(self) -> None:
        """Read what nobody wants: the peer's farewell stands behind it."""
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


def prompt_of(text: str, files: Sequence[FileUIPart], channel: Channel | None) -> Mapping[str, Any]:
    """Return the command that asks the agent; files are its attachments."""
    attachments = [
        {
            "type": "file",
            "mime": file.get("mediaType"),
            "url": file.get("url"),
            **({"filename": file["filename"]} if "filename" in file else {}),
        }
        for file in files
    ]
    return {
        "type": "prompt",
        "content": text,
        **({"attachments": attachments} if attachments else {}),
        **in_channel(channel),
    }


def in_channel(channel: Channel | None) -> Mapping[str, str]:
    """Return the keys of a command that concerns one channel."""
    return {} if channel is None else {"channelType": channel.type, "channelId": channel.id}


def url_of(template: str, session_id: str) -> str:
    """Return the address of a session's socket."""
    return template.replace("{id}", quote(session_id, safe="")).replace("{session_id}", quote(session_id, safe=""))


def _subprotocols(name: str | None, token: str | None) -> list[Subprotocol] | None:
    if name is None:
        return None
    return [Subprotocol(name), *([Subprotocol(f"bearer.{token}")] if token is not None else [])]


# -- The upstream sockets of each session: how many there are, how many there may be, and who follows which turn.

_REMEMBERED: Final = 1024


class Room:
    """The streams of one session in this process."""

    def __init__(self) -> None:
        self.open = 0
        self._claimed: deque[str] = deque(maxlen=_REMEMBERED)

    def claim(self, message_id: str) -> bool:
        """Take a message or turn, unless another stream has it."""
        if message_id in self._claimed:
            return False
        self._claimed.append(message_id)
        return True


class Sockets:
    """Counts sockets per session; ``maximum`` is how many one session may have."""

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._rooms: dict[str, Room] = {}

    def open_to(self, session_id: str) -> int:
        """Return how many sockets are open to a session."""
        room = self._rooms.get(session_id)
        return 0 if room is None else room.open

    @contextmanager
    def place(self, session_id: str) -> Iterator[Room]:
        """Hold a place for one more socket, or raise :class:`TooManySockets`."""
        room = self._rooms.setdefault(session_id, Room())
        if room.open >= self._maximum:
            raise TooManySockets(session_id)
        room.open += 1
        try:
            yield room
        finally:
            room.open -= 1
            if room.open == 0:
                del self._rooms[session_id]


# -- One request's use of its socket: what is said, how long it is listened to, and how it is left.

SILENT: Final = "The session was silent for too long, so the answer was stopped."

_SETTLING: Final = 2.0
"""Seconds in which tools may still end behind the end of their turn."""
_LEAVING: Final = 1.0
"""Seconds to find out whether a prompt that is taken back runs already."""


class Conversation:
    """Sends commands and passes on the turn that answers them."""

    def __init__(
        self,
        context: TurnContext,
        adapter: SessionAdapter,
        commands: Sequence[Mapping[str, Any]],
        channel: Channel | None,
    ) -> None:
        self._context = context
        self._adapter = adapter
        self._commands = commands
        self._channel = channel

    async def hold(self, session: Session, idle_timeout: float | None) -> None:
        """Say what is to be said, and listen until the turn is over. Whoever breaks this off stops the turn."""
        try:
            for command in self._commands:
                await session.send(command)
            for answer in self._context.turn.approvals:
                self._say(answered_parts(answer))
            await self._listen(session, idle_timeout)
        except SessionClosed:
            self._say(self._adapter.close())
        except TimeoutError:
            await self._leave(session)
            raise PublicError(SILENT) from None
        except (asyncio.CancelledError, Exception):
            await self._leave(session)
            raise

    async def _listen(self, session: Session, idle_timeout: float | None) -> None:
        adapter, clock = self._adapter, _Clock(idle_timeout)
        try:
            async with asyncio.timeout(None) as limit:
                while not adapter.ended:
                    clock.set(limit, adapter)
                    frame = await session.receive()
                    if frame.get("type") != "pong":
                        clock.hear()
                    self._say(adapter.feed(frame))
                    await self._context.yield_to_loop()
        except TimeoutError:
            if not adapter.settling:
                raise
            self._say(adapter.settle())

    async def _leave(self, session: Session) -> None:
        """Stop our turn, and nobody else's: some upstreams empty everybody's queue when they are told to abort."""
        adapter = self._adapter
        if adapter.own.phase is Phase.SENT:
            await self._find_out(session)
        if adapter.ended:
            return
        if adapter.own.is_running:
            await session.send_last({"type": "abort", **in_channel(self._channel)})
        elif adapter.withdrawable:
            await session.send_last({"type": "queue.withdraw"})

    async def _find_out(self, session: Session) -> None:
        adapter = self._adapter
        try:
            async with asyncio.timeout(_LEAVING):
                while adapter.own.phase is Phase.SENT and not adapter.ended:
                    for _part in adapter.feed(await session.receive()):
                        pass
        except (TimeoutError, SessionClosed):
            return

    def _say(self, parts: Iterable[Part]) -> None:
        for part in parts:
            self._context.send(part)


class _Clock:
    """Says until when a frame must come. It stands still while a person is asked."""

    def __init__(self, idle_timeout: float | None) -> None:
        self._idle_timeout = idle_timeout
        self._loop = asyncio.get_running_loop()
        self._heard = self._loop.time()
        self._settles: float | None = None

    def hear(self) -> None:
        """Note that the session is alive."""
        self._heard = self._loop.time()

    def set(self, limit: asyncio.Timeout, adapter: SessionAdapter) -> None:
        """Set the limit for the next frame, unless it is about right: a timer for each frame would cost too much."""
        wanted = self._deadline(adapter)
        current = limit.when()
        if wanted is None or current is None or self._idle_timeout is None:
            exact = wanted == current
        else:
            exact = 0 <= wanted - current < self._idle_timeout / 50
        if not exact:
            limit.reschedule(wanted)

    def _deadline(self, adapter: SessionAdapter) -> float | None:
        if adapter.settling:
            self._settles = self._settles or self._loop.time() + _SETTLING
            return self._settles
        self._settles = None
        if adapter.asking or self._idle_timeout is None:
            return None
        return self._heard + self._idle_timeout
