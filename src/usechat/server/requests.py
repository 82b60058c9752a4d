"""Read a request: its body, its AI SDK release, its sender and its chat."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from typing import Any, Final, Literal, Protocol, TypeAlias, runtime_checkable
from urllib.parse import quote

from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import PlainTextResponse
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from usechat.errors import (
    AmbiguousLength,
    ChatNotFound,
    InvalidRequest,
    RequestTimeout,
    RequestTooLarge,
    Unauthenticated,
    UnknownRelease,
)
from usechat.protocol.releases import releases_for
from usechat.protocol.request import LONGEST_ID, ChatRequest, Limits
from usechat.threads import contained
from usechat.turn import Identity

__all__ = [
    "CHAT_ID",
    "CLOSING",
    "IN_LOOP",
    "AccessPolicy",
    "Action",
    "Authenticator",
    "Authorize",
    "AuthorizeFunction",
    "AuthorizedChats",
    "ChatRoute",
    "OneLength",
    "RequestHeaders",
    "address_of",
    "allow_all",
    "authorize_request",
    "chat_key",
    "check_framing",
    "check_release",
    "is_welcome",
    "read_body",
    "read_request",
    "release_of",
    "repeated",
]


_logger: Final = logging.getLogger(__name__)

Action: TypeAlias = Literal[
    "send",
    "resume",
    "stop",
    "state",
    "check",
    "describe",
    "list",
    "load",
    "change",
    "delete",
    "export",
    "rate",
    "file",
    "share",
    "app",
]
"""What a client wants to do. ``check`` is the page's request to check a stream, ``describe`` that for the agents and
limits of the server, and ``list`` that for its chats: they are about no chat. ``load`` and what follows it are about a
chat that is stored; ``app`` is a request of an MCP App to its server."""

Authorize: TypeAlias = Callable[[Request, str, Action], Awaitable[Identity | None]]
AuthorizeFunction: TypeAlias = Authorize | Callable[[Request, str, Action], Identity | None]
"""Returns who sent a request; ``None`` if they may not use the chat. Called with the request, the chat's id and the
action.

It raises :class:`~usechat.errors.Unauthenticated`, or another ``RequestError``, if the request carries no valid
credentials. An async function is called in the event loop, and so is a plain one: it must not block.
"""


@runtime_checkable
class Authenticator(Protocol):
    """An ``authorize`` rule that can check credentials without a chat's id, so also before the body is read."""

    async def authenticate(self, request: HTTPConnection) -> None:
        """Raise ``Unauthenticated``, or another ``RequestError``, if the request carries no valid credentials."""
        ...


async def allow_all(_request: Request, _chat_id: str, _action: Action) -> Identity | None:
    """Allow every action on every chat: the ``authorize`` rule of a server without authentication.

    >>> from usechat.server import ChatApp
    >>> app = ChatApp(lambda turn: "Hello", authorize=allow_all)  # as without authorize
    """
    return Identity("")


_REPEATED: Final = 200
_NO_TEXT: Final = re.compile("[\\0\\ud800-\\udfff]")


async def authorize_request(rule: AuthorizeFunction, request: Request, chat_id: str, action: Action) -> Identity | None:
    """Call an ``authorize`` rule, async or not.

    Raises ``Unauthenticated`` for a person whose name no database can keep as the owner of a chat.
    """
    with contained():
        identity = rule(request, chat_id, action)
        identity = await identity if isinstance(identity, Awaitable) else identity
    if identity is not None and not _is_text(identity.subject):
        _logger.info("a person was refused: the subject has NUL or an unpaired surrogate")
        raise Unauthenticated("The token is not valid.")
    return identity


def _is_text(subject: str) -> bool:
    return _NO_TEXT.search(subject) is None


class AccessPolicy(Protocol):
    """Decides who may do what with which chat, and under which key the runs of a chat are stored.

    It is called in this order: ``authenticate`` before the body is read, ``identify`` once the chat's id is known,
    ``key`` for the identity that came out, ``admit`` once its quotas allow a new run. Derive from
    :class:`AuthorizedChats` to change some of it, and give it to a :class:`~usechat.server.PolicyApp`.

    >>> from usechat.server import AuthorizedChats, allow_all
    >>> policy: AccessPolicy = AuthorizedChats(allow_all)
    """

    async def authenticate(self, request: Request) -> bool:
        """Return whether the sender is known now; False if the chat's id is needed to know.

        Raise a ``RequestError`` if the sender would be refused with any body.
        """
        ...

    async def identify(self, request: Request, chat_id: str, action: Action) -> Identity:
        """Return who sent the request; raise a ``RequestError`` if they may not do this with this chat."""
        ...

    def key(self, request: Request, identity: Identity, chat_id: str) -> str:
        """Return the key of a chat's runs, which no two chats share.

        Put what tells chats apart before ``super().key(…)`` of :class:`AuthorizedChats`, which escapes the chat's id.
        """
        ...

    async def admit(self, request: Request) -> None:
        """Count a request that starts a run; raise ``TooManyRequests`` if others have sent too many before it."""
        ...


