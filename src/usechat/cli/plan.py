"""The plan of `usechat serve`: what is served and how, and the app that a worker makes of it."""

import contextlib
import hashlib
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
from starlette.routing import BaseRoute

from usechat.chats.memory import MemoryChats
from usechat.chats.store import ChatStore
from usechat.cli.auth import token_rules
from usechat.cli.targets import (
    CommonOptions,
    HasPageFiles,
    ServedAnswer,
    ServedApp,
    directory_of,
    installed_targets,
    is_asgi_app,
    kind_of,
    load_object,
)
from usechat.errors import (
    CannotAnswer,
    CannotLoad,
    CannotServe,
    InvalidAddress,
    InvalidSetting,
    PageMissing,
    UsechatError,
)
from usechat.protocol.releases import releases_for
from usechat.runs.manager import Conflict
from usechat.runs.memory import MemoryRuns
from usechat.runs.open_calls import share_secret
from usechat.runs.quotas import Quotas
from usechat.runs.run import Timeouts
from usechat.runs.store import RunStore
from usechat.server.app import ChatApp, EndpointsApp, observing
from usechat.server.auth.bearer import bearer
from usechat.server.auth.origin import LocalPagesOnly
from usechat.server.cors import with_cors
from usechat.server.page import PageSettings, WithPage
from usechat.server.requests import Authorize
from usechat.server.settings import Disconnect, Settings, cancel_after
from usechat.server.uvicorn import STARTUP_FAILURE
from usechat.sources import as_source, object_source

if TYPE_CHECKING:
    from usechat.runs.redis.turns import RedisTurns
    from usechat.server.worker import AgentWorker

__all__ = ["FACTORY", "Plan", "Served", "code_version", "create_app", "hand_to_workers", "make_app", "make_worker"]

FACTORY: Final = "usechat.cli.plan:create_app"
_VARIABLE: Final = "USECHAT_SERVE"

Seconds: TypeAlias = float | Literal["never"]

_logger: Final = logging.getLogger("usechat.server")


class Plan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is served and how: all that a worker must know. ``options`` are those of the kind, by name."""

    target: str
    further: tuple[str, ...] = ()
    """More agents, which a page can choose instead of the first one."""
    kind: str | None = None
    options: dict[str, Any] = {}
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
    description: str = ""
    suggestions: tuple[str, ...] = ()
    approval_secret: str | None = None
    plain_asgi: bool = False
    rate: int | None = None
    chats: str | None = None
    keep: float | None = None
    share: bool = False
    remembers: bool = True
    """Whether chats are kept in memory without ``chats``: not where other processes answer the same chats."""
    agents: Literal["here", "external"] = "here"
    max_waiting: int = 1000
    forward_header: tuple[str, ...] = ()
    concurrency: int = 50
    code_version: str = ""


_CHAT_OPTIONS: Final = (
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
    "plain_asgi",
    "rate",
    "chats",
    "keep",
    "share",
)
"""Options that have no effect on an ASGI app which is served as it is."""


class Served(NamedTuple):
    """An ASGI app, and the chat apps in it as far as they can be found.

    ``built_here`` says whether the app was made for the plan, or is the user's own. If it was made here: ``path`` is
    where a page posts to, ``requires_auth`` says whether a token is needed, ``shows_page`` whether there is a page
    at ``/``, ``disabled_by`` names the environment variable that keeps its route from answering, and ``routes`` are
    those that it answers.
    """

    app: Any
    chats: list[EndpointsApp]
    built_here: bool
    path: str = ""
    requires_auth: bool = True
    unsupported_options: tuple[str, ...] = ()
    disabled_by: str = ""
    shows_page: bool = False
    routes: Sequence[BaseRoute] = ()


def hand_to_workers(plan: Plan) -> None:
    """Put the plan into the environment, where :func:`create_app` finds it in each worker."""
    os.environ[_VARIABLE] = msgspec.json.encode(plan).decode()


def create_app() -> Any:
    """Return the app of the plan in the environment; uvicorn calls it once in each worker."""
    # Removed, because it holds secrets, and processes that the agent starts inherit the environment. The process that
    # restarts workers has an environment of its own.
    plan = msgspec.json.decode(os.environ.pop(_VARIABLE), type=Plan)
    try:
        return make_app(plan).app
    except UsechatError as error:  # the code has changed since the command began, such as under --reload
        _logger.error("%s", error, exc_info=error.__cause__ if plan.debug else None)
        sys.exit(STARTUP_FAILURE)


def make_app(plan: Plan) -> Served:
    """Return the app that serves the plan's target: itself if it is an ASGI app, a chat app around it otherwise."""
    if plan.approval_secret is not None:
        share_secret(plan.approval_secret)  # for an app that is served as it is, whose settings may name none
    if plan.agents == "external":
        common = _common_options(plan)
        return _serve_answer(plan, ServedAnswer(_queue(plan, common)), common)
    if plan.further:
        return _serve_several(plan)
    kind = plan.kind or kind_of(plan.target)
    if kind is None:
        found = load_object(plan.target)
        if _is_app(found):
            return Served(found, list(_chats_in(found)), built_here=False, unsupported_options=_CHAT_OPTIONS)
        return _serve_answer(plan, _answer_of(found, plan.target), _common_options(plan))
    common = _common_options(plan)
    opened = _open_target(plan, kind, common)
    return _serve_app(plan, opened) if isinstance(opened, ServedApp) else _serve_answer(plan, opened, common)


