"""The plan of `usechat serve`: what is served and how, and the app that a worker makes of it.

The command line is read in one process, and the app may be made in others: uvicorn starts workers anew, and starts them
again when they die or a file changes. They inherit an environment, not objects. So the options become a :class:`Plan`,
a value that is text and numbers alone. :func:`hand_to_workers` puts it into the environment, and :func:`create_app`
takes it out there, because it holds secrets that the agent's own child processes must not inherit. The command makes
the app first, to refuse what cannot be served before anything listens. If its process is the only one, it serves that
app; otherwise each worker makes its own.

:func:`make_app` has four cases, in this order:

1. ``--agents external``: the agent is not loaded. A queue answers in its place (:func:`make_worker` is its other end).
2. Several targets: agents by name, of which the page offers a choice.
3. A kind (``--as``, or a file that a kind recognises): its :class:`~usechat.targets.Target` opens the target, and
   returns an agent, or a whole app with routes of its own.
4. An object: an ASGI app is served as it is; everything else is an agent (:func:`~usechat.sources.as_source`).

An agent gets a :class:`~usechat.server.ChatApp` around it; around both comes the page, unless ``--no-page`` is given.
The result is a :class:`Served`: the app, the chat apps in it, and which options of the command it cannot follow, so
that the command can refuse them instead of ignoring them. Everything that can fail, fails here: before the address is
announced, and with a sentence.
"""

import asyncio
import gc
import hashlib
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec
from starlette.routing import BaseRoute

from usechat.chats.memory import MemoryChats
from usechat.chats.store import ChatStore
from usechat.cli.announcement import Announcement, announced
from usechat.cli.auth import token_rules
from usechat.cli.targets import HasPageFiles, is_asgi_app, kind_of
from usechat.errors import (
    CannotAnswer,
    CannotLoad,
    CannotServe,
    InvalidAddress,
    InvalidSetting,
    PageMissing,
    UsechatError,
)
from usechat.runs.containment import contain_exits
from usechat.runs.open_calls import share_secret
from usechat.runs.settings import Settings
from usechat.runs.store import RunStore
from usechat.server.app import ChatApp, EndpointsApp, observing
from usechat.server.auth.bearer import bearer
from usechat.server.auth.origin import LocalPagesOnly
from usechat.server.cors import with_cors
from usechat.server.metrics_port import MetricsPort
from usechat.server.page import PageSettings, WithPage
from usechat.server.requests import Authorize, OneLength
from usechat.server.uvicorn import STARTUP_FAILURE
from usechat.sources import as_source, is_restartable, object_source, restartable
from usechat.targets import CommonOptions, ServedApp, TargetAgent, directory_of, installed_targets, load_object

if TYPE_CHECKING:
    from usechat.runs.redis.turns import RedisTurns
    from usechat.server.worker import AgentWorker

__all__ = [
    "FACTORY",
    "Plan",
    "Served",
    "code_version",
    "collect_rarely",
    "create_app",
    "hand_to_workers",
    "make_app",
    "make_worker",
]

FACTORY: Final = "usechat.cli.plan:create_app"
_VARIABLE: Final = "USECHAT_SERVE"
_THRESHOLDS: Final = (20_000, 10, 10)
"""An open stream has about a hundred objects, which live as long as it does. With the default of 700 the streams that
are opened, and the deltas of a busy moment, lead to full collections, which stop the process for 100 ms with 1,500
streams (CPython 3.11). A stream that has ended is freed by its reference count; cycles of other code wait a little
longer.
"""

_logger: Final = logging.getLogger("usechat.server")


