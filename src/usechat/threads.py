"""The threads in which plain functions and generators run: a limited number at once, with a queue in front.

asyncio's own executor has a few threads more than the machine has cores, which is meant for short work; agents wait for
models for minutes. Here each call gets its own thread, at most ``maximum`` at the same time. A call that was
abandoned, because its turn was stopped, no longer counts: one that hangs does not block the others. Threads are
daemons, so that a hanging one does not keep the process from exiting; at the exit they get a few seconds.
"""

import asyncio
import atexit
import contextlib
import contextvars
import functools
import inspect
import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, TypeVar
from weakref import WeakSet

from usechat.errors import PublicError, TaskExited

__all__ = ["FULL", "AgentThreads", "contained", "is_async"]

FULL: Final = "The server is answering as many messages as it can. Please try again in a moment."

T = TypeVar("T")


class AgentThreads:
    """Runs functions in threads, ``maximum`` at once; the others wait, at most ``patience`` seconds.

    All calls come from one event loop. ``on_waiting`` is called with the change of the number of calls that wait.
    """

    def __init__(
        self, maximum: int = 64, *, patience: float = 30, on_waiting: Callable[[int], None] = lambda _change: None
    ) -> None:
        self._free = maximum
        self._patience = patience
        self._on_waiting = on_waiting
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._alive = 0
        self._all_ended: asyncio.Future[None] | None = None

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function in a thread, with this context's variables; raise ``PublicError`` if none is free in time."""
        await self._acquire()
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()

        def call() -> None:
            try:
                value = function(*arguments)
            except BaseException as error:  # SystemExit, too: it is for the caller to handle
                tell(result.set_exception, _raisable(error))
            else:
                tell(result.set_result, value)

        def tell(settle: Callable[[Any], None], outcome: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed; nobody waits for the result
                loop.call_soon_threadsafe(self._ended, result, settle, outcome)

        try:
            context = contextvars.copy_context()
            thread = threading.Thread(target=context.run, args=(call,), name="usechat agent", daemon=True)
            thread.start()
            _threads.add(thread)
            self._alive += 1
            return await result
        finally:
            self._release()

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function that is async or not, and return its result. One that is not async runs in a thread."""
        with contained():
            result = function(*arguments) if is_async(function) else await self.run(function, *arguments)
            return await result if inspect.isawaitable(result) else result

    async def finish(self, seconds: float) -> None:
        """Wait until all threads have ended, abandoned ones too, at most ``seconds``."""
        if self._alive:
            self._all_ended = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._all_ended], timeout=seconds)

    def _ended(self, result: asyncio.Future[T], settle: Callable[[Any], None], outcome: Any) -> None:
        self._alive -= 1
        if not result.done():
            settle(outcome)
        if not self._alive and self._all_ended is not None and not self._all_ended.done():
            self._all_ended.set_result(None)

    async def _acquire(self) -> None:
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._on_waiting(1)
        try:
            async with asyncio.timeout(self._patience):
                await turn
        except TimeoutError:
            self._give_back(turn)
            raise PublicError(FULL) from None
        except BaseException:
            self._give_back(turn)
            raise
        finally:
            self._on_waiting(-1)

    def _give_back(self, turn: "asyncio.Future[None]") -> None:
        """Leave the queue; a thread that was given at the last moment goes to the next."""
        if turn in self._waiting:
            self._waiting.remove(turn)
        elif turn.done() and not turn.cancelled():
            self._release()

    def _release(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


class contained:  # noqa: N801 (as `contextlib.suppress`; a class, because every turn enters it several times)
    """Raise ``TaskExited`` in the place of what a function of the application must not do to its caller.

    ``SystemExit`` and ``KeyboardInterrupt`` in any task end the event loop, and so the server. A ``CancelledError``
    that nobody asked for looks as if the caller was cancelled.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        """Begin to watch."""

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        """Replace an exception that must not leave the block."""
        if error is None or isinstance(error, Exception):
            return
        if isinstance(error, SystemExit | KeyboardInterrupt):
            raise TaskExited(f"a function of the application raised {error!r}") from error
        if isinstance(error, asyncio.CancelledError):
            task = asyncio.current_task()
            if task is not None and not task.cancelling():
                raise TaskExited("a function of the application was cancelled by itself") from error


def is_async(function: Any) -> bool:
    """Tell whether a call returns at once and leaves its work to the event loop."""
    if not inspect.isroutine(function) and not isinstance(function, functools.partial):
        function = type(function).__call__
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


_LAST_SECONDS: Final = 5.0
"""Seconds that threads get for their ``finally`` blocks when the process exits."""

_threads: Final[WeakSet[threading.Thread]] = WeakSet()


@atexit.register
def _join_threads() -> None:
    """Let threads end by themselves: a mounted app may not get notice that the server shuts down."""
    deadline = time.monotonic() + _LAST_SECONDS
    for thread in list(_threads):
        thread.join(max(0, deadline - time.monotonic()))


def _raisable(error: BaseException) -> BaseException:
    """Return an error that a future can hold: not ``StopIteration``, which would end the coroutine that awaits it."""
    if not isinstance(error, StopIteration):
        return error
    replaced = RuntimeError("the agent raised StopIteration")
    replaced.__cause__ = error
    return replaced
