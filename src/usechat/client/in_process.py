"""Send requests to an app in this process, without a socket: an ASGI app, a WSGI app or an agent.

``httpx2.ASGITransport`` waits for the end of a response before it returns the first byte. Here bytes arrive as the app
sends them, and a client that closes the response disconnects from the app, as it would over a socket.
"""

import asyncio
import contextlib
import inspect
import io
import sys
from collections.abc import AsyncIterator, Callable, Iterable, MutableMapping
from typing import Any, Final, TypeAlias

import httpx2

from usechat.errors import CannotAnswer, CannotStart
from usechat.runs.settings import Settings
from usechat.server.app import ChatApp
from usechat.sources import as_source

__all__ = ["InProcessTransport", "asgi_app_of"]

_Scope: TypeAlias = MutableMapping[str, Any]
_Event: TypeAlias = MutableMapping[str, Any]
_AHEAD: Final = 64
"""How many pieces an app may be ahead of its client."""
_END: Final = b""
_SETTINGS: Final = Settings(maximum_waiting_bytes=Settings().maximum_run_bytes)
"""No limit for the backlog: while an agent of the same event loop sends much at once, its client cannot read."""


def asgi_app_of(target: Any) -> Any:
    """Return an ASGI app for an ASGI app, a WSGI app, or anything that can answer a chat.

    Raises :class:`~usechat.errors.CannotAnswer` for everything else.
    """
    try:
        return ChatApp(as_source(target), settings=_SETTINGS, metrics=False, drain=0)  # nobody reads after the end
    except CannotAnswer:
        match _parameters(target):
            case 3:
                return target
            case 2:
                return _WSGIApp(target)
        raise


def _parameters(target: Any) -> int:
    """Return how many arguments a call takes: an ASGI app takes three, a WSGI app two."""
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return 0
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(one.kind in positional and one.default is inspect.Parameter.empty for one in parameters)


class InProcessTransport(httpx2.AsyncBaseTransport):
    """A transport of ``httpx2`` that calls an ASGI app, for all requests in one event loop.

    The app's lifespan begins with the first request and ends with :meth:`aclose`.
    """

    def __init__(self, app: Any) -> None:
        self._app = app
        self._lifespan: _Lifespan | None = None
        self.calls: set[asyncio.Task[None]] = set()
        """The calls of the app that have not returned."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Call the app, and return the response as soon as it begins."""
        if self._lifespan is None:
            self._lifespan = _Lifespan(self._app)
            await self._lifespan.start()
        call = _InProcessCall(await request.aread())
        task = asyncio.get_running_loop().create_task(
            call.run(self._app, _scope(request)), name="usechat in-process app"
        )
        self.calls.add(task)
        task.add_done_callback(self.calls.discard)
        call.task = task
        status, headers = await call.head
        return httpx2.Response(status, headers=headers, stream=call)

    async def aclose(self) -> None:
        """End the app's lifespan."""
        if self._lifespan is not None:
            await self._lifespan.stop()
            self._lifespan = None


def _scope(request: httpx2.Request) -> _Scope:
    url = request.url
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},  # as uvicorn: apps listen for a disconnect
        "http_version": "1.1",
        "method": request.method,
        "scheme": url.scheme,
        "path": url.path,
        "raw_path": url.raw_path.partition(b"?")[0],
        "query_string": url.query,
        "root_path": "",
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
        "client": ("127.0.0.1", 0),
        "server": (url.host, url.port or 80),
        "extensions": {},
    }


