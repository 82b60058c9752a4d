"""The chat request: what ``useChat`` POSTs, in every shape that real pages send.

The whole history under ``messages`` (the default transport), or only the last message, under ``messages`` or
``message`` (``prepareSendMessagesRequest``); messages with ``parts``, or with the ``content`` of AI SDK 4.
Treat all of it as untrusted client input: tool outputs, approvals and assistant messages can be forged.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

import msgspec

from usechat.errors import InvalidRequest, RequestTooLarge
from usechat.protocol.states import SETTLED, ToolState
from usechat.protocol.tool_calls import APPROVAL_TOOL
from usechat.protocol.ui_messages import FileUIPart, UIMessage, is_dynamic_tool, text_of, tool_name, tool_parts_of
from usechat.protocol.values import (
    READABLE_DEPTH,
    has_finite_numbers,
    has_more_values,
    is_deeper,
    json_kind,
    json_text,
    json_value,
    read_json,
)

__all__ = ["DEFAULT_LIMITS", "LONGEST_ID", "ApprovalAnswer", "ChatRequest", "Limits", "ToolOutput", "Trigger"]

Trigger: TypeAlias = Literal["submit-message", "regenerate-message"]
_Bytes: TypeAlias = bytes | bytearray | memoryview
_Body: TypeAlias = _Bytes | str | Mapping[str, Any]

_TRIGGERS: Final = ("submit-message", "regenerate-message")
_ROLES: Final = ("system", "user", "assistant")
_EDITED_INPUTS: Final = "editedInputs"
_ENVELOPE: Final = frozenset({"id", "messages", "trigger", "messageId"})

LONGEST_ID: Final = 1_024
"""Characters of the id of a chat or a message: a server remembers them for a while. The AI SDK's own have 16."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much one request may hold; more is a :class:`~usechat.errors.RequestTooLarge`.

    ``maximum_bytes`` limits the body, ``maximum_messages`` its messages, ``maximum_parts`` and ``maximum_files`` the
    parts and files of all messages together. ``maximum_file_bytes`` limits the URL of one file, which may hold the
    whole file (``data:``). ``maximum_depth`` limits how deep objects and arrays are nested, and ``maximum_values`` the
    values of the whole body, counted as commas and opening brackets outside of strings.

    >>> from usechat.server import ChatApp, Settings
    >>> app = ChatApp(lambda turn: "Hello", settings=Settings(limits=Limits(maximum_files=4)))
    """

    maximum_bytes: int = 16 * 1024 * 1024
    maximum_messages: int = 2_000
    maximum_parts: int = 20_000
    maximum_files: int = 500
    maximum_file_bytes: int = 16 * 1024 * 1024
    maximum_depth: int = READABLE_DEPTH
    maximum_values: int = 250_000

    def check_values(self, data: bytes) -> None:
        """Raise ``RequestTooLarge`` if JSON holds too many values; reading it would take too long."""
        if has_more_values(data, self.maximum_values):
            raise RequestTooLarge(f"the body holds too many values; the limit maximum_values is {self.maximum_values}")


DEFAULT_LIMITS: Final = Limits()


class ToolOutput(msgspec.Struct, frozen=True):
    """The output of a client-side tool, or why it failed (``error_text``); untrusted client input.

    >>> ToolOutput("c1", "location", {"city": "Berlin"}).output
    {'city': 'Berlin'}
    """

    tool_call_id: str
    tool_name: str
    output: Any = None
    error_text: str | None = None


class ApprovalAnswer(msgspec.Struct, frozen=True):
    """What a person answered to an approval request; the tool call has not run yet.

    ``edited_input`` is what the person wants the tool to run with instead. The call as it was asked for is then not
    ``approved``: an agent that cannot change it takes the answer as a denial, whose ``reason`` tells the model what to
    call.

    >>> ApprovalAnswer("a1", approved=False, reason="Too expensive.").reason
    'Too expensive.'
    """

    approval_id: str
    approved: bool
    reason: str | None = None
    tool_call_id: str | None = None
    edited_input: dict[str, Any] | None = None

    def edited(self, value: Any) -> "ApprovalAnswer":
        """Return the answer with an edited input: the same answer if there is none, or if the call was denied."""
        if not self.approved or not isinstance(value, Mapping):
            return self
        reason = f"Call it again with this input, which a person has edited: {json_text(json_value(value))}"
        return msgspec.structs.replace(self, approved=False, reason=reason, edited_input=dict(value))


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request for an assistant turn; read it with :meth:`parse`.

    >>> request = ChatRequest.parse(
    ...     b'{"id": "c1", "messages": [{"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Hi"}]}]}'
    ... )
    >>> request.chat_id, request.text, request.trigger
    ('c1', 'Hi', 'submit-message')

    - ``chat_id``: the id of the chat; empty if the body had none.
    - ``messages``: the messages as they came. Each has an ``id`` (empty if it had none) and ``parts``; unknown keys and
      parts are kept.
    - ``trigger``: ``submit-message`` or ``regenerate-message``.
    - ``message_id``: the message that is regenerated or continued, if the client names one.
    - ``body``: the application's own keys.
    - ``pending_calls``: the calls whose outputs may be accepted, because they were asked for. The server sets it;
      the body cannot. ``None`` means that nobody has checked.
    - ``has_whole_history``: whether ``messages`` are all messages of the chat, as the server has stored them. The
      server sets it; the body cannot.
    """

    chat_id: str = ""
    messages: list[UIMessage]
    trigger: Trigger = "submit-message"
    message_id: str | None = None
    body: dict[str, Any] = {}
    pending_calls: frozenset[str] | None = None
    has_whole_history: bool = False

    @classmethod
    def parse(cls, body: _Body, *, limits: Limits = DEFAULT_LIMITS, is_history_stored: bool = False) -> "ChatRequest":
        """Read the body of a POST; a mapping is taken as parsed JSON, whose size in bytes is not limited.

        Where the server has the history (``is_history_stored``) the body may bring no message at all.

        :raises InvalidRequest: if the body is no chat request; the text says where, and what would be right.
        :raises RequestTooLarge: if it exceeds one of the ``limits``.
        """
        value = _read_object(body, limits)
        listed = value.get("messages") is not None
        envelope = _ENVELOPE if listed else _ENVELOPE | {"message"}
        request = cls(
            chat_id=_optional_id(value, "id", "the chat id") or "",
            messages=_read_messages(value, listed, limits, required=not is_history_stored),
            trigger=_read_trigger(value),
            message_id=_optional_id(value, "messageId", "messageId"),
            body={key: item for key, item in value.items() if key not in envelope},
        )
        is_answerable = request.trigger == "regenerate-message" or request.last_user_message or request.continues
        if not is_answerable and not is_history_stored:
            raise InvalidRequest("messages has no user message to answer, and does not end with an assistant message")
        return request

    def to_json(self) -> dict[str, Any]:
        """Return the body that the AI SDK's own client would POST, in its order of keys."""
        result = {**self.body}
        if self.chat_id:
            result["id"] = self.chat_id
        result |= {"messages": self.messages, "trigger": self.trigger}
        if self.message_id is not None:
            result["messageId"] = self.message_id
        return result

    @property
    def last_user_message(self) -> UIMessage | None:
        """The user's last message."""
        return next((message for message in reversed(self.messages) if message["role"] == "user"), None)

    @property
    def text(self) -> str:
        """The text parts of the user's last message, joined."""
        message = self.last_user_message
        return "" if message is None else text_of(message)

    @property
    def files(self) -> list[FileUIPart]:
        """The file parts of the user's last message."""
        message = self.last_user_message
        files = [] if message is None else [part for part in _parts_of(message) if part["type"] == "file"]
        return cast("list[FileUIPart]", files)

    @property
    def continues(self) -> UIMessage | None:
        """The assistant message that the answer continues: the one ``message_id`` names, or else the last message.

        A regenerated answer continues nothing.
        """
        if self.trigger != "submit-message" or not self.messages:
            return None
        named = [message for message in self.messages if self.message_id and message["id"] == self.message_id]
        message = (named or self.messages)[-1]
        return message if message["role"] == "assistant" else None

    @property
    def tool_outputs(self) -> list[ToolOutput]:
        """The outcomes of ``pending_calls`` in the continued message.

        If nobody has checked which those are (``None``), it is every outcome, including the server's own: match them
        by ``tool_call_id``.
        """
        return [
            ToolOutput(call.id, call.name, call.part.get("output"), _error_text(call))
            for call in self._calls()
            if call.has_outcome and call.question is None and not call.part.get("providerExecuted")
            if self.pending_calls is None or call.id in self.pending_calls
        ]

    @property
    def approvals(self) -> list[ApprovalAnswer]:
        """The answered approval requests in the continued message whose tool has not run yet.

        An edited input is that of the approval's id in the key ``editedInputs`` of the body.
        """
        calls = list(self._calls())
        settled = {call.id for call in calls if call.state in SETTLED}
        edits = self.body.get(_EDITED_INPUTS)
        answers = [_approval_answer(call, edits if isinstance(edits, Mapping) else {}) for call in calls]
        return [answer for answer in answers if answer is not None and answer.tool_call_id not in settled]

    def _calls(self) -> "Iterator[_RequestCall]":
        for part in tool_parts_of(self.continues or {}):
            if is_dynamic_tool(part) and not isinstance(part.get("toolName"), str):
                continue  # no page makes such a part, and an agent could not tell whose output it is
            yield _RequestCall(part["toolCallId"], tool_name(part), part)


