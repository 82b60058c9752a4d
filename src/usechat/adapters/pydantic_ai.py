"""Agents of Pydantic AI as chats.

``usechat serve app:agent`` and ``chat_response(request, agent)`` take every ``Agent``; :class:`PydanticAISource` takes
dependencies and other arguments of a run.

**Events** are those of ``run_stream_events``. The parts of a model's response are numbered from 0 in each response, so
the number 0 begins a step. ``PartStartEvent`` has the first piece of its text already.

**History.** An agent has no memory, so it gets the whole chat. The agent's system prompt is put in front
again in each run, since Pydantic AI leaves it out if there is a history.

**Pauses.** Tools that need an approval, and tools that are run elsewhere, end the run with ``DeferredToolRequests``.
The chat holds all that is needed to continue, so nothing is stored: an approved call is given back without a result,
and with the approval as a deferred result. ``DeferredToolRequests`` is added to the agent's output type.

**Tools that raise** do not end the turn: the exception is logged, and the model reads that the tool failed.

**MCP.** With ``elicitation_handler``, what an MCP server asks the user is a question of the page, see
:mod:`usechat.adapters.elicitation`. A tool of ``MCPToolset`` that brings a user interface is an MCP App.

**Other agents.** An agent that a tool runs with ``event_stream_handler=show_sub_agent`` has a separate lane, which
begins with ``data-agent`` and its name.
"""

import base64
import copy
import logging
import sys
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from types import NoneType
from typing import Any, Final, get_args

