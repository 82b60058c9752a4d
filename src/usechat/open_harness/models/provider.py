"""The seam between an agent node and whatever answers it: a model, or a recording of one."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

import msgspec

from usechat.open_harness.engine.agent_sessions import Inbox
from usechat.open_harness.nodes.agent_request import AgentRequest

__all__ = ["Answer", "Execution", "Provider", "StreamEvent"]

StreamEvent: TypeAlias = Mapping[str, Any]
"""What a provider says while it works.

``{type: "text" | "thinking", content, delta?}``: a piece if ``delta`` is true, or else a whole block that has ended;
``{type: "tool", phase: "start" | "complete", id, name, data, error?, errorType?, durationMs?}``.
"""


class Answer(msgspec.Struct, rename="camel"):
    """What an agent's model answered in the end; ``messages`` is what the agent will remember of it."""

    text: str
    usage: dict[str, int]
    model_usage: dict[str, dict[str, int]] = {}
    num_turns: int = 1
    duration_ms: int = 0
    total_cost_usd: float | msgspec.UnsetType = msgspec.UNSET
    messages: list[Any] = []


class Execution:
    """One question on its way: what the provider is given, and what is kept if it is stopped halfway."""

    def __init__(
        self,
        request: AgentRequest,
        *,
        model: Any,
        history: list[Any],
        inbox: Inbox,
        emit: Callable[[StreamEvent], None],
    ) -> None:
        self.request = request
        self.model = model
        self.history = history
        self.inbox = inbox
        self.emit = emit
        self.halfway: list[Any] = []
        """The messages to remember of an answer that was stopped."""


class Provider(Protocol):
    """Answers an agent's questions."""

    type: str

    async def execute(self, execution: Execution) -> Answer:
        """Answer; an AgentFailed tells why not. A stop is a cancellation."""
        ...
