"""Metrics at a port of their own, which a firewall can close: `usechat serve --metrics-listen`.

One process serves both ports with one app, because the counts are its own (or those of all workers, which share the
sockets). The local port of the connection, which no client can choose, decides what is served.
"""

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from usechat.server.app import EndpointsApp

__all__ = ["MetricsPort"]

_PROBES: Final = ("/healthz", "/readyz")


class MetricsPort:
    """An ASGI app that serves the metrics of ``chats`` at ``port``, to anyone, and ``app`` at every other port."""

    def __init__(self, app: Any, chats: EndpointsApp, port: int) -> None:
        self.app = app
        self._chats = chats
        self._port = port

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one ASGI connection."""
        response = None if scope["type"] == "lifespan" else await self._respond(scope, receive)
        await (self.app if response is None else response)(scope, receive, send)

    async def _respond(self, scope: Any, receive: Any) -> Response | None:
        """Return the response to a request that ``app`` must not answer."""
        is_ours = (scope.get("server") or ("", None))[1] == self._port
        path = scope["path"] if scope["type"] == "http" else ""
        if is_ours and path == "/metrics":
            return await self._chats.metrics(Request(scope, receive))
        is_passed_on = path in _PROBES if is_ours else path != "/metrics"
        return None if is_passed_on else PlainTextResponse("Not Found", 404)
