"""Agents of Pydantic AI as chats.

``usechat serve app:agent`` and ``chat_response(request, agent)`` take every ``Agent``; :class:`PydanticAISource` takes
dependencies and other arguments of a run.

**Events** are those of ``run_stream_events``. The parts of a model's response are numbered from 0 in each response, so
the number 0 begins a step. ``PartStartEvent`` has the first piece of its text already.

**History.** An agent has no memory of its own, so it gets the whole chat. The agent's system prompt is put in front
again in each run, since Pydantic AI leaves it out if there is a history.

**Pauses.** Tools that need an approval, and tools that are run elsewhere, end the run with ``DeferredToolRequests``.
The chat holds all that is needed to continue, so nothing is stored: an approved call is given back without a result,
and with the approval as a deferred result.

**Tools that raise** do not end the turn: the exception is logged, and the model reads that the tool failed.

**MCP.** With ``elicitation_handler``, what an MCP server asks the user is a question of the page, see
:mod:`usechat.adapters.elicitation`.

**Other agents.** An agent that a tool runs with ``event_stream_handler=show_sub_agent`` has a lane of its own, behind
``data-agent`` with its name.
"""

import base64
import logging
from collections.abc import AsyncIterable, AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, TypeAlias

from usechat.adapters import conversation
from usechat.adapters.elicitation import answer_to
from usechat.adapters.questions import AskingTurns
from usechat.errors import MissingDependency, UnknownEvent
from usechat.protocol.model_messages import FilePart as FileModelPart
from usechat.protocol.model_messages import ModelMessage as ChatModelMessage
from usechat.protocol.model_messages import ToolResultPart
from usechat.protocol.parts import (
    ApprovalRequest,
    BlockEnd,
    Data,
    Error,
    File,
    Part,
    Reasoning,
    Step,
    Text,
    ToolCall,
    ToolDenied,
    ToolError,
    ToolInputDelta,
    ToolInputError,
    ToolInputStart,
    ToolResult,
)
from usechat.protocol.values import json_text
from usechat.sources import AdapterSource, parts_of
from usechat.turn import AgentInfo, Turn, TurnContext

try:
    from pydantic_ai import DeferredToolRequests, DeferredToolResults, RunContext, ToolFailed, UsageLimitExceeded
    from pydantic_ai import ToolDenied as DeniedTool
    from pydantic_ai.agent import AbstractAgent
    from pydantic_ai.capabilities import AbstractCapability, ReinjectSystemPrompt
    from pydantic_ai.messages import (
        AudioUrl,
        BinaryContent,
        CustomEvent,
        DocumentUrl,
        FilePart,
        ImageUrl,
        ModelMessage,
        ModelRequest,
        ModelResponse,
        NativeToolCallPart,
        NativeToolReturnPart,
        PartDeltaEvent,
        PartEndEvent,
        PartStartEvent,
        TextPart,
        TextPartDelta,
        ThinkingPart,
        ThinkingPartDelta,
        ToolCallEvent,
        ToolCallPart,
        ToolCallPartDelta,
        ToolResultEvent,
        ToolReturnPart,
        UserPromptPart,
        VideoUrl,
    )
    from pydantic_ai.run import AgentRunResultEvent
    from pydantic_core import to_jsonable_python
except ImportError:
    raise MissingDependency("pydantic-ai-slim", "pydantic-ai") from None

__all__ = [
    "PydanticAIAdapter",
    "PydanticAISource",
    "elicitation_handler",
    "parts",
    "show_sub_agent",
    "source_of",
    "to_pydantic_ai",
]

_logger: Final = logging.getLogger("usechat.adapters")

_IGNORED: Final = frozenset(
    {
        "final_result",
        "enqueued_messages",
        "tool_availability_delta",
        "capability_load_delta",
        "model_settings_delta",
        "deferred_tool_requests",
        "deferred_tool_results",
        "capability",
    }
)
_MCP: Final = "mcp_server:"
"""How Pydantic AI begins the name of a server whose tools the provider calls; the name of the tool is in the input."""
_NO_OPTIONS: Final[Mapping[str, Any]] = {}
_URLS: Final[Mapping[str, Any]] = {"image": ImageUrl, "audio": AudioUrl, "video": VideoUrl}

