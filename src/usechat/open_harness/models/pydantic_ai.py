"""Answers an agent's questions with any model that pydantic-ai knows."""

import asyncio
import base64
import binascii
import contextlib
import functools
import inspect
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final, NamedTuple, cast
from urllib.parse import unquote_to_bytes

import msgspec

from usechat.errors import MissingDependency, PublicError
from usechat.ids import new_id
from usechat.open_harness.engine.node_run import run_within
from usechat.open_harness.errors import AgentFailed, ToolTimedOut
from usechat.open_harness.events.failures import PUBLIC
from usechat.open_harness.inbox import Inbox
from usechat.open_harness.models.failures import agent_failure
from usechat.open_harness.models.provider import AgentRequest, Answer, Execution, StreamEvent
from usechat.open_harness.models.structured_output import provider_schema, provider_value, value_problems
from usechat.open_harness.nodes.context import text_of
from usechat.open_harness.nodes.python import import_function
from usechat.open_harness.threads import in_thread
from usechat.values import json_text, json_value

try:
    from pydantic_ai import Agent, RunContext, StructuredDict, Tool, UsageLimits
    from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, UserError
    from pydantic_ai.messages import (
        BinaryContent,
        FunctionToolCallEvent,
        FunctionToolResultEvent,
        ModelMessage,
        ModelMessagesTypeAdapter,
        ModelRequest,
        ModelResponse,
        PartDeltaEvent,
        PartEndEvent,
        PartStartEvent,
        TextPart,
        TextPartDelta,
        ThinkingPart,
        ThinkingPartDelta,
        ToolCallPart,
        UserPromptPart,
    )
    from pydantic_ai.models import infer_model
    from pydantic_ai.providers import infer_provider_class
    from pydantic_ai.run import AgentRun
    from pydantic_ai.settings import ModelSettings
    from pydantic_ai.toolsets import FunctionToolset, ToolsetTool, WrapperToolset
except ImportError:
    raise MissingDependency("pydantic-ai-slim", "pydantic-ai") from None

__all__ = [
    "ModelEvents",
    "WatchedTools",
    "ask_model",
    "model_problem",
    "open_tools",
    "require_complete",
]

_logger: Final = logging.getLogger("usechat.open_harness")


class _StartedCall(NamedTuple):
    id: str
    name: str
    input: Any
    began: float


class ModelEvents:
    """Turns the events of one run of a model into those of a provider."""

    def __init__(self, failures: Mapping[str, Exception]) -> None:
        self._failures = failures
        self._calls: dict[str, _StartedCall] = {}
        self._pieces: list[str] = []

    @property
    def unfinished_text(self) -> str:
        """The text so far of a block that has not ended."""
        return "".join(self._pieces)

    def feed(self, event: Any) -> list[StreamEvent]:
        """Return the provider events of a pydantic-ai event; none for those that a page does not show."""
        match event:
            case PartStartEvent(part=TextPart(content=content)):
                self._pieces = []
                return self._text(content)
            case PartDeltaEvent(delta=TextPartDelta(content_delta=content)):
                return self._text(content)
            case PartEndEvent(part=TextPart(content=content)):
                self._pieces = []
                return [{"type": "text", "content": content}] if content else []
            case PartStartEvent(part=ThinkingPart(content=content)):
                return _thinking(content)
            case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=content)):
                return _thinking(content)
            case PartEndEvent(part=ThinkingPart(content=content)):
                return [{"type": "thinking", "content": content}] if content else []
            case FunctionToolCallEvent(part=part):
                return [self._began(part)]
            case FunctionToolResultEvent(part=part):
                return self._ended(part)
        return []

    def _text(self, content: str) -> list[StreamEvent]:
        if not content:
            return []
        self._pieces.append(content)
        return [{"type": "text", "content": content, "delta": True}]

    def _began(self, part: Any) -> StreamEvent:
        call = _StartedCall(new_id(), part.tool_name, _arguments(part), time.monotonic())
        self._calls[part.tool_call_id] = call
        return {"type": "tool", "phase": "start", "id": call.id, "name": call.name, "data": call.input}

    def _ended(self, part: Any) -> list[StreamEvent]:
        call = self._calls.pop(part.tool_call_id, None)
        if call is None:
            return []
        failure = self._failure(part)
        ended = {
            "type": "tool",
            "phase": "complete",
            "id": call.id,
            "name": call.name,
            "input": call.input,
            "data": None if failure else json_value(part.content),
            "durationMs": round((time.monotonic() - call.began) * 1000),
        }
        return [{**ended, **failure}]

    def _failure(self, part: Any) -> dict[str, str]:
        """Return why a call failed; empty if it did not."""
        raised = self._failures.get(part.tool_call_id)
        if raised is not None:
            kind = {"errorType": PUBLIC} if isinstance(raised, PublicError) else {}
            return {"error": text_of(raised), **kind}
        # A call that the model has to repeat, for instance because its arguments were wrong.
        if getattr(part, "outcome", "success") != "success" or part.part_kind == "retry-prompt":
            return {"error": str(part.content)}
        return {}


