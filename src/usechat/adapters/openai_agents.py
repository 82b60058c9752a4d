"""Agents of the OpenAI Agents SDK as chats.

``usechat serve app:agent`` and ``chat_response(request, agent)`` take every ``Agent``; :class:`OpenAIAgentsSource`
takes the arguments of a run.

**Events** are those of ``Runner.run_streamed(…).stream_events()``, and at the end the result itself, which says what
waits for an approval. The SDK always gives events of the Responses API, also for models with another API.

**History.** An agent gets the whole chat in every turn.

**Pauses.** Tools with ``needs_approval`` end the run. What it needs to continue (``RunState``) holds the whole history,
so it never goes to the page: the run store keeps it, under a handle made of the caller's identity and the chat's id,
and it is used once.

**Other agents.** An agent that takes over (handoff), and one that is a tool with ``on_stream=show_sub_agent``, has a
lane of its own, behind ``data-agent`` with its name.
"""

import json
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from usechat.adapters import conversation
from usechat.adapters.openai import ResponseItems, to_responses
from usechat.adapters.questions import AskingTurns
from usechat.errors import MissingDependency, PublicError, UnknownEvent
from usechat.protocol.model_messages import ModelMessage
from usechat.protocol.parts import (
    ApprovalRequest,
    Data,
    Error,
    Part,
    ToolDenied,
    ToolError,
    ToolResult,
)
from usechat.sources import AdapterSource, parts_of
from usechat.turn import AgentInfo, Turn, TurnContext

try:
    from agents import Agent, AgentToolStreamEvent, Runner, RunResultStreaming, RunState
    from agents.stream_events import AgentUpdatedStreamEvent, RawResponsesStreamEvent, RunItemStreamEvent
except ImportError:
    raise MissingDependency("openai-agents", "openai-agents") from None

__all__ = ["OpenAIAgentsAdapter", "OpenAIAgentsSource", "parts", "show_sub_agent", "source_of", "to_openai_agents"]

_FAILED: Final = "An error occurred while running the tool."
"""How the SDK begins the result of a tool that raised; it has no other mark."""
_NO_OPTIONS: Final[Mapping[str, Any]] = {}

_Options: TypeAlias = Mapping[str, Any] | Callable[[Turn], Mapping[str, Any]]


def source_of(found: Any) -> "OpenAIAgentsSource | None":
    """Return the source of an agent; nothing for everything else.

    >>> source_of("a text") is None
    True
    """
    return OpenAIAgentsSource(found) if isinstance(found, Agent) else None


class OpenAIAgentsSource:
    """Answers turns with an agent.

    ``options`` are further arguments of ``Runner.run_streamed``, such as ``context``, ``max_turns`` or ``run_config``:
    as a mapping, or as a function of the turn that returns one.

    >>> from agents import Agent
    >>> source = OpenAIAgentsSource(Agent(name="assistant"), options={"max_turns": 20})  # for chat_response or ChatApp
    """

    def __init__(self, agent: "Agent[Any]", *, options: _Options = _NO_OPTIONS) -> None:
        self._agent = agent
        self._options = options
        self._asking = AskingTurns(self._answer_turn, "openai-agents")

    async def drive(self, context: TurnContext) -> None:
        """Run the agent on the chat, or resume the run that waits for the turn's approvals."""
        await self._asking.drive(context)

    async def _answer_turn(self, context: TurnContext) -> None:
        turn = context.turn
        adapter = OpenAIAgentsAdapter(known_calls=conversation.calls_of(turn), denied=conversation.denials(turn))
        agent = AgentInfo("openai-agents", self._agent.name)
        await AdapterSource(lambda _turn: self._events(context), lambda: adapter, agent=agent).drive(context)

    async def _events(self, context: TurnContext) -> AsyncIterator[Any]:
        turn = context.turn
        handle = conversation.state_handle(turn, "openai-agents")
        options = dict(self._options(turn) if callable(self._options) else self._options)
        state = await context.states.take_state(handle)  # also if another message supersedes it
        run_input = await self._resumed(turn, state) if turn.approvals else to_openai_agents(conversation.history(turn))
        conversation.begin_sub_agents()
        result = Runner.run_streamed(self._agent, run_input, **options)
        async for event in _with_result(result):
            if event is result and result.interruptions:
                await context.states.keep_state(handle, json.dumps(result.to_state().to_json()).encode())
            yield event

    async def _resumed(self, turn: Turn, state: bytes | None) -> Any:
        if state is None:
            raise PublicError(conversation.PAUSE_IS_GONE)
        resumed = await RunState.from_json(self._agent, json.loads(state))
        answers = {answer.tool_call_id: answer for answer in turn.approvals}
        for item in resumed.get_interruptions():
            answer = answers.get(item.call_id)
            if answer is not None and answer.approved:
                resumed.approve(item)
            else:
                resumed.reject(item, rejection_message=None if answer is None else answer.reason)
        return resumed


async def _with_result(result: RunResultStreaming) -> AsyncIterator[Any]:
    """Yield the events of a run and then its result; cancel the run if nobody reads on."""
    try:
        async for event in result.stream_events():
            yield event
        yield result
    finally:
        if not result.is_complete:
            result.cancel(mode="immediate")


