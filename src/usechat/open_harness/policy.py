"""How often a node is tried, and for how long."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from usechat.errors import UsechatError
from usechat.open_harness.flow import Policy

__all__ = ["NodeTimedOut", "run_with_policy", "run_within"]

_logger: Final = logging.getLogger("usechat.open_harness")

_GRACE: Final = 5.0
"""How many seconds a node may take to end after it was cancelled; then it is left behind."""


class NodeTimedOut(UsechatError):
    """A node took longer than its policy allows."""


async def run_with_policy(
    attempt: Callable[[], Awaitable[Any]], policy: Policy, *, on_timeout: Callable[[], None]
) -> Any:
    """Try until it succeeds or the attempts are used up; the pause before a further attempt doubles each time."""

    def timed_out() -> Exception:
        on_timeout()
        return NodeTimedOut(f"Node execution timed out after {policy.timeout_ms:g}ms")

    for number in range(1, policy.retry.max_attempts):
        try:
            return await run_within(attempt(), policy.timeout_ms, timed_out)
        except Exception as error:
            pause = policy.retry.backoff_ms * 2 ** (number - 1) / 1000
            _logger.warning("attempt %d failed; the next one is in %g s", number, pause, exc_info=error)
            await asyncio.sleep(pause)
    return await run_within(attempt(), policy.timeout_ms, timed_out)


async def run_within(work: Awaitable[Any], timeout_ms: float | None, timed_out: Callable[[], Exception]) -> Any:
    """Return what the work does, or raise ``timed_out()``. Work that cannot be cancelled is left behind."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=timeout_ms / 1000 if timeout_ms else None)
    except asyncio.CancelledError:
        await _end(task)
        raise
    if not task.done():
        error = timed_out()
        await _end(task)
        raise error
    return task.result()


async def _end(task: "asyncio.Future[Any]") -> None:
    task.cancel()
    await asyncio.wait({task}, timeout=_GRACE)
    if not task.done():
        _logger.error("a node did not end within %g s after it was cancelled; it is left behind", _GRACE)
        task.add_done_callback(_look_at)
    else:
        _look_at(task)


def _look_at(task: "asyncio.Future[Any]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _logger.warning("a node failed while it was being stopped", exc_info=error)
