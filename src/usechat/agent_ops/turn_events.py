"""What happens in a turn, in words that both dialects share."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from usechat.agent_ops.wire import (
    Message,
    MessageCreate,
    MessageFinalize,
    MessageObject,
    TextDelta,
    ToolUpdate,
    channel_key,
)

__all__ = [
    "Dialect",
    "Ended",
    "Happening",
    "RunnerEvent",
    "TextAppended",
    "TextSnapshot",
    "ToolChanged",
    "TurnStarted",
    "beginning_of",
    "changes_of",
    "happening_of",
]


Dialect: TypeAlias = Literal["runner", "client"]


class TurnStarted(msgspec.Struct, frozen=True):
    """A turn began, in this channel."""

    turn_id: str
    channel: str
    dialect: Dialect


class TextAppended(msgspec.Struct, frozen=True):
    """More text came."""

    turn_id: str
    text: str
    dialect: Dialect


class TextSnapshot(msgspec.Struct, frozen=True):
    """All text of the turn so far; it fills gaps."""

    turn_id: str
    text: str


class ToolChanged(msgspec.Struct, frozen=True, rename="camel"):
    """A tool call stands like this now, perhaps as before."""

    turn_id: str
    call_id: str
    tool_name: str
    status: str
    args: Any = None
    result: Any = None
    error: str | None = None


class Ended(msgspec.Struct, frozen=True):
    """A turn ended. One that failed before any output may have no id."""

    turn_id: str | None
    reason: str
    final_text: str | None = None
    error: str | None = None


Happening: TypeAlias = TurnStarted | TextAppended | TextSnapshot | ToolChanged | Ended


# -- The dialect that browsers get: text in chunks, and everything else as whole messages.


def beginning_of(event: Message) -> TurnStarted | None:
    """Return the turn that begins with a message: one of the assistant's in which there is nothing yet."""
    message = event.data
    if message.role != "assistant" or message.parts != [] or message.content:
        return None
    return TurnStarted(message.id, channel_key(message.channel_type, message.channel_id), "client")


def changes_of(message: MessageObject) -> Iterator[Happening]:
    """Yield how a whole message stands; who hears it knows what of that is new."""
    parts = [part for part in message.parts if isinstance(part, dict)] if isinstance(message.parts, list) else []
    text = message.content or _text_of(parts)
    finish = next((part for part in parts if part.get("type") == "finish"), None)
    if text and finish is None:
        yield TextSnapshot(message.id, text)
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


# -- The dialect of the Agent Ops RFC: what the runner itself says.

RunnerEvent = MessageCreate | TextDelta | ToolUpdate | MessageFinalize


def happening_of(event: RunnerEvent) -> Happening:
    """Return what happened."""
    match event:
        case TextDelta():
            return TextAppended(event.turn_id, event.delta, "runner")
        case MessageCreate():
            return TurnStarted(event.turn_id, channel_key(event.channel_type, event.channel_id), "runner")
        case ToolUpdate():
            return ToolChanged(
                event.turn_id, event.call_id, event.tool_name, event.status, event.args, event.result, event.error
            )
    return Ended(event.turn_id, event.reason, event.final_text, event.error)
