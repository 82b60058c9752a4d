"""Reading what a request asks: its body, the release it names, and who asks."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final, Literal, Protocol, TypeAlias, runtime_checkable
from urllib.parse import quote

from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import ClientDisconnect, HTTPConnection, Request

from usechat.errors import ChatNotFound, InvalidRequest, RequestTooLarge, UnknownRelease
from usechat.protocol.releases import releases_for
from usechat.protocol.request import LONGEST_ID, ChatRequest, Limits
from usechat.turn import Identity

__all__ = [
    "CHAT_ID",
    "Action",
    "Authenticates",
    "Authorize",
    "AuthorizeFunction",
    "ChatNotFound",
    "RequestHeaders",
    "allow",
    "ask",
    "chat_key",
    "read_body",
    "read_request",
    "release_of",
]


Action: TypeAlias = Literal["send", "resume", "stop", "state", "check"]
Authorize: TypeAlias = Callable[[Request, str, Action], Awaitable[Identity | None]]
AuthorizeFunction: TypeAlias = Authorize | Callable[[Request, str, Action], Identity | None]
"""Tells who asks; nothing if the chat is not theirs. It raises :class:`Unauthenticated` if nobody knows who asks."""


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
        return releases_for(sdk).name
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


# -- The headers of a request, as the agent sees them.


class RequestHeaders(Mapping[str, str]):
    """Names in small letters, each once: of a header that was sent twice the first counts, as it does for access rules.

    Names are found whatever their letters. Nothing is copied from the request, of which every open stream keeps this.
    """

    __slots__ = ("_sent",)

    def __init__(self, scope: Mapping[str, Any]) -> None:
        self._sent: list[tuple[bytes, bytes]] = scope["headers"]

    def __getitem__(self, name: str) -> str:
        wanted = name.lower().encode("latin-1", "replace")
        for sent, value in self._sent:
            if sent == wanted:
                return value.decode("latin-1")
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name.decode("latin-1") for name, _ in self._sent))

    def __len__(self) -> int:
        return len({name for name, _ in self._sent})

    def __repr__(self) -> str:
        """Tell the names alone: a log is no place for tokens and cookies."""
        return f"RequestHeaders({', '.join(self)})"


# -- Which chat a path names. Pages choose the ids of chats, so they may be any text.

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


def chat_key(path_params: Mapping[str, Any], chat_id: str) -> str:
    """Return the name of a chat among the runs: its id, behind what else the path names; no two chats share one.

    It is part of log lines and of the names of Redis keys, so whatever is not plain is escaped as in a URL. A path that
    names anything too long to be an id is NotTheirs: names are remembered for a while, and servers take long paths.
    """
    others = {name: str(value) for name, value in path_params.items() if name != "chat_id"}
    if any(len(text) > LONGEST_ID for text in (chat_id, *others.values())):
        raise ChatNotFound("No such chat.")
    return "".join([*(f"{name}={_escape(value)}/" for name, value in others.items()), _escape(chat_id)])


def _escape(text: str) -> str:
    return quote(text, safe="", errors="surrogatepass")
