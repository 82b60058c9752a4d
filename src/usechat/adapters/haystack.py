"""Agents of Haystack as chats.

``usechat serve app:agent`` and ``chat_response(request, agent)`` take every ``Agent``; :class:`HaystackSource` takes
further arguments of a run.

**Events** are the chunks that ``agent.run_async(…, streaming_callback=…)`` passes on, and at last its result. The
result has the whole text, and is read only if nothing was streamed.

**History.** An agent has no memory, so it gets the whole chat in every turn.
"""

from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import aclosing
from typing import Any, Final

from usechat.adapters import conversation, model_files
from usechat.adapters.framework import NO_OPTIONS, FrameworkSource, Options, StreamedCall, emitted, imported
from usechat.errors import UnknownEvent
from usechat.protocol.model_messages import ModelMessage
from usechat.protocol.parts import (
    Error,
    Part,
    Reasoning,
    Step,
    Text,
    ToolCall,
    ToolError,
    ToolResult,
)
from usechat.protocol.values import json_value
from usechat.sources import parts_of
from usechat.turn import AgentInfo, Turn

__all__ = ["HaystackAdapter", "HaystackSource", "parts", "source_of", "to_haystack"]

_FRAMEWORK: Final = "haystack"
_REASONS: Final = {"text": "stop", "length": "length", "content_filter": "content-filter"}
"""Why a run ended, to the reasons of the AI SDK; a tool may be a reason, too."""


def source_of(agent: Any, *, context: Any = None) -> "HaystackSource | None":
    """Return the source of an agent; ``None`` for everything else, such as a pipeline.

    ``context`` is what the agent needs per request, as the source takes it.

    >>> def answers(agent: object) -> bool:
    ...     return source_of(agent) is not None
    """
    agent_type = _haystack("haystack.components.agents").Agent
    return HaystackSource(agent, context=context) if isinstance(agent, agent_type) else None


def _haystack(module: str) -> Any:
    return imported(module, "haystack-ai", "haystack")


class HaystackSource(FrameworkSource[Any]):
    """Answers turns with an agent.

    ``context`` are values of the agent's state, ``options`` further arguments of ``run_async``, such as
    ``generation_kwargs``: a mapping, or a function of the turn, async or not, that returns one.

    >>> from typing import Any
    >>> def source(agent: Any) -> HaystackSource:  # for chat_response or ChatApp
    ...     return HaystackSource(agent, options=lambda turn: {"hook_context": {"chat": turn.chat_id}})
    """

    continues = False  # its tools do not wait until their calls are stored

    def __init__(self, agent: Any, *, options: Options = NO_OPTIONS, context: Any = None) -> None:
        super().__init__(options=options, context=context)
        self._agent = agent
        self.adapter = HaystackAdapter
        self.info = AgentInfo(_FRAMEWORK)

    async def events(self, turn: Turn) -> AsyncGenerator[Any]:
        """Run the agent on the chat. Closing it cancels the run: the model call, and tools that are async."""
        messages = to_haystack(conversation.history(turn))
        arguments = await self.arguments(turn)

        async def run(emit: Callable[[Any], None]) -> None:
            async def callback(chunk: Any) -> None:
                emit(chunk)

            result = await self._agent.run_async(messages=messages, streaming_callback=callback, **arguments)
            emit({"result": result})

        async with aclosing(emitted(run)) as events:
            async for event in events:
                yield event


