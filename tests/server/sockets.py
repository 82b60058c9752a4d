"""A client with nothing between the test and its socket."""

import asyncio
import json
import socket
import struct
from typing import NamedTuple, Self

from usechat.protocol.chunks import Chunk, StartChunk, TextDeltaChunk
from usechat.protocol.sse import ChunkDecoder


class Body(NamedTuple):
    """What came of a response's body, and whether it came to its end."""

    data: bytes
    complete: bool

    @property
    def chunks(self) -> list[Chunk]:
        return list(ChunkDecoder().receive(self.data))

    @property
    def text(self) -> str:
        return "".join(chunk.delta for chunk in self.chunks if isinstance(chunk, TextDeltaChunk))

    @property
    def message_id(self) -> str | None:
        return next(chunk.message_id for chunk in self.chunks if isinstance(chunk, StartChunk))


class Client:
    """One request on one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._received = bytearray()

    @classmethod
    async def post(
        cls, port: int, path: str, chat_id: str, text: str = "hi", *, receive_buffer: int | None = None
    ) -> Self:
        """Ask for an answer. A small buffer makes a client that does not read noticeable soon."""
        message = {"id": f"id of {text}", "role": "user", "parts": [{"type": "text", "text": text}]}
        body = {"id": chat_id, "messages": [message]}
        return await cls._ask(port, "POST", path, json.dumps(body).encode(), receive_buffer)

    @classmethod
    async def get(cls, port: int, path: str) -> Self:
        return await cls._ask(port, "GET", path, b"", None)

    @classmethod
    async def _ask(cls, port: int, method: str, path: str, body: bytes, receive_buffer: int | None) -> Self:
        connection = socket.socket()
        if receive_buffer is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
        reader, writer = await asyncio.open_connection(sock=connection, limit=1024)
        head = f"{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n"
        head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        return cls(reader, writer)

    async def until(self, text: bytes) -> None:
        """Read until this comes."""
        while text not in self._received:
            piece = await self._reader.read(1024)
            assert piece, f"the stream ended before {text!r}: {self._received!r}"
            self._received += piece

    async def rest(self, *, pause: float = 0) -> Body:
        """Read to the end, with pauses, whatever the end is, and close; return everything that came."""
        try:
            while piece := await self._reader.read(65536):
                self._received += piece
                await asyncio.sleep(pause)
        except ConnectionError:
            pass
        self._writer.close()
        head, _, body = bytes(self._received).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        return dechunked(body)

    def vanish(self, *, reset: bool = False) -> None:
        """Close the connection, or break it."""
        if reset:
            connection = self._writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


def dechunked(body: bytes) -> Body:
    """Undo the chunked transfer coding; a piece that did not come whole is not there."""
    pieces: list[bytes] = []
    position = 0
    while (end := body.find(b"\r\n", position)) >= 0:
        begin, length = end + 2, int(body[position:end], 16)
        if length == 0 or len(body) < begin + length + 2:
            return Body(b"".join(pieces), complete=length == 0)
        pieces.append(body[begin : begin + length])
        position = begin + length + 2
    return Body(b"".join(pieces), complete=False)
