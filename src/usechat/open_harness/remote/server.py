"""The server side of the WebSocket protocol: each connection has its own runtime, and may start it."""

import asyncio
import contextlib
import logging
import sys
import uuid
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from typing import Any, Final, NamedTuple

import uvicorn
from starlette.applications import Starlette
from starlette.requests import HTTPConnection
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from usechat.errors import PublicError, RequestError
from usechat.open_harness.events.failures import PUBLIC
from usechat.open_harness.events.metadata import graph_of
from usechat.open_harness.flow.definition import FlowDefinition
from usechat.open_harness.inputs import FlowInputs
from usechat.open_harness.remote.link import COMMANDS_HEADER
from usechat.open_harness.runtime_protocol import Event, Runtime
from usechat.server import LocalPagesOnly, is_welcome, listen
from usechat.values import json_text, json_value, read_json

__all__ = ["RuntimeSockets", "runtime_app", "serve_runtime"]

_logger: Final = logging.getLogger("usechat.open_harness")
_MAXIMUM_WAITING: Final = 16 * 1024 * 1024
"""Characters that may be queued for a slow client; then it is disconnected."""
_TELL_GRAPH: Final = ("flow:start", "flow:resumed")
"""Events that tell the flow's graph as well, an addition of ours."""
_GOODBYE: Final = 5.0
"""Seconds that a stopped runtime, and a closing client, may take."""


class _SocketClose(NamedTuple):
    """The status code and reason of a closing frame (RFC 6455, 7.4)."""

    code: int
    reason: str


_FAILED: Final = _SocketClose(1011, "The flow failed.")
_TOO_SLOW: Final = _SocketClose(1013, "The connection is too slow.")
_ONE_RUN: Final = _SocketClose(1008, "The run of this connection has begun; open another for another run.")


class RuntimeSockets:
    """Serves runtimes over WebSockets: ``{"type":"event",…}`` out, ``{"type":"command",…}`` in.

    The command ``{"type":"run","input":{…}}`` starts the connection's runtime; the others are those of Open Harness.
    A disconnect stops the run. ``origins`` are the pages that may connect besides those of the same host.
    """

    def __init__(self, factory: Callable[[], Runtime], *, origins: Collection[str] = ()) -> None:
        self._factory = factory
        self._origins = origins
        self._inputs = FlowInputs()

    async def serve(self, websocket: WebSocket) -> None:
        """Accept a client and serve it until it disconnects."""
        headers = websocket.headers
        if not is_welcome(headers.get("origin"), headers.get("host", ""), self._origins):
            text = "refused a WebSocket from origin %r; allow it with runtime_app(origins=…)"
            _logger.warning(text, headers["origin"])
            await websocket.close()  # before it is accepted: the server answers 403 (ASGI, websocket.close)
            return
        await websocket.accept(headers=[(COMMANDS_HEADER.encode(), b"run")])
        await _Client(websocket, self._factory, self._inputs).serve()


def runtime_app(factory: Callable[[], Runtime], *, path: str = "/ws", origins: Collection[str] = ()) -> Starlette:
    """Return an ASGI app with one WebSocket route that serves runtimes, a new one for each connection.

    ``origins`` are the pages that may connect besides those of the same host. The protocol has no authentication:
    mount the app behind something that has.

    >>> from usechat.open_harness import FlowRuntime
    >>> flow = {"name": "echo", "nodes": [{"id": "a", "type": "echo", "input": {"text": "Hello"}}]}
    >>> app = runtime_app(lambda: FlowRuntime(flow), path="/flows")  # uvicorn my_app:app
    """
    return Starlette(routes=[WebSocketRoute(path, RuntimeSockets(factory, origins=origins).serve)])


def serve_runtime(
    factory: Callable[[], Runtime], *, host: str = "127.0.0.1", port: int = 42069, path: str = "/ws"
) -> None:
    """Serve runtimes at ``ws://host:port/path`` to programs and pages of this machine. Returns when interrupted.

    For other machines, mount :func:`runtime_app` behind something that authenticates. ``factory`` is called for each
    connection. Raises :class:`~usechat.errors.CannotListen` if the address is in use.

    .. code-block:: python

        serve_runtime(lambda: FlowRuntime(flow))
    """
    app = _LocalOnly(runtime_app(factory, path=path))
    sockets = listen(host, port)
    sys.stdout.write(f"usechat serves flows at ws://{host}:{sockets[0].getsockname()[1]}{path}\n")
    sys.stdout.flush()
    with contextlib.suppress(KeyboardInterrupt):  # the usual way to end it
        uvicorn.Server(uvicorn.Config(app, lifespan="off")).run(sockets)


class _LocalOnly:
    """Refuses connections from pages of other sites, even if they use another name for this machine."""

    def __init__(self, app: Starlette) -> None:
        self._app = app
        self._rule = LocalPagesOnly()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            try:
                await self._rule(HTTPConnection(scope), "", "send")
            except RequestError as error:
                _logger.warning("a connection was refused: %s", error)
                await WebSocket(scope, receive, send).close()
                return
        await self._app(scope, receive, send)