def _is_app(found: Any) -> bool:
    """Tell whether an object is an ASGI app; an agent of a framework may be called with three arguments, too."""
    return is_asgi_app(found) and object_source(found) is None


def _serve_several(plan: Plan) -> Served:
    """Return the app of several agents, by name."""
    targets = (plan.target, *plan.further)
    agents = {}
    for name, target in zip(_names_of(targets), targets, strict=True):
        found = load_object(target) if kind_of(target) is None else None
        if found is None or _is_app(found):
            raise CannotServe(f"{target} is served alone; several OBJECTs are agents in Python, each MODULE:NAME")
        agents[name] = _answer_of(found, target).answer
    return _serve_answer(plan, ServedAnswer(agents), _common_options(plan))


def _names_of(targets: Sequence[str]) -> list[str]:
    """Return what people call the agents: the names of the objects, or all of a target if two have one name."""
    short = [target.rpartition(":")[2] for target in targets]
    return [name if short.count(name) == 1 else target for name, target in zip(short, targets, strict=True)]


def make_worker(plan: Plan) -> "AgentWorker":
    """Return the worker that answers the turns in the queue of the plan's target. Call it in a running event loop."""
    from usechat.server.worker import AgentWorker

    common = _common_options(plan)
    queue = _queue(plan, common)
    kind = plan.kind or kind_of(plan.target)
    found = load_object(plan.target) if kind is None else None
    if found is not None and _is_app(found):
        raise CannotServe(f"{plan.target} is an ASGI app, not an agent; give the agent inside of it")
    opened = _answer_of(found, plan.target) if kind is None else _open_target(plan, kind, common)
    if isinstance(opened, ServedApp):
        raise CannotServe(f"{plan.target} as {kind} has routes of its own; serve it with usechat serve")
    return AgentWorker(
        opened.answer if found is None else found,
        queue,
        version=plan.code_version or code_version(plan.target),
        settings=common.settings,
        observer=observing(None, metrics=True)[0],
        concurrency=plan.concurrency,
        chats=_chats(plan),
    )


def code_version(target: str) -> str:
    """Return a name for the code of a target that was imported: a digest of its files, and usechat's version.

    Its files are those of the modules that were imported from its directory or are in its package, and the target
    itself if it is a file. Packages of others do not count.
    """
    directory, package = directory_of(target), target.rpartition(":")[0].partition(".")[0]
    modules = [(name, getattr(module, "__file__", None)) for name, module in list(sys.modules.items())]
    paths = {
        Path(file)
        for name, file in modules
        if file is not None
        if name.partition(".")[0] == package or (directory in Path(file).parents and "site-packages" not in file)
    }
    digest = hashlib.sha256(version("usechat").encode())
    for path in sorted({*paths, Path(target)}):
        if path.is_file():
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def _queue(plan: Plan, common: CommonOptions) -> "RedisTurns":
    """Return the queue of turns that is named like the plan's target."""
    from usechat.runs.redis.store import RedisRuns
    from usechat.runs.redis.turns import FORWARDED_HEADERS, RedisTurns

    if not isinstance(common.runs, RedisRuns):
        raise CannotServe("agent processes need --redis URL, the same for them and the web processes")
    headers = (*FORWARDED_HEADERS, *plan.forward_header)
    return RedisTurns(common.runs, plan.target, maximum_waiting=plan.max_waiting, forwarded_headers=headers)


def _open_target(plan: Plan, kind: str, common: CommonOptions) -> ServedAnswer | ServedApp:
    target = installed_targets()[kind]
    try:
        options = msgspec.convert(plan.options, target.options)
    except msgspec.ValidationError as error:
        raise CannotServe(f"the options of --as {kind} are wrong: {error}") from None
    return target.open(plan.target, options, common)


def _answer_of(found: Any, target: str) -> ServedAnswer:
    """Return a Python object as an answer; raise ``CannotLoad`` if it can answer no chat."""
    try:
        as_source(found)
    except CannotAnswer as error:
        raise CannotLoad(f"{target} cannot be served: {error}") from None
    if isinstance(found, HasPageFiles):
        return ServedAnswer(found, page_files=found.page_files, site=found.site)
    return ServedAnswer(found)


