"""Streams of the OpenAI client, for agent functions that call it in a loop: Chat Completions and Responses.

The client runs no tools. A call is one of a client-side tool, or the agent function runs it, sends ``ToolResult``, and
asks the model again: :func:`parts` ends the turn only after an answer without such calls. Until then it puts usage and
reason into the metadata of the message.

The module imports nothing of ``openai``: other clients give objects with the same fields (LiteLLM, vLLM).
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any, Final

from usechat.adapters import conversation, model_files
from usechat.adapters.conversation import messages_of
from usechat.adapters.framework import StreamedCall, closing, ending, whole_call
from usechat.errors import PublicError, StreamFailed, UnknownEvent
from usechat.protocol.model_messages import FilePart, ModelMessage
from usechat.protocol.parts import (
    BlockEnd,
    Error,
    File,
    Part,
    Reasoning,
    Step,
    Text,
    ToolCall,
    ToolError,
    ToolInputDelta,
    ToolInputError,
    ToolInputStart,
    ToolResult,
)
from usechat.protocol.values import json_text, json_value
from usechat.sources import Adapter, parts_of

__all__ = [
    "ChatCompletionsAdapter",
    "ResponsesAdapter",
    "messages_of",
    "parts",
    "to_chat_completions",
    "to_responses",
]

_PROVIDED: Final = frozenset({"code_interpreter_call", "file_search_call", "image_generation_call", "web_search_call"})
"""Calls that OpenAI runs itself, besides those of MCP servers; their items hold input and result in one."""
_RUN_HERE: Final = frozenset(
    {"apply_patch_call", "computer_call", "custom_tool_call", "local_shell_call", "shell_call"}
)


# Chat Completions.


class ChatCompletionsAdapter:
    """Turns the chunks of one Chat Completions answer into parts; also the events of ``chat.completions.stream()``.

    >>> from types import SimpleNamespace
    >>> delta = SimpleNamespace(content="Hello")
    >>> choice = SimpleNamespace(index=0, delta=delta, finish_reason=None)
    >>> list(ChatCompletionsAdapter().feed(SimpleNamespace(choices=[choice])))[1].text
    'Hello'
    """

    def __init__(self) -> None:
        self._calls: dict[int, StreamedCall] = {}
        self._is_begun = False
        self._reason: str | None = None
        self._is_refusal = False
        self._usage: dict[str, int] | None = None
        self._signature: str | None = None

    def feed(self, event: Any) -> Iterator[Part]:
        """Yield the parts that a chunk becomes. Only the first choice is shown.

        Raises :class:`~usechat.errors.UnknownEvent` for an event of another kind.
        """
        kind = getattr(event, "type", None)
        if kind is not None:  # chat.completions.stream(): each chunk, and events that repeat its content
            if kind == "chunk":
                yield from self.feed(event.chunk)
            elif not kind.startswith(("content.", "refusal.", "tool_calls.", "logprobs.")):
                raise UnknownEvent(str(kind))
            return
        used = getattr(event, "usage", None)
        if used is not None:
            self._usage = conversation.usage(used.prompt_tokens, used.completion_tokens)
        for choice in event.choices:
            if choice.index == 0:
                yield from self._choice(choice)

    def close(self, error: BaseException | None = None) -> Iterator[Part]:
        """Yield the end of the answer: the usage arrives after the reason."""
        if error is not None:
            return
        yield Error(conversation.INCOMPLETE) if self._reason is None else ending(self._reason, self._usage)

    def _choice(self, choice: Any) -> Iterator[Part]:
        if not self._is_begun:
            self._is_begun = True
            yield Step()
        delta = choice.delta
        # Servers other than OpenAI's stream reasoning, under either name.
        reasoning = getattr(delta, "reasoning_content", None) or getattr(delta, "reasoning", None)
        if isinstance(reasoning, str):
            yield Reasoning(reasoning)
        self._keep_signature(delta)
        refusal = getattr(delta, "refusal", None)
        self._is_refusal = self._is_refusal or bool(refusal)
        text = getattr(delta, "content", None) or refusal
        if text:
            yield from self._end_reasoning()
            yield Text(text)
        for call in getattr(delta, "tool_calls", None) or ():
            yield from self._call_delta(call)
        if choice.finish_reason is not None and self._reason is None:
            reason = "refusal" if self._is_refusal else choice.finish_reason
            self._reason = conversation.finish_reason(reason)
            yield from self._end_reasoning()
            yield from (call.whole() for call in self._calls.values())

    def _keep_signature(self, delta: Any) -> None:
        """Keep the signature of Anthropic's thinking, which LiteLLM passes on."""
        for block in getattr(delta, "thinking_blocks", None) or ():
            self._signature = block.get("signature") or self._signature

    def _end_reasoning(self) -> Iterator[Part]:
        if self._signature is not None:
            yield BlockEnd(conversation.signed(self._signature))
            self._signature = None

    def _call_delta(self, delta: Any) -> Iterator[Part]:
        if delta.index not in self._calls:
            yield from self._end_reasoning()
            self._calls[delta.index] = StreamedCall(delta.id, delta.function.name)
        arguments = None if delta.function is None else delta.function.arguments
        yield from self._calls[delta.index].feed(arguments or "")