_Options: TypeAlias = Mapping[str, Any] | Callable[[Turn], Mapping[str, Any]]


def source_of(found: Any) -> "PydanticAISource | None":
    """Return the source of an agent; nothing for everything else.

    >>> source_of("a text") is None
    True
    """
    return PydanticAISource(found) if isinstance(found, AbstractAgent) else None


class PydanticAISource:
    """Answers turns with an agent.

    ``options`` are further arguments of ``run_stream_events``, such as ``deps``, ``model_settings`` or
    ``usage_limits``: as a mapping, or as a function of the turn that returns one.

    >>> from pydantic_ai import Agent
    >>> agent = Agent(deps_type=str)
    >>> source = PydanticAISource(agent, options=lambda turn: {"deps": turn.chat_id})  # for chat_response or ChatApp
    """

    def __init__(self, agent: AbstractAgent[Any, Any], *, options: _Options = _NO_OPTIONS) -> None:
        self._agent = agent
        self._options = options
        self._asking = AskingTurns(self._answer_turn, "pydantic-ai")

    async def drive(self, context: TurnContext) -> None:
        """Run the agent on the chat, with the approvals that the turn holds."""
        await self._asking.drive(context)

    async def _answer_turn(self, context: TurnContext) -> None:
        adapter = PydanticAIAdapter(known_calls=conversation.calls_of(context.turn))
        agent = AgentInfo("pydantic-ai", self._agent.name)
        await AdapterSource(self._events, lambda: adapter, agent=agent).drive(context)

    async def _events(self, turn: Turn) -> AsyncIterator[Any]:
        given = dict(self._options(turn) if callable(self._options) else self._options)
        approvals: dict[str, Any] = {
            answer.tool_call_id: True if answer.approved else DeniedTool(*filter(None, [answer.reason]))
            for answer in turn.approvals
            if answer.tool_call_id is not None
        }
        arguments: dict[str, Any] = {
            "output_type": [given.pop("output_type", None) or self._agent.output_type, DeferredToolRequests],
            "capabilities": [
                ReinjectSystemPrompt(replace_existing=True),
                *given.pop("capabilities", ()),
                _FailedTools(),
            ],
            "deferred_tool_results": DeferredToolResults(approvals=approvals) if approvals else None,
            "message_history": to_pydantic_ai(_without_results(conversation.history(turn), approvals)),
            **given,
        }
        conversation.begin_sub_agents()
        async with self._agent.run_stream_events(None, **arguments) as events:
            async for event in events:
                yield event


class _FailedTools(AbstractCapability[Any]):
    """Lets a run continue when a tool has raised: the model reads that the tool failed, the log has the exception."""

    async def on_tool_execute_error(self, ctx: RunContext[Any], *, error: Exception, **run: Any) -> Any:  # noqa: ARG002
        """Log the exception; limits of the whole run still end it."""
        if isinstance(error, UsageLimitExceeded):
            raise error
        _logger.error("the tool %s raised", run["call"].tool_name, exc_info=error)
        raise ToolFailed(conversation.TOOL_FAILED) from error


async def show_sub_agent(context: RunContext[Any], events: AsyncIterable[Any]) -> None:
    """Show what an agent that a tool runs says while it works, in a lane of its own.

    >>> from pydantic_ai import Agent
    >>> researcher = Agent(name="researcher")
    >>> async def research(topic: str) -> str:
    ...     return (await researcher.run(topic, event_stream_handler=show_sub_agent)).output
    """
    name = (context.agent and context.agent.name) or "agent"
    adapter, speaker = conversation.sub_agent(name, f"{name}-{context.run_id}", PydanticAIAdapter)
    async for event in events:
        conversation.show(speaker, adapter, event)