def _common_options(plan: Plan) -> CommonOptions:
    rules = token_rules(plan.auth)
    return CommonOptions(
        settings=_settings(plan),
        runs=_store(plan),
        token_rules=rules,
        authorize=bearer(*rules) if plan.auth else LocalPagesOnly(plan.cors),
        path=plan.path,
        idle_timeout=_limit(plan.idle_timeout),
        drain=plan.drain,
    )


def _serve_answer(plan: Plan, opened: ServedAnswer, common: CommonOptions) -> Served:
    stored = _chats(plan)
    if plan.share and stored is None:
        raise CannotServe("--share is for chats that are stored; give --chats DATABASE")
    chats = ChatApp(
        opened.answer,
        also=opened.also,
        runs=common.runs or MemoryRuns(),
        chats=stored,
        share=plan.share,
        authorize=common.authorize,
        settings=common.settings,
        path=common.path,
        drain=common.drain,
    )
    served = Served(
        chats, [chats], built_here=True, path=common.path, requires_auth=bool(plan.auth), routes=chats.routes
    )
    return _with_page(plan, served, common.authorize, opened)


def _serve_app(plan: Plan, opened: ServedApp) -> Served:
    chats = [opened.app] if isinstance(opened.app, EndpointsApp) else []
    served = Served(
        opened.app,
        chats,
        built_here=True,
        path=opened.path,
        requires_auth=opened.requires_auth,
        unsupported_options=(*opened.unsupported_options, "chats", "keep", "share"),
        disabled_by=opened.disabled_by,
        routes=chats[0].routes if chats else opened.routes,
    )
    return _with_page(plan, served, opened.authorize)


def _with_page(plan: Plan, served: Served, authorize: Authorize, opened: ServedAnswer | None = None) -> Served:
    """Add the page, if it is wanted and built, and allow the origins of ``--cors``."""
    app = served.app
    if plan.page:
        settings = PageSettings(
            title=plan.title or ("" if plan.further else plan.target),
            name=" ".join((plan.target, *plan.further)),
            description=plan.description,
            api=served.path,
            auth=served.requires_auth,
            suggestions=plan.suggestions,
            chats=any(getattr(route, "path", "") == f"{served.path}s" for route in served.routes),
            share=plan.share,
        )
        with contextlib.suppress(PageMissing):
            texts, site = (opened.page_files, opened.site) if opened else (None, None)
            app = WithPage(app, settings=settings, authorize=authorize, texts=texts, site=site)
    shows_page = app is not served.app
    try:
        app = with_cors(app, plan.cors)
    except InvalidSetting as error:
        raise CannotServe(f"--cors: {error}") from None
    return served._replace(app=app, shows_page=shows_page)


def _settings(plan: Plan) -> Settings:
    limit = _limit(plan.idle_timeout)
    return Settings(
        sdk=releases_for(plan.sdk).name,
        disconnect=_disconnect(plan),
        conflict=plan.conflict,
        timeouts=Timeouts(first_event=limit, idle=limit),
        coalesce_ms=plan.coalesce_ms,
        on_error=_full_text if plan.debug else None,
        approval_secret=plan.approval_secret,
        websocket_origins=plan.cors,
        plain_asgi=plan.plain_asgi,
        quotas=Quotas(requests_per_minute=plan.rate),
        # What is kept in memory is forgotten at a restart, but not by the pages.
        import_history=plan.chats is None,
        keep_chats=plan.keep,
    )


def _store(plan: Plan) -> RunStore | None:
    if plan.redis is None:
        return None
    from usechat.runs.redis.store import RedisRuns

    try:
        return RedisRuns(plan.redis)
    except InvalidAddress as error:
        raise CannotServe(f"--redis takes a URL such as redis://localhost:6379. {error}") from None


def _chats(plan: Plan) -> ChatStore | None:
    if plan.chats is not None:
        from usechat.chats.sql import SqlChats

        return SqlChats(plan.chats)
    return MemoryChats() if plan.remembers and plan.agents == "here" else None


def _disconnect(plan: Plan) -> Disconnect:
    return plan.disconnect if isinstance(plan.disconnect, str) else cancel_after(plan.disconnect)


def _limit(seconds: Seconds) -> float | None:
    return None if seconds == "never" else seconds


def _full_text(error: Exception) -> str:
    """Return the whole text of an error, for ``--debug``."""
    return f"{type(error).__name__}: {error}"


def _chats_in(app: Any) -> Iterator[EndpointsApp]:
    """Yield the chat apps behind middleware and mounts; Starlette and FastAPI name what they hold alike."""
    if isinstance(app, EndpointsApp):
        yield app
        return
    for inner in (app, *getattr(app, "routes", ())):
        held = getattr(inner, "app", None)
        if held is not None and held is not app:
            yield from _chats_in(held)
