"""A flow, a prompt or an agent of the Python package ``genkit``, run in this process."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

from usechat.errors import LocalProtocolError, MissingDependency
from usechat.genkit.history import genkit_messages, resume_of
from usechat.genkit.inputs import FlowInput, InputBuilder, agent_input, stateless_agent_input
from usechat.genkit.schemas import input_for
from usechat.genkit.transport import Flow, GenkitChatTransport
from usechat.genkit.wire import Event
from usechat.turn import Turn

try:
    import genkit

    from usechat.genkit.streaming import OnChunk, streamed
except ImportError:
    raise MissingDependency("genkit", "genkit") from None

__all__ = ["local_flow", "source_of"]

_KINDS: Final = ("flow", "agent")
"""Actions that answer; others are parts of an answer, such as models and tools."""


def source_of(found: Any) -> GenkitChatTransport | None:
    """Return what answers with a Genkit object; nothing for objects that do not answer."""
    if isinstance(found, genkit.ExecutablePrompt) or _kind(found) in _KINDS:
        return GenkitChatTransport(found)
    return None


def local_flow(found: Any) -> Flow:
    """Return the flow behind a Genkit object."""
    if isinstance(found, genkit.ExecutablePrompt):
        return LocalPrompt(found)
    if _kind(found) in _KINDS:
        return LocalAction(found)
    raise LocalProtocolError(
        f"{type(found).__name__} is no Genkit flow; give a URL, or a flow, prompt or agent of genkit"
    )


class LocalAction:
    """Runs a flow or an agent."""

    def __init__(self, action: Any) -> None:
        self._action = action

    @property
    def default_input(self) -> InputBuilder:
        """What the agent's store, or the flow's schema, asks for."""
        if _kind(self._action) == "agent":
            return agent_input if self._action.store is not None else stateless_agent_input
        return input_for(self._action.name, self._action.input_schema)

    def run(self, flow_input: FlowInput, turn: Turn) -> AsyncGenerator[Event, None]:
        """Run the flow and yield what it says. Closing the iterator cancels it."""

        async def start(on_chunk: OnChunk, abort_signal: asyncio.Event) -> Any:
            answer = await self._action.run(
                flow_input.data,
                on_chunk=on_chunk,
                context=_context(turn),
                abort_signal=abort_signal,
                init=flow_input.init,
            )
            return answer.response

        return streamed(start)


class LocalPrompt:
    """Runs a prompt as a chat: the history is put behind its own messages, the last message is its ``{{message}}``."""

    def __init__(self, prompt: Any) -> None:
        self._prompt = prompt

    @property
    def default_input(self) -> InputBuilder:
        """The template's variables, and the messages as options."""
        return _prompt_input

    def run(self, flow_input: FlowInput, turn: Turn) -> AsyncGenerator[Event, None]:
        """Run the prompt and yield what it says. Closing the iterator cancels it."""

        async def start(on_chunk: OnChunk, _abort_signal: asyncio.Event) -> Any:
            options = await self._options(flow_input)
            return await self._prompt(flow_input.data, on_chunk=on_chunk, context=_context(turn), **options)

        return streamed(start)

    async def _options(self, flow_input: FlowInput) -> dict[str, Any]:
        told = flow_input.init or {}
        messages = list(told.get("messages", ()))
        rendered = await self._prompt.render(flow_input.data)
        if messages and messages[-1]["role"] == "user" and any(said.role == "user" for said in rendered.messages):
            messages.pop()  # the template says it
        options: dict[str, Any] = {"messages": [genkit.Message.model_validate(message) for message in messages]}
        for key in ("respond", "restart"):
            if key in told:
                options[f"resume_{key}"] = [genkit.Part.model_validate(part) for part in told[key]]
        return options


def _prompt_input(turn: Turn) -> FlowInput:
    if resume := resume_of(turn):
        messages = genkit_messages(turn.messages, answered=resume.call_ids)
        return FlowInput({"message": turn.text}, {"messages": messages, **resume.wire})
    return FlowInput({"message": turn.text}, {"messages": genkit_messages(turn.messages)})


def _context(turn: Turn) -> Mapping[str, Any]:
    """Return what a flow finds in ``ctx.context``: who asks, as far as it is known."""
    if turn.identity is None or not turn.identity.subject:
        return {}
    return {"auth": {"uid": turn.identity.subject, "claims": dict(turn.identity.claims)}}


def _kind(found: Any) -> str:
    """Return which kind of action an object is, or nothing."""
    return str(found.kind) if isinstance(found, genkit.Action) else ""
