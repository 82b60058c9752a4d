"""The errors of flows, in one tree; :mod:`usechat.errors` has the others.

UsechatError
├── PublicError
│   └── Unreachable           a remote flow cannot be reached
├── InvalidFlow               a flow file that cannot run (also a ValueError)
├── NodeError                 a node of a flow failed
│   ├── NodeFailed            its input, its list or the edge into it is at fault
│   ├── NodeTimedOut          it took longer than its policy allows
│   ├── ToolTimedOut          one of its tools took too long
│   ├── AgentFailed           its agent failed (``error_type``)
│   └── ExpressionFailed      a JSONata expression failed
├── LoopLimitReached          a loop of a flow fired as often as its ``maxIterations``
├── NotResumable              a flow run that has ended, or is running, cannot be started
└── StoreClosed               a store of flow runs was used after it was closed
"""

from collections.abc import Sequence
from typing import Any

from usechat.errors import PublicError, UsechatError

__all__ = [
    "AgentFailed",
    "ExpressionFailed",
    "InvalidFlow",
    "LoopLimitReached",
    "NodeError",
    "NodeFailed",
    "NodeTimedOut",
    "NotResumable",
    "StoreClosed",
    "ToolTimedOut",
    "Unreachable",
]


class Unreachable(PublicError):
    """A remote flow cannot be reached. The page shows the text; the cause is in the log."""

    def __init__(self) -> None:
        super().__init__("The flow cannot be reached at the moment. Please try again later.")


class InvalidFlow(UsechatError, ValueError):
    """A flow that cannot run. ``problems`` and the text hold everything that is wrong with it.

    Raised by ``load_flow`` and ``FlowRuntime``.
    """

    def __init__(self, name: str, problems: Sequence[Any]) -> None:
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__("\n".join([f"{name}: {count}", *(f"  {problem}" for problem in problems)]))
        self.problems = tuple(problems)


class NodeError(UsechatError):
    """A node of a flow failed. The node's policy decides whether it is retried, and whether the flow continues."""


class NodeFailed(NodeError):
    """A node cannot run: its input, its list or the edge into it is at fault. The text says which."""


class NodeTimedOut(NodeError):
    """A node took longer than ``timeoutMs`` of its policy."""


class ToolTimedOut(NodeError):
    """A tool took longer than its agent allows."""


class AgentFailed(NodeError):
    """The agent of a node failed. Raise it in ``Provider.execute``.

    ``error_type`` is ``timeout``, ``rate_limit``, ``auth``, ``network``, or another word for the cause.
    """

    def __init__(self, error_type: str, text: str) -> None:
        super().__init__(text)
        self.error_type = error_type


class ExpressionFailed(NodeError):
    """A JSONata expression of a flow that cannot be parsed, or that failed on these values."""


class LoopLimitReached(UsechatError):
    """A loop fired as often as its ``maxIterations``: the next round does not take place, and the flow has failed.

    Raised by ``FlowRuntime.run`` and ``FlowRuntime.resume``, as in Open Harness.
    """


class NotResumable(UsechatError):
    """A flow run that cannot be resumed: it runs already, it has ended, or nothing is stored of it.

    Raised by ``FlowRuntime``. Make a new runtime to run the flow again.
    """


class StoreClosed(UsechatError):
    """A store of flow runs was used after ``close``. Close it after the server has shut down."""
