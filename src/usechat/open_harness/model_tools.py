"""The tools of an agent: foreign functions that may fail, or not end."""

import functools
import inspect
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic_ai import RunContext, Tool
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry
from pydantic_ai.toolsets import FunctionToolset, ToolsetTool, WrapperToolset

from usechat.open_harness.node_failures import text_of
from usechat.open_harness.nodes.python import import_function
from usechat.open_harness.policy import run_within
from usechat.open_harness.threads import in_thread

__all__ = ["WatchedTools", "open_tools"]

_logger: Final = logging.getLogger("usechat.open_harness")


def open_tools(names: Sequence[str], timeout_ms: float) -> "WatchedTools":
    """Return the tools that a flow names as ``module:function``."""
    tools: list[Tool[None]] = [Tool(_as_async(import_function(name))) for name in names]
    return WatchedTools(FunctionToolset(tools), timeout_ms)


@dataclass
class WatchedTools(WrapperToolset[None]):
    """Ends tools that take too long, and tells the model of those that failed, so that the turn goes on.

    ``failures`` holds what they raised, by the id of the call.
    """

    timeout_ms: float
    failures: dict[str, Exception] = field(default_factory=dict)

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[None], tool: ToolsetTool[None]
    ) -> Any:
        """Call a tool."""
        work = self.wrapped.call_tool(name, tool_args, ctx, tool)
        try:
            return await run_within(work, self.timeout_ms, lambda: _timed_out(name, self.timeout_ms))
        except (ApprovalRequired, CallDeferred, ModelRetry):
            raise
        except Exception as error:
            _logger.warning("tool %s failed", name, exc_info=error)
            self.failures[ctx.tool_call_id or ""] = error
            return f"Error: {text_of(error)}"


class ToolTimedOut(Exception):
    """A tool took longer than its agent allows."""


def _timed_out(name: str, timeout_ms: float) -> Exception:
    return ToolTimedOut(f"{name} timed out after {timeout_ms / 1000:g} s")


def _as_async(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a tool that can be left behind: pydantic-ai would wait for the thread of one that blocks."""
    if inspect.iscoroutinefunction(function):
        return function

    @functools.wraps(function)
    async def call(*arguments: Any, **named: Any) -> Any:
        return await in_thread(lambda: function(*arguments, **named))

    return call
