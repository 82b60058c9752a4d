"""The command `usechat serve`: finds the object, makes the app, and runs it with uvicorn."""

import logging
import math
import os
import shlex
import socket
import sys
import traceback
from argparse import Namespace
from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
import uvicorn
from starlette.routing import Route, WebSocketRoute
from uvicorn.supervisors import ChangeReload, Multiprocess

from usechat.dialects import dialect
from usechat.errors import UsechatError
from usechat.runs.keeper import Conflict
from usechat.runs.memory import MemoryRuns
from usechat.runs.run import Timeouts
from usechat.runs.store import RunStore
from usechat.server.addresses import LocalPagesOnly, is_loopback, listen, resolve
from usechat.server.app import ChatApp
from usechat.server.asking import Authorize
from usechat.server.auth_option import authorize_by
from usechat.server.cors import with_cors
from usechat.server.hanging_up import HangUp, HangUpProtocol
from usechat.server.kinds import Opened, kind_of, open_target
from usechat.server.loading import CannotLoad, directory_of, is_asgi_app, load_object, require_answer
from usechat.server.log_lines import log_config
from usechat.server.settings import Settings
from usechat.server.worker_metrics import counted_together

__all__ = ["CannotServe", "Plan", "Served", "create_app", "make_app", "run"]

_VARIABLE: Final = "USECHAT_SERVE"
_FACTORY: Final = "usechat.server.serving:create_app"
_STARTUP_FAILURE: Final = 3
"""uvicorn's own exit code: its supervisor does not start such a worker again."""
_HELLO: Final = '{"messages":[{"id":"1","role":"user","parts":[{"type":"text","text":"Hello!"}]}]}'

Seconds: TypeAlias = float | Literal["never"]

_logger: Final = logging.getLogger("usechat.server")


class CannotServe(UsechatError):
    """The options do not go together; the text says why, and what would."""


class Plan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is served and how: all that a worker must know."""

    target: str
    kind: str | None = None
    path: str = "/api/chat"
    sdk: str = "any"
    redis: str | None = None
    linger: Seconds = 15.0
    conflict: Conflict = "reject"
    idle_timeout: Seconds = 120.0
    drain: float = 10.0
    auth: tuple[str, ...] = ()
    cors: tuple[str, ...] = ()
    debug: bool = False


_ABOUT_CHATS: Final = ("path", "sdk", "redis", "linger", "conflict", "idle_timeout", "auth", "cors")
"""Options that an app which is served as it is would not hear of."""


class Served(NamedTuple):
    """An ASGI app; the chat apps in it, where they can be found; and whether it was made here, around an agent."""

    app: Any
    chats: list[ChatApp]
    made_here: bool


def run(options: Namespace) -> int:
    """Serve until the process is told to end; return the exit code."""
    given = {name: getattr(options, name) for name in Plan.__struct_fields__}
    plan = Plan(**{name: value for name, value in given.items() if value is not None})
    try:
        served = make_app(plan)
    except CannotLoad as error:
        if plan.debug and error.__cause__ is not None:
            traceback.print_exception(error.__cause__)
        raise
    _require_sense(plan, served, options)
    addresses = resolve(options.host, options.port)
    if served.made_here and not plan.auth and not all(map(is_loopback, addresses)):
        raise CannotServe(f"--host {options.host} lets other machines in; say with --auth who may ask")
    sockets = listen(addresses)
    sys.stdout.writelines(_greeting(plan, served, _url(options.host, sockets[0].getsockname()[1])))
    sys.stdout.flush()
    os.environ[_VARIABLE] = msgspec.json.encode(plan).decode()
    return _run_uvicorn(plan, options, sockets)


def create_app() -> Any:
    """Return the app of the plan that the environment holds; uvicorn calls it in each worker."""
    plan = msgspec.json.decode(os.environ[_VARIABLE], type=Plan)
    try:
        return make_app(plan).app
    except UsechatError as error:  # the code has changed since the command began, such as under --reload
        _logger.error("%s", error, exc_info=error.__cause__ if plan.debug else None)
        sys.exit(_STARTUP_FAILURE)


def make_app(plan: Plan) -> Served:
    """Return the app that serves the plan's object: itself if it is an ASGI app, a chat app around it otherwise."""
    kind = plan.kind or kind_of(plan.target)
    opened = open_target(kind, plan.target) if kind else Opened(load_object(plan.target))
    if is_asgi_app(opened.answer):
        mounted = list(_chats_in(opened.answer))
        return Served(HangUp(opened.answer, mounted), mounted, made_here=False)
    require_answer(opened.answer, plan.target)
    chats = ChatApp(
        opened.answer,
        also=opened.also,
        runs=_store(plan),
        authorize=_rule(plan),
        settings=Settings(
            sdk=dialect(plan.sdk).name,
            linger=_limit(plan.linger),
            conflict=plan.conflict,
            timeouts=Timeouts(first_event=_limit(plan.idle_timeout), idle=_limit(plan.idle_timeout)),
            on_error=_tell if plan.debug else None,
            websocket_origins=plan.cors,
        ),
        path=plan.path,
        drain=plan.drain,
    )
    try:
        app = with_cors(chats, plan.cors)
    except ValueError as error:
        raise CannotServe(f"--cors: {error}") from None
    return Served(HangUp(app, [chats]), [chats], made_here=True)


