"""Origin check for servers without authentication."""

import functools
import ipaddress
import logging
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from usechat.errors import ForeignOrigin
from usechat.server.rare_lines import RareLines
from usechat.server.requests import Action, address_of, repeated
from usechat.turn import Identity

__all__ = ["LocalPagesOnly", "is_loopback_host"]


class LocalPagesOnly:
    """Origin check for servers without authentication: allows pages of this machine and of the named origins.

    Listening on loopback alone is no protection: any page in this machine's browser can post to it, and one whose host
    name resolves to loopback (DNS rebinding) can read the answer. Such requests name the page in ``Origin``, or its
    host in ``Host``; they are refused with :class:`~usechat.errors.ForeignOrigin` (403). Requests without either
    header are not a browser's, and are allowed.

    >>> from usechat.server import ChatApp
    >>> app = ChatApp(lambda turn: "Hello!", authorize=LocalPagesOnly(["https://chat.example"]))
    """

    def __init__(self, origins: Sequence[str] = ()) -> None:
        self._origins = frozenset(origins)
        self._hosts = frozenset(map(_host_of, origins))
        self._lines = RareLines(logging.getLogger("usechat.server"))

    async def __call__(self, request: HTTPConnection, _chat_id: str, _action: Action) -> Identity | None:
        """Allow every action to a page of this machine."""
        await self.authenticate(request)
        return Identity("")

    async def authenticate(self, request: HTTPConnection) -> None:
        """Refuse pages of other sites with ``ForeignOrigin``."""
        host = request.headers.get("host")
        if host and (name := _host_of(f"//{host}")) not in self._hosts and not is_loopback_host(name):
            raise self._refusal(
                request,
                "host",
                f"This server answers on this machine only, not as {repeated(host)}: it has no authentication. Start"
                " it with --auth, or allow the origin of its page with --cors.",
            )
        origin = request.headers.get("origin")
        if origin and origin not in self._origins and not is_loopback_host(_host_of(origin)):
            sentence = f"Pages of {repeated(origin)} may not use this server. Allow the origin with --cors."
            raise self._refusal(request, "origin", sentence)

    def _refusal(self, request: HTTPConnection, reason: str, sentence: str) -> ForeignOrigin:
        address = address_of(request)
        self._lines.warning((address, reason), "a request from %s was refused (403): %s", address, sentence)
        return ForeignOrigin(sentence)


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:  # brackets without an IPv6 address in them
        return ""


@functools.lru_cache(maxsize=64)
def is_loopback_host(host: str) -> bool:
    """Tell whether a host name or an address is this machine's loopback."""
    if host == "localhost" or host.endswith(".localhost"):  # RFC 6761, section 6.3
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False
