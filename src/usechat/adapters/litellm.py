"""Streams of LiteLLM, for agent functions that call the model in a loop.

They have the shape of OpenAI's Chat Completions, whichever provider answers. Reasoning of Anthropic comes with its
signature, which goes back with the history. :mod:`usechat.adapters.openai` explains what becomes of tool calls.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any

from usechat.adapters import conversation
from usechat.adapters.conversation import messages_of
from usechat.adapters.framework import closing
from usechat.adapters.openai import ChatCompletionsAdapter, to_chat_completions
from usechat.protocol.model_messages import ModelMessage
from usechat.protocol.parts import Part
from usechat.sources import parts_of

__all__ = ["messages_of", "parts", "to_litellm"]


def parts(stream: Any) -> AsyncIterator[Part]:
    """Yield the parts of one answer of ``acompletion(stream=True)``.

    The usage is included if you request it: ``stream_options={"include_usage": True}``.

    >>> from usechat import model_messages, repair_messages
    >>> async def answer(turn):
    ...     import litellm
    ...
    ...     messages = to_litellm(repair_messages(model_messages(turn.messages)))
    ...     stream = await litellm.acompletion(model="openai/gpt-5-mini", messages=messages, stream=True)
    ...     async for part in parts(stream):
    ...         yield part
    """
    return parts_of(closing(stream), ChatCompletionsAdapter())


def to_litellm(messages: Iterable[ModelMessage]) -> list[Any]:
    """Return model messages as those of LiteLLM: Chat Completions with signed thinking. Call ``repair_messages`` first.

    >>> to_litellm([{"role": "user", "content": [{"type": "text", "text": "Hi"}]}])
    [{'role': 'user', 'content': [{'type': 'text', 'text': 'Hi'}]}]
    """
    history = conversation.without_provider_calls(messages)
    return [converted for message in history for converted in _with_thinking(message)]


def _with_thinking(message: ModelMessage) -> Iterator[Mapping[str, Any]]:
    content: Any = message["content"] if message["role"] == "assistant" else ()
    blocks = [
        {"type": "thinking", "thinking": part["text"], "signature": signature}
        for part in content
        if (signature := conversation.signature_of(part))
    ]
    for converted in to_chat_completions([message]):
        yield {**converted, "thinking_blocks": blocks} if blocks else converted
