"""The dialect that browsers get: text in chunks, and everything else as whole messages."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from usechat.agent_ops.happenings import Began, Ended, Happening, ToolChanged, WroteSoFar
from usechat.agent_ops.wire import Message, MessageObject, channel_key

__all__ = ["beginning_of", "changes_of"]


def beginning_of(event: Message) -> Began | None:
    """Return the turn that begins with a message: one of the assistant's in which there is nothing yet."""
    message = event.data
    if message.role != "assistant" or message.parts != [] or message.content:
        return None
    return Began(message.id, channel_key(message.channel_type, message.channel_id), "client")


def changes_of(message: MessageObject) -> Iterator[Happening]:
    """Yield how a whole message stands; who hears it knows what of that is new."""
    parts = [part for part in message.parts if isinstance(part, dict)] if isinstance(message.parts, list) else []
    text = message.content or _text_of(parts)
    finish = next((part for part in parts if part.get("type") == "finish"), None)
    if text and finish is None:
        yield WroteSoFar(message.id, text)
    for part in parts:
        if part.get("type") == "tool-call" and (changed := _tool(message.id, part)) is not None:
            yield changed
    if finish is not None:
        yield Ended(message.id, str(finish.get("reason")), text, _error_of(parts))


def _text_of(parts: list[dict[str, Any]]) -> str:
    """Return the text of parts. Early releases repeat the whole text in each part behind a tool."""
    texts = [text for part in parts if part.get("type") == "text" and isinstance(text := part.get("text"), str)]
    if len(texts) > 1 and all(texts[-1].startswith(text) for text in texts):
        return texts[-1]
    return "".join(texts)


def _tool(turn_id: str, part: Mapping[str, Any]) -> ToolChanged | None:
    try:
        return msgspec.convert({**part, "turnId": turn_id}, ToolChanged)
    except msgspec.ValidationError:
        return None


def _error_of(parts: list[dict[str, Any]]) -> str | None:
    errors = [text for part in parts if part.get("type") == "error" and isinstance(text := part.get("message"), str)]
    return errors[-1] if errors else None
