"""The client of a session's WebSocket: one socket per request, opened and closed with it."""

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self
from urllib.parse import quote

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI
from websockets.typing import Subprotocol

from usechat.agent_ops.wire import Channel, Frame, UnknownEvent, read_frame
from usechat.ui_messages import FileUIPart

__all__ = ["Session", "SessionClosed", "SessionUnreachable", "in_channel", "prompt_of", "url_of"]

_logger: Final = logging.getLogger("usechat.agent_ops")

PING_INTERVAL: Final = 30.0
"""Seconds between two ``ping`` frames, as the upstream's own client sends them."""
_CLOSING: Final = 1.0
_COMMAND: Final = 2.0
"""Seconds that a last command may take to leave."""


class SessionUnreachable(Exception):
    """The socket could not be opened."""


class SessionClosed(Exception):
    """The socket was closed, by whomever."""


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