# Responses.


class ResponseItems:
    """Turns the events of Responses that tell content into parts; ``known_calls`` are those that the page has.

    Items are identified by their index: with some models all of them have the same id.
    """

    def __init__(self, known_calls: Iterable[str] = ()) -> None:
        self._known_calls = set(known_calls)
        self._calls: dict[int, str] = {}
        self._cited: set[str] = set()
        self.is_refusal = False
        """Whether the model has refused to answer; what it says instead is shown."""

    def parts(self, event: Any) -> Iterator[Part]:
        """Yield the parts that an event becomes."""
        match event.type:
            case "response.output_text.delta" | "response.refusal.delta":
                self.is_refusal = self.is_refusal or event.type == "response.refusal.delta"
                yield Text(event.delta)
            case "response.output_text.annotation.added":
                yield from conversation.cited([event.annotation], self._cited)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                yield Reasoning(event.delta)
            case "response.function_call_arguments.delta":
                if event.output_index in self._calls:
                    yield ToolInputDelta(self._calls[event.output_index], event.delta)
            case "response.created":
                self._calls = {}
                yield Step()
            case "response.reasoning_summary_part.added":
                if event.summary_index:
                    yield Reasoning("\n\n")
            case "response.output_item.added":
                if event.item.type == "function_call":
                    self._calls[event.output_index] = event.item.call_id
                    yield ToolInputStart(event.item.call_id, event.item.name)
            case "response.output_item.done":
                yield from self._done(event.item)

    def call(self, item: Any) -> Iterator[Part]:
        """Yield a call with its whole input, unless it is known."""
        if item.call_id not in self._known_calls:
            self._known_calls.add(item.call_id)
            yield whole_call(item.call_id, item.name, item.arguments)

    def _done(self, item: Any) -> Iterator[Part]:
        match item.type:
            case "function_call":
                yield from self.call(item)
            case "message":
                yield BlockEnd()
            case "reasoning":
                yield BlockEnd(_signature(item))
            case "mcp_call":
                yield from _mcp_call(item)
            case kind if kind in _PROVIDED:
                yield from _provided_call(kind.removesuffix("_call"), item)
            case kind if kind in _RUN_HERE:
                yield ToolCall(item.call_id, kind.removesuffix("_call"), item.to_dict())


def _mcp_call(item: Any) -> Iterator[Part]:
    """Yield a call of an MCP server that OpenAI has made: under the name of the tool, with that of the server."""
    title = f"{item.server_label}: {item.name}"
    call_input = conversation.parsed_result(item.arguments)
    yield ToolCall(item.id, item.name, call_input, provider_executed=True, dynamic=True, title=title)
    if item.error is not None:
        yield ToolError(item.id, conversation.TOOL_FAILED, provider_executed=True)
    else:
        yield ToolResult(item.id, conversation.parsed_result(item.output or ""), provider_executed=True)


def _provided_call(name: str, item: Any) -> Iterator[Part]:
    """Yield a call that OpenAI has made and answered; an image is a file."""
    output = {key: value for key, value in item.to_dict().items() if key not in ("id", "type")}
    image = output.pop("result", None) if name == "image_generation" else None
    yield ToolCall(item.id, name, output.get("action", {}), provider_executed=True)
    yield ToolResult(item.id, output, provider_executed=True)
    if image:
        media_type = f"image/{output.get('output_format', 'png')}"
        yield File(f"data:{media_type};base64,{image}", media_type)


