"""The JSON on the WebSocket of an agent session: the frames that are received, and the commands that are sent.

Field names are the upstream's own. Two dialects exist: the runner's (``message.create`` …), and the one for browsers
(``message``, ``chunk``, ``message.updated``). Frames of both may arrive on one socket.

A frame is decoded in two steps, because most frames on a shared socket belong to other people's turns:
:func:`read_frame` parses the JSON, :func:`read_event` validates the fields of a known type.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from usechat.errors import UnknownEvent
from usechat.transports import ApprovalAnswer
from usechat.ui_messages import FileUIPart
from usechat.values import read_json

__all__ = [
    "SKIPPED",
    "AgentStatus",
    "Channel",
    "Complete",
    "Frame",
    "Init",
    "InteractivePrompt",
    "MessageAdded",
    "MessageChunk",
    "MessageCreate",
    "MessageFinalize",
    "MessageObject",
    "MessageUpdated",
    "PromptClosed",
    "PromptObject",
    "Question",
    "QueueState",
    "QueueWithdrawn",
    "SessionError",
    "SessionEvent",
    "SessionStatus",
    "TextDelta",
    "ToolUpdate",
    "abort_command",
    "answer_command",
    "answer_value",
    "channel_key",
    "kind_of",
    "prompt_command",
    "read_event",
    "read_frame",
]

Frame: TypeAlias = Mapping[str, Any]

_Id: TypeAlias = Annotated[str, msgspec.Meta(min_length=1)]
"""The id of a turn or message. It becomes the id of the page's message, which must not be empty."""


_APPROVE: Final = "approve"
"""The action of a prompt that is the plain approval, once."""


class Channel(msgspec.Struct, frozen=True):
    """A channel of the session other than the default one."""

    type: str
    id: str


