"""Something of Genkit that streams through a callback: run in a task of its own, heard here, and really stopped."""

import asyncio
import gc
import os
import sys
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextvars import Context, ContextVar
from pathlib import Path
from typing import Any, Final, TypeAlias

import genkit
from pydantic import BaseModel

from usechat.genkit.failures import describe
from usechat.genkit.sentences import SENTENCES, TOO_FAST
from usechat.genkit.wire import Event, Failure, Message, Result
from usechat.runs.failures import PublicError

__all__ = ["OnChunk", "streamed"]

MAXIMUM_WAITING: Final = 10_000
"""Chunks that may wait to be passed on. A flow cannot be told to wait, so one that is further ahead fails."""
_REPEAT: Final = 1.0
"""Seconds after which a flow that goes on is cancelled once more."""

_PACKAGE: Final = f"{Path(genkit.__file__).parent}{os.sep}"

_running: Final[ContextVar[asyncio.Event]] = ContextVar("usechat.genkit.running")
"""Marks the tasks of one flow with its abort signal."""

OnChunk: TypeAlias = Callable[[Any], None]
Start: TypeAlias = Callable[[OnChunk, asyncio.Event], Awaitable[Any]]


async def streamed(start: Start) -> AsyncGenerator[Event, None]:
    """Run what ``start`` begins, with a callback and an abort signal, and yield what it says and returns.

    Closing the iterator stops it, and returns when it has stopped.
    """
    waiting: deque[Event] = deque()
    abort_signal, news, crowded = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def on_chunk(chunk: Any) -> None:
        if len(waiting) >= MAXIMUM_WAITING:
            crowded.set()
            raise PublicError(TOO_FAST)
        waiting.append(Message(_plain(chunk)))
        news.set()

    async def own() -> Any:
        _running.set(abort_signal)
        return await start(on_chunk, abort_signal)

    task = asyncio.create_task(own())
    task.add_done_callback(lambda _task: news.set())
    try:
        while not task.done() or waiting:
            await news.wait()
            news.clear()
            if crowded.is_set():
                raise PublicError(TOO_FAST)
            while waiting:
                yield waiting.popleft()
        yield Result(_plain(_result_of(task)))
    finally:
        await _stop(task, abort_signal)


def _plain(value: Any) -> Any:
    """Return the wire's JSON of a Genkit object; other values stay as they are."""
    return value.model_dump(by_alias=True, exclude_none=True) if isinstance(value, BaseModel) else value


def _result_of(task: "asyncio.Task[Any]") -> Any:
    """Return what a flow returned, or raise what people may read of its failure; others keep their traceback."""
    try:
        return task.result()
    except genkit.GenkitError as error:
        for one in (error, error.cause):
            if isinstance(one, genkit.PublicError):
                raise PublicError(one.original_message) from error
            if isinstance(one, PublicError):
                raise one from None
        if error.status in SENTENCES:
            failure = Failure(error.status, error.original_message)
            raise PublicError(describe(failure, error=error)) from error
        raise


# Stopping


async def _stop(task: "asyncio.Task[Any]", abort_signal: asyncio.Event) -> None:
    """Stop a flow that is not done, then what it left behind; again if need be, for a flow may go on regardless."""
    abort_signal.set()
    going_on = [] if task.done() else [task]
    while going_on:
        for one in going_on:
            one.cancel()
        await asyncio.wait(going_on, timeout=_REPEAT)
        going_on = [one for one in (task, *_left_behind(abort_signal)) if not one.done()]
    if not task.cancelled():
        task.exception()  # it was looked at; nobody waits for it any more


def _left_behind(abort_signal: asyncio.Event) -> Iterator["asyncio.Task[Any]"]:
    """Yield the tasks that Genkit began for a flow and leaves behind when the flow is cancelled (genkit 0.12.0).

    These are the loop of an agent, and whatever `generate_stream` and `Action.stream` do. Genkit keeps no list of
    them; but a task begins with a copy of the context that began it, so our mark is in it.
    """
    for task in asyncio.all_tasks():
        code = getattr(task.get_coro(), "cr_code", None)
        of_genkit = code is not None and code.co_filename.startswith(_PACKAGE)
        if of_genkit and _context_of(task).get(_running) is abort_signal:
            yield task


def _context_of(task: "asyncio.Task[Any]") -> Context:
    """Return the context of a task.

    Python 3.11 has no ``get_context``, but the garbage collector sees what a task holds. A task factory would see the
    tasks begin, but it is the event loop's only one: it would slow down, or drop, what the application does with it.
    """
    if sys.version_info >= (3, 12):
        return task.get_context()
    return next((held for held in gc.get_referents(task) if isinstance(held, Context)), Context())
