"""Listen at the addresses of a host name, or at a Unix socket."""

import errno
import os
import socket
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from usechat.errors import CannotListen
from usechat.server.auth.origin import is_loopback_host

__all__ = ["Address", "is_loopback", "listen", "listen_at", "listen_at_path", "resolve"]

_BACKLOG: Final = 2048


class Address(NamedTuple):
    """One address of a host name, as the ``socket`` module writes it."""

    family: socket.AddressFamily
    name: tuple[str | int, ...]


def resolve(host: str, port: int) -> list[Address]:
    """Return the addresses of a host name; raise ``CannotListen`` if it has none."""
    try:
        entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a host name"
        raise CannotListen(f"the host {host!r} cannot be found: {reason}") from None
    return list(dict.fromkeys(Address(family, name) for family, _, _, _, name in entries if isinstance(name[0], str)))


def is_loopback(address: Address) -> bool:
    """Tell whether only this machine can reach the address."""
    return is_loopback_host(str(address.name[0]))


def listen(host: str, port: int) -> list[socket.socket]:
    """Return a socket that listens at each address of a host; with port 0 all get one that is free.

    Raises :class:`~usechat.errors.CannotListen` if the host is unknown, or the port is in use.

    >>> [listening] = listen("127.0.0.1", 0)
    >>> listening.close()
    """
    return listen_at(resolve(host, port))


def listen_at(addresses: Sequence[Address]) -> list[socket.socket]:
    """Return a socket that listens at each address; raise ``CannotListen`` if one cannot.

    With port 0 all get the port that the system gives to the first.
    """
    sockets: list[socket.socket] = []
    port = addresses[0].name[1]
    for family, name in addresses:
        # asyncio turns Nagle's algorithm off, which holds small frames back for 40 ms, only where TCP is named.
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        sockets.append(listening)
        try:
            _prepare(listening)
            listening.bind((name[0], port, *name[2:]))
            listening.listen(_BACKLOG)
        except OSError as error:
            for opened in sockets:
                opened.close()
            hint = "; stop the program that uses it, or choose another port" if error.errno == errno.EADDRINUSE else ""
            raise CannotListen(f"port {port} of {name[0]} cannot be used: {error.strerror}{hint}") from None
        port = listening.getsockname()[1]
    return sockets


def listen_at_path(path: str) -> socket.socket:
    """Return a Unix socket that listens at a path; raise ``CannotListen`` if it cannot.

    A socket that a server left there is replaced; any other file stays, and so does a socket at which a server listens.
    Every user may connect, as with uvicorn: a proxy usually runs as another one. Protect the directory instead.
    """
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_abandoned(path)
        listening.bind(path)
        Path(path).chmod(0o666)
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        hint = "; stop the program that uses it, or choose another path" if error.errno == errno.EADDRINUSE else ""
        raise CannotListen(f"the socket {path} cannot be used: {error.strerror or error}{hint}") from None
    listening.set_inheritable(True)
    return listening


def _remove_abandoned(path: str) -> None:
    """Remove a socket at which nobody listens."""
    try:
        if not stat.S_ISSOCK(Path(path).stat().st_mode):
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.connect(path)
    except FileNotFoundError:
        return
    except ConnectionRefusedError:
        Path(path).unlink()


def _prepare(listening: socket.socket) -> None:
    if os.name == "posix":  # elsewhere it would let two servers share a port
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if listening.family is socket.AF_INET6:
        listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    listening.set_inheritable(True)