class _ChannelEvent(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    channel_type: str | None = None
    channel_id: str | None = None


class MessageCreate(_ChannelEvent, frozen=True):
    """The runner started a turn."""

    turn_id: _Id


class TextDelta(_ChannelEvent, frozen=True):
    """The runner appended text to a turn."""

    turn_id: str
    delta: str


class ToolUpdate(_ChannelEvent, frozen=True):
    """The state of a tool call: pending, running, completed or error."""

    turn_id: str
    call_id: str
    tool_name: str
    status: str
    args: Any = None
    result: Any = None
    error: str | None = None


class MessageFinalize(_ChannelEvent, frozen=True):
    """The runner ended a turn. A turn that failed before any output may have no id."""

    reason: str
    turn_id: str | None = None
    final_text: str | None = None
    error: str | None = None


class Complete(_ChannelEvent, frozen=True):
    """The runner is ready for the next prompt."""


class MessageObject(_ChannelEvent, frozen=True):
    """A whole message. ``parts`` is a list for turns, anything for other messages."""

    id: _Id
    role: str | None = None
    content: str | None = None
    parts: Any = None
    author_id: str | None = None


class MessageAdded(_ChannelEvent, frozen=True):
    """A new message: a user's prompt, or the empty start of a turn."""

    data: MessageObject


class MessageUpdated(_ChannelEvent, frozen=True):
    """A message changed; ``data`` is all of it."""

    data: MessageObject


class MessageChunk(_ChannelEvent, frozen=True):
    """Text to append to a turn."""

    content: str
    message_id: str


class AgentStatus(_ChannelEvent, frozen=True):
    """The agent's activity: idle, thinking, tool_calling, streaming or error."""

    status: str
    detail: Any = None


class Question(_ChannelEvent, frozen=True):
    """The agent asks a person a question."""

    question_id: str
    text: str = ""


class PromptObject(msgspec.Struct, frozen=True):
    """What the agent asks: a question, or the approval of a tool that it wants to run (``type`` is ``approval``)."""

    id: str
    title: str = ""
    body: str | None = None
    type: str | None = None
    context: Any = None
    actions: Any = None

    def offers(self, action_id: str | None) -> bool:
        """Return whether the prompt has this action beside the plain approval, such as ``allow_session``."""
        actions = self.actions if isinstance(self.actions, list) else []
        ids = {action.get("id") for action in actions if isinstance(action, Mapping)}
        return action_id in ids - {_APPROVE}

    @property
    def invocation_id(self) -> str:
        """The id of the tool call that waits for approval; the prompt's own id if its context names none."""
        named = self.context.get("invocationId") if isinstance(self.context, Mapping) else None
        return named if isinstance(named, str) else self.id


class InteractivePrompt(_ChannelEvent, frozen=True):
    """The agent asks a person a question, as later releases send it."""

    prompt: PromptObject


class PromptClosed(_ChannelEvent, frozen=True):
    """A question was answered or has expired."""

    prompt_id: str


class SessionStatus(_ChannelEvent, frozen=True):
    """Changes to the state of session, runner and queue; any subset of keys."""

    data: Mapping[str, Any]


class SessionError(_ChannelEvent, frozen=True):
    """The agent failed (``error``), or one of our commands was refused (``message``)."""

    message: str | None = None
    error: str | None = None
    message_id: str | None = None


class Init(_ChannelEvent, frozen=True):
    """The first frame: the state of everything when the socket opens."""

    session: Mapping[str, Any] = {}
    data: Mapping[str, Any] = {}


class QueueState(_ChannelEvent, frozen=True):
    """The prompt that waits in the one-element queue of later releases."""

    data: Mapping[str, Any] = {}


class QueueWithdrawn(_ChannelEvent, frozen=True):
    """A waiting prompt was taken out of the queue: by its author, or because a newer one replaced it."""

    data: Mapping[str, Any] = {}


SessionEvent: TypeAlias = (
    MessageCreate
    | TextDelta
    | ToolUpdate
    | MessageFinalize
    | Complete
    | MessageAdded
    | MessageUpdated
    | MessageChunk
    | AgentStatus
    | Question
    | InteractivePrompt
    | PromptClosed
    | SessionStatus
    | SessionError
    | Init
    | QueueState
    | QueueWithdrawn
)

_EVENTS: Final[Mapping[str, type[SessionEvent]]] = {
    "message.create": MessageCreate,
    "message.part.text-delta": TextDelta,
    "message.part.tool-update": ToolUpdate,
    "message.finalize": MessageFinalize,
    "complete": Complete,
    "message": MessageAdded,
    "message.updated": MessageUpdated,
    "chunk": MessageChunk,
    "agentStatus": AgentStatus,
    "question": Question,
    "interactive_prompt": InteractivePrompt,
    "interactive_prompt_resolved": PromptClosed,
    "interactive_prompt_expired": PromptClosed,
    "status": SessionStatus,
    "error": SessionError,
    "init": Init,
    "queue.state": QueueState,
    "queue.withdrawn": QueueWithdrawn,
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
"""Known event types that do not concern a turn."""

_READER: Final = msgspec.json.Decoder()


def read_frame(frame: str | bytes) -> Frame:
    """Parse a frame, which is a JSON object; raise :class:`~usechat.errors.UnknownEvent` for anything else."""
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
        # JavaScript writes lone surrogates (half of a pair), which msgspec rejects and the standard library accepts.
        return read_json(frame if isinstance(frame, str) else frame.decode())


def kind_of(frame: Frame) -> str:
    """Return the ``type`` of a frame, converted to text."""
    return str(frame.get("type"))


def read_event(frame: Frame) -> SessionEvent | None:
    """Return the event in a frame, or ``None`` for a type in :data:`SKIPPED`.

    Raises :class:`~usechat.errors.UnknownEvent` for a type that is not known, and for fields that do not fit.
    """
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
    """Return the key of a channel; the default channel is ``web:default``."""
    return f"{channel_type or 'web'}:{channel_id or 'default'}"


def prompt_command(text: str, files: Sequence[FileUIPart], channel: Channel | None) -> Frame:
    """Return the command that sends a prompt; files become its attachments."""
    attachments = [
        {
            "type": "file",
            "mime": file.get("mediaType"),
            "url": file.get("url"),
            **({"filename": file["filename"]} if "filename" in file else {}),
        }
        for file in files
    ]
    return {
        "type": "prompt",
        "content": text,
        **({"attachments": attachments} if attachments else {}),
        **_channel_fields(channel),
    }


def answer_value(approval: ApprovalAnswer) -> str | bool:
    """Return what a person answered: their words if they approved with any, else yes or no."""
    return approval.reason if approval.approved and approval.reason else approval.approved


def answer_command(approval: ApprovalAnswer, prompt: PromptObject | None = None) -> Frame:
    """Return the command that gives the agent a person's answer.

    The upstream treats an ``answer`` to a ``prompt`` of type ``approval`` as a denial, even if it says yes. Such a
    prompt needs ``approve-action`` or ``deny-action``. An approval whose reason is the id of one of the prompt's
    actions chooses that action (``allow_session``, ``allow_always``); without one, the tool may run once.
    """
    if prompt is None or prompt.type != "approval":
        return {"type": "answer", "questionId": approval.approval_id, "answer": answer_value(approval)}
    if approval.approved:
        action = {"actionId": approval.reason} if prompt.offers(approval.reason) else {}
        return {"type": "approve-action", "invocationId": prompt.invocation_id, **action}
    reason = {"reason": approval.reason} if approval.reason else {}
    return {"type": "deny-action", "invocationId": prompt.invocation_id, **reason}


def abort_command(channel: Channel | None) -> Frame:
    """Return the command that aborts the running turn of a channel."""
    return {"type": "abort", **_channel_fields(channel)}


def _channel_fields(channel: Channel | None) -> Mapping[str, str]:
    return {} if channel is None else {"channelType": channel.type, "channelId": channel.id}
