"""Where a server listens, and who may ask a server that asks nobody who they are."""

import ipaddress
import os
import socket
from collections.abc import Sequence
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from usechat.errors import CannotListen, ForeignOrigin
from usechat.server.requests import Action
from usechat.turn import Identity

__all__ = ["Address", "LocalPagesOnly", "is_loopback", "listen", "resolve"]

_BACKLOG: Final = 2048


class Address(NamedTuple):
    """One address of a host name, as the socket module has it."""

    family: socket.AddressFamily
    name: tuple[str | int, ...]


def resolve(host: str, port: int) -> list[Address]:
    """Return the addresses of a host name."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no host name"
        raise CannotListen(f"the host {host!r} cannot be found: {reason}") from None
    return list(dict.fromkeys(Address(family, name) for family, _, _, _, name in found if isinstance(name[0], str)))


def is_loopback(address: Address) -> bool:
    """Tell whether only this machine can reach the address."""
    return _is_loopback(str(address.name[0]))


def listen(addresses: Sequence[Address]) -> list[socket.socket]:
    """Return a socket that listens at each address; with port 0 all get the port that the first is given."""
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
            raise CannotListen(f"port {port} of {name[0]} cannot be used: {error.strerror}") from None
        port = listening.getsockname()[1]
    return sockets


def _prepare(listening: socket.socket) -> None:
    if os.name == "posix":  # elsewhere it would let two servers share a port
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if listening.family is socket.AF_INET6:
        listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    listening.set_inheritable(True)


class LocalPagesOnly:
    """The rule of a server without authentication: pages of this machine ask, and those of the origins named.

    Loopback alone is no protection: any page in this machine's browser can post to it, and one whose host name leads
    here (DNS rebinding) can read the answer. Such requests name the page in ``Origin``, or its host in ``Host``.
    """

    def __init__(self, origins: Sequence[str] = ()) -> None:
        self._origins = frozenset(origins)
        self._hosts = frozenset(map(_host_of, origins))

    async def __call__(self, request: HTTPConnection, _chat_id: str, _action: Action) -> Identity | None:
        """Let everyone on this machine do everything."""
        await self.authenticate(request)
        return Identity("")

    async def authenticate(self, request: HTTPConnection) -> None:
        """Refuse pages of other sites."""
        host = request.headers.get("host")
        if host and (name := _host_of(f"//{host}")) not in self._hosts and not _is_loopback(name):
            raise ForeignOrigin(f"This server answers on this machine only, not as {host}.")
        origin = request.headers.get("origin")
        if origin and origin not in self._origins and not _is_loopback(_host_of(origin)):
            raise ForeignOrigin(f"Pages of {origin} may not ask this server.")


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:  # brackets without an IPv6 address in them
        return ""


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):  # RFC 6761, section 6.3
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False
