"""A server that answers exactly the bytes it was given, at the pace it was given."""

import socket
import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

Item: TypeAlias = bytes | float | threading.Event
OK = b"HTTP/1.1 200 OK\r\nconnection: close\r\n"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def piece(data: bytes) -> bytes:
    """Return one piece of a chunked body."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


@dataclass
class Server:
    """What a running server was asked."""

    url: str
    requests: list[bytes] = field(default_factory=list)


@contextmanager
def serving(*answers: Iterable[Item], certificate: Path | None = None) -> Iterator[Server]:
    """Answer one connection after the other: bytes are sent, numbers are seconds to wait, events are waited for.

    With a certificate, the server speaks TLS.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    scheme = "http"
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        listener = context.wrap_socket(listener, server_side=True)
        scheme = "https"
    server = Server(f"{scheme}://127.0.0.1:{listener.getsockname()[1]}/api/chat")

    def serve() -> None:
        for answer in answers:
            try:
                connection, _ = listener.accept()
            except ssl.SSLError:
                continue  # the client does not trust the certificate
            with connection:
                server.requests.append(_receive(connection))
                _send(connection, answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        thread.join(10)
        listener.close()


def _receive(connection: socket.socket) -> bytes:
    received = b""
    while b"\r\n\r\n" not in received:
        piece = connection.recv(65536)
        if not piece:
            return received  # the client did not wait for the answer
        received += piece
    head, _, body = received.partition(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")
    )
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def _send(connection: socket.socket, answer: Iterable[Item]) -> None:
    for item in answer:
        if isinstance(item, bytes):
            try:
                connection.sendall(item)
            except OSError:
                return  # the client has seen enough
        elif isinstance(item, threading.Event):
            item.wait(60)
        else:
            time.sleep(item)