class HaystackAdapter:
    """Turns the chunks and the result of one run into parts.

    ``known_calls`` and ``denied`` are those of every adapter, and not used: no calls wait.

    >>> list(HaystackAdapter().feed({"result": {"exit_reason": "text"}}))
    [Finish(reason='stop', usage=None, metadata={'finishReason': 'stop'}, lane='')]
    """

    def __init__(self, *, known_calls: Collection[str] = (), denied: Mapping[str, str | None] = {}) -> None:  # noqa: ARG002
        self._calls: dict[int, StreamedCall] = {}
        """The calls that the model writes, by their numbers: id, name, and the pieces of the input."""
        self._open: set[str] = set()
        """The calls without a result."""
        self._has_text = False
        self._has_step = False
        self._is_over = False

    def feed(self, event: Any) -> Iterator[Part]:
        """Yield the parts that an event becomes.

        Raises :class:`~usechat.errors.UnknownEvent` for an event of another kind.
        """
        if isinstance(event, Mapping) and "result" in event:
            yield from self._end(event["result"])
        elif hasattr(event, "tool_call_result"):
            yield from self._chunk(event)
        else:
            raise UnknownEvent(str(getattr(event, "type", None) or type(event).__name__))

    def close(self, error: BaseException | None = None) -> Iterator[Part]:
        """Yield the end of a run that ended without a result."""
        if error is None and not self._is_over:
            yield Error(conversation.INCOMPLETE)

    def _begin(self) -> Iterator[Part]:
        if not self._has_step:
            self._has_step = True
            yield Step()

    def _chunk(self, chunk: Any) -> Iterator[Part]:
        if chunk.reasoning is not None and chunk.reasoning.reasoning_text:
            yield from self._begin()
            yield Reasoning(chunk.reasoning.reasoning_text)
        if chunk.content:
            yield from self._begin()
            self._has_text = True
            yield Text(chunk.content)
        for delta in chunk.tool_calls or ():
            yield from self._begin()
            yield from self._delta(delta)
        if chunk.tool_call_result is not None:
            yield from self._result(chunk.tool_call_result)
        if chunk.finish_reason == "tool_call_results":
            yield from (ToolError(call_id, conversation.TOOL_FAILED) for call_id in sorted(self._open))
            self._open.clear()
            self._has_step = False
        elif chunk.finish_reason is not None:
            yield from self._called()

    def _delta(self, delta: Any) -> Iterator[Part]:
        if delta.index not in self._calls:
            self._calls[delta.index] = StreamedCall(delta.id or "", delta.tool_name or "")
        yield from self._calls[delta.index].feed(delta.arguments or "")

    def _called(self) -> Iterator[Part]:
        """Yield the calls of a model's answer, whose inputs are complete."""
        for call in self._calls.values():
            part = call.whole()
            if isinstance(part, ToolCall):
                self._open.add(call.id)
            yield part
        self._calls.clear()

    def _result(self, result: Any) -> Iterator[Part]:
        call = result.origin
        if call.id not in self._open:  # a model that does not stream
            yield ToolCall(call.id, call.tool_name, json_value(call.arguments))
        self._open.discard(call.id)
        if result.error:
            yield ToolError(call.id, conversation.TOOL_FAILED)  # the result is the exception's text
        else:
            yield ToolResult(call.id, _value(result.result))

    def _end(self, result: Mapping[str, Any]) -> Iterator[Part]:
        self._is_over = True
        last = result.get("last_message")
        if not self._has_text and last is not None and last.text:
            yield Text(last.text)
        used = result.get("token_usage") or {}
        usage = conversation.usage(used.get("prompt_tokens"), used.get("completion_tokens")) if used else None
        yield conversation.finish(_REASONS.get(str(result.get("exit_reason")), "other"), usage)


def _value(result: Any) -> Any:
    """Return the result of a tool as a value: a text, or a list of texts and files."""
    if isinstance(result, str):
        return conversation.parsed_result(result)
    return [getattr(part, "text", None) or {"type": type(part).__name__} for part in result]


def parts(events: AsyncIterable[Any]) -> AsyncIterator[Part]:
    """Yield the parts of a run, inside an agent function. ``HaystackSource(agent).events(turn)`` gives the events.

    >>> from usechat.testing import AgentClient
    >>> async def run(text):  # instead of HaystackSource(agent).events(turn)
    ...     yield {"result": {"exit_reason": "text"}}
    >>> async def answer(turn):
    ...     async for part in parts(run(turn.text)):
    ...         yield part
    >>> with AgentClient(answer) as client:
    ...     client.ask("Hello").text
    ''
    """
    return parts_of(events, HaystackAdapter())


# History.


def to_haystack(messages: Iterable[ModelMessage]) -> list[Any]:
    """Return model messages as those of Haystack. Call ``repair_messages`` first.

    A file at an address is its address, since Haystack takes bytes alone. Reasoning, calls that a provider ran itself
    and their results are left out.

    >>> from usechat import model_messages, repair_messages
    >>> def history(turn):
    ...     return to_haystack(repair_messages(model_messages(turn.messages)))
    """
    types = _haystack("haystack.dataclasses")
    calls: dict[str, Any] = {}
    return [
        each for message in conversation.without_provider_calls(messages) for each in _converted(types, message, calls)
    ]


def _converted(types: Any, message: ModelMessage, calls: dict[str, Any]) -> Iterator[Any]:
    content: Any = message["content"]
    if message["role"] == "user":
        yield types.ChatMessage.from_user(content_parts=[_content(types, part) for part in content])
    elif message["role"] == "assistant":
        text, model_calls, _ = conversation.contents_of(message)
        tool_calls = [_call(types, call) for call in model_calls]
        calls |= {call.id: call for call in tool_calls}
        if text.strip() or tool_calls:
            yield types.ChatMessage.from_assistant(text or None, tool_calls=tool_calls or None)
    elif message["role"] == "tool":
        for result in conversation.contents_of(message).results:
            yield types.ChatMessage.from_tool(result.text, origin=calls[result.call_id], error=result.is_failure)


def _call(types: Any, call: conversation.HistoryCall) -> Any:
    extra = {"call_id": call.id}  # OpenAI Responses has two ids for a call, and needs this one back
    return types.ToolCall(call.name, json_value(call.input), id=call.id, extra=extra)


def _content(types: Any, part: Any) -> Any:
    if part["type"] == "text":
        return part["text"]
    file = model_files.model_file(part)
    if (text := file.text) is not None:
        return text
    if file.data is None:
        return f"{file.name or 'file'}: {file.url}"
    if file.media_type.startswith("image/"):
        return types.ImageContent(file.base64, mime_type=file.media_type)
    return types.FileContent(file.base64, mime_type=file.media_type, filename=file.name)
