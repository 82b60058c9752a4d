"""Agents that Claude Code answers, through the Claude Agent SDK (``provider: claude``).

**Sessions.** Claude Code keeps a session for each answer. An answer forks the session of the one before it, so that
regenerating or editing a message forgets what followed. The ids of sessions are random and stay in the run store. If a
session is not on this machine, Claude gets the chat as text.

**Messages to a running agent** are asked when the answer is complete, each in a separate fork.

**Permissions.** Claude Code asks about one call after the other, and its process waits for the answer. Calls that are
not run yet are held back meanwhile: a page that has one would wait for its output instead of sending the answer.
"""

import asyncio
import contextlib
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from usechat.adapters.anthropic import to_anthropic
from usechat.adapters.claude import ClaudeResult, Permission, ask_claude, readable_name, results_of
from usechat.errors import MissingDependency
from usechat.open_harness.errors import AgentFailed
from usechat.open_harness.models.claude_options import claude_options
from usechat.open_harness.models.failures import STATUSES, agent_failure
from usechat.open_harness.models.provider import AgentRequest, Answer, Execution, StreamEvent
from usechat.open_harness.models.structured_output import provider_value
from usechat.values import json_text, json_value

__all__ = [
    "ClaudeEvents",
    "answer_of",
    "ask_model",
    "earlier_messages",
    "prompt_content",
    "require_success",
    "session_before",
]

_SESSION: Final = "claudeSession"
_STRUCTURED: Final = "StructuredOutput"
"""The tool by which Claude Code gives a structured output."""
_ERRORS: Final = {"authentication_failed": "auth", "rate_limit": "rate_limit", "server_error": "network"}
_MAX_TURNS: Final = "error_max_turns"
_USAGE: Final = {
    "input_tokens": "inputTokens",
    "output_tokens": "outputTokens",
    "cache_creation_input_tokens": "cacheCreationInputTokens",
    "cache_read_input_tokens": "cacheReadInputTokens",
}


class _ClaudeCall(msgspec.Struct):
    """A tool call without a result; ``began`` is set when it was emitted."""

    name: str
    input: Any
    began: float | None = None


class ClaudeEvents:
    """Turns the messages of one response into the events that a provider emits.

    Whole messages repeat what was streamed and are read only if nothing was. What sub-agents say is left out; their
    tool calls are emitted. ``text`` is what Claude has said since its last tool call, ``error`` the word for a failure
    of the model.

    >>> ClaudeEvents().feed({"type": "a message of another kind"})
    []
    """

    def __init__(self) -> None:
        self.text = ""
        self.error: str | None = None
        self._streamed: set[str] = set()
        self._blocks: dict[int, tuple[str, list[str]]] = {}
        self._calls: dict[str, _ClaudeCall] = {}
        self._denied: set[str] = set()

    def feed(self, message: Any) -> list[StreamEvent]:
        """Return the events of a message."""
        match type(message).__name__:
            case "StreamEvent":
                return list(self._stream(message)) if message.parent_tool_use_id is None else []
            case "AssistantMessage":
                return list(self._whole(message))
            case "UserMessage":
                return [event for result in results_of(message) for event in self._ended(result)]
        return []

    def ask(self, call_id: str, name: str, arguments: Any) -> list[StreamEvent]:
        """Return the start of a call that a person is asked about, unless it was emitted."""
        self._calls.setdefault(call_id, _ClaudeCall(name, arguments))
        return list(self._begin(call_id))

    def deny(self, call_id: str) -> None:
        """Emit no result of a call that a person has denied."""
        self._denied.add(call_id)

    def _stream(self, message: Any) -> Iterator[StreamEvent]:
        event = message.event
        match event["type"]:
            case "message_start":
                self._streamed.add(event["message"]["id"])
                self._blocks = {}
            case "content_block_start":
                kind = event["content_block"]["type"]
                if kind in ("text", "thinking"):
                    self._blocks[event["index"]] = (kind, [])
            case "content_block_delta":
                yield from self._delta(event["index"], event["delta"])
            case "content_block_stop" if event["index"] in self._blocks:
                kind, pieces = self._blocks.pop(event["index"])
                if pieces:
                    yield {"type": kind, "content": "".join(pieces)}

    def _delta(self, index: int, delta: Mapping[str, Any]) -> Iterator[StreamEvent]:
        content = delta.get("text") or delta.get("thinking")
        if index in self._blocks and content:
            kind, pieces = self._blocks[index]
            pieces.append(content)
            self.text += content if kind == "text" else ""
            yield {"type": kind, "content": content, "delta": True}

    def _whole(self, message: Any) -> Iterator[StreamEvent]:
        """Yield the blocks of a message; the text of one about a failure is the provider's."""
        if message.error is not None:
            self.error = message.error
            return
        is_said = message.message_id in self._streamed or message.parent_tool_use_id is not None
        for block in message.content:
            match type(block).__name__:
                case "TextBlock" if block.text and not is_said:
                    self.text += block.text
                    yield {"type": "text", "content": block.text}
                case "ThinkingBlock" if block.thinking and not is_said:
                    yield {"type": "thinking", "content": block.thinking}
                case "ToolUseBlock" if block.name != _STRUCTURED:
                    yield from self._called(block)

    def _called(self, block: Any) -> Iterator[StreamEvent]:
        self.text = ""
        is_free = not any(call.began for call in self._calls.values())
        self._calls.setdefault(block.id, _ClaudeCall(block.name, block.input))
        if is_free:
            yield from self._begin(block.id)

    def _begin(self, call_id: str) -> Iterator[StreamEvent]:
        call = self._calls[call_id]
        if call.began is None:
            call.began = time.monotonic()
            name, _ = readable_name(call.name)
            yield {"type": "tool", "phase": "start", "id": call_id, "name": name, "data": json_value(call.input)}

    def _ended(self, result: ClaudeResult) -> Iterator[StreamEvent]:
        call_id = result.call_id
        if call_id not in self._calls:
            return
        yield from self._begin(call_id)
        call = self._calls.pop(call_id)
        if call_id in self._denied:
            return
        name, _ = readable_name(call.name)
        ended = {
            "type": "tool",
            "phase": "complete",
            "id": call_id,
            "name": name,
            "input": json_value(call.input),
            "data": None if result.is_error else json_value(result.output),
            "durationMs": round((time.monotonic() - (call.began or 0)) * 1000),
        }
        yield {**ended, "error": _text(result.output)} if result.is_error else ended


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json_text(json_value(value))