class _RequestCall(NamedTuple):
    """A tool part of the continued message."""

    id: str
    name: str
    part: Mapping[str, Any]

    @property
    def state(self) -> str | None:
        return _string(self.part.get("state"))

    @property
    def has_outcome(self) -> bool:
        is_final = self.state == ToolState.OUTPUT_AVAILABLE and not self.part.get("preliminary")
        return is_final or self.state == ToolState.OUTPUT_ERROR

    @property
    def question(self) -> Mapping[str, Any] | None:
        """The approval request that this call stands for: how a client without approvals is asked."""
        question = self.part.get("input")
        if self.part["type"] != f"tool-{APPROVAL_TOOL}" or not isinstance(question, Mapping):
            return None
        return question if isinstance(question.get("approvalId"), str) else None


def _approval_answer(call: _RequestCall, edits: Mapping[str, Any]) -> ApprovalAnswer | None:
    """Read an answer; anything but a plain yes is a no."""
    question = call.question
    if question is None:
        approval = call.part.get("approval") if call.state == ToolState.APPROVAL_RESPONDED else None
        if not isinstance(approval, Mapping) or not isinstance(approval.get("id"), str):
            return None
        native = ApprovalAnswer(
            approval["id"], approval.get("approved") is True, _string(approval.get("reason")), call.id
        )
        return native.edited(edits.get(native.approval_id))
    if not call.has_outcome:
        return None
    failure = _error_text(call)
    output = call.part.get("output") if failure is None else {"reason": failure}
    answer = output if isinstance(output, Mapping) else {"approved": _is_yes(output)}
    by_tool = ApprovalAnswer(
        question["approvalId"],
        answer.get("approved") is True,
        _string(answer.get("reason")),
        _string(question.get("toolCallId")),
    )
    return by_tool.edited(edits.get(by_tool.approval_id))