def _signature(item: Any) -> Mapping[str, Mapping[str, Any]] | None:
    """Return what OpenAI needs to take its own reasoning back."""
    encrypted = getattr(item, "encrypted_content", None)
    return {"openai": {"itemId": item.id, "reasoningEncryptedContent": encrypted}} if encrypted else None


class ResponsesAdapter:
    """Turns the events of one answer of the Responses API into parts.

    >>> from types import SimpleNamespace
    >>> event = SimpleNamespace(type="response.output_text.delta", delta="Hello")
    >>> list(ResponsesAdapter().feed(event))
    [Text(text='Hello', provider_metadata=None, id=None, lane='')]
    """

    def __init__(self) -> None:
        self._items = ResponseItems()
        self._asks_for_tools = False
        self._is_over = False

    def feed(self, event: Any) -> Iterator[Part]:
        """Yield the parts that an event becomes.

        Raises :class:`~usechat.errors.UnknownEvent` for an event of another kind,
        and :class:`~usechat.errors.StreamFailed` if the response failed.
        """
        if event.type in ("response.completed", "response.incomplete"):
            yield self._end(event.response)
        elif event.type in ("response.failed", "error"):
            raise StreamFailed(f"the response failed: {_failure(event)}")
        elif not event.type.startswith("response."):
            raise UnknownEvent(event.type)
        else:
            for part in self._items.parts(event):
                if isinstance(part, (ToolCall, ToolInputError)) and not part.provider_executed:
                    self._asks_for_tools = True
                yield part

    def close(self, error: BaseException | None = None) -> Iterator[Part]:
        """Yield the end of an answer that ended without its last event."""
        if error is None and not self._is_over:
            yield Error(conversation.INCOMPLETE)

    def _end(self, response: Any) -> Part:
        self._is_over = True
        used = response.usage
        usage = None if used is None else conversation.usage(used.input_tokens, used.output_tokens)
        if response.incomplete_details is not None:
            return ending(conversation.finish_reason(response.incomplete_details.reason), usage)
        if self._items.is_refusal:
            return ending(conversation.finish_reason("refusal"), usage)
        return ending("tool-calls" if self._asks_for_tools else "stop", usage)


def _failure(event: Any) -> str:
    error = event if event.type == "error" else event.response.error
    return str(getattr(error, "message", None))


# For agent functions.


class _OpenAIAdapter:
    """Chooses the adapter by the first event."""

    def __init__(self) -> None:
        self._adapter: Adapter[Any] | None = None

    def feed(self, event: Any) -> Iterable[Part]:
        if self._adapter is None:
            is_response = str(getattr(event, "type", "")).startswith(("response.", "error"))
            self._adapter = ResponsesAdapter() if is_response else ChatCompletionsAdapter()
        return self._adapter.feed(event)

    def close(self, error: BaseException | None = None) -> Iterable[Part]:
        return (self._adapter or ChatCompletionsAdapter()).close(error)


def parts(stream: Any) -> AsyncIterator[Part]:
    """Yield the parts of one answer: of ``chat.completions.create(stream=True)`` or ``responses.create(stream=True)``.

    Chat Completions tells the usage if it is asked to: ``stream_options={"include_usage": True}``.

    >>> from usechat import model_messages, repair_messages
    >>> async def answer(client, turn):
    ...     messages = to_chat_completions(repair_messages(model_messages(turn.messages)))
    ...     stream = await client.chat.completions.create(model="gpt-5-mini", messages=messages, stream=True)
    ...     async for part in parts(stream):
    ...         yield part
    """
    return parts_of(closing(stream), _OpenAIAdapter())


# History.


def to_chat_completions(messages: Iterable[ModelMessage]) -> list[Any]:
    """Return model messages as those of Chat Completions. Call ``repair_messages`` first.

    Reasoning, calls that a provider ran itself and their results are left out.

    >>> to_chat_completions([{"role": "user", "content": [{"type": "text", "text": "Hi"}]}])
    [{'role': 'user', 'content': [{'type': 'text', 'text': 'Hi'}]}]
    """
    return [each for message in conversation.without_provider_calls(messages) for each in _chat_messages(message)]