def _thinking(content: str | None) -> list[StreamEvent]:
    return [{"type": "thinking", "content": content, "delta": True}] if content else []


def _arguments(part: Any) -> Any:
    try:
        return json_value(part.args_as_dict())
    except Exception:  # what the model wrote is no JSON object
        return json_value(part.args)


# The tools of an agent: the user's functions, which may fail or never end


def open_tools(names: Sequence[str], timeout_ms: float) -> "WatchedTools":
    """Return the tools that a flow names as ``module:function``."""
    tools: list[Tool[None]] = [Tool(_as_async(import_function(name))) for name in names]
    return WatchedTools(FunctionToolset(tools), timeout_ms)


@dataclass
class WatchedTools(WrapperToolset[None]):
    """Stops tools that take too long and reports failures to the model, so that the turn continues.

    ``failures`` holds what they raised, by call id.
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


def _timed_out(name: str, timeout_ms: float) -> Exception:
    return ToolTimedOut(f"{name} timed out after {timeout_ms / 1000:g} s")


def _as_async(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a tool that can be abandoned: pydantic-ai would wait for the thread of one that blocks."""
    if inspect.iscoroutinefunction(function):
        return function

    @functools.wraps(function)
    async def call(*arguments: Any, **named: Any) -> Any:
        return await in_thread(lambda: function(*arguments, **named))

    return call


# Asking the model

_PYTHON: Final = "python:"
_YIELD_EVERY: Final = 32
"""After how many events to yield to the event loop."""


def model_problem(model: Any) -> str | None:
    """Return why a model cannot be used: its name is unknown, or its provider's package or key is missing."""
    try:
        infer_model(_model(model))
    except Exception as error:  # of pydantic-ai, of the provider's library, or of the user's module
        return text_of(error)
    return None


async def ask_model(execution: Execution) -> Answer:
    """Ask a model and call its tools until it has answered. Commands sent to the node become user messages.

    Raises AgentFailed for every error of the model or of pydantic-ai.
    """
    began = time.monotonic()
    try:
        answer = await _ask(execution)
    except AgentFailed:
        raise
    except Exception as error:
        raise agent_failure(error) from error
    answer.duration_ms = round((time.monotonic() - began) * 1000)
    return answer


async def _ask(execution: Execution) -> Answer:
    request, schema = execution.request, execution.request.output_schema
    tools = open_tools(request.tools, request.tool_timeout_ms)
    agent: Agent[None, Any] = Agent(
        _model(execution.model),
        output_type=str if schema is None else StructuredDict(provider_schema(schema)),
        instructions=request.instructions,
        toolsets=[tools],
    )
    if schema is not None:
        agent.output_validator(_schema_check(schema))
    async with agent.iter(
        _prompt(request),
        message_history=_history(execution),
        model_settings=_settings(request),
        usage_limits=UsageLimits(request_limit=request.max_turns),
    ) as run:
        received: list[Any] = []
        try:
            async with _reading(execution.inbox, run, received):
                await _follow(run, tools, execution)
        finally:
            execution.begins = _begins(run.new_messages(), received)
        return _answer(run, schema)


def _schema_check(schema: Mapping[str, Any]) -> Callable[[Any], Any]:
    """Return a function that refuses an output which is not valid by a schema: the model is asked again then."""

    def check(output: Any) -> Any:
        if problems := value_problems(schema, provider_value(schema, output)):
            raise ModelRetry("The output does not follow its schema:\n" + "\n".join(problems))
        return output

    return check


async def _follow(run: AgentRun[None, Any], tools: WatchedTools, execution: Execution) -> None:
    """Run the steps of an agent and emit what happens; if it is stopped, remember what there is."""
    events = ModelEvents(tools.failures)
    count = 0
    try:
        node = run.next_node
        while not Agent.is_end_node(node):
            if Agent.is_model_request_node(node) or Agent.is_call_tools_node(node):
                async with node.stream(run.ctx) as stream:
                    async for event in stream:
                        for stream_event in events.feed(event):
                            execution.emit(stream_event)
                        count += 1
                        if count % _YIELD_EVERY == 0:
                            await asyncio.sleep(0)
            # Not `async for`: only this takes enqueued messages at the end of a run (pydantic-ai 2.0).
            node = await run.next(node)
            if Agent.is_call_tools_node(node):
                require_complete(node.model_response)
    except asyncio.CancelledError:
        execution.unfinished = _unfinished(run.new_messages(), events.unfinished_text)
        raise


_GUESSED: Final = "stop"
"""What pydantic-ai says of a stream of OpenAI Chat Completions that gave no reason for its end."""
_WITHOUT_DETAILS: Final = "xai"
"""The provider whose reason pydantic-ai 2.66 reports as ``finish_reason`` alone."""


def require_complete(response: ModelResponse) -> None:
    """Raise AgentFailed if the stream of a response ended before its final event, which gives the reason for the end.

    pydantic-ai takes such a response for a complete one. It keeps the provider's own word for the reason in
    ``provider_details``. Models that reach no provider of pydantic-ai (``TestModel``, custom models) need give
    none.
    """
    if response.state != "complete" or not _is_provider(response.provider_name):
        return
    is_guess = response.finish_reason == _GUESSED and response.provider_name != _WITHOUT_DETAILS
    reason = (response.provider_details or {}).get("finish_reason") or (None if is_guess else response.finish_reason)
    if reason is None:
        raise AgentFailed("network", f"the stream of {response.model_name} ended before its final event")


