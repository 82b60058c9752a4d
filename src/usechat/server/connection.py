"""The connection below a request, to break it: ASGI has no word for a reset.

uvicorn (0.54, all its HTTP protocols) answers each request in a task of its own that runs
``RequestResponseCycle.run_asgi``; a WebSocket's protocol has a method of that name, too. The cycle has the connection,
and ``receive`` is one of its methods, unless middleware puts another in that place (starlette 1.10,
``BaseHTTPMiddleware``). Such middleware also ends every response well, whatever happens below it. So the cycle is
looked for among the tasks: it has the request's scope.
"""

import array
import asyncio
import contextlib
import inspect
import socket
import struct
from collections.abc import Iterator
from typing import Any, Final
from weakref import WeakKeyDictionary

from usechat.server.leaving import is_uvicorn

__all__ = ["all_written", "reset_at_once", "transport_of", "unsent_bytes"]

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
