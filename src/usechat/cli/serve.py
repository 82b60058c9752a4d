"""The command `usechat serve`: finds the object, makes the app, and runs it with uvicorn."""

import contextlib
import logging
import math
import os
import secrets
import shlex
import socket
import sys
import traceback
import webbrowser
from argparse import Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
import uvicorn
from starlette.routing import Route, WebSocketRoute
from uvicorn.supervisors import ChangeReload, Multiprocess

from usechat.cli.auth import authorize_by
from usechat.cli.targets import (
    Opened,
    app_maker,
    directory_of,
    is_asgi_app,
    kind_of,
    load_object,
    open_target,
    require_answer,
)
from usechat.errors import CannotLoad, CannotServe, PageMissing, UsechatError
from usechat.protocol.releases import releases_for
from usechat.runs.manager import Conflict
from usechat.runs.memory import MemoryRuns
from usechat.runs.open_calls import share_secret
from usechat.runs.run import Timeouts
from usechat.runs.store import RunStore
from usechat.server.app import ChatApp, EndpointsApp
from usechat.server.auth.origin import LocalPagesOnly, is_loopback, listen, resolve
from usechat.server.cors import with_cors
from usechat.server.log_lines import log_config
from usechat.server.observers.prometheus import counted_together
from usechat.server.page import PageSettings, WithPage
from usechat.server.requests import Authorize
from usechat.server.settings import Disconnect, Settings, cancel_after

__all__ = ["Plan", "Served", "create_app", "limit", "make_app", "run", "served_as", "store_of", "tell"]

_VARIABLE: Final = "USECHAT_SERVE"
_FACTORY: Final = "usechat.cli.serve:create_app"
_STARTUP_FAILURE: Final = 3
"""uvicorn's own exit code: its supervisor does not start such a worker again."""
_SHORTEST_SECRET: Final = 32
_HELLO: Final = '{"messages":[{"id":"1","role":"user","parts":[{"type":"text","text":"Hello!"}]}]}'

Seconds: TypeAlias = float | Literal["never"]

_logger: Final = logging.getLogger("usechat.server")