from usechat.adapters import conversation, model_files, sub_agents
from usechat.adapters.elicitation import answer_to
from usechat.adapters.framework import NO_OPTIONS, FrameworkSource, Options, required_fields, without_results
from usechat.errors import CannotAnswer, MissingDependency, UnknownEvent
from usechat.protocol.mcp_apps import declared_app
from usechat.protocol.model_messages import FilePart as FileModelPart
from usechat.protocol.model_messages import ModelMessage as ChatModelMessage
from usechat.protocol.model_messages import ToolResultPart
from usechat.protocol.parts import (
    ApprovalRequest,
    BlockEnd,
    Data,
    Error,
    File,
    McpApp,
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
from usechat.sources import OpenSession, parts_of
from usechat.turn import AgentInfo, Identity, Turn

try:
    from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, RunContext, ToolFailed, UsageLimitExceeded
    from pydantic_ai import ToolDenied as DeniedTool
    from pydantic_ai.agent import AbstractAgent
    from pydantic_ai.capabilities import AbstractCapability, ReinjectSystemPrompt
    from pydantic_ai.exceptions import ContentFilterError
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
_ENGINES: Final = {
    "DBOSAgent": "DBOS",
    "DBOSDurability": "DBOS",
    "PrefectAgent": "Prefect",
    "PrefectDurability": "Prefect",
    "RestateAgent": "Restate",
}
"""The engines whose agents are refused, by the classes that bring an agent there."""
_FILTERED: Final = "The provider of the model has withheld this answer."
_URL_SAFE: Final = str.maketrans("-_", "+/")
"""The other alphabet of Base64, which Pydantic writes."""
_URLS: Final[Mapping[str, Any]] = {"image": ImageUrl, "audio": AudioUrl, "video": VideoUrl}


def source_of(agent: Any, *, context: Any = None) -> "PydanticAISource | None":
    """Return the source of an agent; ``None`` for everything else.

    ``context`` is what the agent needs per request, as the source takes it.

    Raises :class:`~usechat.errors.CannotAnswer` for an agent that needs dependencies, without a context.

    >>> source_of("a text") is None
    True
    """
    return PydanticAISource(agent, context=context) if isinstance(agent, AbstractAgent) else None


class PydanticAISource(FrameworkSource[Any]):
    """Answers turns with an agent.

    ``context`` are the agent's ``deps``: a value, or a function of the turn, async or not, that returns it. Without it
    an agent whose ``deps_type`` has defaults for all fields gets a new object of it in each turn. ``options`` are
    further arguments of ``run_stream_events``, such as ``model_settings`` or ``usage_limits``: a mapping, or such a
    function. Raises :class:`~usechat.errors.CannotAnswer` for an agent that needs dependencies which nobody gives, and
    for one that runs in the workflows of DBOS, Prefect or Restate.

    >>> from pydantic_ai import Agent
    >>> agent = Agent(deps_type=str)
    >>> source = PydanticAISource(agent, context=lambda turn: turn.chat_id)  # for chat_response or ChatApp
    """

    context_argument = "deps"
    continues = True
    retries_without_files = True

    def __init__(self, agent: AbstractAgent[Any, Any], *, options: Options = NO_OPTIONS, context: Any = None) -> None:
        _refuse_engine(agent)
        if context is None and not callable(options) and "deps" not in options:
            context = _default_deps(agent)
        super().__init__(options=options, context=context)
        self._agent = agent
        self.adapter = PydanticAIAdapter
        self.info = AgentInfo("pydantic-ai", agent.name)

    async def events(self, turn: Turn) -> AsyncGenerator[Any]:
        """Run the agent on the chat, with the approvals that the turn holds."""
        options = await self.arguments(turn)
        arguments = run_arguments(self._agent, turn, options.pop("output_type", None))
        capabilities = [ReinjectSystemPrompt(replace_existing=True), *options.pop("capabilities", ()), _FailedTools()]
        arguments |= {"capabilities": capabilities, **options}
        sub_agents.begin_sub_agents()
        async with _deferring(self._agent).run_stream_events(None, **arguments) as events:
            async for event in events:
                yield event

    def mcp_servers(self) -> Mapping[str, OpenSession]:
        """Return the agent's MCP servers by their ids; a page knows only an id that the application has chosen."""
        toolsets = enumerate(_mcp_toolsets(self._agent))
        return {toolset.id or f"toolset {number}": partial(_session, toolset) for number, toolset in toolsets}


def _mcp_toolsets(agent: Any) -> list[Any]:
    """Return the toolsets of an agent that are MCP servers, without those that are made for a run."""
    if (mcp := sys.modules.get("pydantic_ai.mcp")) is None:
        return []  # nobody has made one
    toolsets: list[Any] = []
    for toolset in agent.toolsets:
        toolset.apply(toolsets.append)
    return [toolset for toolset in toolsets if isinstance(toolset, mcp.MCPToolset)]


@asynccontextmanager
async def _session(toolset: Any, _identity: Identity) -> AsyncIterator[Any]:
    """Connect an MCP server, if no run does, and return its session."""
    async with toolset:
        yield toolset.client.session


def _refuse_engine(agent: Any) -> None:
    """Refuse an agent whose engine repeats what a step has said without a mark that a page could follow."""
    objects = [agent]
    while (wrapped := getattr(objects[-1], "wrapped", None)) is not None:
        objects.append(wrapped)
    agent.root_capability.apply(objects.append)
    for name in (base.__name__ for each in objects for base in type(each).__mro__):
        if name in _ENGINES:
            raise CannotAnswer(
                f"this agent runs in workflows of {_ENGINES[name]} ({name}), which repeat what a step said when it is"
                " retried; give the agent without them and store chats, so that answers survive a crash"
                " (docs/survive.md), or run it in Temporal (docs/temporal.md)"
            )


def run_arguments(agent: AbstractAgent[Any, Any], turn: Turn, output_type: Any = None) -> dict[str, Any]:
    """Return the arguments with which a run answers a turn: the chat, its approvals, and an output that may wait.

    ``output_type`` is that of the run, if it has another one than the agent.
    """
    approvals: dict[str, Any] = {
        answer.tool_call_id: True if answer.approved else DeniedTool(*filter(None, [answer.reason]))
        for answer in turn.approvals
        if answer.tool_call_id is not None
    }
    arguments: dict[str, Any] = {
        "deferred_tool_results": DeferredToolResults(approvals=approvals) if approvals else None,
        "message_history": to_pydantic_ai(without_results(conversation.history(turn), approvals)),
    }
    if not _has_output_validators(agent):  # Pydantic AI takes no other output type with them
        return {**arguments, "output_type": [output_type or agent.output_type, DeferredToolRequests]}
    return arguments if output_type is None else {**arguments, "output_type": output_type}


def _deferring(agent: Any) -> Any:
    """Return an agent with output validators as one whose output may wait, too; any other agent as it is.

    Pydantic AI checks no output that waits with them, and takes no other output type for one run of such an agent.
    """
    if not _has_output_validators(agent):
        return agent
    copied = copy.copy(agent)
    if (wrapped := getattr(agent, "wrapped", None)) is not None:
        copied.wrapped = _deferring(wrapped)
    else:
        copied._output_schema = Agent(output_type=[agent.output_type, DeferredToolRequests])._output_schema  # noqa: SLF001
    return copied


def _has_output_validators(agent: Any) -> bool:
    while (wrapped := getattr(agent, "wrapped", None)) is not None:
        agent = wrapped
    return bool(getattr(agent, "_output_validators", ()))


def _default_deps(agent: AbstractAgent[Any, Any]) -> Any:
    """Return the class that makes the dependencies of a turn, or ``None`` for an agent without any.

    Raise CannotAnswer if they cannot be made without arguments.
    """
    deps_type: Any = agent.deps_type
    if deps_type in (object, NoneType) or NoneType in get_args(deps_type):
        return None
    required = required_fields(deps_type)
    if required == []:
        return deps_type
    name = getattr(deps_type, "__name__", str(deps_type))
    raise CannotAnswer(
        f"the agent needs dependencies of the type {name}; give PydanticAISource(agent, context=…),"
        " or --context MODULE:NAME: a value, or a function of the turn that returns it"
    )


class _FailedTools(AbstractCapability[Any]):
    """Lets a run continue when a tool has raised: the model reads that the tool failed, the log has the exception."""

    async def on_tool_execute_error(self, ctx: RunContext[Any], *, error: Exception, **run: Any) -> Any:  # noqa: ARG002
        """Log the exception; limits of the whole run still end it."""
        if isinstance(error, UsageLimitExceeded):
            raise error
        _logger.error("the tool %s raised", run["call"].tool_name, exc_info=error)
        raise ToolFailed(conversation.TOOL_FAILED) from error


async def show_sub_agent(context: RunContext[Any], events: AsyncIterable[Any]) -> None:
    """Show what an agent that a tool runs says while it works, in a separate lane.

    >>> from pydantic_ai import Agent
    >>> researcher = Agent(name="researcher")
    >>> async def research(topic: str) -> str:
    ...     return (await researcher.run(topic, event_stream_handler=show_sub_agent)).output
    """
    adapter, speaker = sub_agent_of(context)
    async for event in events:
        sub_agents.show(speaker, adapter, event)


def sub_agent_of(context: RunContext[Any]) -> "tuple[PydanticAIAdapter, sub_agents.SubAgent]":
    """Return the adapter of a sub-agent's run, and what puts it into its lane."""
    name = (context.agent and context.agent.name) or "agent"
    return sub_agents.sub_agent(name, f"{name}-{context.run_id}", PydanticAIAdapter)


async def elicitation_handler(_message: str, _response_type: Any, params: Any, _context: Any) -> Any:
    """Ask the page what an MCP server asks; for ``MCPToolset`` and clients of FastMCP.

    Let each run open its own session, or a question may reach the page of another chat:

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


class PydanticAIAdapter:
    """Turns the events of one run into parts. ``known_calls`` are those that the page has already.

    ``denied`` is that of every adapter, and not used: the events tell which calls were denied.

    >>> from pydantic_ai.messages import PartStartEvent, TextPart
    >>> list(PydanticAIAdapter().feed(PartStartEvent(index=0, part=TextPart("Hello"))))
    [Step(leaves_calls=False, lane=''), Text(text='Hello', provider_metadata=None, id=None, lane='')]
    """

    def __init__(self, *, known_calls: Collection[str] = (), denied: Mapping[str, str | None] = {}) -> None:  # noqa: ARG002
        self._known_calls = set(known_calls)
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
                yield from ending_of(event.result)
            case CustomEvent():
                yield Data(event.name or "custom", to_jsonable_python(event, serialize_unknown=True))
            case _:
                if getattr(event, "event_kind", None) not in _IGNORED:
                    raise UnknownEvent(str(getattr(event, "event_kind", type(event).__name__)))

    def close(self, error: BaseException | None = None) -> Iterator[Part]:
        """Yield the end of a run that ended without a result, such as a refusal of the model."""
        if isinstance(error, ContentFilterError):
            yield Text(_refusal(error) or _FILTERED)
            yield conversation.finish("content-filter", None)
        elif error is None and not self._is_over:
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
        if part.tool_call_id in self._known_calls:
            return
        self._known_calls.add(part.tool_call_id)
        if isinstance(part, NativeToolCallPart) and part.tool_name.startswith(_MCP):
            yield _mcp_call(part)
            return
        is_native = isinstance(part, NativeToolCallPart) or None
        tool_input = conversation.parsed_result(part.args) if isinstance(part.args, str) else part.args
        if isinstance(tool_input, str) and tool_input:
            text = conversation.INVALID_INPUT
            yield ToolInputError(part.tool_call_id, part.tool_name, text, tool_input, provider_executed=is_native)
        else:
            yield ToolCall(part.tool_call_id, part.tool_name, tool_input or {}, provider_executed=is_native)

    def _native_result(self, part: NativeToolReturnPart) -> Iterator[Part]:
        """Yield the result of a tool that the provider ran; a call that was not reported is sent before it."""
        if part.tool_call_id not in self._known_calls:
            self._known_calls.add(part.tool_call_id)
            yield ToolCall(part.tool_call_id, part.tool_name, {}, provider_executed=True)
        output = to_jsonable_python(part.content, serialize_unknown=True)
        if part.tool_name.startswith(_MCP) and isinstance(output, Mapping):
            if output.get("error") or output.get("is_error"):
                yield ToolError(part.tool_call_id, conversation.TOOL_FAILED, provider_executed=True)
                return
            result = output.get("output", output.get("content", output))
            output = conversation.parsed_result(result) if isinstance(result, str) else result
        yield ToolResult(part.tool_call_id, output, provider_executed=True)


def _refusal(error: ContentFilterError) -> str | None:
    """Return what the model said as it refused; only the response in the exception tells it."""
    responses = conversation.parsed_result(error.body or "")
    match responses:
        case [{"provider_details": {"refusal": str(text)}}]:
            return text
    return None


def _mcp_call(part: NativeToolCallPart) -> Part:
    """Return a call of an MCP server that the provider has made, under the name of the tool."""
    arguments: Any = conversation.parsed_result(part.args) if isinstance(part.args, str) else part.args
    arguments = arguments if isinstance(arguments, Mapping) else {}
    name = str(arguments.get("tool_name") or arguments.get("action") or "mcp")
    title = f"{part.tool_name.removeprefix(_MCP)}: {name}"
    call_input = arguments.get("tool_args") or {}
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
        output = to_jsonable_python(part.content, serialize_unknown=True)
        return ToolResult(part.tool_call_id, output, app=_app_of(part.metadata))
    if part.outcome == "denied":
        return ToolDenied(part.tool_call_id, part.content if isinstance(part.content, str) else None)
    return ToolError(part.tool_call_id, conversation.TOOL_FAILED)  # the content may be the text of an exception


def _app_of(metadata: Any) -> McpApp | None:
    """Return the app that ``MCPToolset`` has noted beside the result of a tool."""
    match metadata:
        case {"mcp_app": {"resource_uri": str(uri), "toolset_id": str() | None as server}}:
            return declared_app({"ui": {"resourceUri": uri}}, server)
    return None


def ending_of(result: Any) -> Iterator[Part]:
    """Yield what the result of a run adds to its events: requests of approvals, a structured output, and the end."""
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
        parts = [converted for part in message["content"] for converted in _assistant_part(part)]
        if parts:
            yield ModelResponse(parts)


def _user_content(content: Sequence[Any]) -> Any:
    converted = [part["text"] if part["type"] == "text" else _file(part) for part in content]
    return converted[0] if len(converted) == 1 and isinstance(converted[0], str) else converted


def _file(part: FileModelPart) -> Any:
    file = model_files.model_file(part)
    if (text := file.text) is not None:
        return text
    if file.data is not None:
        return BinaryContent(file.data, media_type=file.media_type)
    return _URLS.get(file.media_type.partition("/")[0], DocumentUrl)(file.url, media_type=file.media_type)


def _tool_return(part: ToolResultPart) -> ToolReturnPart:
    output = part["output"]
    is_failure = conversation.is_failure(output)
    content = conversation.result_text(output) if is_failure else _with_files(output.get("value"))
    outcome: Any = "denied" if output["type"] == "execution-denied" else "failed" if is_failure else "success"
    return ToolReturnPart(part["toolName"], content, part["toolCallId"], outcome=outcome)


def _with_files(value: Any) -> Any:
    """Return the result of a tool in which files are files again; a model would read them as Base64."""
    match value:
        case {"kind": "binary", "data": str(data), "media_type": str(media_type)}:
            try:
                return BinaryContent(base64.b64decode(data.translate(_URL_SAFE), validate=True), media_type=media_type)
            except ValueError:
                return value
        case list():
            return [_with_files(each) for each in value]
    return value


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