class Plan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is served and how: all that a worker must know. ``options`` are those of the kind, by name.

    ``settings`` are those of the options alone. What follows from the rest of the plan is added when the app is made.
    """

    target: str
    settings: Settings = Settings()
    announcement: Announcement | None = None
    """What the first worker announces."""
    further: tuple[str, ...] = ()
    """More agents, which a page can choose instead of the first one."""
    kind: str | None = None
    context: str | None = None
    """Where the object is that an agent of a framework needs per request, see :func:`~usechat.sources.as_source`."""
    options: dict[str, Any] = {}
    path: str = "/api/chat"
    redis: str | None = None
    drain: float = 10.0
    auth: tuple[str, ...] = ()
    login_url: str = ""
    embed: tuple[str, ...] = ()
    apps_origin: str = ""
    cors: tuple[str, ...] = ()
    debug: bool = False
    page: bool = True
    title: str = ""
    description: str = ""
    logo: str | None = None
    accent: str | None = None
    suggestions: tuple[str, ...] = ()
    inspector: bool = False
    metrics_port: int | None = None
    """The port that serves the metrics, without a token; ``None`` if they are beside the chat."""
    chats: str | None = None
    share: bool = False
    remembers: bool = True
    """Whether chats are kept in memory without ``chats``: not where other processes answer the same chats."""
    agents: Literal["here", "external"] = "here"
    max_waiting: int = 1000
    forward_header: tuple[str, ...] = ()
    concurrency: int = 50
    code_version: str = ""


_STORED_CHAT_OPTIONS: Final = ("chats", "keep", "after_crash", "recover", "share")
_CHAT_OPTIONS: Final = (
    "context",
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
    "metrics_listen",
    "rate",
    "keep_alive",
    *_STORED_CHAT_OPTIONS,
)
"""Options that have no effect on an ASGI app which is served as it is."""


class Served(NamedTuple):
    """An ASGI app, and the chat apps in it as far as they can be found.

    ``built_here`` says whether the app was made for the plan, or is the user's own. If it was made here: ``path`` is
    where a page posts to, ``requires_auth`` says whether a token is needed, ``shows_page`` whether there is a page
    at ``/``, ``shows_apps`` whether that page can show the apps of MCP servers, ``disabled_by`` names the environment
    variable that keeps its route from answering, and ``routes`` are those that it answers.
    """

    app: Any
    chats: list[EndpointsApp]
    built_here: bool
    path: str = ""
    requires_auth: bool = True
    unsupported_options: tuple[str, ...] = ()
    disabled_by: str = ""
    shows_page: bool = False
    shows_apps: bool = False
    routes: Sequence[BaseRoute] = ()


_made: Final[list[Served]] = []
"""The app that the command has made: this process serves it, unless others do."""


def hand_to_workers(plan: Plan, served: Served | None = None) -> None:
    """Put the plan into the environment, where :func:`create_app` finds it in each worker.

    A worker makes the app. If the process of the command is the worker, it has ``served`` already.
    """
    os.environ[_VARIABLE] = msgspec.json.encode(plan).decode()
    _made[:] = [] if served is None else [served]


def create_app() -> Any:
    """Return the app of the plan in the environment; uvicorn calls it once in each worker.

    It is made here only in a process that uvicorn has started: otherwise the command has made it already.
    """
    # Removed, because it holds secrets, and processes that the agent starts inherit the environment. The process that
    # restarts workers has its own environment.
    plan = msgspec.json.decode(os.environ.pop(_VARIABLE), type=Plan)
    try:
        app = (_made.pop() if _made else make_app(plan)).app
    except UsechatError as error:  # the code has changed since the command began, such as under --reload
        _logger.error("%s", error, exc_info=error.__cause__ if plan.debug else None)
        sys.exit(STARTUP_FAILURE)
    contain_exits(asyncio.get_running_loop())
    collect_rarely()
    return app if plan.announcement is None else announced(app, plan.announcement)


def collect_rarely() -> None:
    """Exclude what exists now from garbage collection, and make collections rare: this process serves nothing else."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


def make_app(plan: Plan) -> Served:
    """Return the app that serves the plan's target: itself if it is an ASGI app, a chat app around it otherwise."""
    if plan.settings.approval_secret is not None:
        share_secret(plan.settings.approval_secret)  # for an app that is served as it is, whose settings may name none
    if plan.agents == "external":
        common = _common_options(plan)
        return _serve_agent(plan, TargetAgent(_queue(plan, common)), common)
    if plan.further:
        return _serve_several(plan)
    kind = plan.kind or kind_of(plan.target)
    if kind is None:
        instance = load_object(plan.target)
        if _is_app(instance):
            return Served(instance, list(_chats_in(instance)), built_here=False, unsupported_options=_CHAT_OPTIONS)
        return _serve_agent(plan, _answer_of(instance, plan.target, plan.context), _common_options(plan))
    common = _common_options(plan)
    opened = _open_target(plan, kind, common)
    return _serve_app(plan, opened) if isinstance(opened, ServedApp) else _serve_agent(plan, opened, common)


def _is_app(instance: Any) -> bool:
    """Tell whether an object is an ASGI app; an agent of a framework may be called with three arguments, too."""
    return is_asgi_app(instance) and object_source(instance) is None