class _InProcessCall(httpx2.AsyncByteStream):
    """One call of the app: the request that it receives, and the body that it sends."""

    def __init__(self, body: bytes) -> None:
        loop = asyncio.get_running_loop()
        self._body: bytes | None = body
        self._pieces: asyncio.Queue[bytes | BaseException] = asyncio.Queue(_AHEAD)
        self._is_left = asyncio.Event()
        self.head: asyncio.Future[tuple[int, list[tuple[bytes, bytes]]]] = loop.create_future()
        self.task: asyncio.Task[None] | None = None
        self._start: _Event | None = None

    async def run(self, app: Any, scope: _Scope) -> None:
        try:
            await app(scope, self._receive, self._send)
            ending: bytes | BaseException = _END
            error = httpx2.RemoteProtocolError("the app returned without a response")
        except Exception as failure:  # an app that fails breaks its connection; a server would log it
            ending = error = httpx2.RemoteProtocolError(f"the app failed: {failure!r}")
            error.__cause__ = failure
        if not self.head.done():
            self.head.set_exception(error)
        elif not self._is_left.is_set():
            await self._put(ending)

    async def _receive(self) -> _Event:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._is_left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, event: _Event) -> None:
        if event["type"] == "http.response.start":
            self._start = event
        elif event["type"] == "http.response.body":
            if not self.head.done() and self._start is not None:
                self.head.set_result((self._start["status"], list(self._start.get("headers", []))))
            if event.get("body") and not self._is_left.is_set():
                await self._put(event["body"])

    async def _put(self, piece: bytes | BaseException) -> None:
        """Give a piece to the client, unless it leaves before it takes it."""
        putting = asyncio.ensure_future(self._pieces.put(piece))
        leaving = asyncio.ensure_future(self._is_left.wait())
        try:
            await asyncio.wait({putting, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            putting.cancel()
            leaving.cancel()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (piece := await self._pieces.get()) != _END:
            if isinstance(piece, BaseException):
                raise piece
            yield piece

    async def aclose(self) -> None:
        """Disconnect from the app."""
        self._is_left.set()


class _Lifespan:
    """The lifespan of an app, if it has one."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._events: asyncio.Queue[_Event] = asyncio.Queue()
        self._answers: asyncio.Queue[_Event | None] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the app up; raise :class:`~usechat.errors.CannotStart` if its startup fails."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="usechat in-process lifespan")
        self._events.put_nowait({"type": "lifespan.startup"})
        answer = await self._answers.get()
        if answer is not None and answer["type"] == "lifespan.startup.failed":
            raise CannotStart(f"the app cannot start: {answer.get('message', '')}")

    async def stop(self) -> None:
        """Shut the app down."""
        self._events.put_nowait({"type": "lifespan.shutdown"})
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": {}}
        with contextlib.suppress(Exception):  # an app without a lifespan raises (ASGI, lifespan protocol)
            await self._app(scope, self._events.get, self._answers.put)
        self._answers.put_nowait(None)


class _WSGIApp:
    """An ASGI app around a WSGI app, whose calls run in threads."""

    def __init__(self, app: Callable[..., Iterable[bytes]]) -> None:
        self._app = app

    async def __call__(self, scope: _Scope, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise CannotAnswer("a WSGI app takes HTTP requests only")
        body = (await receive())["body"]
        loop = asyncio.get_running_loop()

        def send_from_thread(event: _Event) -> None:
            asyncio.run_coroutine_threadsafe(send(event), loop).result()

        left = asyncio.ensure_future(receive())  # nothing but a disconnect can follow the body
        try:
            await asyncio.to_thread(self._answer, _environ(scope, body), send_from_thread, left.done)
        finally:
            left.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _answer(self, environ: dict[str, Any], send: Callable[[_Event], None], is_left: Callable[[], bool]) -> None:
        def start_response(
            status: str, headers: list[tuple[str, str]], _exc_info: Any = None
        ) -> Callable[[bytes], None]:
            encoded = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
            send({"type": "http.response.start", "status": int(status.split(" ", 1)[0]), "headers": encoded})
            return lambda piece: send({"type": "http.response.body", "body": piece, "more_body": True})

        pieces = self._app(environ, start_response)
        try:
            for piece in pieces:
                if is_left():
                    return
                send({"type": "http.response.body", "body": piece, "more_body": True})
        finally:
            close = getattr(pieces, "close", None)
            if close is not None:
                close()


def _environ(scope: _Scope, body: bytes) -> dict[str, Any]:
    """Return the environment of a request (PEP 3333)."""
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    environ = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": "",
        "PATH_INFO": scope["path"].encode().decode("latin-1"),
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "SERVER_NAME": scope["server"][0],
        "SERVER_PORT": str(scope["server"][1]),
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "CONTENT_TYPE": headers.pop("content-type", ""),
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope["scheme"],
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    headers.pop("content-length", None)
    return environ | {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers.items()}