class Plan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is served and how: all that a worker must know."""

    target: str
    kind: str | None = None
    path: str = "/api/chat"
    sdk: str = "any"
    redis: str | None = None
    disconnect: float | Literal["cancel", "continue"] = 15.0
    conflict: Conflict = "reject"
    idle_timeout: Seconds = 120.0
    coalesce_ms: float = 0.0
    drain: float = 10.0
    auth: tuple[str, ...] = ()
    cors: tuple[str, ...] = ()
    debug: bool = False
    page: bool = True
    title: str = ""
    suggestions: tuple[str, ...] = ()
    access: str | None = None
    upstream_token: str | None = None
    subprotocol: str | None = None
    questions: Literal["data", "approval"] = "data"
    event: tuple[str, ...] = ()
    approval_secret: str | None = None


_ABOUT_CHATS: Final = (
    "path",
    "sdk",
    "redis",
    "disconnect",
    "conflict",
    "idle_timeout",
    "coalesce_ms",
    "approval_secret",
    "auth",
    "cors",
)
"""Options that an app which is served as it is would not hear of."""
_ABOUT_SESSIONS: Final = ("access", "upstream_token", "subprotocol", "questions", "event")
"""Options that only the route of Agent Ops hears of."""


class Served(NamedTuple):
    """An ASGI app, the chat apps in it where they can be found, and whether it was made here.

    If so: ``path`` is where a page posts to, ``asks`` tells whether a token is asked for, and the options that it is
    ``deaf_to`` do not go with it. ``switched_off_by`` is the variable that keeps its route from answering.
    ``shows_page`` tells whether there is a page at ``/``.
    """

    app: Any
    chats: list[EndpointsApp]
    made_here: bool
    path: str = ""
    asks: bool = True
    deaf_to: tuple[str, ...] = (*_ABOUT_CHATS, *_ABOUT_SESSIONS)
    switched_off_by: str = ""
    shows_page: bool = False


def run(options: Namespace) -> int:
    """Serve until the process is told to end; return the exit code."""
    given = {name: getattr(options, name, None) for name in Plan.__struct_fields__}
    given["approval_secret"] = _approval_secret(options.approval_secret)
    plan = Plan(**{name: value for name, value in given.items() if value is not None})
    try:
        served = make_app(plan)
    except CannotLoad as error:
        if plan.debug and error.__cause__ is not None:
            traceback.print_exception(error.__cause__)
        raise
    _require_sense(plan, served, options)
    addresses = resolve(options.host, options.port)
    if not served.asks and not all(map(is_loopback, addresses)):
        raise CannotServe(f"--host {options.host} lets other machines in; say with --auth who may ask")
    sockets = listen(addresses)
    url = _url(options.host, sockets[0].getsockname()[1])
    sys.stdout.writelines(_greeting(plan, served, url))
    sys.stdout.flush()
    if options.open and served.shows_page:
        webbrowser.open(url)  # it may ask at once: the sockets listen already
    os.environ[_VARIABLE] = msgspec.json.encode(plan).decode()
    return _run_uvicorn(plan, options, sockets)


def create_app() -> Any:
    """Return the app of the plan that the environment holds; uvicorn calls it once in each worker."""
    # Taken out, because it holds secrets, and what the agent starts inherits the environment. That of the process which
    # starts workers anew is another one.
    plan = msgspec.json.decode(os.environ.pop(_VARIABLE), type=Plan)
    try:
        return make_app(plan).app
    except UsechatError as error:  # the code has changed since the command began, such as under --reload
        _logger.error("%s", error, exc_info=error.__cause__ if plan.debug else None)
        sys.exit(_STARTUP_FAILURE)


def make_app(plan: Plan) -> Served:
    """Return the app that serves the plan's object: itself if it is an ASGI app, a chat app around it otherwise."""
    if plan.approval_secret is not None:
        share_secret(plan.approval_secret)  # for an app that is served as it is, whose settings may name none
    kind = plan.kind or kind_of(plan.target)
    if kind and (make := app_maker(kind)):
        made: Served = make(plan)
        return made
    opened = open_target(kind, plan.target) if kind else Opened(load_object(plan.target))
    if is_asgi_app(opened.answer):
        mounted = list(_chats_in(opened.answer))
        return Served(opened.answer, mounted, made_here=False)
    require_answer(opened.answer, plan.target)
    authorize = authorize_by(plan.auth) if plan.auth else LocalPagesOnly(plan.cors)
    chats = ChatApp(
        opened.answer,
        also=opened.also,
        runs=store_of(plan) or MemoryRuns(),
        authorize=authorize,
        settings=Settings(
            sdk=releases_for(plan.sdk).name,
            disconnect=disconnect_of(plan),
            conflict=plan.conflict,
            timeouts=Timeouts(first_event=limit(plan.idle_timeout), idle=limit(plan.idle_timeout)),
            coalesce_ms=plan.coalesce_ms,
            on_error=tell if plan.debug else None,
            approval_secret=plan.approval_secret,
            websocket_origins=plan.cors,
        ),
        path=plan.path,
        drain=plan.drain,
    )
    return served_as(
        plan,
        chats,
        path=plan.path,
        asks=bool(plan.auth),
        deaf_to=_ABOUT_SESSIONS,
        authorize=authorize,
        texts=getattr(opened.answer, "page_files", None),
    )


def served_as(
    plan: Plan,
    chats: EndpointsApp,
    *,
    path: str,
    asks: bool,
    deaf_to: tuple[str, ...],
    authorize: Authorize,
    texts: Mapping[str, str] | None = None,
) -> Served:
    """Return how a chat app that was made for the plan is served: with the page, if it is wanted and there."""
    app: Any = chats
    if plan.page:
        told = PageSettings(title=plan.title or plan.target, api=path, auth=asks, suggestions=plan.suggestions)
        with contextlib.suppress(PageMissing):
            app = WithPage(chats, settings=told, authorize=authorize, texts=texts)
    try:
        app = with_cors(app, plan.cors)
    except ValueError as error:
        raise CannotServe(f"--cors: {error}") from None
    return Served(app, [chats], made_here=True, path=path, asks=asks, deaf_to=deaf_to, shows_page=app is not chats)


def _chats_in(app: Any) -> Iterator[EndpointsApp]:
    """Yield the chat apps behind middleware and mounts, which name what they hold alike in Starlette and FastAPI."""
    if isinstance(app, EndpointsApp):
        yield app
        return
    for inner in (app, *getattr(app, "routes", ())):
        held = getattr(inner, "app", None)
        if held is not None and held is not app:
            yield from _chats_in(held)


def store_of(plan: Plan) -> RunStore | None:
    """Return the store that the plan names, if it names one."""
    if plan.redis is None:
        return None
    from usechat.runs.redis.store import RedisRuns

    try:
        return RedisRuns(plan.redis)
    except ValueError:  # its text may repeat the URL, which may hold a password
        raise CannotServe("--redis takes a URL such as redis://localhost:6379") from None


