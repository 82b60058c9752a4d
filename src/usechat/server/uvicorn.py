"""Everything that usechat uses of the internals of uvicorn.

ASGI is enough to serve streams, and :class:`usechat.server.connection.AsgiServer` uses nothing else. This module uses
more where uvicorn is the server, because ASGI costs or lacks four things:

=========================  ============================================  ==============================================
what is used               why                                           without it
=========================  ============================================  ==============================================
``receive`` and ``send``   both wait for plain futures and use no task,  a task per stream that waits for the client to
can be stepped by hand     so a stream needs no second task and a write  leave (1 KiB), and each write wakes the task of
                           needs none                                    the response first
``cycle.transport``        for a chunked body over httptools, ``send``   each write passes through ``send``
                           does no more than write to it
``cycle.transport``        to reset the connection of a client that      such a client gets an ``error`` chunk, and the
                           must resume: a body that ends well looks      response ends without its last chunk; a client
                           like a complete answer                        that takes nothing at all is not disconnected
``Server.should_exit``,    uvicorn informs the app of its exit only when open streams delay the exit until they end, or
found through the handler  all responses have ended, and mounted apps    until ``--timeout-graceful-shutdown``, and the
of SIGTERM, and its tasks  never                                         agents of mounted apps run no ``finally``
=========================  ============================================  ==============================================

Checked with the releases in :data:`TESTED`, all their HTTP protocols, asyncio and uvloop. With any other release
nothing of this is used, and one line in the log says so. ``Settings(plain_asgi=True)`` (``usechat serve
--plain-asgi``) turns it off by hand; the unit tests run both ways.

A request is answered in a task that runs ``RequestResponseCycle.run_asgi``; a WebSocket's protocol has a method of that
name, too. This cycle has the connection, and ``receive`` and ``send`` are its methods unless middleware replaced them
(starlette 1.10, ``BaseHTTPMiddleware``). Such middleware also ends every response as if it were complete, even if the
app below it fails. So to reset a connection, the cycle is looked up among the tasks by the request's state.

The connections of `usechat serve` are guarded by :mod:`usechat.server.request_heads`, which derives from uvicorn's
protocols for HTTP.

:func:`run` and :func:`log_config` use uvicorn's documented interface, except for one literal log text.
"""

import asyncio
import copy
import functools
import inspect
import logging
import math
import re
import signal
import socket
import sys
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

from usechat.runs.log import Wake
from usechat.runs.manager import RunManager
from usechat.runs.reading import Reading
from usechat.server.connection import GONE, AsgiServer, ClientWatch, Finish, Sender
from usechat.server.exit_signal import disconnect_readers_at_signal
from usechat.server.observers.logs import JsonFormatter
from usechat.server.observers.observer import Observer
from usechat.server.observers.workers import counted_together

__all__ = [
    "STARTUP_FAILURE",
    "TESTED",
    "DirectSender",
    "LogFormat",
    "ServerOptions",
    "SteppedClientWatch",
    "UvicornServer",
    "log_config",
    "run",
]

TESTED: Final = ((0, 40), (0, 54))
"""The first and the last minor release of uvicorn whose internals are used."""

_GUARDED_HTTP: Final = "usechat.server.request_heads:GuardedHttp"
"""Derives from uvicorn's protocol; by name, since it imports uvicorn, which need not be installed."""

STARTUP_FAILURE: Final = 3
"""The exit code of a worker that uvicorn's supervisor does not start again."""

_PING_SECONDS: Final = 20.0
"""How often uvicorn pings the client of a WebSocket by default."""

_EXIT_POLL_SECONDS: Final = 0.05
"""How often the flag of a server that shall exit is read; uvicorn reads it half as often, and then waits as long."""

_logger: Final = logging.getLogger("usechat.server")