class AuthorizedChats:
    """The policy of a :class:`~usechat.server.ChatApp`: an ``authorize`` rule, and chats named by the route's path.

    ``unknown`` is the sentence for a chat that is somebody else's, or not there.

    >>> from usechat.server import allow_all
    >>> policy = AuthorizedChats(allow_all, unknown="No such room.")
    """

    def __init__(self, rule: AuthorizeFunction, *, unknown: str = "No such chat.") -> None:
        self._rule: Any = rule
        self._unknown = unknown
        self._authenticates = isinstance(rule, Authenticator)

    async def authenticate(self, request: Request) -> bool:
        """Authenticate the sender, if the rule needs no chat id."""
        if self._authenticates:
            await self._rule.authenticate(request)
            return True
        return self._rule is allow_all

    async def identify(self, request: Request, chat_id: str, action: Action) -> Identity:
        """Return the identity that the rule gives; raise ``ChatNotFound`` if it gives none."""
        identity = await authorize_request(self._rule, request, chat_id, action)
        if identity is None:
            raise ChatNotFound(self._unknown)
        return identity

    def key(self, request: Request, identity: Identity, chat_id: str) -> str:  # noqa: ARG002 (people may share a chat)
        """Return the chat's id, behind the other parameters of the route's path."""
        return chat_key(request.path_params, chat_id)

    async def admit(self, request: Request) -> None:
        """Count nothing: only the quotas of each person limit their requests."""


IN_LOOP: Final = 64 * 1024
"""Bytes of a request that is parsed in the event loop; the parsing of larger ones would delay all streams."""


async def read_request(
    request: Request,
    limits: Limits,
    *,
    timeout: float,  # noqa: ASYNC109
    is_history_stored: bool = False,
    origins: Collection[str] = (),
) -> ChatRequest:
    """Read the chat request in the body of a POST; raise a ``RequestError`` that says what is wrong with it.

    ``origins`` are those whose pages may send it as text, besides those of the same host.
    """
    _check_type(request, origins)
    body = await read_body(request, limits.maximum_bytes, timeout=timeout)
    if len(body) <= IN_LOOP:
        return ChatRequest.parse(body, limits=limits, is_history_stored=is_history_stored)
    return await asyncio.to_thread(ChatRequest.parse, body, limits=limits, is_history_stored=is_history_stored)


def _check_type(request: Request, origins: Collection[str]) -> None:
    # Every other type, and none at all, can be sent by a page of another site without asking (Fetch, CORS-safelisted).
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type == "application/json":
        return
    if content_type != "text/plain":  # of a body without a type, such as that of WorkflowChatTransport
        raise InvalidRequest(f"The content type {content_type!r} is not supported; send application/json.")
    origin = request.headers.get("origin")
    if not is_welcome(origin, request.headers.get("host", ""), origins):
        raise InvalidRequest(
            f"A page of {origin} may not send text/plain; send application/json, or allow the origin (--cors,"
            " Settings.websocket_origins)."
        )


def address_of(connection: HTTPConnection) -> str:
    """Return the address of a client, which a Unix socket without a proxy does not have."""
    return connection.client.host if connection.client else "an unknown address"


def repeated(header: str) -> str:
    """Return what a sentence or the log repeats of a header: its beginning."""
    return header[:_REPEATED]


def is_welcome(origin: str | None, host: str, allowed: Collection[str]) -> bool:
    """Tell whether a page of this origin is one of the same host, or an allowed one. ``*`` allows all.

    Browsers let every page open a socket to every host, and post a text to it, with the host's cookies. A client
    without an origin is no browser.

    >>> is_welcome("https://chat.example", "chat.example", ()), is_welcome("https://evil.example", "chat.example", ())
    (True, False)
    """
    if origin is None or origin in allowed or "*" in allowed:
        return True
    scheme, _, place = origin.lower().partition("://")
    usual = ":443" if scheme == "https" else ":80"
    return place != "" and place.removesuffix(usual) == host.lower().removesuffix(usual)


def release_of(request: Request, default: str) -> str:
    """Return the AI SDK release that the front end names (``?sdk=`` or ``x-ai-sdk``), or the server's setting."""
    sdk = request.query_params.get("sdk") or request.headers.get("x-ai-sdk") or default
    return check_release(sdk)


def check_release(sdk: str) -> str:
    """Return the name of an AI SDK release; raise ``InvalidRequest`` if there is none like that."""
    try:
        return releases_for(sdk).name
    except UnknownRelease as error:
        raise InvalidRequest(str(error)) from None


_TWO_LENGTHS: Final = "The request has both Content-Length and Transfer-Encoding; send one of them."
CLOSING: Final[Mapping[str, str]] = {"connection": "close"}
"""Headers of an answer behind which nothing is read: the rest of the body would be taken for a request (RFC 9110,
15.5.9, and RFC 9112, 6.3)."""