@functools.cache
def _is_provider(name: str | None) -> bool:
    try:
        infer_provider_class(name or "")
    except ValueError:
        return False
    except ImportError:  # known, but its client is not installed
        return True
    return True


@contextlib.asynccontextmanager
async def _reading(inbox: Inbox, run: AgentRun[None, Any], received: list[Any]) -> AsyncIterator[None]:
    """Pass commands sent to the node on to the model, which sees them at its next step; add their ids to a list."""

    async def read() -> None:
        while True:
            command = await inbox.receive()
            try:
                run.enqueue(str(command.get("message", command.get("content", ""))))
                received.append(command.get("messageId"))
            except UserError:  # the run has ended; another node may read it
                inbox.put_back(command)
                return

    task = asyncio.create_task(read())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _model(model: Any) -> Any:
    """Return a model for pydantic-ai; ``python:module:name`` is imported."""
    if not isinstance(model, str) or not model.startswith(_PYTHON):
        return model
    module, _, name = model.removeprefix(_PYTHON).partition(":")
    return getattr(import_module(module), name)


def _settings(request: AgentRequest) -> ModelSettings | None:
    return None if request.thinking is None else cast("ModelSettings", {"thinking": request.thinking})


def _history(execution: Execution) -> list[ModelMessage]:
    history = ModelMessagesTypeAdapter.validate_python(execution.history)
    for message in execution.request.conversation:
        if message.role == "assistant":
            history.append(ModelResponse([TextPart(message.text)]))
        else:
            history.append(ModelRequest([UserPromptPart(message.text)]))
    return history


def _prompt(request: AgentRequest) -> str | Sequence[str | BinaryContent]:
    files = [file for file in map(_file, request.files) if file is not None]
    return [request.prompt, *files] if files else request.prompt


def _file(file: Mapping[str, Any]) -> BinaryContent | str | None:
    """Return a file for the model. A URL is named, never fetched: it is untrusted client input."""
    url = file.get("url")
    if not isinstance(url, str):
        return None
    header, comma, data = url.removeprefix("data:").partition(",")
    if not (url.startswith("data:") and comma):
        return f"[file: {url}]"
    try:
        content = base64.b64decode(data, validate=True) if header.endswith(";base64") else unquote_to_bytes(data)
    except binascii.Error:
        return None
    return BinaryContent(content, media_type=str(file.get("mediaType") or header.partition(";")[0] or "text/plain"))


def _begins(messages: list[ModelMessage], received: Sequence[Any]) -> list[tuple[int, Any]]:
    """Return where the received messages begin: each is a separate request, after that of the question."""
    places = [
        place
        for place, message in enumerate(messages[1:], start=1)
        for part in message.parts
        if isinstance(part, UserPromptPart)
    ]
    return list(zip(places, received, strict=False))  # what was received last may not have been sent


def _unfinished(messages: list[ModelMessage], text: str) -> list[Any]:
    """Return the messages of a stopped run that a later run can continue: every tool call has its result."""
    history = list(messages)
    while (
        history
        and isinstance(history[-1], ModelResponse)
        and any(isinstance(p, ToolCallPart) for p in history[-1].parts)
    ):
        history.pop()
    if text and history and isinstance(history[-1], ModelRequest):
        history.append(ModelResponse([TextPart(text)]))
    return _plain(history)


def _plain(messages: list[ModelMessage]) -> list[Any]:
    plain: list[Any] = ModelMessagesTypeAdapter.dump_python(messages, mode="json")
    return plain


def _cost(usage: Any) -> float | msgspec.UnsetType:
    """Return the cost of the run, if this release of pydantic-ai reports it."""
    cost = getattr(usage, "cost", None)
    return msgspec.UNSET if cost is None else float(cost)


def _answer(run: AgentRun[None, Any], schema: Mapping[str, Any] | None) -> Answer:
    result = run.result
    assert result is not None, "a run that was followed to its end has a result"
    models: dict[str, dict[str, int]] = {}
    for message in result.new_messages():
        if isinstance(message, ModelResponse):
            used = models.setdefault(message.model_name or "unknown", {"inputTokens": 0, "outputTokens": 0})
            used["inputTokens"] += message.usage.input_tokens
            used["outputTokens"] += message.usage.output_tokens
    usage = run.usage
    value = None if schema is None else json_value(provider_value(schema, result.output))
    return Answer(
        result.output if schema is None else json_text(value),
        {
            "inputTokens": usage.input_tokens,
            "outputTokens": usage.output_tokens,
            "cacheCreationInputTokens": usage.cache_write_tokens,
            "cacheReadInputTokens": usage.cache_read_tokens,
        },
        models,
        usage.requests,
        total_cost_usd=_cost(usage),
        structured_output=msgspec.UNSET if schema is None else value,
        messages=_plain(result.new_messages()),
    )
