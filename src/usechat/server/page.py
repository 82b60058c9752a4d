"""The chat page: static files around a chat app, and the checker that its inspector uses."""

import asyncio
import html
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response

from usechat.check import DEFAULT_SDKS, check_bytes
from usechat.errors import CannotJudge, ChatNotFound, InvalidSetting, PageMissing, RequestError, UnknownRelease
from usechat.server.accent import accent_of
from usechat.server.app_sandbox import SANDBOX_FILES, AppSandbox
from usechat.server.cors import is_origin
from usechat.server.requests import AuthorizeFunction, authorize_request, read_body
from usechat.server.static_files import SAFE_HEADERS, StaticFile, files_in, respond_with, static_file

__all__ = ["PageSettings", "WithPage"]

CHECK_PATH: Final = "/api/check"
MAXIMUM_CHECKED_BYTES: Final = 4 * 1024 * 1024
CHECK_SECONDS: Final = 60.0
"""Seconds that a stream to be checked may take to arrive."""
_CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self';"
    " connect-src 'self';{frames} base-uri 'none'; form-action 'none'; frame-ancestors {ancestors}"
)
_PLACE: Final = '<meta name="usechat" content="{}" />'
_TITLE: Final = "<title>usechat</title>"
_ICON: Final = '<link rel="icon" href="./icon.svg" />'
_IMAGES: Final = (".svg", ".png", ".jpg", ".jpeg", ".webp", ".gif", ".ico")
_PLAIN_ORIGIN: Final = re.compile(r"https?://[a-z0-9.-]+(?::\d+)?|https?://\[[0-9a-f:]+\](?::\d+)?")
"""No wildcard, and nothing that would end the directive of the policy."""
_LOGIN_ADDRESS: Final = re.compile(r"https?://[^\s/]|/(?![/\\])")
_WIDGET: Final = "/widget.js"


class PageSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the chat page.

    Args:
        title: its title; if it is empty, the page shows the name of the agent that answers.
        name: what is served, such as ``my_app:agent``. The browser keeps the chats of each name apart.
        description: what the agent does, in a sentence.
        logo: an image file (SVG, PNG, JPEG, WebP, GIF or ICO) to show in the header, on an empty page and as its icon.
        accent: the colour of buttons and links, as ``#rrggbb``. Each theme gets a shade of it that can be read.
        api: the path it posts to. Names in braces are taken from the query of the page's own address.
        auth: whether it begins with a sign-in. It asks the server first: a user whose cookie is enough sees none.
        login_url: the address to which the sign-in leads, instead of a field for a token: ``https://…``, or a path of
            this server. It returns to the page with a cookie, or with a token in the fragment: ``#token=…``.
        embed: the origins whose pages may show it in a frame, and get ``/widget.js``, a script that puts it behind a
            button there: ``https://www.example.com``.
        apps_origin: the origin at which the sandbox of MCP Apps is served, such as ``https://apps.example.com``: not
            that of the page, but one which leads to the same server. Without it the page shows no apps.
        suggestions: questions that a new user can choose from, as cards: ``Question``, or ``Title | Question``. An
            emoji in front is the icon of the card.
        chats: whether the app stores chats and lists them (``GET /api/chats``).
        share: whether stored chats can be shared by a link (``ChatApp(share=True)``).
        inspector: whether it has the inspector, which shows developers every frame. A shared chat has none.

    >>> PageSettings(title="Support").api
    '/api/chat'
    """

    title: str = "usechat"
    name: str = ""
    description: str = ""
    logo: Path | None = None
    accent: str | None = None
    api: str = "/api/chat"
    auth: bool = False
    login_url: str = ""
    embed: tuple[str, ...] = ()
    apps_origin: str = ""
    suggestions: tuple[str, ...] = ()
    chats: bool = False
    share: bool = False
    inspector: bool = False


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
        InvalidSetting: the logo is no image that can be read, the accent is no colour, the address of the sign-in is
            none, or an origin to embed the page or to show apps from is none.

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
        entries = files_in(directory or files("usechat") / "web" / "built")
        self._files = {path: static_file(file.read_bytes(), file.name) for path, file in entries}
        if "/index.html" not in self._files:
            raise PageMissing
        _check_login(settings)
        _check_origins(settings)
        self._policy = {"content-security-policy": content_security_policy(settings.embed, settings.apps_origin)}
        sandbox_files = {path: self._files.pop(path) for path in SANDBOX_FILES if path in self._files}
        self._sandbox = AppSandbox(settings.apps_origin, sandbox_files) if settings.apps_origin else None
        if not settings.embed:
            self._files.pop(_WIDGET, None)
        logo = _logo(settings.logo) if settings.logo else None
        if logo is not None:
            self._files[logo.path] = logo.file
        self._files["/"] = _with_settings(self._files.pop("/index.html"), settings, logo)
        self._texts = frozenset(texts or ())
        self._files |= {path: static_file(text.encode(), "text.txt") for path, text in (texts or {}).items()}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one ASGI connection."""
        if self._sandbox is not None and self._sandbox.serves(scope):
            await self._sandbox(scope, receive, send)
            return
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
            return RedirectResponse(
                f"{request.scope.get('root_path', '')}/?text={path[1:]}", 303, {**SAFE_HEADERS, **self._policy}
            )
        file = self._files.get(path)
        return (
            None if file is None else respond_with(file, request, self._policy, is_hashed=path.startswith("/assets/"))
        )

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


