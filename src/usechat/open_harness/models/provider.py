"""The interface between an agent node and its model, or a recording of a model."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from usechat.open_harness.inbox import Inbox

__all__ = [
    "MAXIMUM_TURNS",
    "TOOL_TIMEOUT_MS",
    "AgentRequest",
    "Answer",
    "Decision",
    "Execution",
    "PromptMessage",
    "Provider",
    "StreamEvent",
]

TOOL_TIMEOUT_MS: Final = 60_000
MAXIMUM_TURNS: Final = 1_000
"""How often a model may be asked for one answer. Only a model that runs in circles reaches it."""

StreamEvent: TypeAlias = Mapping[str, Any]
"""What a provider emits while it answers.

``{type: "text" | "thinking", content, delta?}``: a piece if ``delta`` is true, or else a whole block that has ended;
``{type: "tool", phase: "start" | "complete", id, name, data, error?, errorType?, durationMs?}``.
"""


class Decision(msgspec.Struct, frozen=True):
    """What a person decided about a tool call, with the reason if they gave one.

    >>> Decision(False, "I need this file.").approved
    False
    """

    approved: bool
    reason: str | None = None


async def _nobody(call_id: str) -> Decision:
    return Decision(False, f"There is nobody to ask about the call {call_id}.")


class PromptMessage(msgspec.Struct, frozen=True):
    """One message of the conversation in a node's input; ``role`` is that of the AI SDK, such as ``user``.

    >>> PromptMessage("user", "Hello").text
    'Hello'
    """

    role: str
    text: str


class AgentRequest(msgspec.Struct, frozen=True):
    """One question to a model: ``prompt`` is the last message, ``conversation`` the messages before it.

    With ``output_schema``, a JSON schema, the answer has a ``structured_output`` that is valid by it. ``tools`` names
    the tools that the model may call, each for ``tool_timeout_ms`` at most; ``max_turns`` bounds the model calls.
    ``files`` are file parts of the page, and ``thinking`` switches reasoning on or names its effort. ``options`` are
    further keys of the node's input, for the provider that knows them.

    >>> AgentRequest(None, "Hello", instructions="Be short.").prompt
    'Hello'
    """

    model: str | None
    prompt: str
    conversation: tuple[PromptMessage, ...] = ()
    files: tuple[Mapping[str, Any], ...] = ()
    instructions: str | None = None
    tools: tuple[str, ...] = ()
    thinking: bool | str | None = None
    tool_timeout_ms: float = TOOL_TIMEOUT_MS
    max_turns: int = MAXIMUM_TURNS
    output_schema: Mapping[str, Any] | None = None
    options: Mapping[str, Any] = {}


class Answer(msgspec.Struct, rename="camel"):
    """The complete answer of a model; ``messages`` is what the agent remembers of it.

    ``usage`` counts tokens by kind (``inputTokens``, ``outputTokens``), and ``model_usage`` does so by model.
    ``num_turns`` is the number of model calls, ``duration_ms`` and ``total_cost_usd`` are for the whole answer.
    ``permission_denials`` are the tool calls that were not allowed, if the provider reports them.
    ``structured_output`` is the value of an agent with an output schema.

    >>> Answer("Hello").text
    'Hello'
    """

    text: str
    usage: dict[str, int] = {}
    model_usage: dict[str, dict[str, int]] = {}
    num_turns: int = 1
    duration_ms: int = 0
    total_cost_usd: float | msgspec.UnsetType = msgspec.UNSET
    permission_denials: list[Any] | msgspec.UnsetType = msgspec.UNSET
    structured_output: Any = msgspec.UNSET
    messages: list[Any] = []


class Execution:
    """One question being answered: what the provider gets, and what to remember if it is stopped.

    ``request`` is the question, ``history`` the ``messages`` of earlier answers, ``inbox`` what the user sends
    meanwhile. ``emit`` takes an event as JSON, such as that of the example. ``ask`` asks a person whether a tool call
    whose start was emitted may run; it takes the id of the call and waits for the :class:`Decision`.

    >>> from usechat.open_harness import AgentRequest, Inbox
    >>> execution = Execution(AgentRequest(None, "Hello"), model=None, history=[], inbox=Inbox(), emit=print)
    >>> execution.emit({"type": "text", "content": execution.request.prompt, "delta": True})
    {'type': 'text', 'content': 'Hello', 'delta': True}
    """

    def __init__(
        self,
        request: AgentRequest,
        *,
        model: Any,
        history: list[Any],
        inbox: Inbox,
        emit: Callable[[StreamEvent], None],
        ask: Callable[[str], Awaitable[Decision]] = _nobody,
    ) -> None:
        self.request = request
        self.model = model
        self.history = history
        self.inbox = inbox
        self.emit = emit
        self.ask = ask
        self.unfinished: list[Any] = []
        """The messages to remember of an answer that was stopped."""
        self.begins: list[tuple[int, Any]] = []
        """Where messages that the inbox had begin in the messages to remember, with their ``messageId``."""


class Provider(Protocol):
    """Answers the questions of agents.

    >>> from usechat.open_harness import FlowRuntime, default_registry
    >>> class Parrot:
    ...     type = "parrot"
    ...
    ...     async def execute(self, execution):
    ...         execution.emit({"type": "text", "content": execution.request.prompt, "delta": True})
    ...         return Answer(execution.request.prompt)
    >>> flow = {"name": "echo", "nodes": [{"id": "a", "type": "agent", "input": {"prompt": "Hello"}}]}
    >>> import asyncio
    >>> asyncio.run(FlowRuntime(flow, registry=default_registry(provider=Parrot())).run())["outputs"]["a"]["text"]
    'Hello'
    """

    type: str

    async def execute(self, execution: Execution) -> Answer:
        """Answer the question; raise AgentFailed if that fails. A stop is a cancellation."""
        ...
