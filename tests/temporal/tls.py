"""TLS in front of a Temporal server that has none, as a load balancer ends it; it reads the API keys of requests."""

import asyncio
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from hpack import Decoder

from tests.redis_server import free_port
from tests.server.process import PATIENCE

_PREFACE: Final = 24
"""Bytes that a client of HTTP/2 begins with (RFC 9113, 3.4)."""
_HEAD: Final = 9
"""Bytes before the payload of each frame: its length, type, flags and stream (RFC 9113, 4.1)."""
_HEADERS: Final = 1


class _Requests:
    """Reads the header ``authorization`` of the requests on a connection."""

    def __init__(self, keys: set[str]) -> None:
        self._keys = keys
        self._decoder = Decoder()
        self._data = b""
        self._start = _PREFACE

    def read(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= (payload := self._start + _HEAD):
            end = payload + int.from_bytes(self._data[self._start : self._start + 3])
            if len(self._data) < end:
                return
            if self._data[self._start + 3] == _HEADERS:
                headers = self._decoder.decode(self._data[payload:end], raw=True)
                self._keys |= {value.decode() for name, value in headers if name == b"authorization"}
            self._data, self._start = self._data[end:], 0


class TlsServer:
    """Where it listens, and the API keys that it was shown."""

    def __init__(self) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self.keys: set[str] = set()


@contextmanager
def tls_before(upstream: str, certificate: Path, clients: Path | None = None) -> Iterator[TlsServer]:
    """Serve TLS in front of an address; with ``clients`` only to those with this certificate."""
    server = TlsServer()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    context.set_alpn_protocols(["h2"])
    if clients is not None:
        context.load_verify_locations(clients)
        context.verify_mode = ssl.CERT_REQUIRED
    ready, loop, stopped = threading.Event(), asyncio.new_event_loop(), asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = upstream.split(":")
        above, below = await asyncio.open_connection(host, int(port))
        await asyncio.gather(_copy(reader, below, _Requests(server.keys)), _copy(above, writer, None))

    async def serve() -> None:
        host, port = server.address.split(":")
        async with await asyncio.start_server(accept, host, int(port), ssl=context):
            ready.set()
            await stopped.wait()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(serve())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert ready.wait(PATIENCE)
        yield server
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, requests: _Requests | None) -> None:
    with suppress(OSError), closing(writer):
        while data := await reader.read(65536):
            if requests is not None:
                requests.read(data)
            writer.write(data)
            await writer.drain()