_refuse_two_lengths: Final = PlainTextResponse(_TWO_LENGTHS, AmbiguousLength.status, CLOSING)


def check_framing(request: Request) -> None:
    """Raise ``AmbiguousLength`` for a request with two lengths: a proxy may have read another body than this server."""
    if _has_two_lengths(request.scope):
        raise AmbiguousLength(_TWO_LENGTHS)


def _has_two_lengths(scope: Scope) -> bool:
    names = {name for name, _ in scope["headers"]}
    return b"content-length" in names and b"transfer-encoding" in names


class OneLength:
    """An ASGI app that refuses requests with two lengths, whatever they ask for, and passes others on to ``app``."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one ASGI connection."""
        is_refused = scope["type"] == "http" and _has_two_lengths(scope)
        await (_refuse_two_lengths if is_refused else self.app)(scope, receive, send)


async def read_body(request: Request, maximum_bytes: int, *, timeout: float) -> bytes:  # noqa: ASYNC109
    """Read the body of a request, up to ``maximum_bytes``; one that announces more is not read at all.

    Raises ``RequestTimeout`` if the body is not complete within ``timeout`` seconds.
    """
    too_large = RequestTooLarge(f"The request holds more than {maximum_bytes} bytes.")
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > maximum_bytes:
        raise too_large
    pieces, size = [], 0
    try:
        async with asyncio.timeout(timeout):
            async for piece in request.stream():
                size += len(piece)
                if size > maximum_bytes:
                    raise too_large
                pieces.append(piece)
    except TimeoutError:
        raise RequestTimeout(f"The request was not complete after {timeout:g} seconds.") from None
    except ClientDisconnect:
        raise InvalidRequest("The connection was closed before the request was complete.") from None
    return b"".join(pieces)


class RequestHeaders(Mapping[str, str]):
    """The headers of a request as an agent sees them: lower-case names, each once, found in any case.

    Of a header that was sent twice the first counts, as it does for access rules. Nothing is copied from the request,
    because every open stream keeps this.
    """

    __slots__ = ("_headers",)

    def __init__(self, scope: Mapping[str, Any]) -> None:
        self._headers: list[tuple[bytes, bytes]] = scope["headers"]

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> "RequestHeaders":
        """Return the headers of a request that another process received; their names are in lower case."""
        return cls({"headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]})

    def __getitem__(self, name: str) -> str:
        raw_name = name.lower().encode("latin-1", "replace")
        for header, value in self._headers:
            if header == raw_name:
                return value.decode("latin-1")
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name.decode("latin-1") for name, _ in self._headers))

    def __len__(self) -> int:
        return len({name for name, _ in self._headers})

    def __repr__(self) -> str:
        """Return the names alone: a log is no place for tokens and cookies."""
        return f"RequestHeaders({', '.join(self)})"


# Pages choose the ids of chats, so they may be any text.

CHAT_ID: Final = "{chat_id:usechat_id}"
"""The chat in the path of a route. It takes slashes: pages before 5.0.270, 6.0.297 and 7.0.122 send them as they are,
and servers decode those of later pages (``encodeURIComponent``) before the app sees them."""


class _ChatIdConvertor(Convertor[str]):
    regex = r"[\s\S]+"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("usechat_id", _ChatIdConvertor())


class ChatRoute(Route):
    """A route below a chat, such as ``/api/chat/{id}/share``.

    What stands behind the id must have been sent with plain slashes: ``x%2Fshare`` is the chat ``x/share``, not the
    route ``share`` of the chat ``x``. A page that does not encode its ids cannot be told apart.
    """

    def __init__(self, path: str, endpoint: Any, *, methods: list[str]) -> None:
        super().__init__(path, endpoint, methods=methods)
        behind = re.sub(r"\{\w+\}", "[^/]+", path.partition(CHAT_ID)[2])
        self._ending = re.compile(f"{behind.rstrip('/')}/?$".encode())

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Tell whether this is the route of a request."""
        match, child_scope = super().matches(scope)
        raw_path = scope.get("raw_path") or b""  # optional in ASGI; some servers leave the query in it
        is_other = match is not Match.NONE and raw_path and not self._ending.search(raw_path.partition(b"?")[0])
        return (Match.NONE, {}) if is_other else (match, child_scope)


def chat_key(path_params: Mapping[str, Any], chat_id: str) -> str:
    """Return the key of a chat's runs: its id, behind the other parameters of the path; no two chats share one.

    It is part of log lines and of Redis keys, so special characters are escaped as in a URL. A parameter that is too
    long to be an id is ``ChatNotFound``: keys are remembered for a while, and servers accept long paths.
    """
    others = {name: str(value) for name, value in path_params.items() if name != "chat_id"}
    if any(len(text) > LONGEST_ID for text in (chat_id, *others.values())):
        raise ChatNotFound("No such chat.")
    return "".join([*(f"{name}={_escape(value)}/" for name, value in others.items()), _escape(chat_id)])


def _escape(text: str) -> str:
    return quote(text, safe="", errors="surrogatepass")