def _chats_in(app: Any) -> Iterator[ChatApp]:
    """Yield the chat apps behind middleware and mounts, which name what they hold alike in Starlette and FastAPI."""
    if isinstance(app, ChatApp):
        yield app
        return
    for inner in (app, *getattr(app, "routes", ())):
        held = getattr(inner, "app", None)
        if held is not None and held is not app:
            yield from _chats_in(held)


def _store(plan: Plan) -> RunStore:
    if plan.redis is None:
        return MemoryRuns()
    from usechat.runs.redis import RedisRuns

    try:
        return RedisRuns(plan.redis)
    except ValueError:  # its text may repeat the URL, which may hold a password
        raise CannotServe("--redis takes a URL such as redis://localhost:6379") from None


def _rule(plan: Plan) -> Authorize:
    return authorize_by(plan.auth) if plan.auth else LocalPagesOnly(plan.cors)


def _limit(seconds: Seconds) -> float | None:
    return None if seconds == "never" else seconds


def _tell(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _require_sense(plan: Plan, served: Served, options: Namespace) -> None:
    """Raise unless the options go together."""
    if not served.made_here:
        for name in _ABOUT_CHATS:
            if getattr(options, name) is not None:
                option = "--" + name.replace("_", "-")
                raise CannotServe(f"{plan.target} is an ASGI app and served as it is: set {option} in its code")
    if options.reload and options.workers > 1:
        raise CannotServe("--reload is for one worker, so leave --workers out")
    if options.workers > 1 and any(isinstance(chats.runs, MemoryRuns) for chats in served.chats):
        remedy = "give --redis URL" if served.made_here else "give the app RedisRuns"
        raise CannotServe(
            f"--workers {options.workers} needs a store that they share: a run lives in one worker, and without Redis"
            f" the others can neither resume nor stop it; {remedy}"
        )
    if "*" in plan.cors and not plan.auth:
        raise CannotServe("--cors '*' would let every page on the web use the agent; name origins, or give --auth")


def _greeting(plan: Plan, served: Served, url: str) -> Iterator[str]:
    yield f"usechat serves {plan.target} at {url}\n"
    if not served.made_here:
        yield "It is an ASGI app and decides by itself who may ask.\n"
        return
    for route in served.chats[0].routes:
        if isinstance(route, Route):
            yield f"  {'POST' if 'POST' in (route.methods or ()) else 'GET':4} {route.path}\n"
        elif isinstance(route, WebSocketRoute):
            yield f"  WS   {route.path}\n"
    if not plan.auth:
        yield "Only this machine can reach it, because there is no --auth.\n"
    token = " -H 'authorization: Bearer …'" if plan.auth else ""
    yield f"Try it:\n  curl -N {url}{plan.path}{token} -H 'content-type: application/json' -d {shlex.quote(_HELLO)}\n"


def _url(host: str, port: int) -> str:
    if host in ("", "0.0.0.0", "::"):
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _run_uvicorn(plan: Plan, options: Namespace, sockets: list[socket.socket]) -> int:
    config = uvicorn.Config(
        _FACTORY,
        factory=True,
        http=HangUpProtocol,
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
