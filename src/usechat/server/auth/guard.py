"""Authenticate requests before they reach an app that has no access rules."""

from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse

from usechat.errors import RequestError
from usechat.server.requests import AuthorizeFunction, authorize_request

__all__ = ["Guarded"]


class Guarded:
    """An ASGI app that refuses what an ``authorize`` rule refuses, and passes all other requests on to ``app``.

    The rule is called without a chat's id.

    >>> from usechat.server import ChatApp, LocalPagesOnly
    >>> app = Guarded(ChatApp(lambda turn: "Hello!"), LocalPagesOnly())
    """

    def __init__(self, app: Any, authorize: AuthorizeFunction) -> None:
        self.app = app
        self._authorize = authorize

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one ASGI connection."""
        answer = await self._refusal(Request(scope, receive)) if scope["type"] == "http" else None
        await (self.app if answer is None else answer)(scope, receive, send)

    async def _refusal(self, request: Request) -> PlainTextResponse | None:
        if request.url.path == "/healthz":
            return None
        try:
            identity = await authorize_request(self._authorize, request, "", "send")
        except RequestError as error:
            return PlainTextResponse(str(error), error.status)
        return PlainTextResponse("Not found.", 404) if identity is None else None