class UvicornServer(AsgiServer):
    """Uses the internals of uvicorn where the server is a tested release of it, and plain ASGI elsewhere."""

    def watch_client(self, receive: Any, reading: Reading) -> ClientWatch:
        """Return what wakes ``reading`` when the client has gone; it needs no task."""
        return SteppedClientWatch(receive, reading) if _is_method(receive) else ClientWatch(receive, reading)

    def sender(self, send: Any, receive: Any, observer: Observer, reading: Reading) -> Sender:
        """Return a sender that can write without the task, if nothing stands between this and uvicorn's ``send``."""
        is_direct = _is_method(receive) and getattr(send, "__self__", None) is receive.__self__
        return DirectSender(send, observer, reading) if is_direct else Sender(send, observer)

    def transport_of(self, scope: Any, receive: Any = None) -> asyncio.WriteTransport | None:
        """Return the connection that a request came by, or that a WebSocket uses."""
        cycle = receive.__self__ if _is_method(receive) else _cycles_by_state().get(id(scope.get("state")))
        transport = getattr(cycle, "transport", None)
        # Not by its type: those of uvloop (0.23) are no asyncio.WriteTransport.
        return transport if hasattr(transport, "abort") else None

    def disconnect_readers_at_exit(self, manager: RunManager, finish: Finish) -> None:
        """Disconnect the manager's readers as soon as the server that handles SIGTERM in this process shall exit.

        uvicorn ends the process by the same signal when its own tasks have ended, so ``finish`` becomes one of them.
        """
        server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
        uvicorn = sys.modules.get("uvicorn")
        if uvicorn is None or not isinstance(server, uvicorn.Server):
            disconnect_readers_at_signal(manager, finish)  # another server, or one in a thread
            return
        if not _is_tested(uvicorn.__version__):
            return
        if server not in _managers:
            _managers[server] = WeakKeyDictionary()
            _poll_exit(server, _managers[server])
        _managers[server].setdefault(manager, finish)


@functools.cache  # once per process: the log line, too
def _is_tested(version: str) -> bool:
    """Tell whether the internals of this release may be used."""
    first, last = TESTED
    numbers = version.split(".")[:2]
    if all(number.isdecimal() for number in numbers) and first <= tuple(map(int, numbers)) <= last:
        return True
    _logger.warning(
        "usechat was tested with uvicorn %d.%d to %d.%d, not with %s: streams are served over plain ASGI, without its"
        " internals",
        *first,
        *last,
        version,
    )
    return False


def _is_internal(instance: Any) -> bool:
    """Tell whether an object is an instance of uvicorn's classes, in a tested release."""
    uvicorn = sys.modules.get("uvicorn")
    return uvicorn is not None and type(instance).__module__.startswith("uvicorn.") and _is_tested(uvicorn.__version__)


def _is_method(function: Any) -> bool:
    """Tell whether ``receive`` or ``send`` is uvicorn's own, with nothing in between."""
    return _is_internal(getattr(function, "__self__", None))


# Receiving and sending without a task.


class SteppedClientWatch(ClientWatch):
    """Receives without a task: uvicorn's ``receive`` waits for one future after the other, whose callbacks step it."""

    __slots__ = ("_receiving",)

    def __init__(self, receive: Any, reading: Reading) -> None:
        super().__init__(receive, reading)
        self._receiving: Any = None

    def start(self) -> None:
        """Begin to receive."""
        self._step()

    def close(self) -> None:
        """Stop receiving."""
        if self._receiving is not None:
            self._receiving.close()
            self._receiving = None

    def _step(self, future: "asyncio.Future[Any] | None" = None) -> None:
        if future is not None and self._receiving is None:
            return  # closed meanwhile
        while not self.is_gone:
            self._receiving = self._receiving or self._receive()
            try:
                waiting = self._receiving.send(None)
            except StopIteration as received:
                self._receiving = None
                self._handle(received.value)
            except Exception:  # a connection that cannot be listened to is lost
                self._receiving = None
                self._handle(GONE)
            else:
                waiting.add_done_callback(self._step)
                return


