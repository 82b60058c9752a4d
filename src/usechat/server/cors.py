"""CORS: pages of other origins are refused unless their origin is named."""

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from usechat.errors import InvalidSetting

__all__ = ["is_origin", "with_cors"]

_REQUEST_HEADERS: Final = (
    "authorization",
    "content-type",
    "if-match",  # the version of a stored chat that a page changes
    "user-agent",  # set by the AI SDK up to 5.0.152 and 6.0.125; only some browsers let it through
    "x-ai-sdk",
)
_RESPONSE_HEADERS: Final = (
    "etag",
    "x-vercel-ai-ui-message-stream",
    "x-workflow-run-id",
    "x-workflow-stream-tail-index",
)


def with_cors(app: ASGIApp, origins: Sequence[str]) -> ASGIApp:
    """Return the app with CORS for pages of these origins; without any, the app itself.

    An origin is written as the browser does, ``https://example.com:8443``; ``*`` stands for all. Credentials are tokens
    in a header, so cookies of other origins are never accepted.

    Raises :class:`~usechat.errors.InvalidSetting` for a text that is no origin.

    >>> from usechat.server import ChatApp
    >>> app = with_cors(ChatApp(lambda turn: "Hello!"), ["https://app.example.com"])
    """
    for origin in origins:
        if origin != "*" and not is_origin(origin):
            raise InvalidSetting(f"{origin!r} is not an origin; write it as the browser does: https://example.com:8443")
    if not origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=list(origins),
        allow_methods=("GET", "POST", "PUT", "PATCH", "DELETE"),
        allow_headers=_REQUEST_HEADERS,
        expose_headers=_RESPONSE_HEADERS,
    )


def is_origin(text: str) -> bool:
    """Tell whether a text is an origin as browsers write it."""
    parts = urlsplit(text)
    return bool(parts.scheme and parts.netloc) and text == f"{parts.scheme}://{parts.netloc}".lower()