class OpenAIAgentsAdapter:
    """Turns the events of one run, and its result, into parts.

    ``known_calls`` are the calls that the page has already, when a run is resumed; ``denied`` are those that a person
    has denied, with the reasons.

    >>> from agents import Agent
    >>> from agents.stream_events import AgentUpdatedStreamEvent
    >>> adapter = OpenAIAgentsAdapter()
    >>> list(adapter.feed(AgentUpdatedStreamEvent(Agent(name="clerk"))))
    []
    """

    def __init__(self, *, known_calls: Collection[str] = (), denied: Mapping[str, str | None] = {}) -> None:
        self._items = ResponseItems(known_calls)
        self._denied = denied
        self._agent: str | None = None
        self._speaker: conversation.SubAgent | None = None
        self._reason: str | None = None
        self._is_over = False

    def feed(self, event: Any) -> Iterator[Part]:
        """Yield the parts that an event becomes.

        Raises :class:`~usechat.errors.UnknownEvent` for an event of another kind.
        """
        if isinstance(event, RawResponsesStreamEvent):
            said = self._raw(event.data)
            yield from said if self._speaker is None else self._speaker.parts(said)
        elif isinstance(event, RunItemStreamEvent):
            yield from self._item(event.name, event.item.raw_item, event.item)
        elif isinstance(event, AgentUpdatedStreamEvent):
            name = event.new_agent.name
            if self._agent not in (None, name):
                self._speaker = conversation.SubAgent(name, f"agent-{name}")
            self._agent = name
        elif isinstance(event, RunResultStreaming):
            yield from self._result(event)
        else:
            raise UnknownEvent(str(getattr(event, "type", type(event).__name__)))

    def close(self, error: BaseException | None = None) -> Iterator[Part]:
        """Yield the end of a run that ended without a result."""
        if error is None and not self._is_over:
            yield Error(conversation.INCOMPLETE)

    def _raw(self, data: Any) -> Iterator[Part]:
        if data.type == "response.completed":
            self._reason = "stop"
        return self._items.parts(data)

    def _item(self, name: str, raw: Any, item: Any) -> Iterator[Part]:
        if name in ("tool_called", "handoff_requested") and getattr(raw, "type", "") == "function_call":
            yield from self._items.call(raw)
        elif name in ("tool_output", "handoff_occured"):
            call_id: Any = raw.get("call_id") if isinstance(raw, Mapping) else getattr(raw, "call_id", None)
            output = item.output if name == "tool_output" else raw.get("output")
            if call_id in self._denied:
                yield ToolDenied(call_id, self._denied[call_id])
            elif isinstance(output, str) and output.startswith(_FAILED):
                yield ToolError(call_id, conversation.TOOL_FAILED)
            elif call_id is not None:
                yield ToolResult(call_id, conversation.parsed_result(output) if isinstance(output, str) else output)

    def _result(self, result: RunResultStreaming) -> Iterator[Part]:
        self._is_over = True
        for item in result.interruptions:
            if item.call_id is not None:
                yield ApprovalRequest(f"approval-{item.call_id}", item.call_id)
        output = result.final_output
        if output is not None and not isinstance(output, str):
            dump = getattr(output, "model_dump", None)
            yield Data("output", dump(mode="json") if callable(dump) else output)
        used = result.context_wrapper.usage
        reason = None if result.interruptions else self._reason
        yield conversation.finish(reason, conversation.usage(used.input_tokens, used.output_tokens))


async def show_sub_agent(event: AgentToolStreamEvent) -> None:
    """Show what an agent that is a tool says while it works, in a lane of its own.

    >>> from agents import Agent
    >>> tool = Agent(name="researcher").as_tool("research", "Asks a researcher.", on_stream=show_sub_agent)
    """
    call, name = event["tool_call"], event["agent"].name
    lane = f"{name}-{'' if call is None else call.call_id}"
    adapter, speaker = conversation.sub_agent(name, lane, OpenAIAgentsAdapter)
    conversation.show(speaker, adapter, event["event"])


def parts(result: RunResultStreaming) -> AsyncIterator[Part]:
    """Yield the parts of a run, inside an agent function.

    >>> from agents import Agent, Runner
    >>> agent = Agent(name="assistant")
    >>> async def answer(turn):
    ...     async for part in parts(Runner.run_streamed(agent, turn.text)):
    ...         yield part
    """
    return parts_of(_with_result(result), OpenAIAgentsAdapter())


# History.


def to_openai_agents(messages: Iterable[ModelMessage]) -> list[Any]:
    """Return model messages as input items of the Responses API. Call ``repair_messages`` first.

    Reasoning is kept if it is encrypted, since only then may it be sent back. Calls that a provider ran itself, and
    their results, are left out.

    >>> to_openai_agents([{"role": "user", "content": [{"type": "text", "text": "Hi"}]}])
    [{'role': 'user', 'content': [{'type': 'input_text', 'text': 'Hi'}]}]
    """
    return to_responses(messages)


def tools_of(agent: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name, the input schema and the output schema of each function tool of an agent, for `usechat types`."""
    from agents import FunctionTool

    for tool in agent.tools:
        if isinstance(tool, FunctionTool):
            yield tool.name, tool.params_json_schema, tool.output_json_schema