async def elicitation_handler(_message: str, _response_type: Any, params: Any, _context: Any) -> Any:
    """Ask the page what an MCP server asks; for ``MCPToolset`` and clients of FastMCP.

    Let each run open a session of its own, or a question may reach the page of another chat:

    >>> from pydantic_ai import Agent
    >>> agent = Agent()
    >>> @agent.toolset(per_run_step=False)
    ... def restaurant(context):
    ...     from pydantic_ai.mcp import MCPToolset
    ...
    ...     return MCPToolset("restaurant.py", elicitation_handler=elicitation_handler)
    """
    answer = await answer_to(params.model_dump(by_alias=True, mode="json", exclude_none=True))
    return import_module("fastmcp.client.elicitation").ElicitResult(**answer)


def _without_results(messages: Iterable[ChatModelMessage], calls: Collection[str]) -> Iterator[ChatModelMessage]:
    """Yield the messages without the results of calls that have not run: the history closes every call."""
    for message in messages:
        if message["role"] != "tool":
            yield message
            continue
        kept = [part for part in message["content"] if part["type"] != "tool-result" or part["toolCallId"] not in calls]
        if kept:
            yield {"role": "tool", "content": kept}


class PydanticAIAdapter:
    """Turns the events of one run into parts. ``known_calls`` are those that the page has already.

    >>> from pydantic_ai.messages import PartStartEvent, TextPart
    >>> list(PydanticAIAdapter().feed(PartStartEvent(index=0, part=TextPart("Hello"))))
    [Step(leaves_calls=False, lane=''), Text(text='Hello', provider_metadata=None, id=None, lane='')]
    """

    def __init__(self, *, known_calls: Collection[str] = ()) -> None:
        self._known = set(known_calls)
        self._calls: dict[int, str] = {}
        self._is_over = False

    def feed(self, event: Any) -> Iterator[Part]:
        """Yield the parts that an event becomes.

        Raises :class:`~usechat.errors.UnknownEvent` for an event of another kind.
        """
        match event:
            case PartDeltaEvent():
                yield from self._delta(event.index, event.delta)
            case PartStartEvent():
                yield from self._start(event.index, event.part)
            case PartEndEvent():
                yield from self._end(event.part)
            case ToolCallEvent():
                yield from self._call(event.part)
            case ToolResultEvent():
                yield _result(event.part)
            case AgentRunResultEvent():
                self._is_over = True
                yield from _ending(event.result)
            case CustomEvent():
                yield Data(event.name or "custom", to_jsonable_python(event, serialize_unknown=True))
            case _:
                if getattr(event, "event_kind", None) not in _IGNORED:
                    raise UnknownEvent(str(getattr(event, "event_kind", type(event).__name__)))

    def close(self, error: BaseException | None = None) -> Iterator[Part]:
        """Yield the end of a run that ended without a result."""
        if error is None and not self._is_over:
            yield Error(conversation.INCOMPLETE)

    def _start(self, index: int, part: Any) -> Iterator[Part]:
        if index == 0:
            self._calls = {}
            yield Step()
        match part:
            case TextPart():
                if part.content:
                    yield Text(part.content)
            case ThinkingPart():
                yield Reasoning(part.content)
            case NativeToolCallPart() if part.tool_name.startswith(_MCP):
                pass  # its name is in its input
            case ToolCallPart() | NativeToolCallPart():
                self._calls[index] = part.tool_call_id
                is_native = isinstance(part, NativeToolCallPart)
                yield ToolInputStart(part.tool_call_id, part.tool_name, provider_executed=is_native or None)
                yield from _input_delta(part.tool_call_id, part.args)
            case NativeToolReturnPart():
                yield from self._native_result(part)
            case FilePart():
                data = base64.b64encode(part.content.data).decode()
                yield File(f"data:{part.content.media_type};base64,{data}", part.content.media_type)

    def _delta(self, index: int, delta: Any) -> Iterator[Part]:
        match delta:
            case TextPartDelta():
                if delta.content_delta:
                    yield Text(delta.content_delta)
            case ThinkingPartDelta():
                if delta.content_delta:
                    yield Reasoning(delta.content_delta)
            case ToolCallPartDelta():
                if index in self._calls:
                    yield from _input_delta(self._calls[index], delta.args_delta)

    def _end(self, part: Any) -> Iterator[Part]:
        match part:
            case TextPart():
                yield BlockEnd()
            case ThinkingPart():
                yield BlockEnd(_signature(part))
            case ToolCallPart() | NativeToolCallPart():
                yield from self._call(part)

    def _call(self, part: ToolCallPart | NativeToolCallPart) -> Iterator[Part]:
        """Yield a call with its whole input, unless it is known."""
        if part.tool_call_id in self._known:
            return
        self._known.add(part.tool_call_id)
        if isinstance(part, NativeToolCallPart) and part.tool_name.startswith(_MCP):
            yield _mcp_call(part)
            return
        is_native = isinstance(part, NativeToolCallPart) or None
        tool_input = conversation.parsed_result(part.args) if isinstance(part.args, str) else part.args
        if isinstance(tool_input, str) and tool_input:
            text = "The input is not valid JSON."
            yield ToolInputError(part.tool_call_id, part.tool_name, text, tool_input, provider_executed=is_native)
        else:
            yield ToolCall(part.tool_call_id, part.tool_name, tool_input or {}, provider_executed=is_native)

    def _native_result(self, part: NativeToolReturnPart) -> Iterator[Part]:
        """Yield the result of a tool that the provider ran; a call that was not reported is sent before it."""
        if part.tool_call_id not in self._known:
            self._known.add(part.tool_call_id)
            yield ToolCall(part.tool_call_id, part.tool_name, {}, provider_executed=True)
        output = to_jsonable_python(part.content, serialize_unknown=True)
        if part.tool_name.startswith(_MCP) and isinstance(output, Mapping):
            if output.get("error") or output.get("is_error"):
                yield ToolError(part.tool_call_id, conversation.TOOL_FAILED, provider_executed=True)
                return
            found = output.get("output", output.get("content", output))
            output = conversation.parsed_result(found) if isinstance(found, str) else found
        yield ToolResult(part.tool_call_id, output, provider_executed=True)