class _Client:
    """One connection, and its runtime once it was started."""

    def __init__(self, websocket: WebSocket, factory: Callable[[], Runtime], inputs: FlowInputs) -> None:
        self._websocket = websocket
        self._factory = factory
        self._inputs = inputs
        self._runtime: Runtime | None = None
        self._running: asyncio.Task[None] | None = None
        self._outgoing: asyncio.Queue[str | _SocketClose] = asyncio.Queue()
        self._waiting = 0
        self._closed: asyncio.Future[_SocketClose | None] = asyncio.get_running_loop().create_future()

    async def serve(self) -> None:
        """Serve until either side disconnects, then stop the runtime."""
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._read()), loop.create_task(self._write())]
        try:
            close = await self._closed
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._stop()
        if close is not None:
            with contextlib.suppress(RuntimeError, WebSocketDisconnect, TimeoutError):
                async with asyncio.timeout(_GOODBYE):
                    await self._websocket.close(close.code, close.reason)

    def _end(self, close: _SocketClose | None) -> None:
        if not self._closed.done():
            self._closed.set_result(close)

    async def _read(self) -> None:
        while (message := await self._websocket.receive())["type"] != "websocket.disconnect":
            command = _command_in(message.get("text") or "")
            if command is not None:
                self._execute(command)
        self._end(None)

    async def _write(self) -> None:
        try:
            while True:
                frame = await self._outgoing.get()
                if isinstance(frame, _SocketClose):  # after the frames that were queued before it
                    self._end(frame)
                    return
                self._waiting -= len(frame)
                await self._websocket.send_text(frame)
        except (RuntimeError, WebSocketDisconnect):  # uvicorn reports a disconnect only when something is sent
            self._end(None)

    def _execute(self, command: Mapping[str, Any]) -> None:
        match command.get("type"):
            case "run" if self._runtime is not None:
                self._end(_ONE_RUN)
            case "run":
                flow_input = command.get("input")
                self._start(flow_input if isinstance(flow_input, dict) else {})
            case _ if self._runtime is None:
                _logger.warning("a command was ignored: the run of its connection has not begun")
            case "resume":
                message, message_id = (_text(command.get(key)) for key in ("message", "messageId"))
                self._spawn(self._resume(self._runtime, self._running, message, message_id))
            case _:
                self._dispatch(self._runtime, command)

    def _start(self, flow_input: Mapping[str, Any]) -> None:
        try:
            runtime = self._factory()
        except Exception:  # the factory is foreign code
            _logger.exception("no runtime could be created")
            self._outgoing.put_nowait(_FAILED)
            return
        self._runtime = runtime
        runtime.on_event(self._send_event)
        flow = getattr(runtime, "flow", None)
        if isinstance(flow, FlowDefinition):
            try:
                flow_input = self._inputs.with_text(flow, flow_input)
            except PublicError as error:
                self._refuse(flow, str(error))
                return
        self._spawn(runtime.run(flow_input))

    def _refuse(self, flow: FlowDefinition, text: str) -> None:
        """Report a run that cannot start, in the events of Open Harness: its first node fails."""
        self._send_event({"type": "flow:start", "flowName": flow.name})
        failed = {"nodeId": flow.nodes[0].id, "runId": str(uuid.uuid4()), "errorType": PUBLIC, "message": text}
        self._send_event({"type": "agent:error", **failed})
        self._send_event({"type": "flow:complete", "flowName": flow.name, "status": "failed"})

    async def _resume(
        self, runtime: Runtime, before: asyncio.Task[None] | None, message: str | None, message_id: str | None
    ) -> None:
        if before is not None:  # a run emits flow:paused before its nodes have ended
            await asyncio.wait([before])
        if runtime.get_snapshot().get("status") == "paused":
            resume: Callable[..., Awaitable[Any]] = runtime.resume
            takes_id = message_id is not None and getattr(runtime, "takes_message_ids", False)
            await resume(message, **({"message_id": message_id} if takes_id else {}))
        else:
            _logger.warning("a command was ignored: the run is not paused")

    def _dispatch(self, runtime: Runtime, command: Mapping[str, Any]) -> None:
        try:
            match command.get("type"):
                case "pause":
                    runtime.pause()
                case "stop":
                    runtime.stop()
                case _:
                    runtime.dispatch(command)
        except Exception as error:  # a command that the runtime refuses; the protocol has no answer to it
            _logger.warning("a command was refused: %s", error)

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        async def drive() -> None:
            try:
                await work
            except Exception:
                _logger.exception("the run of a connection failed")
                self._outgoing.put_nowait(_FAILED)

        self._running = asyncio.get_running_loop().create_task(drive(), name="usechat flow of a connection")

    def _send_event(self, event: Event) -> None:
        if event.get("type") in _TELL_GRAPH and (graph := graph_of(getattr(self._runtime, "flow", None))):
            event = {**event, "graph": graph}
        frame = json_text(json_value({"type": "event", "event": event}))
        self._waiting += len(frame)
        if self._waiting > _MAXIMUM_WAITING:
            self._end(_TOO_SLOW)
        else:
            self._outgoing.put_nowait(frame)

    async def _stop(self) -> None:
        if self._running is not None and self._runtime is not None:
            running = self._running
            self._runtime.stop()
            await asyncio.wait([running], timeout=_GOODBYE)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _command_in(text: str) -> Mapping[str, Any] | None:
    """Return the command in a frame; the protocol says to ignore everything else."""
    try:
        frame: Any = read_json(text)
    except (ValueError, RecursionError):
        frame = None
    if isinstance(frame, dict) and frame.get("type") == "command" and isinstance(frame.get("command"), dict):
        command: Mapping[str, Any] = frame["command"]
        return command
    _logger.warning("a frame was ignored: it has no command")
    return None