def _is_yes(output: Any) -> bool:
    """Return whether an output is the word "yes": what a page without a form for approvals sends."""
    return isinstance(output, str) and output.strip().lower() == "yes"


def _error_text(call: _RequestCall) -> str | None:
    if call.state != ToolState.OUTPUT_ERROR:
        return None
    return _string(call.part.get("errorText")) or "The tool failed."


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _parts_of(message: UIMessage) -> list[Mapping[str, Any]]:
    """Return the parts as what they are in a request: objects with a type and anything else."""
    return cast("list[Mapping[str, Any]]", message["parts"])


def _read_object(body: _Body, limits: Limits) -> dict[str, Any]:
    try:
        value = read_json(_read_text(body, limits)) if isinstance(body, _Bytes | str) else body
    except RecursionError:
        raise _too_deep(limits) from None
    except ValueError as error:
        raise InvalidRequest(f"the body is not JSON: {error}") from None
    if not isinstance(value, Mapping):
        raise InvalidRequest(f"the body must be a JSON object with the key 'messages', not {json_kind(value)}")
    value = dict(value)
    if is_deeper(value, limits.maximum_depth):
        raise _too_deep(limits)
    if not has_finite_numbers(value):
        raise InvalidRequest("the body holds a number that is not finite; the largest is about 1.8e308")
    return value


def _too_deep(limits: Limits) -> RequestTooLarge:
    return RequestTooLarge(f"the body is nested too deeply; the limit maximum_depth is {limits.maximum_depth} levels")


