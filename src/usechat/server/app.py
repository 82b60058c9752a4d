"""The whole set of routes as one ASGI app, mounted anywhere or served alone."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute

from usechat.errors import MissingDependency, RequestError
from usechat.runs.memory import MemoryRuns
from usechat.runs.store import RunStore
from usechat.server.endpoints import Endpoints
from usechat.server.observers.logs import LoggingObserver
from usechat.server.observers.observer import Observer, Observers, Unobserved
from usechat.server.requests import CHAT_ID, AuthorizeFunction, allow
from usechat.server.response import collect_streams
from usechat.server.settings import Settings
from usechat.server.uvicorn import rare_collections
from usechat.server.websocket import ChatSockets

__all__ = ["ChatApp", "EndpointsApp", "run_routes", "watching"]

MetricsPage: TypeAlias = Callable[[Request], Awaitable[Response]]


class EndpointsApp:
    """The ASGI app around endpoints: their routes, health and metrics, and an orderly end."""

    def __init__(
        self, endpoints: Endpoints, routes: Sequence[BaseRoute], *, drain: float, metrics: MetricsPage | None
    ) -> None:
        self._drain = drain
        self._endpoints = endpoints
        self._app = Starlette(
            routes=[
                *routes,
                Route("/healthz", self._health, methods=["GET"]),
                Route("/readyz", self._readiness, methods=["GET"]),
                *([Route("/metrics", metrics, methods=["GET"])] if metrics else []),
            ],
            lifespan=self._lifespan,
        )

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one ASGI connection."""
        streams = collect_streams(scope)
        await self._app(scope, receive, send)
        while streams:
            await streams.pop().stream(scope, receive, send)

    @property
    def runs(self) -> RunStore:
        """Where its runs are known."""
        return self._endpoints.store

    @property
    def is_resumable(self) -> bool:
        """Whether readers may come back to its runs."""
        return self._endpoints.keep_log

    @property
    def routes(self) -> list[BaseRoute]:
        """What it answers."""
        return self._app.routes

    def break_off(self) -> None:
        """Cut all readers off, because the server goes; a server that waits for open connections calls it first."""
        self._endpoints.manager.disconnect_readers()

    async def shut_down(self) -> None:
        """Break readers off, let runs come to an end; an app that is mounted elsewhere calls it by itself."""
        await self._endpoints.manager.shut_down(drain=self._drain)

    async def check(self) -> None:
        """Raise if it cannot answer at the moment."""
        await self._endpoints.store.check()

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        with rare_collections():
            yield
            await self.shut_down()

    async def _health(self, _request: Request) -> Response:
        return PlainTextResponse("ok")

    async def _readiness(self, _request: Request) -> Response:
        try:
            await self.check()
        except RequestError as error:
            return PlainTextResponse(str(error), 503)
        except Exception as error:  # whatever keeps the store away
            return PlainTextResponse(f"The store of runs cannot be reached: {type(error).__name__}", 503)
        return PlainTextResponse("ok")


class ChatApp(EndpointsApp):
    """Answers a chat page: send, resume, stop, state; and tells whether it is well.

    ``path`` is where ``DefaultChatTransport`` posts to; ``also`` are further paths that answer a POST alike.
    ``drain`` is how many seconds runs get when the server shuts down; their readers are broken off at once and resume
    elsewhere. ``metrics`` counts for Prometheus and tells it at ``/metrics``; ``observer`` is told as well.
    """

    def __init__(
        self,
        answer: Any,
        *,
        runs: RunStore | None = None,
        authorize: AuthorizeFunction = allow,
        settings: Settings | None = None,
        path: str = "/api/chat",
        also: Sequence[str] = (),
        drain: float = 10,
        observer: Observer | None = None,
        metrics: bool = True,
    ) -> None:
        counting, page = watching(observer, metrics=metrics)
        endpoints = Endpoints(
            answer,
            store=runs or MemoryRuns(),
            settings=settings or Settings(),
            authorize=authorize,
            observer=counting,
        )
        routes = [
            Route(path, endpoints.send, methods=["POST"]),
            *(Route(another, endpoints.send, methods=["POST"]) for another in also),
            *run_routes(path, endpoints),
            WebSocketRoute(f"{path}/ws", ChatSockets(endpoints).serve),
        ]
        super().__init__(endpoints, routes, drain=drain, metrics=page)


def run_routes(path: str, endpoints: Endpoints) -> list[BaseRoute]:
    """Return the routes for what becomes of a run once it has begun: resume, stop, state."""
    return [
        Route(f"{path}/{CHAT_ID}/stream", endpoints.resume, methods=["GET"]),
        Route(f"{path}/{CHAT_ID}/stop", endpoints.stop, methods=["POST"]),
        Route(f"{path}/{CHAT_ID}", endpoints.state, methods=["GET"]),
    ]


def watching(observer: Observer | None, *, metrics: bool) -> tuple[Observer, MetricsPage | None]:
    """Return who is told what happens, and the page with the counts, if there is to be one."""
    counting, page = _metrics() if metrics else (Unobserved(), None)
    return Observers(LoggingObserver(), counting, observer or Unobserved()), page


def _metrics() -> tuple[Observer, MetricsPage]:
    """Return who counts, and the page with the counts; without prometheus-client, a page that says how to get it."""
    try:
        from usechat.server.observers.prometheus import process_metrics
    except MissingDependency as missing:
        remedy = str(missing)

        async def say_how(_request: Request) -> Response:
            return PlainTextResponse(remedy, 501)

        return Unobserved(), say_how
    return process_metrics(), process_metrics().page