def _serve_several(plan: Plan) -> Served:
    """Return the app of several agents, by name."""
    targets = (plan.target, *plan.further)
    agents = {}
    for name, target in zip(_names_of(targets), targets, strict=True):
        agent = load_object(target) if kind_of(target) is None else None
        if agent is None or _is_app(agent):
            raise CannotServe(f"{target} is served alone; several OBJECTs are agents in Python, each MODULE:NAME")
        agents[name] = _answer_of(agent, target, plan.context).agent
    return _serve_agent(plan, TargetAgent(agents), _common_options(plan))


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
    agent = load_object(plan.target) if kind is None else None
    if agent is not None and _is_app(agent):
        raise CannotServe(f"{plan.target} is an ASGI app, not an agent; give the agent inside of it")
    opened = _answer_of(agent, plan.target, plan.context) if kind is None else _open_target(plan, kind, common)
    if isinstance(opened, ServedApp):
        raise CannotServe(f"{plan.target} as {kind} has its own routes; serve it with usechat serve")
    return AgentWorker(
        opened.agent,
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


def _open_target(plan: Plan, kind: str, common: CommonOptions) -> TargetAgent | ServedApp:
    target = installed_targets()[kind]
    if plan.context is not None:
        raise CannotServe(f"--context is for an agent in Python, but {plan.target} is served as {kind}")
    try:
        options = msgspec.convert(plan.options, target.options)
    except msgspec.ValidationError as error:
        raise CannotServe(f"the options of --as {kind} are wrong: {error}") from None
    return target.open(plan.target, options, common)


def _answer_of(agent: Any, target: str, context_target: str | None) -> TargetAgent:
    """Return a Python object as an answer; raise ``CannotLoad`` if it can answer no chat."""
    context = None if context_target is None else load_object(context_target)
    try:
        source = as_source(agent, context=context)
    except CannotAnswer as error:
        raise CannotLoad(f"{target} cannot be served: {error}") from None
    if context is not None:
        return TargetAgent(restartable(source) if is_restartable(agent) else source)
    if isinstance(agent, HasPageFiles):
        return TargetAgent(agent, page_files=agent.page_files)
    return TargetAgent(agent)


def _common_options(plan: Plan) -> CommonOptions:
    rules = token_rules(plan.auth)
    return CommonOptions(
        settings=_settings(plan),
        runs=_store(plan),
        token_rules=rules,
        authorize=bearer(*rules) if plan.auth else LocalPagesOnly(plan.cors),
        path=plan.path,
        idle_timeout=plan.settings.timeouts.idle,
        drain=plan.drain,
    )


def _serve_agent(plan: Plan, opened: TargetAgent, common: CommonOptions) -> Served:
    stored = _chats(plan)
    if plan.share and stored is None:
        raise CannotServe("--share is for chats that are stored; give --chats DATABASE")
    chats = ChatApp(
        opened.agent,
        also=opened.also,
        runs=common.runs,
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
        unsupported_options=(*opened.unsupported_options, *_STORED_CHAT_OPTIONS),
        disabled_by=opened.disabled_by,
        routes=chats[0].routes if chats else opened.routes,
    )
    return _with_page(plan, served, opened.authorize)


def _with_page(plan: Plan, served: Served, authorize: Authorize, opened: TargetAgent | None = None) -> Served:
    """Add the page, if it is wanted and built, and allow the origins of ``--cors``."""
    app = served.app
    if plan.login_url and not served.requires_auth:
        raise CannotServe("--login-url is for a page that begins with a sign-in; give --auth, too")
    shows_apps = plan.page and any(getattr(route, "path", "").endswith("/apps") for route in served.routes)
    if plan.page:
        settings = PageSettings(
            title=plan.title or ("" if plan.further else plan.target),
            name=" ".join((plan.target, *plan.further)),
            description=plan.description,
            logo=Path(plan.logo) if plan.logo else None,
            accent=plan.accent,
            api=served.path,
            auth=served.requires_auth,
            login_url=plan.login_url,
            embed=plan.embed,
            apps_origin=plan.apps_origin if shows_apps else "",
            suggestions=plan.suggestions,
            chats=any(getattr(route, "path", "") == f"{served.path}s" for route in served.routes),
            share=plan.share,
            inspector=plan.inspector,
        )
        texts = opened.page_files if opened else None
        try:
            app = WithPage(app, settings=settings, authorize=authorize, texts=texts)
        except PageMissing:
            pass
        except InvalidSetting as error:
            raise CannotServe(str(error)) from None
    shows_page = app is not served.app
    try:
        app = with_cors(app, plan.cors)
    except InvalidSetting as error:
        raise CannotServe(f"--cors: {error}") from None
    if plan.metrics_port is not None and served.chats:
        app = MetricsPort(app, served.chats[0], plan.metrics_port)
    return served._replace(app=OneLength(app), shows_page=shows_page, shows_apps=shows_page and shows_apps)


def _settings(plan: Plan) -> Settings:
    return msgspec.structs.replace(
        plan.settings,
        on_error=_full_text if plan.debug else None,
        websocket_origins=plan.cors,
        # What is kept in memory is forgotten at a restart, but not by the pages.
        import_history=plan.chats is None,
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


def _full_text(error: Exception) -> str:
    """Return the whole text of an error, for ``--debug``."""
    return f"{type(error).__name__}: {error}"


def _chats_in(app: Any) -> Iterator[EndpointsApp]:
    """Yield the chat apps behind middleware and mounts; Starlette and FastAPI name what they hold alike."""
    if isinstance(app, EndpointsApp):
        yield app
        return
    for inner in (app, *getattr(app, "routes", ())):
        child = getattr(inner, "app", None)
        if child is not None and child is not app:
            yield from _chats_in(child)
