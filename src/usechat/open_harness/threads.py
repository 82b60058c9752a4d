"""Run blocking functions in threads that no shutdown waits for."""

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["in_thread"]

Result = TypeVar("Result")


async def in_thread(work: Callable[[], Result]) -> Result:
    """Run a function in a new thread and return its result.

    Unlike ``asyncio.to_thread``, a function that never returns blocks neither a pool nor the exit of the process.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Result] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            # A future cannot hold a StopIteration, and a node that calls sys.exit() must not end the server.
            is_plain = isinstance(error, Exception) and not isinstance(error, StopIteration)
            future.set_exception(error if is_plain else RuntimeError(repr(error)))

    def run() -> None:
        result, error = None, None
        try:
            result = context.run(work)
        except BaseException as raised:  # passed on to the caller
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits for the result
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name="usechat-node", daemon=True).start()
    return await future