# Asking Claude Code


async def ask_model(execution: Execution) -> Answer:
    """Ask Claude Code, and then what the user has sent meanwhile.

    Raises AgentFailed for every error of the SDK, and for a response that reports a failure.
    """
    began = time.monotonic()
    responses: list[_ClaudeResponse] = []
    prompt: str | None = execution.request.prompt
    try:
        while prompt is not None:
            response = _ClaudeResponse(
                execution, prompt, [*execution.history, *_messages(responses)], is_first=not responses
            )
            responses.append(response)
            await response.receive()
            prompt = _next_prompt(execution, len(responses))
    except asyncio.CancelledError:
        execution.unfinished = _messages(responses)
        raise
    except AgentFailed:
        raise
    except Exception as error:
        raise agent_failure(error) from error
    answer = answer_of(execution.request, [response.result for response in responses], responses[-1].text)
    answer.duration_ms = round((time.monotonic() - began) * 1000)
    answer.messages = _messages(responses)
    return answer


def _next_prompt(execution: Execution, number: int) -> str | None:
    """Return the next message that the user has sent; note where it begins in the messages to remember."""
    while (command := execution.inbox.next()) is not None:
        if command.get("type") != "reply":  # skip late replies: their question is no longer open
            execution.begins.append((number, command.get("messageId")))
            return str(command.get("message", command.get("content", "")))
    return None


class _ClaudeResponse:
    """One prompt, and what Claude Code answers in a separate session."""

    def __init__(self, execution: Execution, prompt: str, history: Sequence[Any], *, is_first: bool) -> None:
        self.result: Any = None
        self._execution = execution
        self._prompt = prompt
        self._history = history
        self._is_first = is_first
        self._session_id = str(uuid.uuid4())
        self._has_begun = False
        self._events = ClaudeEvents()

    @property
    def text(self) -> str:
        """What Claude has said at last."""
        return (self.result.result if self.result is not None else None) or self._events.text

    @property
    def messages(self) -> list[Any]:
        """What to remember; nothing if the session has not begun."""
        if not self._has_begun:
            return []
        parts = [{"part_kind": "user-prompt", "content": self._prompt}, {"part_kind": "text", "content": self.text}]
        return [{_SESSION: self._session_id, "parts": parts}]

    async def receive(self) -> None:
        """Ask, and emit what happens until the response is complete."""
        request = self._execution.request
        messages = ask_claude(
            _options(request, str(self._execution.model)),
            prompt_content(request, self._prompt, with_files=self._is_first),
            session_id=self._session_id,
            earlier_session=session_before(request, self._history),
            earlier_chat=earlier_messages(request, self._history),
            ask=self._ask,
        )
        async with contextlib.aclosing(messages):
            async for message in messages:
                self._take(message)
        if self.result is None:
            raise AgentFailed("network", "Claude Code ended before its response was complete")

    def _take(self, message: Any) -> None:
        self._emit(self._events.feed(message))
        kind = type(message).__name__
        if kind == "SystemMessage" and message.subtype == "init":
            self._has_begun = True
        elif kind == "ResultMessage":
            require_success(message, self._events.error)
            self.result = message

    async def _ask(self, call_id: str, name: str, arguments: Any) -> Permission:
        self._emit(self._events.ask(call_id, name, arguments))
        decision = await self._execution.ask(call_id)
        if not decision.approved:
            self._events.deny(call_id)
        return Permission(decision.approved, decision.reason)

    def _emit(self, events: Sequence[StreamEvent]) -> None:
        for event in events:
            self._execution.emit(event)