def _chat_messages(message: ModelMessage) -> Iterator[Mapping[str, Any]]:
    if message["role"] == "system":
        yield {"role": "system", "content": message["content"]}
    elif message["role"] == "user":
        yield {"role": "user", "content": [_chat_user_part(part) for part in message["content"]]}
    elif message["role"] == "assistant":
        text, model_calls, _ = conversation.contents_of(message)
        calls = [_chat_call(call) for call in model_calls]
        if text.strip() or calls:
            reply = {"role": "assistant", "content": text or None}
            yield {**reply, "tool_calls": calls} if calls else reply
    else:
        for result in conversation.contents_of(message).results:
            yield {"role": "tool", "tool_call_id": result.call_id, "content": result.text}


def _chat_call(call: conversation.HistoryCall) -> Mapping[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _chat_user_part(part: Any) -> Mapping[str, Any]:
    if part["type"] == "text":
        return {"type": "text", "text": part["text"]}
    file = model_files.model_file(part)
    if (text := file.text) is not None:
        return {"type": "text", "text": text}
    if file.media_type.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": file.url}}
    if file.data is None:
        raise PublicError("Files other than images must be uploaded with the message.")
    url = f"data:{file.media_type};base64,{file.base64}"
    return {"type": "file", "file": {"filename": file.name or "file", "file_data": url}}


def to_responses(messages: Iterable[ModelMessage]) -> list[Any]:
    """Return model messages as input items of the Responses API. Call ``repair_messages`` first.

    Reasoning is kept if it is encrypted, since only then may it be sent back. Calls that a provider ran itself, and
    their results, are left out; so is sound, which in the last message raises ``PublicError``.

    >>> to_responses([{"role": "user", "content": [{"type": "text", "text": "Hi"}]}])
    [{'role': 'user', 'content': [{'type': 'input_text', 'text': 'Hi'}]}]
    """
    readable = model_files.without_unreadable(messages, ("image/", "application/"), "images and documents")
    return [item for message in conversation.without_provider_calls(readable) for item in _items(message)]


def _items(message: ModelMessage) -> Iterator[Mapping[str, Any]]:
    if message["role"] == "user":
        content = [_user_part(part) for part in message["content"]]
        yield {"role": "user", "content": content}
    elif message["role"] == "system":
        yield {"role": "system", "content": message["content"]}
    else:
        for part in message["content"]:
            yield from _item_of(part)


def _user_part(part: Any) -> Mapping[str, Any]:
    return {"type": "input_text", "text": part["text"]} if part["type"] == "text" else _file(part)


def _file(part: FilePart) -> Mapping[str, Any]:
    file = model_files.model_file(part)
    if (text := file.text) is not None:
        return {"type": "input_text", "text": text}
    if file.media_type.startswith("image/"):
        return {"type": "input_image", "image_url": file.url, "detail": "auto"}
    if file.data is None:
        return {"type": "input_file", "file_url": file.url}
    url = f"data:{file.media_type};base64,{file.base64}"
    return {"type": "input_file", "file_data": url, "filename": file.name or "file"}


def _item_of(part: Any) -> Iterator[Mapping[str, Any]]:
    if part["type"] == "text":
        if part["text"].strip():
            yield {"role": "assistant", "content": part["text"]}
    elif part["type"] == "reasoning":
        openai = part.get("providerOptions", {}).get("openai", {})
        if encrypted := openai.get("reasoningEncryptedContent"):
            summary = [{"type": "summary_text", "text": part["text"]}] if part["text"] else []
            yield {"type": "reasoning", "id": openai["itemId"], "summary": summary, "encrypted_content": encrypted}
    elif part["type"] == "tool-call":
        arguments = json_text(json_value(part.get("input") or {}))
        yield {"type": "function_call", "call_id": part["toolCallId"], "name": part["toolName"], "arguments": arguments}
    elif part["type"] == "tool-result":
        text = conversation.result_text(part["output"])
        yield {"type": "function_call_output", "call_id": part["toolCallId"], "output": text}
