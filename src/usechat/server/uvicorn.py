"""Noticing that a client goes away, while its stream is sent."""

import array
import asyncio
import contextlib
import gc
import inspect
import signal
import socket
import struct
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary, WeakSet

from usechat.runs.log import Wake
from usechat.runs.manager import RunManager
from usechat.runs.reading import Reading
from usechat.server.observers.observer import Observer

__all__ = [
    "Leaving",
    "Sender",
    "all_written",
    "hang_up_in_time",
    "is_uvicorn",
    "rare_collections",
    "reset_at_once",
    "transport_of",
    "unsent_bytes",
]


_GONE: Final = {"type": "http.disconnect"}


def is_uvicorn(method: Any) -> bool:
    """Tell whether ``receive`` or ``send`` is uvicorn's own (0.54), with nothing in between."""
    return type(getattr(method, "__self__", None)).__module__.startswith("uvicorn.")


class Leaving:
    """Receives until the client is gone, then wakes the reading.

    A task for each stream would take a kilobyte of it. uvicorn's ``receive`` waits for one future after the other and
    asks for no task, so a plain callback can do its steps. Others may ask, and get one.
    """

    __slots__ = ("_reading", "_receive", "_receiving", "_task", "gone")

    def __init__(self, reading: Reading) -> None:
        self.gone = False
        self._reading = reading
        self._receive: Any = None
        self._receiving: Any = None
        self._task: asyncio.Task[None] | None = None

    def listen(self, receive: Any) -> None:
        """Begin."""
        self._receive = receive
        if is_uvicorn(receive):
            self._step()
        else:
            self._task = asyncio.get_running_loop().create_task(self._until_gone())

    def close(self) -> None:
        """Listen no further."""
        if self._task is not None:
            self._task.cancel()
        if self._receiving is not None:
            self._receiving.close()
            self._receiving = None

    def _step(self, waited: "asyncio.Future[Any] | None" = None) -> None:
        if waited is not None and self._receiving is None:
            return  # closed meanwhile
        while not self.gone:
            self._receiving = self._receiving or self._receive()
            try:
                waiting = self._receiving.send(None)
            except StopIteration as received:
                self._receiving = None
                self._hear(received.value)
            except Exception:  # a connection that cannot be listened to is lost
                self._receiving = None
                self._hear(_GONE)
            else:
                waiting.add_done_callback(self._step)
                return

    async def _until_gone(self) -> None:
        while not self.gone:
            try:
                message = await self._receive()
            except Exception:  # as above
                message = _GONE
            self._hear(message)

    def _hear(self, message: Any) -> None:
        if message["type"] == _GONE["type"]:
            self.gone = True
            self._reading.wake(Wake.GONE)


# -- The connection below a request, to break it: ASGI has no word for a reset. uvicorn (0.54, all its HTTP
# protocols) answers each request in a task of its own that runs ``RequestResponseCycle.run_asgi``; a WebSocket's
# protocol has a method of that name, too. The cycle has the connection, and ``receive`` is one of its methods,
# unless middleware puts another in that place (starlette 1.10, ``BaseHTTPMiddleware``). Such middleware also ends
# every response well, whatever happens below it. So the cycle is looked for among the tasks: it has the request's
# scope.

_LOOK_EVERY: Final = 0.02
_LOOKS: Final = 3


def transport_of(scope: Any, receive: Any = None) -> asyncio.WriteTransport | None:
    """Return the connection that a request came by, or a WebSocket goes over; nothing if the server is not uvicorn."""
    cycle = receive.__self__ if is_uvicorn(receive) else _cycles_by_state().get(id(scope.get("state")))
    transport = getattr(cycle, "transport", None)
    # Not by its type: those of uvloop (0.23) are no asyncio.WriteTransport.
    return transport if hasattr(transport, "abort") else None


async def all_written(transport: asyncio.WriteTransport, *, looks: int = _LOOKS) -> None:
    """Wait until what was sent is on its way to the client. Layers of middleware hold a message each for some turns."""
    idle = 0 if transport.get_write_buffer_size() else 1
    while idle < looks:
        await asyncio.sleep(_LOOK_EVERY)
        idle = 0 if transport.get_write_buffer_size() else idle + 1


def unsent_bytes(transport: asyncio.WriteTransport) -> int:
    """Return how many bytes the client has not taken: those here, and where the system tells, those in its queue.

    The system takes more from here only when a third of its queue is free, which for a slow client may be minutes.
    """
    queued = array.array("i", [0])
    # Windows has neither; other servers' connections may have no socket, or it is closed already.
    with contextlib.suppress(ImportError, OSError, AttributeError, TypeError, ValueError):
        import fcntl
        import termios

        fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, queued)
    return transport.get_write_buffer_size() + queued[0]


def reset_at_once(transport: asyncio.WriteTransport) -> None:
    """Let the connection end with a reset: a client takes a plain close for the end of a body without a length."""
    with contextlib.suppress(OSError, AttributeError, TypeError):  # not all that a server calls a connection is one
        at_once = struct.pack("ii", 1, 0)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)


_found: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, Any]]] = WeakKeyDictionary()


def _cycles_by_state() -> dict[int, Any]:
    """Return the requests that are being answered.

    The ``state`` in a scope is made for each request, and is the same in all copies of the scope. When a server goes,
    all streams look in the same turn of the loop: they share what is found.
    """
    loop = asyncio.get_running_loop()
    if (found := _found.get(loop)) is None:
        _found[loop] = found = {id(cycle.scope["state"]): cycle for cycle in _cycles()}
        loop.call_soon(_found.pop, loop, None)
    return found