class DirectSender(Sender):
    """Can send by a plain call, wherever frames are made. The task of the response is woken only if it must wait.

    A coroutine of uvicorn's ``send`` ends with its first step, unless the client does not read fast enough. So any code
    can take that step; a task is needed only to wait. For a chunked body over the httptools protocol that step does no
    more than write a chunk to the connection, so while the connection's buffer is empty it is written here.
    """

    __slots__ = ("_reading", "_transport", "_unsent")

    def __init__(self, send: Any, observer: Observer, reading: Reading) -> None:
        super().__init__(send, observer)
        self._reading = reading
        self._transport: asyncio.WriteTransport | None = None
        self._unsent: Awaitable[None] | Exception | None = None

    def start_pushing(self) -> None:
        """Let the reading call ``push`` from now on."""
        cycle: Any = getattr(self._send, "__self__", None)
        if type(cycle).__module__.endswith(".httptools_impl") and getattr(cycle, "chunked_encoding", False):
            self._transport = getattr(cycle, "transport", None)
        self._reading.push_to(self)

    def push(self, frames: bytes) -> None:
        """Take the first step of sending, in no task; never raises."""
        self.unreported += len(frames)
        transport = self._transport
        try:
            if transport is not None and not transport.get_write_buffer_size() and not transport.is_closing():
                transport.write(b"%x\r\n%b\r\n" % (len(frames), frames))  # RFC 9112, 7.1
                return
            sending = self._send({"type": "http.response.body", "body": frames, "more_body": True})
            waiting = sending.send(None)
        except StopIteration:
            return
        except Exception as error:
            self._unsent = error
        else:
            self._unsent = _continue(sending, waiting)
        self._reading.wake(Wake.UNSENT)

    async def send(self, body: bytes, *, more: bool = True) -> None:
        """Send in the calling task, behind all that was pushed; if there is no ``more``, the response is complete."""
        await self.finish()
        await super().send(body, more=more)

    async def finish(self) -> None:
        """Send in the calling task what was pushed and is not yet written, or raise what went wrong with it."""
        unsent, self._unsent = self._unsent, None
        if isinstance(unsent, Exception):
            raise unsent
        if unsent is not None:
            await self._wait_for(unsent)

    def close(self) -> None:
        """Send nothing more."""
        super().close()
        self._unsent = None


@types.coroutine
def _continue(sending: Coroutine[Any, Any, None], waiting: Any) -> Generator[Any, Any, None]:
    """Continue in this task a coroutine that was started elsewhere; ``waiting`` is the future it waits for."""
    error: BaseException | None = None
    try:
        while True:
            try:
                yield waiting
            except BaseException as raised:  # such as a cancellation, which is for what is being sent
                error = raised
            waiting = sending.send(None) if error is None else sending.throw(error)
            error = None
    except StopIteration:
        return
    finally:
        error = None  # it knows this frame by its traceback


# Finding the connection of a request behind middleware.

_cycles_of_loop: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, Any]]] = WeakKeyDictionary()


def _cycles_by_state() -> dict[int, Any]:
    """Return the requests that are being answered.

    The ``state`` in a scope is made for each request, and is the same in all copies of the scope. At a shutdown all
    streams look in the same turn of the event loop: they share what is found.
    """
    loop = asyncio.get_running_loop()
    if (cycles := _cycles_of_loop.get(loop)) is None:
        _cycles_of_loop[loop] = cycles = {id(cycle.scope["state"]): cycle for cycle in _cycles()}
        loop.call_soon(_cycles_of_loop.pop, loop, None)
    return cycles


def _cycles() -> Iterator[Any]:
    for task in asyncio.all_tasks():
        coroutine: Any = task.get_coro()
        if getattr(coroutine, "__name__", "") == "run_asgi":
            cycle = inspect.getcoroutinelocals(coroutine).get("self")
            if _is_internal(cycle):
                yield cycle


# Noticing that the server shall exit.

_managers: Final[WeakKeyDictionary[Any, WeakKeyDictionary[RunManager, Finish | None]]] = WeakKeyDictionary()
"""Whose readers to disconnect when a server exits, and what it then waits for; ``None`` once that has begun."""


