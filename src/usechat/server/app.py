"""All routes of a chat as one ASGI app, mounted anywhere or served alone."""

import logging
import os
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import unquote_to_bytes

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute

from usechat.chats.history import HistoryFunction
from usechat.chats.memory import MemoryChats
from usechat.chats.store import ChatStore
from usechat.errors import InvalidSetting, MissingDependency, RequestError, UnusableChats, UsechatError
from usechat.runs.chats import runs_of
from usechat.runs.settings import Settings
from usechat.runs.store import RunStore
from usechat.runs.turns import TurnQueue
from usechat.server.chat_routes import ChatRoutes
from usechat.server.endpoints import Endpoints, ServedChats
from usechat.server.hooks import FeedbackFunction, FinishFunction, Hooks, LoadFunction, title_function
from usechat.server.observers.logs import LoggingObserver
from usechat.server.observers.observer import Observer, Observers
from usechat.server.requests import (
    CHAT_ID,
    AccessPolicy,
    Authenticator,
    AuthorizedChats,
    AuthorizeFunction,
    ChatRoute,
    OneLength,
    allow_all,
)
from usechat.server.response import collect_streams
from usechat.server.websocket import ChatSockets
from usechat.sources import OpenSession, Servable

__all__ = ["ChatApp", "EndpointsApp", "PolicyApp", "observing"]

_logger: Final = logging.getLogger("usechat.server")
_PACKAGE: Final = f"{Path(__file__).parent.parent}{os.sep}"

MetricsPage: TypeAlias = Callable[[Request], Awaitable[Response]]


class EndpointsApp:
    """The ASGI app around endpoints: their routes, health and metrics, and an orderly end.

    ``authorize`` says who may read the metrics, if it can tell that without a chat.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        routes: Sequence[BaseRoute],
        *,
        drain: float,
        metrics: MetricsPage | None,
        authorize: AuthorizeFunction,
    ) -> None:
        self._endpoints = endpoints
        self._metrics = metrics
        self._authorize: Any = authorize
        self._startup_error: Exception | None = None
        endpoints.drain = drain
        self._app = Starlette(
            routes=[
                *routes,
                Route("/healthz", self._health, methods=["GET"]),
                Route("/readyz", self._readiness, methods=["GET"]),
                *([Route("/metrics", self._guarded_metrics, methods=["GET"])] if metrics else []),
            ],
            lifespan=self._lifespan,
        )
        self._one_length = OneLength(self._app)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one ASGI connection."""
        scope = _as_requested(scope)
        send = self._with_reason(send) if scope["type"] == "lifespan" else send
        streams = collect_streams(scope)
        await self._one_length(scope, receive, send)
        while streams:
            await streams.pop().stream(scope, receive, send)

    @property
    def runs(self) -> RunStore:
        """The store of its runs."""
        return self._endpoints.store

    @property
    def stored_chats(self) -> ChatStore | None:
        """The store of its chats; ``None`` if the page's messages are the history."""
        return None if self._endpoints.stored is None else self._endpoints.stored.store

    @property
    def settings(self) -> Settings:
        """How runs are made and served."""
        return self._endpoints.settings

    @property
    def is_resumable(self) -> bool:
        """Whether readers may come back to its runs."""
        return self._endpoints.keep_log

    @property
    def routes(self) -> list[BaseRoute]:
        """The routes that it answers."""
        return self._app.routes

    def disconnect_readers(self) -> None:
        """Disconnect all readers, so that their pages resume at another worker; runs continue.

        Call it in the event loop before a server exits that waits for open connections. With uvicorn this is automatic.
        """
        self._endpoints.manager.disconnect_readers()

    async def shut_down(self) -> None:
        """Disconnect readers and let runs finish for ``drain`` seconds.

        A server calls it through the lifespan. Frameworks do not tell mounted apps: call it in their lifespan. Under
        uvicorn a mounted app that was asked something notices the shutdown itself.
        """
        await self._endpoints.shut_down(self._endpoints.drain)

    async def check(self) -> None:
        """Raise if it cannot answer at the moment; ``/readyz`` reports that."""
        await self._endpoints.store.check()
        if self.stored_chats is not None:
            await self.stored_chats.check()

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        self._endpoints.has_lifespan = True
        try:
            await self._endpoints.start()
        except Exception as error:
            self._startup_error = error
            raise
        yield
        await self.shut_down()

    def _with_reason(self, send: Any) -> Any:
        """Return a ``send`` that tells why the start failed without our own part of the traceback."""

        async def send_with_reason(message: Any) -> None:
            if message["type"] == "lifespan.startup.failed" and self._startup_error is not None:
                message = {**message, "message": _reason_of(self._startup_error)}
            await send(message)

        return send_with_reason

    async def metrics(self, request: Request) -> Response:
        """Return the page with the metrics to anyone; the route ``/metrics`` asks the ``authorize`` rule first."""
        return PlainTextResponse("Not Found", 404) if self._metrics is None else await self._metrics(request)

    async def _guarded_metrics(self, request: Request) -> Response:
        return await self._endpoints.answer(self._metrics_of_known, request)

    async def _metrics_of_known(self, request: Request) -> Response:
        if isinstance(self._authorize, Authenticator):
            await self._authorize.authenticate(request)
        return await self.metrics(request)

    async def _health(self, _request: Request) -> Response:
        return PlainTextResponse("ok")

    async def _readiness(self, _request: Request) -> Response:
        try:
            await self.check()
        except RequestError as error:
            return PlainTextResponse(str(error), 503)
        except UnusableChats as error:
            _logger.error("%s", error)
            return PlainTextResponse("The chat database cannot be used; the log says why.", 503)
        except Exception as error:  # each store raises its own errors
            return PlainTextResponse(f"The run store cannot be reached: {type(error).__name__}", 503)
        return PlainTextResponse("ok")


