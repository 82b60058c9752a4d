"""Streams of the Anthropic client, for agent functions that call the model in a loop.

The client runs no tools. A call is one of a client-side tool, or the agent function runs it, sends ``ToolResult``, and
asks the model again: :func:`parts` ends the turn only after an answer without such calls. Until then it puts usage and
reason into the metadata of the message.

The module imports nothing of ``anthropic``, and reads events as objects or as JSON, as the Claude Agent SDK has them.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any, Final

from usechat.adapters import conversation, model_files
from usechat.adapters.conversation import messages_of
from usechat.adapters.framework import closing, ending, whole_call
from usechat.errors import StreamFailed, UnknownEvent
from usechat.protocol.model_messages import ModelMessage
from usechat.protocol.parts import (
    BlockEnd,
    Error,
    Part,
    Reasoning,
    Step,
    Text,
    ToolCall,
    ToolError,
    ToolInputDelta,
    ToolInputStart,
    ToolResult,
)
from usechat.sources import parts_of

__all__ = ["AnthropicAdapter", "messages_of", "parts", "to_anthropic"]

_DERIVED: Final = frozenset({"citation", "input_json", "ping", "signature", "text", "thinking"})
"""Events of ``messages.stream()`` that repeat others."""


class MessageBlocks:
    """Turns the content blocks of streamed messages into parts."""

    def __init__(self) -> None:
        self._blocks: dict[int, dict[str, Any]] = {}
        self.asks_for_tools = False
        """Whether the message has a call that the provider does not run."""

    def parts(self, event: Mapping[str, Any]) -> Iterator[Part]:
        """Yield the parts that an event becomes: ``message_start`` and those of content blocks."""
        match event["type"]:
            case "message_start":
                self._blocks = {}
                self.asks_for_tools = False
                yield Step()
            case "content_block_start":
                block = dict(event["content_block"])
                self._blocks[event["index"]] = block | {"json": ""}
                yield from self._begun(block)
            case "content_block_delta":
                yield from self._delta(self._blocks[event["index"]], event["delta"])
            case "content_block_stop":
                yield from self._ended(self._blocks.pop(event["index"]))

    def _begun(self, block: Mapping[str, Any]) -> Iterator[Part]:
        match block["type"]:
            case "text":
                if block["text"]:
                    yield Text(block["text"])
            case "tool_use":
                self.asks_for_tools = True
                yield ToolInputStart(block["id"], block["name"])
            case "server_tool_use":
                yield ToolInputStart(block["id"], block["name"], provider_executed=True)
            case "mcp_tool_use":
                title = f"{block['server_name']}: {block['name']}"
                yield ToolInputStart(block["id"], block["name"], provider_executed=True, dynamic=True, title=title)
            case "redacted_thinking":
                yield Reasoning("", {"anthropic": {"redactedData": block["data"]}})
            case kind if kind.endswith("_tool_result"):
                yield _provided_result(block)

    def _delta(self, block: dict[str, Any], delta: Mapping[str, Any]) -> Iterator[Part]:
        match delta["type"]:
            case "text_delta":
                yield Text(delta["text"])
            case "thinking_delta":
                yield Reasoning(delta["thinking"])
            case "signature_delta":
                block["signature"] = delta["signature"]
            case "input_json_delta":
                block["json"] += delta["partial_json"]
                if delta["partial_json"]:
                    yield ToolInputDelta(block["id"], delta["partial_json"])

    def _ended(self, block: Mapping[str, Any]) -> Iterator[Part]:
        match block["type"]:
            case "text" | "redacted_thinking":
                yield BlockEnd()
            case "thinking":
                signature = block.get("signature")
                yield BlockEnd(conversation.signed(signature) if signature else None)
            case "tool_use":
                yield _call(block)
            case "server_tool_use" | "mcp_tool_use":
                yield _call(block, provider_executed=True)


def _call(block: Mapping[str, Any], *, provider_executed: bool | None = None) -> Part:
    if block["json"]:
        call = whole_call(block["id"], block["name"], block["json"])
        if not isinstance(call, ToolCall):
            return call
        tool_input = call.input
    else:
        tool_input = block["input"]
    server = block.get("server_name")
    return ToolCall(
        block["id"],
        block["name"],
        tool_input,
        provider_executed=provider_executed,
        dynamic=server is not None,
        title=None if server is None else f"{server}: {block['name']}",
    )


def _provided_result(block: Mapping[str, Any]) -> Part:
    """Return the result of a tool that Anthropic has run."""
    content = block["content"]
    has_failed = block.get("is_error") or (isinstance(content, Mapping) and "error_code" in content)
    if has_failed:
        return ToolError(block["tool_use_id"], conversation.TOOL_FAILED, provider_executed=True)
    return ToolResult(block["tool_use_id"], tool_output(content), provider_executed=True)


def tool_output(content: Any) -> Any:
    """Return the content of a result as a value: a single text is parsed if it is JSON."""
    if isinstance(content, str):
        return conversation.parsed_result(content)
    if isinstance(content, list) and len(content) == 1 and content[0].get("type") == "text":
        return conversation.parsed_result(content[0]["text"])
    return content


class AnthropicAdapter:
    """Turns the events of one message into parts.

    >>> delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}}
    >>> start = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    >>> adapter = AnthropicAdapter()
    >>> [part.text for event in (start, delta) for part in adapter.feed(event)]
    ['Hello']
    """

    def __init__(self) -> None:
        self._blocks = MessageBlocks()
        self._tokens = [0, 0]
        self._reason: str | None = None
        self._is_over = False

    def feed(self, event: Any) -> Iterator[Part]:
        """Yield the parts that an event becomes.

        Raises :class:`~usechat.errors.UnknownEvent` for an event of another kind,
        and :class:`~usechat.errors.StreamFailed` if the message failed.
        """
        kind = event["type"] if isinstance(event, Mapping) else event.type
        if kind in _DERIVED:
            return
        data = event if isinstance(event, Mapping) else event.model_dump(mode="json", warnings=False)
        match kind:
            case "message_start":
                self._count(data["message"].get("usage"))
                yield from self._blocks.parts(data)
            case "content_block_start" | "content_block_delta" | "content_block_stop":
                yield from self._blocks.parts(data)
            case "message_delta":
                self._count(data.get("usage"))
                self._reason = data["delta"]["stop_reason"] or self._reason
            case "message_stop":
                self._is_over = True
                reason = "tool-calls" if self._blocks.asks_for_tools else conversation.finish_reason(self._reason)
                yield ending(reason, conversation.usage(*self._tokens))
            case "error":
                raise StreamFailed(f"the message failed: {data['error'].get('message')}")
            case _:
                raise UnknownEvent(kind)

    def close(self, error: BaseException | None = None) -> Iterator[Part]:
        """Yield the end of a message that ended without its last event."""
        if error is None and not self._is_over:
            yield Error(conversation.INCOMPLETE)

    def _count(self, used: Mapping[str, Any] | None) -> None:
        """Note the counts: the last event has those of the whole message, perhaps without the input."""
        counts = ((used or {}).get(name) for name in ("input_tokens", "output_tokens"))
        self._tokens = [
            previous if count is None else count for previous, count in zip(self._tokens, counts, strict=True)
        ]


def parts(stream: Any) -> AsyncIterator[Part]:
    """Yield the parts of one message: of ``messages.create(stream=True)`` or an entered ``messages.stream()``.

    >>> from usechat import model_messages, repair_messages
    >>> async def answer(client, turn):
    ...     messages = to_anthropic(repair_messages(model_messages(turn.messages)))
    ...     options = {"model": "claude-sonnet-5", "max_tokens": 1024}
    ...     async for part in parts(await client.messages.create(messages=messages, stream=True, **options)):
    ...         yield part
    """
    return parts_of(closing(stream), AnthropicAdapter())


# History.


def to_anthropic(messages: Iterable[ModelMessage]) -> list[Any]:
    """Return model messages as those of Anthropic. Call ``repair_messages`` first.

    Reasoning is kept if it is signed, since only then may it be sent back. System messages are left out: they are an
    argument of the request. Calls that a provider ran itself, and their results, are left out, too. So are files that
    Claude cannot read; one in the last message raises ``PublicError``, which names it.

    >>> to_anthropic([{"role": "user", "content": [{"type": "text", "text": "Hi"}]}])
    [{'role': 'user', 'content': [{'type': 'text', 'text': 'Hi'}]}]
    """
    readable = model_files.without_unreadable(messages, ("image/", "application/pdf"), "images and PDF files")
    return [each for message in conversation.without_provider_calls(readable) for each in _messages(message)]


def _messages(message: ModelMessage) -> Iterator[Mapping[str, Any]]:
    if message["role"] == "system":
        return
    blocks = [block for part in message["content"] for block in _block_of(part)]
    if blocks:
        yield {"role": "assistant" if message["role"] == "assistant" else "user", "content": blocks}


def _block_of(part: Any) -> Iterator[Mapping[str, Any]]:
    match part["type"]:
        case "text":
            if part["text"].strip():
                yield {"type": "text", "text": part["text"]}
        case "file":
            yield _file(part)
        case "reasoning":
            yield from _thinking(part)
        case "tool-call":
            yield {"type": "tool_use", "id": part["toolCallId"], "name": part["toolName"], "input": part["input"] or {}}
        case "tool-result":
            output = part["output"]
            block = {"type": "tool_result", "tool_use_id": part["toolCallId"]}
            yield {**block, "content": conversation.result_text(output), "is_error": conversation.is_failure(output)}


def _thinking(part: Any) -> Iterator[Mapping[str, Any]]:
    if (signature := conversation.signature_of(part)) is not None:
        yield {"type": "thinking", "thinking": part["text"], "signature": signature}
    elif (redacted := part.get("providerOptions", {}).get("anthropic", {}).get("redactedData")) is not None:
        yield {"type": "redacted_thinking", "data": redacted}


def _file(part: Any) -> Mapping[str, Any]:
    file = model_files.model_file(part)
    if (text := file.text) is not None:
        return {"type": "text", "text": text}
    kind = "image" if file.media_type.startswith("image/") else "document"
    if file.data is None:
        return {"type": kind, "source": {"type": "url", "url": file.url}}
    return {"type": kind, "source": {"type": "base64", "media_type": file.media_type, "data": file.base64}}