def _check_login(settings: PageSettings) -> None:
    address = settings.login_url
    if address and not settings.auth:
        raise InvalidSetting("login_url is for a page that begins with a sign-in: set auth=True, too")
    if address and not _LOGIN_ADDRESS.match(address):
        raise InvalidSetting(f"the address of the sign-in {address!r} is neither https://… nor a path such as /login")


def _check_origins(settings: PageSettings) -> None:
    for origin in settings.embed:
        if not _is_plain_origin(origin):
            raise InvalidSetting(
                f"{origin!r} cannot embed the page; write its origin as the browser does: https://www.example.com"
            )
    if settings.apps_origin and not _is_plain_origin(settings.apps_origin):
        raise InvalidSetting(
            f"apps cannot be shown from {settings.apps_origin!r}; write the origin as the browser does:"
            " https://apps.example.com"
        )


def _is_plain_origin(text: str) -> bool:
    return is_origin(text) and _PLAIN_ORIGIN.fullmatch(text) is not None


def content_security_policy(embed: Sequence[str], apps_origin: str = "") -> str:
    """Return the policy of the page: who may show it in a frame, and the one origin that it shows in frames."""
    frames = f" frame-src {apps_origin};" if apps_origin else ""
    return _CONTENT_SECURITY_POLICY.format(frames=frames, ancestors=" ".join(embed) or "'none'")


class _Logo(NamedTuple):
    path: str
    file: StaticFile


def _logo(source: Path) -> _Logo:
    suffix = source.suffix.lower()
    if suffix not in _IMAGES:
        raise InvalidSetting(f"the logo {str(source)!r} is not an image; use one of {', '.join(_IMAGES)}")
    try:
        content = source.read_bytes()
    except OSError as error:
        raise InvalidSetting(f"the logo {str(source)!r} cannot be read: {error.strerror}") from None
    return _Logo(f"/logo{suffix}", static_file(content, f"logo{suffix}"))


def _with_settings(index: StaticFile, settings: PageSettings, logo: _Logo | None) -> StaticFile:
    fields: Mapping[str, Any] = {
        "title": settings.title,
        "name": settings.name,
        "description": settings.description,
        "logo": logo.path.lstrip("/") if logo else "",
        "accent": accent_of(settings.accent) if settings.accent else None,
        "api": settings.api.lstrip("/"),
        "check": CHECK_PATH.lstrip("/"),
        "auth": settings.auth,
        "loginUrl": settings.login_url,
        "embed": settings.embed,
        "appsOrigin": settings.apps_origin,
        "suggestions": settings.suggestions,
        "chats": settings.chats,
        "share": settings.share,
        "inspector": settings.inspector,
    }
    content = html.escape(msgspec.json.encode(fields).decode())
    text = index.content.decode().replace(_PLACE, f'<meta name="usechat" content="{content}" />')
    if settings.title:
        text = text.replace(_TITLE, f"<title>{html.escape(settings.title)}</title>")
    if logo:
        text = text.replace(_ICON, f'<link rel="icon" href=".{logo.path}" />')
    return static_file(text.encode(), "index.html")
