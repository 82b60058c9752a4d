"""Pages of other origins: none may ask unless it is named."""

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from usechat.errors import InvalidSetting

__all__ = ["with_cors"]

_REQUEST_HEADERS: Final = (
    "authorization",
    "content-type",
    "user-agent",  # set by the AI SDK up to 5.0.152 and 6.0.125; only some browsers let it through
    "x-ai-sdk",
)
_RESPONSE_HEADERS: Final = ("x-vercel-ai-ui-message-stream",)


def with_cors(app: ASGIApp, origins: Sequence[str]) -> ASGIApp:
    """Let pages of these origins ask (``https://example.com``, or ``*`` for all); without any, the app stays as it is.

    Tokens travel in a header, so cookies of other origins are never accepted.
    """
    for origin in origins:
        if origin != "*" and not _is_origin(origin):
            raise InvalidSetting(f"{origin!r} is not an origin; write it as the browser does: https://example.com:8443")
    if not origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=list(origins),
        allow_methods=("GET", "POST"),
        allow_headers=_REQUEST_HEADERS,
        expose_headers=_RESPONSE_HEADERS,
    )


def _is_origin(text: str) -> bool:
    parts = urlsplit(text)
    return bool(parts.scheme and parts.netloc) and text == f"{parts.scheme}://{parts.netloc}".lower()
