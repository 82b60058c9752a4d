"""The client: many HTTP/1.1 connections that each ask for a stream, in one loop that does little per byte."""

import select
import socket
from array import array
from itertools import count
from time import monotonic_ns
from typing import Final, Self

from bench.server.load import DIGITS, MARK, Pace

_BODY: Final = (
    b'{"id":"chat-%016d","trigger":"submit-message",'
    b'"messages":[{"id":"user-1","role":"user","parts":[{"type":"text","text":"Why does the kettle sing?"}]}]}'
)
_REQUEST: Final = (
    b"POST /%b HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
)
_LAST_CHUNK: Final = b"0\r\n\r\n"
_NOTHING: Final = b""
_numbers: Final = count()


class _Stream:
    __slots__ = ("asked", "connection", "rest")

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.asked = 0
        """When, until the first delta comes; 0 from then on."""
        self.rest = _NOTHING
        """The last bytes, where they may be the beginning of something."""


class Client:
    """Opens streams, reads them, and notes what arrives. Times are nanoseconds.

    A flood that has come to its end is asked for again.
    """

    def __init__(self, port: int, pace: Pace = "paced") -> None:
        self.deltas = 0
        self.late = array("q")
        """How late each delta was, of a paced load."""
        self.first = array("q")
        """How long after its request the first delta of each stream came."""
        self.broken = 0
        """Connections that the server closed."""
        self._address = ("127.0.0.1", port)
        self._receive = self._receive_paced if pace == "paced" else self._receive_flood
        self._path = pace.encode()
        self._streams: dict[int, _Stream] = {}
        self._poll = select.epoll()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._poll.close()

    @property
    def open_streams(self) -> int:
        return len(self._streams)

    def open(self, streams: int, *, per_second: float) -> None:
        """Open more streams, evenly spread in time."""
        begin = monotonic_ns()
        for number in range(streams):
            self._read_until(begin + int(number * 1e9 / per_second))
            connection = socket.create_connection(self._address, timeout=30)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stream = _Stream(connection)
            self._streams[connection.fileno()] = stream
            self._ask(stream)
            connection.setblocking(False)
            self._poll.register(connection, select.EPOLLIN)

    def read(self, seconds: float) -> None:
        """Read for so long."""
        self._read_until(monotonic_ns() + int(seconds * 1e9))

    def read_until_all_began(self, seconds: float) -> None:
        """Read until each stream has had its first delta, but no longer than so many seconds."""
        end = monotonic_ns() + int(seconds * 1e9)
        while monotonic_ns() < end and any(stream.asked for stream in self._streams.values()):
            self.read(0.1)

    def forget(self) -> None:
        """Count from zero."""
        self.deltas = 0
        self.late = array("q")
        self.first = array("q")

    def close(self) -> None:
        """Close all streams."""
        for stream in self._streams.values():
            self._poll.unregister(stream.connection)
            stream.connection.close()
        self._streams.clear()

    def _ask(self, stream: _Stream) -> None:
        body = _BODY % (monotonic_ns() + next(_numbers))  # no chat has the id of another, whichever client asks
        stream.asked = monotonic_ns()
        stream.rest = _NOTHING
        stream.connection.sendall(_REQUEST % (self._path, len(body), body))

    def _read_until(self, end: int) -> None:
        receive, poll = self._receive, self._poll.poll
        while (left := end - monotonic_ns()) > 0:
            for number, _ in poll(left / 1e9, 256):
                stream = self._streams[number]
                try:
                    data = stream.connection.recv(262144)
                except BlockingIOError:
                    continue
                except ConnectionError:
                    data = _NOTHING
                if data:
                    receive(stream, data)
                else:
                    self._lose(stream)

    def _receive_paced(self, stream: _Stream, data: bytes) -> None:
        now = monotonic_ns()
        if stream.rest:
            data = stream.rest + data
            stream.rest = _NOTHING
        head, *deltas = data.split(MARK)
        if stream.asked:
            self._begin(stream, head, now, begun=bool(deltas))
        if not deltas:
            return
        if len(deltas[-1]) < DIGITS:
            stream.rest = MARK + deltas.pop()
        self.deltas += len(deltas)
        for delta in deltas:
            self.late.append(now - int(delta[:DIGITS]))

    def _receive_flood(self, stream: _Stream, data: bytes) -> None:
        found = data.count(MARK)
        if stream.asked:
            self._begin(stream, data, monotonic_ns(), begun=bool(found))
        self.deltas += found
        stream.rest = (stream.rest + data[-5:])[-5:]
        if stream.rest == _LAST_CHUNK:
            self._ask(stream)

    def _begin(self, stream: _Stream, data: bytes, now: int, *, begun: bool) -> None:
        if data.startswith(b"HTTP/1.1 ") and not data.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"the server answered {data[:200]!r}")
        if begun:
            self.first.append(now - stream.asked)
            stream.asked = 0

    def _lose(self, stream: _Stream) -> None:
        self.broken += 1
        self._poll.unregister(stream.connection)
        del self._streams[stream.connection.fileno()]
        stream.connection.close()