def _cycles() -> Iterator[Any]:
    for task in asyncio.all_tasks():
        coroutine: Any = task.get_coro()
        if getattr(coroutine, "__name__", "") == "run_asgi":
            cycle = inspect.getcoroutinelocals(coroutine).get("self")
            if type(cycle).__module__.startswith("uvicorn."):
                yield cycle


# -- Sending the body of a stream: in the task of the response, or by a plain call from wherever frames are made.

Send: TypeAlias = Callable[[MutableMapping[str, Any]], Coroutine[Any, Any, None]]


class Sender:
    """Sends pieces of a body and counts their bytes; the reading is woken when its task has to wait with ``finish``.

    A coroutine of uvicorn's ``send`` (0.54) ends with its first step, unless the client does not read fast enough. So
    anybody can take that step; a task is needed only to wait. For a chunked body over its httptools protocol that step
    does no more than to write a chunk to the connection, so while nothing waits there it is written here.

    Behind middleware that does something with what is sent, such as compression, ``send`` is not uvicorn's own, and
    every step needs the task.
    """

    # Used for every delta of every stream: no __dict__, see usechat.runs.log.
    __slots__ = ("_count_bytes", "_reading", "_send", "_transport", "_unsent", "is_quiet", "waits")

    def __init__(self, send: Any, observer: Observer, reading: Reading) -> None:
        self.is_quiet = True
        """Whether nothing was sent since somebody set this."""
        self.waits = False
        """Whether the task waits until the client has taken something."""
        self._send: Send = send
        self._count_bytes = observer.bytes_sent
        self._unsent: Awaitable[None] | Exception | None = None
        self._reading = reading
        self._transport: asyncio.WriteTransport | None = None

    def can_push(self, receive: Any) -> bool:
        """Tell whether ``push`` may be used from now on; asked when the response has begun."""
        server = getattr(self._send, "__self__", None)
        if not is_uvicorn(receive) or server is not receive.__self__:
            return False
        if type(server).__module__.endswith(".httptools_impl") and getattr(server, "chunked_encoding", False):
            self._transport = getattr(server, "transport", None)
        return True

    async def send(self, body: bytes, *, more: bool = True) -> None:
        """Send in the calling task, behind all that was pushed; if there is no ``more``, the response is complete."""
        await self.finish()
        self.is_quiet = False
        await self._wait_for(self._send({"type": "http.response.body", "body": body, "more_body": more}))
        self._count_bytes(len(body))

    def push(self, frames: bytes) -> None:
        """Take the first step of sending, in no task; never raises."""
        self.is_quiet = False
        self._count_bytes(len(frames))
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
            self._unsent = _go_on(sending, waiting)
        self._reading.wake(Wake.UNSENT)

    async def finish(self) -> None:
        """Send in the calling task what was pushed and is not through, or raise what went wrong with it."""
        unsent, self._unsent = self._unsent, None
        if isinstance(unsent, Exception):
            raise unsent
        if unsent is not None:
            await self._wait_for(unsent)

    async def _wait_for(self, sending: Awaitable[None]) -> None:
        self.waits = True
        try:
            await sending
        finally:
            self.waits = False

    def close(self) -> None:
        """Send nothing more."""
        self._unsent = None


@types.coroutine
def _go_on(sending: Coroutine[Any, Any, None], waiting: Any) -> Generator[Any, Any, None]:
    """Go on in this task with what was begun elsewhere; ``waiting`` is what it waits for."""
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


# -- Hanging up: when the server goes, readers are broken off first, so that no open stream keeps the process alive.
# uvicorn waits until all connections have finished before it tells the app (0.54, ``Server.shutdown``), and an app
# that is mounted in another is told nothing. A stream would hold it up for as long as the agent speaks. But it
# takes SIGTERM with a method of its server, so the handler leads to the server, and to the flag that is raised
# first of all.

_PAUSE: Final = 0.1
"""Seconds between two looks, as many as between uvicorn's own."""


_managers: Final[WeakKeyDictionary[Any, WeakSet[RunManager]]] = WeakKeyDictionary()
"""Whose readers to break off when a server goes."""


def hang_up_in_time(manager: RunManager) -> None:
    """Break the manager's readers off as soon as the uvicorn that runs in this process is told to exit."""
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    if not hasattr(server, "should_exit"):
        return  # another server, or one in a thread
    if server not in _managers:
        _managers[server] = WeakSet()
        _look_at(server, _managers[server])
    _managers[server].add(manager)


def _look_at(server: Any, managers: WeakSet[RunManager]) -> None:
    if server.should_exit:
        for manager in managers:
            manager.disconnect_readers()
    asyncio.get_running_loop().call_later(_PAUSE, _look_at, server, managers)


# -- The garbage collector of a process that holds many streams open.

_THRESHOLDS: Final = (20_000, 10, 10)
"""An open stream has about a hundred objects, which live as long as it does. With the default of 700 the streams that
are opened, and the deltas of a busy moment, lead to full collections, which take 100 ms of everybody's time with 1,500
streams (CPython 3.11). A stream that has ended goes by its reference count; a cycle of others' waits a little longer.
"""


_before: Final[list[tuple[int, int, int]]] = []
"""The thresholds that each app which runs has found; the last to go leaves those that the first found."""


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let the collector leave alone what is there now, and come rarely."""
    if not _before:  # another app may have streams open, which must not be frozen
        gc.collect()
        gc.freeze()
    _before.append(gc.get_threshold())
    gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        # Apps need not go in the order in which they came.
        found = _before.pop()
        if not _before:
            gc.set_threshold(*found)
            gc.unfreeze()
