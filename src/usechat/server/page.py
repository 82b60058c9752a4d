"""The chat page: static files around a chat app, and the checker that its inspector uses."""

import asyncio
import gzip
import html
import mimetypes
from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response

from usechat.check import DEFAULT_SDKS, check_bytes
from usechat.errors import CannotJudge, ChatNotFound, PageMissing, RequestError, UnknownRelease
from usechat.server.requests import AuthorizeFunction, authorize_request, read_body

__all__ = ["PageSettings", "WithPage"]

CHECK_PATH: Final = "/api/check"
MAXIMUM_CHECKED_BYTES: Final = 4 * 1024 * 1024
CHECK_SECONDS: Final = 60.0
"""Seconds that a stream to be checked may take to arrive."""
CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self';"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_PLACE: Final = '<meta name="usechat" content="{}" />'
_SAFE: Final = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


class PageSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the chat page.

    Args:
        title: its title; if it is empty, the page shows the name of the agent that answers.
        name: what is served, such as ``my_app:agent``. The browser keeps the chats of each name apart.
        description: what the agent does, in a sentence.
        api: the path it posts to. Names in braces are taken from the query of the page's own address.
        auth: whether it asks for a token.
        suggestions: questions that a new user can choose from.
        chats: whether the app stores chats and lists them (``GET /api/chats``).
        share: whether stored chats can be shared by a link (``ChatApp(share=True)``).

    >>> PageSettings(title="Support").api
    '/api/chat'
    """

    title: str = "usechat"
    name: str = ""
    description: str = ""
    api: str = "/api/chat"
    auth: bool = False
    suggestions: tuple[str, ...] = ()
    chats: bool = False
    share: bool = False


class _File(msgspec.Struct, frozen=True):
    content: bytes
    compressed: bytes
    media_type: str


class WithPage:
    """An ASGI app that serves the chat page at ``/`` and passes other requests on to ``app``.

    Args:
        app: the chat app, such as a :class:`~usechat.server.ChatApp`.
        settings: see :class:`PageSettings`.
        authorize: who may use ``POST /api/check``, the checker behind the page's inspector.
        directory: the files of the page; by default those of this package.
        texts: further files in Markdown, by path, to which answers may link. The page shows them.

    Raises:
        PageMissing: the page was not built into this installation.

    >>> from usechat.server import ChatApp, allow_all
    >>> chats = ChatApp(lambda turn: "Hello!")
    >>> app = WithPage(chats, settings=PageSettings(title="Support"), authorize=allow_all)
    """

    def __init__(
        self,
        app: Any,
        *,
        settings: PageSettings,
        authorize: AuthorizeFunction,
        directory: Traversable | None = None,
        texts: Mapping[str, str] | None = None,
    ) -> None:
        self.app = app
        self._authorize = authorize
        self._files = dict(_read(directory or files("usechat") / "web" / "built", ""))
        if "/index.html" not in self._files:
            raise PageMissing
        self._files["/"] = _with_settings(self._files.pop("/index.html"), settings)
        self._texts = frozenset(texts or ())
        self._files |= {path: _file(text.encode(), "text.txt") for path, text in (texts or {}).items()}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one ASGI connection."""
        answer = await self._answer(Request(scope, receive)) if scope["type"] == "http" else None
        await (self.app if answer is None else answer)(scope, receive, send)

    async def _answer(self, request: Request) -> Response | None:
        path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
        if request.method == "POST" and path == CHECK_PATH:
            return await self._check(request)
        if request.method not in ("GET", "HEAD"):
            return None
        if path == "" and request.scope.get("root_path"):
            return RedirectResponse(f"{request.url.path}/")  # the page's addresses are relative to its directory
        if path in self._texts and "text/html" in request.headers.get("accept", ""):
            # A browser that opens a text: the page shows it. The browser keeps the fragment.
            return RedirectResponse(f"{request.scope.get('root_path', '')}/?text={path[1:]}", 303, _SAFE)
        file = self._files.get(path)
        return None if file is None else _respond(file, request, is_hashed=path.startswith("/assets/"))

    async def _check(self, request: Request) -> Response:
        try:
            if await authorize_request(self._authorize, request, "", "check") is None:
                raise ChatNotFound("Not found.")
            body = await read_body(request, MAXIMUM_CHECKED_BYTES, timeout=CHECK_SECONDS)
            sdks = dict.fromkeys([*request.query_params.getlist("sdk"), *DEFAULT_SDKS])
            return JSONResponse(await asyncio.to_thread(check_bytes, body, name="stream", sdks=sdks))
        except RequestError as error:
            return PlainTextResponse(str(error), error.status)
        except (CannotJudge, UnknownRelease) as error:
            return PlainTextResponse(str(error), 422)


def _read(directory: Traversable, prefix: str) -> list[tuple[str, _File]]:
    found = []
    for entry in directory.iterdir() if directory.is_dir() else ():
        path = f"{prefix}/{entry.name}"
        if entry.is_dir():
            found += _read(entry, path)
        else:
            found.append((path, _file(entry.read_bytes(), entry.name)))
    return found


def _file(content: bytes, name: str) -> _File:
    # mimetypes uses tables of the operating system, where JavaScript may be text/plain.
    media_type = "text/javascript" if name.endswith(".js") else mimetypes.guess_type(name)[0]
    return _File(content, gzip.compress(content, mtime=0), media_type or "application/octet-stream")


def _with_settings(index: _File, settings: PageSettings) -> _File:
    known: Mapping[str, Any] = {
        "title": settings.title,
        "name": settings.name,
        "description": settings.description,
        "api": settings.api.lstrip("/"),
        "check": CHECK_PATH.lstrip("/"),
        "auth": settings.auth,
        "suggestions": settings.suggestions,
        "chats": settings.chats,
        "share": settings.share,
    }
    content = html.escape(msgspec.json.encode(known).decode())
    text = index.content.decode().replace(_PLACE, f'<meta name="usechat" content="{content}" />')
    return _file(text.encode(), "index.html")


def _respond(file: _File, request: Request, *, is_hashed: bool) -> Response:
    headers = dict(_SAFE)
    headers["cache-control"] = "public, max-age=31536000, immutable" if is_hashed else "no-cache"
    headers["vary"] = "accept-encoding"
    content = file.content
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["content-encoding"] = "gzip"
        content = file.compressed
    return Response(content, headers=headers, media_type=file.media_type)