def _poll_exit(server: Any, managers: WeakKeyDictionary[RunManager, Finish | None]) -> None:
    loop = asyncio.get_running_loop()
    if server.should_exit:
        for manager, finish in list(managers.items()):
            manager.disconnect_readers()
            if finish is not None:
                managers[manager] = None
                task = loop.create_task(finish(server.config.timeout_graceful_shutdown))
                server.server_state.tasks.add(task)
                task.add_done_callback(server.server_state.tasks.discard)
    loop.call_later(_EXIT_POLL_SECONDS, _poll_exit, server, managers)


# Running uvicorn.

LogFormat: TypeAlias = Literal["text", "json"]


class ServerOptions(NamedTuple):
    """How uvicorn is run.

    ``grace`` is how many seconds responses get at an exit before they are cancelled. With ``reload_directory`` one
    worker is restarted whenever a file below that directory changes. ``root_path`` is the path below which a proxy
    serves the app. ``proxies`` are the addresses of proxies whose ``X-Forwarded-*`` headers are believed; by default
    uvicorn decides. ``keep_alive`` is the longest silence on a WebSocket.
    """

    grace: float
    workers: int = 1
    reload_directory: Path | None = None
    log_format: LogFormat = "text"
    root_path: str = ""
    proxies: str | None = None
    keep_alive: float = _PING_SECONDS


def run(factory: str | Callable[[], Any], sockets: list[socket.socket], options: ServerOptions) -> None:
    """Serve the app that ``factory`` makes until the process gets a signal to exit.

    It is ``module:function``, or for one worker without reloading the function itself.
    """
    import uvicorn
    from uvicorn.supervisors import ChangeReload, Multiprocess

    config = uvicorn.Config(
        factory,
        factory=True,
        http=_GUARDED_HTTP if _is_tested(uvicorn.__version__) else "auto",
        log_config=log_config(options.log_format),
        workers=options.workers,
        reload=options.reload_directory is not None,
        reload_dirs=None if options.reload_directory is None else str(options.reload_directory),
        timeout_graceful_shutdown=math.ceil(options.grace),
        root_path=options.root_path,
        forwarded_allow_ips=options.proxies,
        ws_ping_interval=min(_PING_SECONDS, options.keep_alive),
    )
    server = uvicorn.Server(config)
    if options.reload_directory is not None:
        ChangeReload(config, target=server.run, sockets=sockets).run()
    elif options.workers > 1:
        with counted_together():
            Multiprocess(config, sockets=sockets).run()
    else:
        server.run(sockets)


def log_config(style: LogFormat) -> dict[str, Any]:
    """Return uvicorn's logging configuration with usechat's loggers in it."""
    from uvicorn.config import LOGGING_CONFIG

    config = copy.deepcopy(LOGGING_CONFIG)
    config["filters"] = {"disconnected": {"()": DisconnectedReaders}, "secrets": {"()": WithoutSecrets}}
    config["handlers"]["default"]["filters"] = ["disconnected", "secrets"]
    config["handlers"]["access"]["filters"] = ["secrets"]
    config["loggers"]["usechat"] = {"handlers": ["default"], "level": "INFO", "propagate": False}
    if style == "json":
        config["formatters"] = {name: {"()": JsonFormatter} for name in config["formatters"]}
    return config


class WithoutSecrets(logging.Filter):
    """Takes out of the paths in uvicorn's log what is nobody's business: tokens of shared chats, and whole queries.

    A query may hold a search word, or what an application puts there. uvicorn logs the path of a request, and of a
    WebSocket, as an argument.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep a record, with other paths."""
        if record.name.startswith("uvicorn.") and isinstance(record.args, tuple):
            record.args = tuple(_without_secrets(each) if isinstance(each, str) else each for each in record.args)
        return True


_SHARED: Final = re.compile(r"(/shared/)[^/]+")


def _without_secrets(text: str) -> str:
    return _SHARED.sub(r"\1***", text.partition("?")[0]) if text.startswith("/") else text


class DisconnectedReaders(logging.Filter):
    """Drops uvicorn's error about a response without an end: that is how readers that must resume are disconnected."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether to keep a record."""
        return record.msg != "ASGI callable returned without completing response."
