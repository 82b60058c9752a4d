"""What goes over the WebSocket of an agent session: the frames that are read, and the commands that are sent.

Field names are the upstream's own. Two dialects exist: the runner's (``message.create`` …), and the one that browsers
get (``message``, ``chunk``, ``message.updated``). Frames of both may come over one socket.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from usechat.errors import UnknownEvent
from usechat.protocol.values import read_json

__all__ = [
    "SKIPPED",
    "AgentStatus",
    "Channel",
    "Chunk",
    "Complete",
    "Event",
    "Failure",
    "Frame",
    "Init",
    "InteractivePrompt",
    "Message",
    "MessageCreate",
    "MessageFinalize",
    "MessageObject",
    "MessageUpdated",
    "PromptClosed",
    "Question",
    "QueueState",
    "Status",
    "TextDelta",
    "ToolUpdate",
    "channel_key",
    "kind_of",
    "read_event",
    "read_frame",
]

Frame: TypeAlias = Mapping[str, Any]


_Id: TypeAlias = Annotated[str, msgspec.Meta(min_length=1)]
"""The id of a turn or message; the page's message bears it, and cannot bear an empty one."""


class Channel(msgspec.Struct, frozen=True):
    """Where a conversation is held, besides the session's default channel."""

    type: str
    id: str


class _Event(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    channel_type: str | None = None
    channel_id: str | None = None


class MessageCreate(_Event, frozen=True):
    """The runner begins a turn."""

    turn_id: _Id


class TextDelta(_Event, frozen=True):
    """The runner writes text."""

    turn_id: str
    delta: str


class ToolUpdate(_Event, frozen=True):
    """The runner tells how a tool call stands: pending, running, completed or error."""

    turn_id: str
    call_id: str
    tool_name: str
    status: str
    args: Any = None
    result: Any = None
    error: str | None = None


class MessageFinalize(_Event, frozen=True):
    """The runner ends a turn. A turn that failed before any output may have no id."""

    reason: str
    turn_id: str | None = None
    final_text: str | None = None
    error: str | None = None


class Complete(_Event, frozen=True):
    """The runner is ready for the next prompt."""


class MessageObject(_Event, frozen=True):
    """A whole message. ``parts`` is a list for turns, anything for other messages."""

    id: _Id
    role: str | None = None
    content: str | None = None
    parts: Any = None
    author_id: str | None = None


class Message(_Event, frozen=True):
    """A message appears: what a user said, or the empty beginning of a turn."""

    data: MessageObject


class MessageUpdated(_Event, frozen=True):
    """A message changed; it comes whole."""

    data: MessageObject


class Chunk(_Event, frozen=True):
    """More text of a turn."""

    content: str
    message_id: str


class AgentStatus(_Event, frozen=True):
    """What the agent does: idle, thinking, tool_calling, streaming or error."""

    status: str
    detail: Any = None


class Question(_Event, frozen=True):
    """The agent asks."""

    question_id: str
    text: str = ""


class _Prompt(msgspec.Struct, frozen=True):
    id: str
    title: str = ""
    body: str | None = None


class InteractivePrompt(_Event, frozen=True):
    """The agent asks, in later releases."""

    prompt: _Prompt


class PromptClosed(_Event, frozen=True):
    """A question was answered, or nobody answered it in time."""

    prompt_id: str


class Status(_Event, frozen=True):
    """How session, runner and queue stand; any selection of keys."""

    data: Mapping[str, Any]


class Failure(_Event, frozen=True):
    """The agent failed (``error``), or a command was refused (``message``)."""

    message: str | None = None
    error: str | None = None
    message_id: str | None = None


class Init(_Event, frozen=True):
    """How everything stands when the socket opens."""

    session: Mapping[str, Any] = {}
    data: Mapping[str, Any] = {}


class QueueState(_Event, frozen=True):
    """What waits in the single slot that later releases have for a queue."""

    data: Mapping[str, Any] = {}


Event: TypeAlias = (
    MessageCreate
    | TextDelta
    | ToolUpdate
    | MessageFinalize
    | Complete
    | Message
    | MessageUpdated
    | Chunk
    | AgentStatus
    | Question
    | InteractivePrompt
    | PromptClosed
    | Status
    | Failure
    | Init
    | QueueState
)

_EVENTS: Final[Mapping[str, type[Event]]] = {
    "message.create": MessageCreate,
    "message.part.text-delta": TextDelta,
    "message.part.tool-update": ToolUpdate,
    "message.finalize": MessageFinalize,
    "complete": Complete,
    "message": Message,
    "message.updated": MessageUpdated,
    "chunk": Chunk,
    "agentStatus": AgentStatus,
    "question": Question,
    "interactive_prompt": InteractivePrompt,
    "interactive_prompt_resolved": PromptClosed,
    "interactive_prompt_expired": PromptClosed,
    "status": Status,
    "error": Failure,
    "init": Init,
    "queue.state": QueueState,
}

SKIPPED: Final = frozenset(
    {
        "audit_log",
        "child-session",
        "command-result",
        "diff",
        "files-changed",
        "git-state",
        "integration-auth-required",
        "messages.removed",
        "model-switched",
        "models",
        "pong",
        "pr-created",
        "queue.withdrawn",
        "review-result",
        "stream",
        "thread.created",
        "thread.updated",
        "title",
        "toast",
        "user.joined",
        "user.left",
    }
)
"""Known events that say nothing about a turn."""

_READER: Final = msgspec.json.Decoder()


def read_frame(frame: str | bytes) -> Frame:
    """Read a frame: a JSON object. Whatever else comes is an :class:`UnknownEvent`."""
    try:
        value = _read(frame)
    except (ValueError, RecursionError):
        raise UnknownEvent("(no JSON)") from None
    if not isinstance(value, dict):
        raise UnknownEvent("(no object)")
    return value


def _read(frame: str | bytes) -> Any:
    try:
        return _READER.decode(frame)
    except msgspec.DecodeError:
        # Half a surrogate pair, which JavaScript cuts and writes without a qualm, is JSON to Python alone.
        return read_json(frame if isinstance(frame, str) else frame.decode())


def kind_of(frame: Frame) -> str:
    """Return the type that a frame names, as text whatever it is."""
    return str(frame.get("type"))


def read_event(frame: Frame) -> Event | None:
    """Return what a frame says, nothing if that is known to be of no concern; else raise :class:`UnknownEvent`."""
    kind = kind_of(frame)
    event = _EVENTS.get(kind)
    if event is None:
        if kind in SKIPPED:
            return None
        raise UnknownEvent(kind)
    try:
        return msgspec.convert(frame, event)
    except msgspec.ValidationError as error:
        raise UnknownEvent(f"{kind} ({error})") from None


def channel_key(channel_type: str | None, channel_id: str | None) -> str:
    """Return the name of a channel; ``web:default`` is the one that needs no name."""
    return f"{channel_type or 'web'}:{channel_id or 'default'}"
