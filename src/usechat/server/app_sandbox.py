"""The sandbox of MCP Apps: a page of another origin, in which the chat page shows the user interfaces of tools.

An app is HTML that an MCP server wrote. The chat page puts a frame of this origin into itself, and the sandbox puts the
app into a frame of its own, which has no origin at all: no cookies, no storage, and no way to the page. The policy of
the sandbox holds for the app, too, because a frame that is written in place inherits it. It is the most that an app may
have; the sandbox adds what the app's resource asks for, or else a policy that lets it reach nothing.

No frame can leave: ``frame-src 'none'`` lets an app neither navigate its frame, which would carry data away, nor open
frames of its own.
"""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, Response
from starlette.websockets import WebSocketClose

from usechat.server.static_files import StaticFile, respond_with

__all__ = ["SANDBOX_FILES", "AppSandbox"]

SANDBOX_FILES: Final[tuple[str, ...]] = ("/mcp-sandbox.html", "/mcp-sandbox.css", "/mcp-sandbox.js")
_POLICY: Final = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline' https:;"
    " img-src data: blob: https:; font-src data: https:; media-src data: blob: https:; connect-src https: wss:;"
    " frame-src 'none'; base-uri 'none'; form-action 'none'"
)


class AppSandbox:
    """An ASGI app that serves the sandbox at ``origin``, and nothing else there."""

    def __init__(self, origin: str, files: Mapping[str, StaticFile]) -> None:
        self._host = urlsplit(origin).netloc
        self._files = files

    def serves(self, scope: Any) -> bool:
        """Tell whether a connection was made to the origin of the sandbox."""
        is_connection = scope["type"] in ("http", "websocket")
        return is_connection and HTTPConnection(scope).headers.get("host", "").lower() == self._host

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one ASGI connection."""
        response = WebSocketClose() if scope["type"] == "websocket" else self._respond(Request(scope))
        await response(scope, receive, send)

    def _respond(self, request: Request) -> Response:
        path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
        file = self._files.get(path) if request.method in ("GET", "HEAD") else None
        if file is None:
            return PlainTextResponse("Not Found", 404)
        return respond_with(file, request, {"content-security-policy": _POLICY}, is_hashed=False)