def _options(request: AgentRequest, model: str) -> Any:
    try:
        from claude_agent_sdk import ClaudeAgentOptions
    except ImportError:
        raise MissingDependency("claude-agent-sdk", "claude") from None
    return ClaudeAgentOptions(**claude_options(request, model))


def require_success(result: Any, error: str | None) -> None:
    """Raise AgentFailed for a result that reports a failure."""
    if not result.is_error:
        return
    text = f"{result.subtype}: {result.result or ' '.join(result.errors or [])}"
    if result.subtype == _MAX_TURNS:
        raise AgentFailed("max_turns", text)
    status = result.api_error_status or 0
    raise AgentFailed(
        STATUSES.get(status) or ("network" if status >= 500 else _ERRORS.get(error or "", "execution_error")), text
    )


def _messages(responses: Sequence[_ClaudeResponse]) -> list[Any]:
    return [message for response in responses for message in response.messages]


def session_before(request: AgentRequest, history: Sequence[Any]) -> str | None:
    """Return the session to fork: that of the last answer, or the one that the flow names for the first."""
    if request.conversation:
        return None
    if not history:
        return request.options.get("resume")
    session: str | None = history[-1].get(_SESSION)
    return session


def earlier_messages(request: AgentRequest, history: Sequence[Any]) -> list[str]:
    """Return the chat before the prompt, one text per message."""
    roles = {"user-prompt": "user", "text": "assistant"}
    parts = [part for message in history for part in message.get("parts", ()) if part.get("part_kind") in roles]
    remembered = [f"{roles[part['part_kind']]}: {_text(part['content'])}" for part in parts]
    return [*(f"{message.role}: {message.text}" for message in request.conversation), *remembered]


def prompt_content(request: AgentRequest, prompt: str, *, with_files: bool) -> list[Any]:
    """Return the content of a message of the user. A URL is named, never fetched: it is untrusted client input."""
    files: list[Any] = []
    for file in request.files if with_files else ():
        url = str(file.get("url"))
        if url.startswith("data:"):
            kind = file.get("mediaType") or url.removeprefix("data:").partition(";")[0] or "text/plain"
            files.append({"type": "file", "mediaType": kind, "data": url, "filename": file.get("filename")})
        else:
            files.append({"type": "text", "text": f"[file: {url}]"})
    content: list[Any] = [{"type": "text", "text": prompt}, *files]
    messages = to_anthropic([{"role": "user", "content": content}])
    return list(messages[0]["content"]) if messages else [{"type": "text", "text": prompt}]


def answer_of(request: AgentRequest, results: Sequence[Any], text: str) -> Answer:
    """Return the answer that one or more results make together."""
    usage = dict.fromkeys(_USAGE.values(), 0)
    models: dict[str, dict[str, int]] = {}
    for result in results:
        for key, name in _USAGE.items():
            usage[name] += (result.usage or {}).get(key) or 0
        for model, used in (result.model_usage or {}).items():
            counted = models.setdefault(model, {"inputTokens": 0, "outputTokens": 0})
            for name in counted:
                counted[name] += used.get(name) or 0
    answer = Answer(text, usage, models, sum(result.num_turns for result in results))
    costs = [result.total_cost_usd for result in results if result.total_cost_usd is not None]
    answer.total_cost_usd = sum(costs) if costs else msgspec.UNSET
    denials = [denial for result in results for denial in result.permission_denials or ()]
    answer.permission_denials = json_value(denials) if denials else msgspec.UNSET
    if request.output_schema is not None and results[-1].structured_output is not None:
        answer.structured_output = json_value(provider_value(request.output_schema, results[-1].structured_output))
        answer.text = json_text(answer.structured_output)
    return answer