def _approval_secret(path: str | None) -> str:
    """Return the secret in a file, or else one for all workers that lasts as long as they do."""
    if path is None:
        return secrets.token_hex(32)
    try:
        secret = Path(path).read_text(encoding="utf-8").rstrip("\r\n")  # editors end a file with a line break
    except OSError as error:
        raise CannotServe(f"--approval-secret: {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CannotServe(f"--approval-secret: {path} is no text") from None
    if len(secret) < _SHORTEST_SECRET:
        raise CannotServe(f"--approval-secret: {path} holds fewer than {_SHORTEST_SECRET} characters")
    return secret


def disconnect_of(plan: Plan) -> Disconnect:
    """Return what becomes of a run that nobody reads any more."""
    return plan.disconnect if isinstance(plan.disconnect, str) else cancel_after(plan.disconnect)


def limit(seconds: Seconds) -> float | None:
    """Return a number of seconds, or nothing for ``never``."""
    return None if seconds == "never" else seconds


def tell(error: Exception) -> str:
    """Return the whole text of an error, for ``--debug``."""
    return f"{type(error).__name__}: {error}"


def _require_sense(plan: Plan, served: Served, options: Namespace) -> None:
    """Raise unless the options go together."""
    for name in served.deaf_to:
        if getattr(options, name) is not None:
            option = "--" + name.replace("_", "-")
            if not served.made_here:
                raise CannotServe(f"{plan.target} is an ASGI app and served as it is: set {option} in its code")
            raise CannotServe(f"{option} does not go with {plan.target}{f' as {plan.kind}' if plan.kind else ''}")
    if options.reload and options.workers > 1:
        raise CannotServe("--reload is for one worker, so leave --workers out")
    if options.workers > 1 and any(map(_is_alone, served.chats)):
        remedy = "give --redis URL" if served.made_here else "give the app RedisRuns"
        raise CannotServe(
            f"--workers {options.workers} needs a store that they share: a run lives in one worker, and without Redis"
            f" the others can neither resume nor stop it; {remedy}"
        )
    if "*" in plan.cors and not served.asks:
        raise CannotServe("--cors '*' would let every page on the web use the agent; name origins, or give --auth")


def _is_alone(chats: EndpointsApp) -> bool:
    """Tell whether other workers could not do what their readers will ask of them."""
    return chats.is_resumable and isinstance(chats.runs, MemoryRuns)


def _greeting(plan: Plan, served: Served, url: str) -> Iterator[str]:
    yield f"usechat serves {plan.title or plan.target} at {url}\n"
    if not served.made_here:
        yield "It is an ASGI app and decides by itself who may ask.\n"
        return
    if served.shows_page:
        yield "  GET  / (the chat page)\n"
    elif plan.page:
        yield "The page is not built, so there is none; `make page` builds it in a checkout.\n"
    for route in served.chats[0].routes:
        if isinstance(route, Route):
            yield f"  {'POST' if 'POST' in (route.methods or ()) else 'GET':4} {route.path_format}\n"
        elif isinstance(route, WebSocketRoute):
            yield f"  WS   {route.path}\n"
    if not served.asks:
        yield "Only this machine can reach it, because there is no --auth.\n"
    if served.switched_off_by:
        yield f"{served.switched_off_by} is set, but not to true: pages get 404.\n"
        return
    path = served.path.replace("{session_id}", "SESSION")
    token = " -H 'authorization: Bearer …'" if served.asks else ""
    yield f"Try it:\n  curl -N {url}{path}{token} -H 'content-type: application/json' -d {shlex.quote(_HELLO)}\n"


def _url(host: str, port: int) -> str:
    if host in ("", "0.0.0.0", "::"):
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _run_uvicorn(plan: Plan, options: Namespace, sockets: list[socket.socket]) -> int:
    config = uvicorn.Config(
        _FACTORY,
        factory=True,
        log_config=log_config(options.log_format),
        workers=options.workers,
        reload=options.reload,
        reload_dirs=str(directory_of(plan.target)) if options.reload else None,
        timeout_graceful_shutdown=math.ceil(plan.drain),
    )
    server = uvicorn.Server(config)
    try:
        if options.reload:
            ChangeReload(config, target=server.run, sockets=sockets).run()
        elif options.workers > 1:
            with counted_together():
                Multiprocess(config, sockets=sockets).run()
        else:
            server.run(sockets)
    except KeyboardInterrupt:  # the usual way to end it
        return 0
    return 0
