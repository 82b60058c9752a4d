"""What happens in a turn, in one vocabulary for both dialects.

The runner's dialect reports changes (``message.part.text-delta``). The browser's dialect sends text in chunks and
everything else as whole messages, so one frame of it becomes several events, most of which repeat what is known.
:class:`~usechat.agent_ops.turn_parts.RunningTurn` drops the repetitions.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from usechat.agent_ops.wire import (
    MessageAdded,
    MessageCreate,
    MessageFinalize,
    MessageObject,
    TextDelta,
    ToolUpdate,
    channel_key,
)

__all__ = [
    "Dialect",
    "FileAdded",
    "RunnerEvent",
    "TextAppended",
    "TextSnapshot",
    "ToolChanged",
    "TurnEnded",
    "TurnEvent",
    "TurnOutput",
    "TurnStarted",
    "turn_event_from_runner",
    "turn_events_from_message",
    "turn_start_from_message",
]


Dialect: TypeAlias = Literal["runner", "client"]
RunnerEvent: TypeAlias = MessageCreate | TextDelta | ToolUpdate | MessageFinalize


class TurnStarted(msgspec.Struct, frozen=True):
    """A turn started in a channel."""

    turn_id: str
    channel: str
    dialect: Dialect


class TextAppended(msgspec.Struct, frozen=True):
    """Text to append to a turn."""

    turn_id: str
    text: str
    dialect: Dialect


class TextSnapshot(msgspec.Struct, frozen=True):
    """All text of a turn so far; it fills gaps."""

    turn_id: str
    text: str


class ToolChanged(msgspec.Struct, frozen=True, rename="camel"):
    """The current state of a tool call, which may be the same as before."""

    turn_id: str
    call_id: str
    tool_name: str
    status: str
    args: Any = None
    result: Any = None
    error: str | None = None


class FileAdded(msgspec.Struct, frozen=True):
    """An image or a sound of a turn, as a ``data:`` URL; it may be known already."""

    turn_id: str
    url: str
    media_type: str


class TurnEnded(msgspec.Struct, frozen=True):
    """A turn ended. One that failed before any output may have no id."""

    turn_id: str | None
    reason: str
    final_text: str | None = None
    error: str | None = None


TurnOutput: TypeAlias = TextAppended | TextSnapshot | ToolChanged | FileAdded | TurnEnded
TurnEvent: TypeAlias = TurnStarted | TurnOutput


def turn_event_from_runner(event: RunnerEvent) -> TurnEvent:
    """Return the turn event in an event of the runner's dialect."""
    match event:
        case TextDelta():
            return TextAppended(event.turn_id, event.delta, "runner")
        case MessageCreate():
            return TurnStarted(event.turn_id, channel_key(event.channel_type, event.channel_id), "runner")
        case ToolUpdate():
            return ToolChanged(
                event.turn_id, event.call_id, event.tool_name, event.status, event.args, event.result, event.error
            )
    return TurnEnded(event.turn_id, event.reason, event.final_text, event.error)


def turn_start_from_message(event: MessageAdded) -> TurnStarted | None:
    """Return the turn that a new message starts: an empty message of the assistant does, every other one does not."""
    message = event.data
    if message.role != "assistant" or message.parts != [] or message.content:
        return None
    return TurnStarted(message.id, channel_key(message.channel_type, message.channel_id), "client")


def turn_events_from_message(message: MessageObject) -> Iterator[TurnEvent]:
    """Yield the state of a whole message as events, known or new: its text, its tools, its files, its end."""
    parts = [part for part in message.parts if isinstance(part, dict)] if isinstance(message.parts, list) else []
    text = message.content or _text_of(parts)
    finish = next((part for part in parts if part.get("type") == "finish"), None)
    if text and finish is None:
        yield TextSnapshot(message.id, text)
    for part in parts:
        if part.get("type") == "tool-call" and (change := _tool_changed(message.id, part)) is not None:
            yield change
        elif (file := _file_added(message.id, part)) is not None:
            yield file
    if finish is not None:
        yield TurnEnded(message.id, str(finish.get("reason")), text, _error_of(parts))


def _text_of(parts: list[dict[str, Any]]) -> str:
    """Return the text of parts. Early releases repeat the whole text in each part that follows a tool."""
    texts = [text for part in parts if part.get("type") == "text" and isinstance(text := part.get("text"), str)]
    if len(texts) > 1 and all(texts[-1].startswith(text) for text in texts):
        return texts[-1]
    return "".join(texts)


def _tool_changed(turn_id: str, part: Mapping[str, Any]) -> ToolChanged | None:
    try:
        return msgspec.convert({**part, "turnId": turn_id}, ToolChanged)
    except msgspec.ValidationError:
        return None


def _file_added(turn_id: str, part: Mapping[str, Any]) -> FileAdded | None:
    data, media_type = part.get("data"), part.get("mimeType")
    if part.get("type") not in ("image", "audio") or not isinstance(data, str) or not isinstance(media_type, str):
        return None
    return FileAdded(turn_id, f"data:{media_type};base64,{data}", media_type)


def _error_of(parts: list[dict[str, Any]]) -> str | None:
    errors = [text for part in parts if part.get("type") == "error" and isinstance(text := part.get("message"), str)]
    return errors[-1] if errors else None
