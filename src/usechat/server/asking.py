"""Reading what a request asks: its body, the release it names, and who asks."""

from collections.abc import Awaitable, Callable
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from starlette.requests import ClientDisconnect, HTTPConnection, Request

from usechat.dialects import dialect
from usechat.errors import InvalidRequest, RequestError, RequestTooLarge, UnknownRelease
from usechat.requests import ChatRequest, Limits
from usechat.runs.keeper import NotTheirs
from usechat.turn import Identity

__all__ = [
    "Action",
    "Authenticates",
    "Authorize",
    "AuthorizeFunction",
    "NotTheirs",
    "Unauthenticated",
    "allow",
    "ask",
    "read_body",
    "read_request",
    "release_of",
]

Action: TypeAlias = Literal["send", "resume", "stop", "state", "check"]
Authorize: TypeAlias = Callable[[Request, str, Action], Awaitable[Identity | None]]
AuthorizeFunction: TypeAlias = Authorize | Callable[[Request, str, Action], Identity | None]
"""Tells who asks; nothing if the chat is not theirs. It raises :class:`Unauthenticated` if nobody knows who asks."""


class Unauthenticated(RequestError):
    """Nobody knows who asks."""

    status = 401


@runtime_checkable
class Authenticates(Protocol):
    """A rule that knows who asks without knowing about which chat; so it is asked before a body is read, too."""

    async def authenticate(self, request: HTTPConnection) -> None:
        """Raise :class:`Unauthenticated`, or another RequestError, if they would be let near no chat."""
        ...


async def allow(_request: Request, _chat_id: str, _action: Action) -> Identity | None:
    """Let everyone do everything: the rule of a server without authentication."""
    return Identity("")


async def ask(authorize: AuthorizeFunction, request: Request, chat_id: str, action: Action) -> Identity | None:
    """Return what a rule says, async or not."""
    said = authorize(request, chat_id, action)
    return await said if isinstance(said, Awaitable) else said


async def read_request(request: Request, limits: Limits) -> ChatRequest:
    """Read the chat request in the body of a POST; every flaw is a RequestError with a sentence."""
    # Every other type, and none at all, can be sent by a page of another site without asking (Fetch, CORS-safelisted).
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise InvalidRequest(f"The content type {content_type!r} is not supported; send application/json.")
    return ChatRequest.parse(await read_body(request, limits.maximum_bytes), limits=limits)


def release_of(request: Request, default: str) -> str:
    """Return the AI SDK release that the front end names (``?sdk=`` or ``x-ai-sdk``), or the server's setting."""
    sdk = request.query_params.get("sdk") or request.headers.get("x-ai-sdk") or default
    try:
        return dialect(sdk).name
    except UnknownRelease as error:
        raise InvalidRequest(str(error)) from None


async def read_body(request: Request, maximum_bytes: int) -> bytes:
    """Read the body of a request, but no more than so many bytes; one that announces more is not read at all."""
    too_large = RequestTooLarge(f"The request holds more than {maximum_bytes} bytes.")
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > maximum_bytes:
        raise too_large
    pieces, size = [], 0
    try:
        async for piece in request.stream():
            size += len(piece)
            if size > maximum_bytes:
                raise too_large
            pieces.append(piece)
    except ClientDisconnect:
        raise InvalidRequest("The connection was closed before the request was complete.") from None
    return b"".join(pieces)