def _mcp_call(part: NativeToolCallPart) -> Part:
    """Return a call of an MCP server that the provider has made, under the name of the tool."""
    given: Any = conversation.parsed_result(part.args) if isinstance(part.args, str) else part.args
    given = given if isinstance(given, Mapping) else {}
    name = str(given.get("tool_name") or given.get("action") or "mcp")
    title = f"{part.tool_name.removeprefix(_MCP)}: {name}"
    call_input = given.get("tool_args") or {}
    return ToolCall(part.tool_call_id, name, call_input, dynamic=True, provider_executed=True, title=title)


def _input_delta(call_id: str, arguments: str | Mapping[str, Any] | None) -> Iterator[Part]:
    if arguments:
        text = arguments if isinstance(arguments, str) else json_text(to_jsonable_python(arguments))
        yield ToolInputDelta(call_id, text)


def _signature(part: ThinkingPart) -> Mapping[str, Mapping[str, Any]] | None:
    """Return what a provider needs to take its own reasoning back."""
    if part.signature is None or part.provider_name is None:
        return None
    return {part.provider_name: {"signature": part.signature, **({"id": part.id} if part.id else {})}}


def _result(part: ToolReturnPart) -> Part:
    if part.outcome == "success":
        return ToolResult(part.tool_call_id, to_jsonable_python(part.content, serialize_unknown=True))
    if part.outcome == "denied":
        return ToolDenied(part.tool_call_id, part.content if isinstance(part.content, str) else None)
    return ToolError(part.tool_call_id, conversation.TOOL_FAILED)  # the content may be the text of an exception