def _reason_of(error: Exception) -> str:
    """Return why the start failed: the sentence of an error of ours, or the traceback below our own code."""
    if isinstance(error, UsechatError):
        return str(error)
    report = traceback.TracebackException.from_exception(error)
    last_own = max(index for index, frame in enumerate(report.stack) if frame.filename.startswith(_PACKAGE))
    report.stack = traceback.StackSummary.from_list(report.stack[last_own + 1 :] or report.stack)
    return "".join(report.format()).rstrip()


def _as_requested(scope: Any) -> Any:
    """Undo what frameworks do to paths of mounted apps: Litestar appends a slash, and removes the first one at "/"."""
    path = scope.get("path", "/")
    requested = path if path.startswith("/") else f"/{path}"
    # A slash that is part of a chat's id was sent as %2F.
    if len(requested) > 1 and not unquote_to_bytes(scope.get("raw_path") or b"/").endswith(b"/"):
        requested = requested.removesuffix("/")
    return scope if requested == path else {**scope, "path": requested}


class ChatApp(EndpointsApp):
    """An ASGI app that answers a chat page: send, resume, stop, state, over HTTP and WebSocket; health and metrics.

    Args:
        agent: what answers the chat: an async generator function, a generator function, a function, a
            ``ChatTransport``, or an object of a framework whose adapter is installed. Or a factory: a function without
            arguments, async or not, that returns one of these, or an async context manager around one. It is called
            once, when the server starts, and the context manager is left when it shuts down. Or a
            :class:`~usechat.server.RedisTurns`: then agent processes answer (`usechat worker`). Or several agents by
            name, such as ``{"writer": writer, "coder": coder}``: the field ``agent`` of a request body chooses one, the
            first is the default, and a stored chat keeps its agent.
        runs: the run store. By default runs are known to this process alone (:class:`~usechat.server.MemoryRuns`);
            with ``chats`` in a PostgreSQL, also to the others that use it. Otherwise several processes need
            :class:`~usechat.server.RedisRuns`.
        authorize: returns who sent a request; see ``docs/auth.md``. By default everyone is allowed.
        settings: see :class:`~usechat.server.Settings`.
        chats: where chats are stored (:class:`~usechat.chats.SqlChats`); the server owns the history then, and
            ``turn.messages`` is the stored branch. By default the page's messages are the history.
        titles: makes the title of a new chat: a function of its messages, async or not, or an agent that answers with
            the title. Until then, and without it, the title is the first words. Not with a ``RedisTurns``.
        history: returns what the agent gets of a long history, such as :func:`~usechat.chats.last_messages`.
        on_finish: is given each finished message, its turn and its outcome, before the page sees the end. With a
            ``RedisTurns`` the ``on_finish`` of each ``AgentWorker`` is called instead; this one is called only for what
            the web process ends: turns that were stopped while they waited, and answers that it finds lost.
        on_feedback: is given each :class:`~usechat.server.Feedback` on a message, once it is stored; needs ``chats``.
        load: returns the messages of a chat that the application has stored; not together with ``chats``.
        share: let owners share a stored chat by a link that anyone can read, until they revoke it.
        mcp_servers: the MCP servers that the apps of tools may ask, by name: functions of the identity that return an
            async context manager around a session or a client of ``mcp``. Those of Pydantic AI and OpenAI agents are
            known without it; see ``docs/tools.md``. Needs ``chats``.
        path: where ``DefaultChatTransport`` posts to; it may have parameters, such as ``/projects/{project}/chat``.
        also: further paths that answer in the same way over HTTP: send, resume, stop, state.
        drain: how many seconds runs get to finish when the server shuts down. Their readers are disconnected at once,
            and resume elsewhere.
        observer: receives what happens, such as an :class:`~usechat.server.OpenTelemetryObserver`.
        metrics: count for Prometheus, and serve the counts at ``/metrics``.

    Raises:
        CannotAnswer: ``agent`` cannot answer a chat.
        InvalidSetting: arguments that contradict each other.

    One app belongs to one event loop.

    >>> async def agent(turn):
    ...     yield f"You said: {turn.text}"
    >>> app = ChatApp(agent, settings=Settings(sdk="7"))  # uvicorn my_app:app
    """

    def __init__(
        self,
        agent: Servable | TurnQueue | Mapping[str, Servable],
        *,
        runs: RunStore | None = None,
        authorize: AuthorizeFunction = allow_all,
        settings: Settings | None = None,
        chats: ChatStore | None = None,
        titles: Any = None,
        history: HistoryFunction | None = None,
        on_finish: FinishFunction | None = None,
        on_feedback: FeedbackFunction | None = None,
        load: LoadFunction | None = None,
        share: bool = False,
        mcp_servers: Mapping[str, OpenSession] = {},
        path: str = "/api/chat",
        also: Sequence[str] = (),
        drain: float = 10,
        observer: Observer | None = None,
        metrics: bool = True,
    ) -> None:
        _check_chats(chats, path, load, titles or history or on_feedback or share or mcp_servers)
        queue = agent if isinstance(agent, TurnQueue) else None
        if queue is not None:
            _check_agents_elsewhere(chats, titles)
        observers, page = observing(observer, metrics=metrics, queue=queue)
        endpoints = Endpoints(
            agent,
            store=runs or runs_of(chats),
            settings=settings or Settings(),
            policy=AuthorizedChats(authorize),
            observer=observers,
            hooks=Hooks(
                on_finish=on_finish,
                load=load,
                titles=title_function(titles),
                history=history,
                on_feedback=on_feedback,
            ),
            chats=None if chats is None else ServedChats(chats, path),
        )
        sockets = ChatSockets(endpoints)
        beside = path.rpartition("/")[0]
        stored = None
        if chats is not None:
            stored = ChatRoutes(
                endpoints, chats, path, lists=authorize is not allow_all, shares=share, mcp_servers=mcp_servers
            )
        routes = [
            *(
                route
                for place in (path, *also)
                for route in (
                    *(Route(each, endpoints.send, methods=["POST"]) for each in _with_slash(place)),
                    *_run_routes(place, endpoints, stored if place == path else None),
                )
            ),
            *(WebSocketRoute(each, sockets.serve) for each in _with_slash(f"{path}/ws")),
            Route(f"{beside}/agents", endpoints.agents, methods=["GET"]),
            Route(f"{beside}/limits", endpoints.limits, methods=["GET"]),
        ]
        super().__init__(endpoints, routes, drain=drain, metrics=page, authorize=authorize)