def _read_text(body: _Bytes | str, limits: Limits) -> str:
    data = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else bytes(body)
    if len(data) > limits.maximum_bytes:
        raise RequestTooLarge(f"the body has {len(data)} bytes; the limit maximum_bytes is {limits.maximum_bytes}")
    limits.check_values(data)
    if isinstance(body, str):
        return body
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f"the body is not UTF-8: byte 0x{error.object[error.start]:02x} at {error.start}"
        ) from None


def _read_messages(value: Mapping[str, Any], listed: bool, limits: Limits, *, required: bool) -> list[UIMessage]:
    if listed:
        items = value["messages"]
        if not isinstance(items, list):
            raise InvalidRequest(f"messages must be a list of messages, not {json_kind(items)}")
        placed = [(f"messages[{index}]", message) for index, message in enumerate(items)]
    elif value.get("message") is not None or (required and "message" in value):
        placed = [("message", value["message"])]
    elif not required:
        placed = []
    else:
        raise InvalidRequest(
            "the body has no messages: send the history under 'messages', or the last message under 'message'"
        )
    if len(placed) > limits.maximum_messages:
        raise RequestTooLarge(f"{len(placed)} messages; the limit maximum_messages is {limits.maximum_messages}")
    messages = [_read_message(message, place) for place, message in placed]
    parts = sum(len(message["parts"]) for message in messages)
    if parts > limits.maximum_parts:
        raise RequestTooLarge(f"{parts} parts in all messages; the limit maximum_parts is {limits.maximum_parts}")
    _check_files(messages, limits)
    return messages


def _check_files(messages: list[UIMessage], limits: Limits) -> None:
    files = [part for message in messages for part in _parts_of(message) if part["type"] == "file"]
    if len(files) > limits.maximum_files:
        raise RequestTooLarge(f"{len(files)} files in all messages; the limit maximum_files is {limits.maximum_files}")
    largest = max((len(str(part.get("url", ""))) for part in files), default=0)
    if largest > limits.maximum_file_bytes:
        raise RequestTooLarge(
            f"a file of {largest} bytes in its URL; the limit maximum_file_bytes is {limits.maximum_file_bytes}"
        )


def _read_message(value: Any, place: str) -> UIMessage:
    if not isinstance(value, Mapping):
        raise InvalidRequest(
            f"{place} must be an object with the keys 'id', 'role' and 'parts', not {json_kind(value)}"
        )
    role = value.get("role")
    if role not in _ROLES:
        kind = repr(role) if isinstance(role, str) else json_kind(role)
        raise InvalidRequest(f"{place}.role must be 'system', 'user' or 'assistant', not {kind}")
    message = {**value, "id": _optional_id(value, "id", f"{place}.id") or ""}
    has_content = value.get("parts") is None
    key = "content" if has_content else "parts"
    parts = message.pop(key, None)
    if has_content and isinstance(parts, str):
        parts = [{"type": "text", "text": parts}]
    if not isinstance(parts, list):
        hint = " (or text under 'content')" if has_content else ""
        raise InvalidRequest(f"{place}.parts must be a list of parts{hint}, not {json_kind(parts)}")
    for index, part in enumerate(parts):
        _check_part(part, f"{place}.{key}[{index}]")
    message["parts"] = parts
    return cast("UIMessage", message)


def _check_part(part: Any, place: str) -> None:
    if not isinstance(part, Mapping):
        raise InvalidRequest(f"{place} must be an object with the key 'type', not {json_kind(part)}")
    if not isinstance(part.get("type"), str):
        raise InvalidRequest(
            f"{place}.type must be a string such as 'text' or 'file', not {json_kind(part.get('type'))}"
        )


def _read_trigger(value: Mapping[str, Any]) -> Trigger:
    trigger = value.get("trigger")
    if trigger is None:
        return "submit-message"
    if trigger not in _TRIGGERS:
        kind = repr(trigger) if isinstance(trigger, str) else json_kind(trigger)
        raise InvalidRequest(f"trigger must be 'submit-message' or 'regenerate-message', not {kind}")
    return cast("Trigger", trigger)


def _optional_id(value: Mapping[str, Any], key: str, place: str) -> str | None:
    identifier = value.get(key)
    if identifier is not None and not isinstance(identifier, str):
        raise InvalidRequest(f"{place} must be a string, not {json_kind(identifier)}")
    if identifier is not None and len(identifier) > LONGEST_ID:
        raise InvalidRequest(f"{place} has {len(identifier)} characters; an id has at most {LONGEST_ID}")
    return identifier