def _ending(result: Any) -> Iterator[Part]:
    output, usage = result.output, result.usage
    tokens = conversation.usage(usage.input_tokens, usage.output_tokens)
    if isinstance(output, DeferredToolRequests):
        for call in output.approvals:
            yield ApprovalRequest(f"approval-{call.tool_call_id}", call.tool_call_id)
        yield conversation.finish(None, tokens)
        return
    if not isinstance(output, str):
        yield Data("output", to_jsonable_python(output, serialize_unknown=True))
    yield conversation.finish(conversation.finish_reason(result.response.finish_reason), tokens)


def parts(events: AsyncIterable[Any]) -> AsyncIterator[Part]:
    """Yield the parts of a run, inside an agent function.

    >>> from pydantic_ai import Agent
    >>> from pydantic_ai.models.test import TestModel
    >>> from usechat.testing import AgentClient
    >>> agent = Agent(TestModel(custom_output_text="Hello"))
    >>> async def answer(turn):
    ...     async with agent.run_stream_events(turn.text) as events:
    ...         async for part in parts(events):
    ...             yield part
    >>> with AgentClient(answer) as client:
    ...     client.ask("Hi").text
    'Hello'
    """
    return parts_of(events, PydanticAIAdapter())


# History.


def to_pydantic_ai(messages: Iterable[ChatModelMessage]) -> list[ModelMessage]:
    """Return model messages as Pydantic AI's. Call ``repair_messages`` first: a model rejects calls without results.

    Reasoning is kept if a provider signed it, since only then may it be sent back. System messages, calls that a
    provider ran itself and their results are left out.

    >>> [message] = to_pydantic_ai([{"role": "user", "content": [{"type": "text", "text": "Hi"}]}])
    >>> message.parts[0].content
    'Hi'
    """
    return [converted for message in conversation.without_provider_calls(messages) for converted in _converted(message)]


def _converted(message: ChatModelMessage) -> Iterator[ModelMessage]:
    if message["role"] == "user":
        yield ModelRequest([UserPromptPart(_user_content(message["content"]))])
    elif message["role"] == "tool":
        results = [_tool_return(part) for part in message["content"] if part["type"] == "tool-result"]
        if results:
            yield ModelRequest(results)
    elif message["role"] == "assistant":
        said = [converted for part in message["content"] for converted in _assistant_part(part)]
        if said:
            yield ModelResponse(said)


def _user_content(content: Sequence[Any]) -> Any:
    converted = [part["text"] if part["type"] == "text" else _file(part) for part in content]
    return converted[0] if len(converted) == 1 and isinstance(converted[0], str) else converted


def _file(part: FileModelPart) -> Any:
    file = conversation.model_file(part)
    if (text := file.text) is not None:
        return text
    if file.data is not None:
        return BinaryContent(file.data, media_type=file.media_type)
    return _URLS.get(file.media_type.partition("/")[0], DocumentUrl)(file.url, media_type=file.media_type)


def _tool_return(part: ToolResultPart) -> ToolReturnPart:
    output = part["output"]
    is_failure = conversation.is_failure(output)
    content = conversation.result_text(output) if is_failure else output.get("value")
    outcome: Any = "denied" if output["type"] == "execution-denied" else "failed" if is_failure else "success"
    return ToolReturnPart(part["toolName"], content, part["toolCallId"], outcome=outcome)


def _assistant_part(part: Any) -> Iterator[Any]:
    if part["type"] == "text":
        if part["text"].strip():
            yield TextPart(part["text"])
    elif part["type"] == "reasoning":
        for provider, options in part.get("providerOptions", {}).items():
            if signature := options.get("signature"):
                yield ThinkingPart(part["text"], id=options.get("id"), signature=signature, provider_name=provider)
    elif part["type"] == "tool-call":
        yield ToolCallPart(part["toolName"], part.get("input") or {}, part["toolCallId"])


def tools_of(agent: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name, the input schema and the output schema of each tool of an agent, for `usechat types`."""
    for toolset in agent.toolsets:
        for name, tool in getattr(toolset, "tools", {}).items():
            schema = tool.function_schema
            yield name, schema.json_schema, getattr(schema, "return_schema", None)