def _check_chats(chats: ChatStore | None, path: str, load: object, needs_chats: object) -> None:
    if chats is None and needs_chats:
        raise InvalidSetting(
            "titles, history, on_feedback, share and mcp_servers are for chats that are stored; give chats, too"
        )
    if chats is not None and load is not None:
        raise InvalidSetting("chats and load both provide the history; give only one of them")
    if chats is not None and "{" in path:
        raise InvalidSetting(f"chats are stored by their id alone, so the path cannot have parameters: {path}")


def _check_agents_elsewhere(chats: ChatStore | None, titles: object) -> None:
    if isinstance(chats, MemoryChats):
        raise InvalidSetting("agent processes need a chat store that is shared, such as SqlChats")
    if titles is not None:
        raise InvalidSetting("agent processes make the titles; give titles to AgentWorker")


class PolicyApp(EndpointsApp):
    """An ASGI app whose chats a policy guards: for a package whose rules need more than ``authorize``.

    Args:
        agent: what answers, as in a :class:`~usechat.server.ChatApp`.
        policy: decides who may do what with which chat; see :class:`~usechat.server.AccessPolicy`.
        authorize: says who may read the metrics, if it can tell that without a chat.
        paths: where pages post to. They may have parameters, which the policy finds in ``request.path_params``.
        runs: the run store.
        resumable: serve resume, stop and state. Without it a run ends with its connection, and a page that resumes
            gets 204, because a 404 would put it into the error state.
        settings: see :class:`~usechat.server.Settings`.
        drain: how many seconds runs get to finish when the server shuts down.
        observer: receives what happens.
        metrics: count for Prometheus, and serve the counts at ``/metrics``.

    One app belongs to one event loop.

    >>> from usechat.server import AuthorizedChats, MemoryRuns, allow_all
    >>> class Rooms(AuthorizedChats):
    ...     async def identify(self, request, chat_id, action):
    ...         return await super().identify(request, request.path_params["room"], action)
    >>> app = PolicyApp(
    ...     lambda turn: "Hello!",
    ...     policy=Rooms(allow_all),
    ...     authorize=allow_all,
    ...     paths=["/api/rooms/{room}/chat"],
    ...     runs=MemoryRuns(),
    ... )
    """

    def __init__(
        self,
        agent: Servable,
        *,
        policy: AccessPolicy,
        authorize: AuthorizeFunction,
        paths: Sequence[str],
        runs: RunStore,
        resumable: bool = True,
        settings: Settings | None = None,
        drain: float = 10,
        observer: Observer | None = None,
        metrics: bool = True,
    ) -> None:
        observers, page = observing(observer, metrics=metrics)
        endpoints = Endpoints(
            agent,
            policy=policy,
            store=runs,
            settings=settings or Settings(),
            observer=observers,
            keep_log=resumable,
        )
        routes: list[BaseRoute] = []
        for path in paths:
            resume, *others = _run_routes(path, endpoints)
            routes += [Route(path, endpoints.send, methods=["POST"]), resume, *(others if resumable else [])]
        super().__init__(endpoints, routes, drain=drain, metrics=page, authorize=authorize)


