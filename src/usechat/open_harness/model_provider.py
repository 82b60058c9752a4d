"""Answers an agent's questions with any model that pydantic-ai knows."""

import asyncio
import base64
import binascii
import contextlib
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, cast
from urllib.parse import unquote_to_bytes

import msgspec

from usechat.errors import MissingDependency

try:
    from pydantic_ai import Agent, UsageLimits
    from pydantic_ai.exceptions import UserError
    from pydantic_ai.messages import (
        BinaryContent,
        ModelMessage,
        ModelMessagesTypeAdapter,
        ModelRequest,
        ModelResponse,
        TextPart,
        ToolCallPart,
        UserPromptPart,
    )
    from pydantic_ai.models import infer_model
    from pydantic_ai.run import AgentRun
    from pydantic_ai.settings import ModelSettings
except ImportError:
    raise MissingDependency("pydantic-ai-slim", "pydantic-ai") from None

from usechat.open_harness.inbox import Inbox
from usechat.open_harness.model_events import ModelEvents
from usechat.open_harness.model_failures import agent_failure
from usechat.open_harness.model_tools import WatchedTools, open_tools
from usechat.open_harness.node_failures import text_of
from usechat.open_harness.nodes.agent_request import AgentRequest
from usechat.open_harness.providers import Answer, Execution

__all__ = ["ask_model", "model_problem"]

_PYTHON: Final = "python:"
_BREATH: Final = 32


def model_problem(model: Any) -> str | None:
    """Return why a model cannot be asked: there is none of that name, or its provider's package or key is missing."""
    try:
        infer_model(_model(model))
    except Exception as error:  # of pydantic-ai, of the provider's library, or of the user's module
        return text_of(error)
    return None


async def ask_model(execution: Execution) -> Answer:
    """Ask a model and call tools for it until it has answered; what is sent to the node becomes a user's message.

    Whatever the model or pydantic-ai raises becomes an AgentFailed.
    """
    began = time.monotonic()
    try:
        answer = await _ask(execution)
    except Exception as error:
        raise agent_failure(error) from error
    answer.duration_ms = round((time.monotonic() - began) * 1000)
    return answer


async def _ask(execution: Execution) -> Answer:
    request = execution.request
    tools = open_tools(request.tools, request.tool_timeout_ms)
    agent = Agent(_model(execution.model), instructions=request.instructions, toolsets=[tools])
    async with agent.iter(
        _prompt(request),
        message_history=_history(execution),
        model_settings=_settings(request),
        usage_limits=UsageLimits(request_limit=request.max_turns),
    ) as run:
        async with _reading(execution.inbox, run):
            await _follow(run, tools, execution)
        return _answer(run)


async def _follow(run: AgentRun[None, str], tools: WatchedTools, execution: Execution) -> None:
    """Go through the steps of a run and tell what happens; keep what there is if it is stopped."""
    events = ModelEvents(tools.failures)
    count = 0
    try:
        node = run.next_node
        while not Agent.is_end_node(node):
            if Agent.is_model_request_node(node) or Agent.is_call_tools_node(node):
                async with node.stream(run.ctx) as stream:
                    async for event in stream:
                        for said in events.feed(event):
                            execution.emit(said)
                        count += 1
                        if count % _BREATH == 0:
                            await asyncio.sleep(0)
            # Not `async for`: only this takes enqueued messages at the end of a run (pydantic-ai 2.0).
            node = await run.next(node)
    except asyncio.CancelledError:
        execution.halfway = _halfway(run.new_messages(), events.unfinished_text)
        raise


@contextlib.asynccontextmanager
async def _reading(inbox: Inbox, run: AgentRun[None, str]) -> AsyncIterator[None]:
    """Hand what is sent to the node to the model, at its next step, while the run goes on."""

    async def read() -> None:
        while True:
            command = await inbox.receive()
            try:
                run.enqueue(str(command.get("message", command.get("content", ""))))
            except UserError:  # the run has ended; it is left for others
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
    """Return what pydantic-ai takes for a model; ``python:module:name`` is an object of a module."""
    if not isinstance(model, str) or not model.startswith(_PYTHON):
        return model
    module, _, name = model.removeprefix(_PYTHON).partition(":")
    return getattr(import_module(module), name)


def _settings(request: AgentRequest) -> ModelSettings | None:
    return None if request.thinking is None else cast("ModelSettings", {"thinking": request.thinking})


def _history(execution: Execution) -> list[ModelMessage]:
    history = ModelMessagesTypeAdapter.validate_python(execution.history)
    for said in execution.request.conversation:
        if said.role == "assistant":
            history.append(ModelResponse([TextPart(said.text)]))
        else:
            history.append(ModelRequest([UserPromptPart(said.text)]))
    return history


def _prompt(request: AgentRequest) -> str | Sequence[str | BinaryContent]:
    files = [file for file in map(_file, request.files) if file is not None]
    return [request.prompt, *files] if files else request.prompt


def _file(file: Mapping[str, Any]) -> BinaryContent | str | None:
    """Return a file for the model. A URL is told, never fetched: it is the client's word."""
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


def _halfway(messages: list[ModelMessage], text: str) -> list[Any]:
    """Return the messages of a stopped run that a later one can go on from: no call is left without its result."""
    kept = list(messages)
    while kept and isinstance(kept[-1], ModelResponse) and any(isinstance(p, ToolCallPart) for p in kept[-1].parts):
        kept.pop()
    if text and kept and isinstance(kept[-1], ModelRequest):
        kept.append(ModelResponse([TextPart(text)]))
    return _plain(kept)


def _plain(messages: list[ModelMessage]) -> list[Any]:
    plain: list[Any] = ModelMessagesTypeAdapter.dump_python(messages, mode="json")
    return plain


def _cost(usage: Any) -> float | msgspec.UnsetType:
    """Return what the run cost, if this release of pydantic-ai knows."""
    cost = getattr(usage, "cost", None)
    return msgspec.UNSET if cost is None else float(cost)


def _answer(run: AgentRun[None, str]) -> Answer:
    result = run.result
    assert result is not None, "a run that was followed to its end has a result"
    models: dict[str, dict[str, int]] = {}
    for message in result.new_messages():
        if isinstance(message, ModelResponse):
            used = models.setdefault(message.model_name or "unknown", {"inputTokens": 0, "outputTokens": 0})
            used["inputTokens"] += message.usage.input_tokens
            used["outputTokens"] += message.usage.output_tokens
    usage = run.usage
    return Answer(
        result.output,
        {
            "inputTokens": usage.input_tokens,
            "outputTokens": usage.output_tokens,
            "cacheCreationInputTokens": usage.cache_write_tokens,
            "cacheReadInputTokens": usage.cache_read_tokens,
        },
        models,
        usage.requests,
        total_cost_usd=_cost(usage),
        messages=_plain(result.new_messages()),
    )
