"""The client: many connections in one loop, which searches the received bytes for marks in any framing."""

import json
import os
import select
import socket
import struct
from array import array
from collections.abc import Callable
from time import monotonic_ns
from typing import Final, Self, TypeAlias

from bench.server.load import DIGITS, MARK

Opener: TypeAlias = Callable[[int], socket.socket]
"""Opens a stream by its number: the connection on which its deltas arrive."""

_PATIENCE: Final = 30


def bare(port: int, deltas: int) -> Opener:
    """Return an opener that prompts a session over its own WebSocket (RFC 6455)."""

    def open_stream(number: int) -> socket.socket:
        connection = _connect(port)
        lines = [
            f"GET /api/sessions/b{number % 10}/ws?role=client HTTP/1.1",
            f"host: 127.0.0.1:{port}",
            "upgrade: websocket",
            "connection: Upgrade",
            "sec-websocket-version: 13",
            "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
        ]
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        received = b""
        while b"\r\n\r\n" not in received:
            received += connection.recv(4096)
        prompt = json.dumps({"type": "prompt", "content": str(deltas)}).encode()
        key = os.urandom(4)
        masked = bytes(byte ^ key[index % 4] for index, byte in enumerate(prompt))
        connection.sendall(struct.pack("!BB", 0x81, 0x80 | len(prompt)) + key + masked)
        return connection

    return open_stream


def through_the_gateway(port: int, token: str, deltas: int) -> Opener:
    """Return an opener that posts to the gateway."""

    def open_stream(number: int) -> socket.socket:
        connection = _connect(port)
        parts = [{"type": "text", "text": str(deltas)}]
        body = json.dumps({"id": f"c{number}", "messages": [{"id": "u", "role": "user", "parts": parts}]})
        lines = [
            f"POST /api/sessions/b{number % 10}/chat HTTP/1.1",
            "host: 127.0.0.1",
            f"authorization: Bearer {token}",
            "content-type: application/json",
            f"content-length: {len(body)}",
        ]
        connection.sendall("\r\n".join([*lines, "", body]).encode())
        return connection

    return open_stream


def _connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


class _Stream:
    __slots__ = ("connection", "request_time", "rest")

    def __init__(self, connection: socket.socket, request_time: int) -> None:
        self.connection = connection
        self.request_time = request_time
        self.rest = b""


class Client:
    """Opens streams, and records how long each delta takes to arrive. Times are nanoseconds."""

    def __init__(self, opener: Opener, first_frame: bytes = MARK) -> None:
        self.delays = array("q")
        self.first = array("q")
        """The time from each request to its first frame."""
        self._open = opener
        self._first_frame = first_frame
        self._streams: dict[int, _Stream] = {}
        self._poll = select.epoll()
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in self._streams.values():
            stream.connection.close()
        self._poll.close()

    @property
    def waiting(self) -> int:
        """How many streams wait for their first frame."""
        return sum(stream.request_time > 0 for stream in self._streams.values())

    def open(self, streams: int, *, per_second: float) -> None:
        """Open streams at a constant rate, and read meanwhile."""
        begin = monotonic_ns()
        for number in range(streams):
            self._read_until(begin + int(number * 1e9 / per_second))
            request_time = monotonic_ns()
            connection = self._open(self._count)
            self._count += 1
            connection.setblocking(False)
            self._streams[connection.fileno()] = _Stream(connection, request_time)
            self._poll.register(connection, select.EPOLLIN)

    def read(self, seconds: float) -> None:
        """Read for some seconds."""
        self._read_until(monotonic_ns() + int(seconds * 1e9))

    def _read_until(self, end: int) -> None:
        while (left := end - monotonic_ns()) > 0:
            for number, _ in self._poll.poll(left / 1e9, 256):
                stream = self._streams[number]
                try:
                    data = stream.connection.recv(262144)
                except BlockingIOError:
                    continue
                except ConnectionError:
                    data = b""
                self._receive(stream, data) if data else self._close(stream)

    def _receive(self, stream: _Stream, data: bytes) -> None:
        now = monotonic_ns()
        data = stream.rest + data
        stream.rest = b""
        if stream.request_time and self._first_frame in data:
            self.first.append(now - stream.request_time)
            stream.request_time = 0
        _, *deltas = data.split(MARK)
        if deltas and len(deltas[-1]) < DIGITS:
            stream.rest = MARK + deltas.pop()
        self.delays.extend(now - int(delta[:DIGITS]) for delta in deltas)

    def _close(self, stream: _Stream) -> None:
        self._poll.unregister(stream.connection)
        del self._streams[stream.connection.fileno()]
        stream.connection.close()