def _run_routes(path: str, endpoints: Endpoints, stored: ChatRoutes | None = None) -> list[BaseRoute]:
    """Return the routes of a run that has begun: resume, stop, state; those of a stored chat stand around them."""
    state = Route(f"{path}/{CHAT_ID}", endpoints.state, methods=["GET"])  # the id of a chat may end with a slash
    return [
        *([] if stored is None else stored.beside_chat()),
        *(ChatRoute(each, endpoints.resume, methods=["GET"]) for each in _with_slash(f"{path}/{CHAT_ID}/stream")),
        *(ChatRoute(each, endpoints.stop, methods=["POST"]) for each in _with_slash(f"{path}/{CHAT_ID}/stop")),
        *([state] if stored is None else stored.of_chat()),
    ]


def _with_slash(path: str) -> tuple[str, str]:
    """Return a path, and the same with a slash at its end: some clients and frameworks append one."""
    return path, f"{path}/"


def observing(
    observer: Observer | None, *, metrics: bool, queue: TurnQueue | None = None
) -> tuple[Observer, MetricsPage | None]:
    """Return the observers of an app, and the page with the metrics, also those of a queue, if there is to be one."""
    counting, page = _metrics(queue) if metrics else (Observer(), None)
    return Observers(LoggingObserver(), counting, observer or Observer()), page


def _metrics(queue: TurnQueue | None) -> tuple[Observer, MetricsPage]:
    """Return the observer that counts, and the page with the counts; without prometheus-client, how to install it."""
    try:
        from usechat.server.observers.prometheus import process_metrics
    except MissingDependency as missing:
        remedy = str(missing)

        async def say_how(_request: Request) -> Response:
            return PlainTextResponse(remedy, 501)

        return Observer(), say_how
    counting = process_metrics()
    return counting, counting.page if queue is None else partial(counting.page_with, queue)
