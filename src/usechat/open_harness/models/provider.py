"""The seam between an agent node and whatever answers it: a model, or a recording of one."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from usechat.open_harness.inbox import Inbox

__all__ = [
    "MAXIMUM_TURNS",
    "TOOL_TIMEOUT_MS",
    "AgentRequest",
    "Answer",
    "Execution",
    "PromptMessage",
    "Provider",
    "StreamEvent",
]

TOOL_TIMEOUT_MS: Final = 60_000
MAXIMUM_TURNS: Final = 1_000
"""How often a model is asked for one answer; far more than it takes, so that one that goes in circles ends."""

StreamEvent: TypeAlias = Mapping[str, Any]
"""What a provider says while it works.

``{type: "text" | "thinking", content, delta?}``: a piece if ``delta`` is true, or else a whole block that has ended;
``{type: "tool", phase: "start" | "complete", id, name, data, error?, errorType?, durationMs?}``.
"""


class PromptMessage(msgspec.Struct, frozen=True):
    """One message of a conversation that a node's input tells."""

    role: str
    text: str


class AgentRequest(msgspec.Struct, frozen=True):
    """One question to a model: ``prompt`` is the last thing said, ``conversation`` what was said before it."""

    model: str | None
    prompt: str
    conversation: tuple[PromptMessage, ...] = ()
    files: tuple[Mapping[str, Any], ...] = ()
    instructions: str | None = None
    tools: tuple[str, ...] = ()
    thinking: bool | str | None = None
    tool_timeout_ms: float = TOOL_TIMEOUT_MS
    max_turns: int = MAXIMUM_TURNS


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
