"""Containment: an agent does not end the server.

asyncio ends its loop when *any* task raises ``SystemExit`` or ``KeyboardInterrupt``. A run turns what its source raises
into an ending. The tasks that an agent starts (``asyncio.gather``, ``TaskGroup``) belong to no run: a task factory lets
them raise ``TaskExited`` instead. The loop of a host stays as it is: only `usechat serve` and `usechat worker`, whose
loop is ours, set the factory.
"""

import asyncio
import contextlib
import contextvars
import inspect
from collections.abc import Callable, Coroutine, Generator, Iterator
from typing import Any

from usechat.errors import TaskExited

__all__ = ["contain_exits", "of_an_agent"]

_of_an_agent: contextvars.ContextVar[bool] = contextvars.ContextVar("usechat_of_an_agent", default=False)
"""Whether this code is an agent's: the task of a run, and every task that it starts."""


@contextlib.contextmanager
def of_an_agent() -> Iterator[None]:
    """Mark the tasks that are started here, and those that they start, as an agent's."""
    token = _of_an_agent.set(True)
    try:
        yield
    finally:
        _of_an_agent.reset(token)


class _TaskFactory:
    """Make tasks as before, except that the tasks of agents cannot end the event loop."""

    def __init__(self, earlier: Callable[..., asyncio.Future[Any]] | None) -> None:
        self._earlier = earlier or _new_task

    def __call__(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Future[Any]:
        context = options.get("context")
        is_an_agents = _of_an_agent.get() if context is None else context.get(_of_an_agent, False)
        if is_an_agents and inspect.iscoroutine(coroutine):
            coroutine = _Contained(coroutine)
        return self._earlier(loop, coroutine, **options)


def _new_task(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Future[Any]:
    return asyncio.Task(coroutine, loop=loop, **options)


class _Contained(Coroutine[Any, Any, Any]):
    """A coroutine that raises ``TaskExited`` instead of what would end the event loop; in all else the one it is given.

    No ``async def`` around it, because others look at a task's coroutine: debuggers, and :mod:`usechat.genkit.local`.
    """

    __slots__ = ("_coroutine",)

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coroutine, name)

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        try:
            return self._coroutine.send(value)
        except (SystemExit, KeyboardInterrupt) as error:
            raise _exited(error) from error

    def throw(self, *error: Any) -> Any:
        try:
            return self._coroutine.throw(*error)
        except (SystemExit, KeyboardInterrupt) as raised:
            raise _exited(raised) from raised
        finally:
            del error  # its traceback refers to the frames of the coroutine, which refer to this one (Python 3.12)

    def close(self) -> None:
        self._coroutine.close()


def _exited(error: BaseException) -> TaskExited:
    return TaskExited(f"a task of the agent raised {error!r}")


def contain_exits(loop: asyncio.AbstractEventLoop) -> None:
    """Let no task that an agent starts on this loop end the loop by ``SystemExit`` or ``KeyboardInterrupt``."""
    earlier: Any = loop.get_task_factory()
    if not isinstance(earlier, _TaskFactory):
        loop.set_task_factory(_TaskFactory(earlier))
