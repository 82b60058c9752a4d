"""The input of a flow: the shapes that Genkit flows and agents take.

Every builder takes the turn and returns a :class:`FlowInput`. The page's messages are untrusted client input; system
messages among them are left out, because the flow has system prompts of its own.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from usechat.errors import CannotAnswer, PublicError
from usechat.genkit.errors import CANNOT_RESUME
from usechat.genkit.history import genkit_messages, resume_of, text_of_message, user_content
from usechat.turn import Turn

__all__ = [
    "INPUTS",
    "FlowInput",
    "InputBuilder",
    "agent_input",
    "history_input",
    "input_for",
    "messages_input",
    "session_id",
    "stateless_agent_input",
    "text_input",
]


class FlowInput(msgspec.Struct, frozen=True):
    """A Genkit request: ``data`` is the input of the flow, ``init`` names the session of an agent.

    >>> def build_input(turn: Turn) -> FlowInput:
    ...     return FlowInput({"question": turn.text})
    """

    data: Any
    init: Mapping[str, Any] | None = None


InputBuilder: TypeAlias = Callable[[Turn], FlowInput]
"""Makes the input of a flow from a turn."""
Schema: TypeAlias = Mapping[str, Any]

_NOT_A_MESSAGE: Final = ("string", "integer", "number", "boolean", "array")


def text_input(turn: Turn) -> FlowInput:
    """Return the text of the user's last message, for a flow that takes a string: ``FlowInput("Hello")``.

    Raises :class:`~usechat.errors.PublicError` if the turn answers a tool call, which a text cannot express.
    """
    _refuse_resume(turn)
    return FlowInput(turn.text)


def history_input(turn: Turn) -> FlowInput:
    """Return ``{message, conversationHistory}``: the last text, and the earlier ones with their role.

    Raises :class:`~usechat.errors.PublicError` if the turn answers a tool call, which this shape cannot express.
    """
    _refuse_resume(turn)
    earlier = turn.messages[:-1] if turn.messages and turn.messages[-1]["role"] == "user" else turn.messages
    roles = {"user": "user", "assistant": "model"}
    history = [
        {"role": roles[message["role"]], "content": text}
        for message in earlier
        if message["role"] in roles and (text := text_of_message(message))
    ]
    return FlowInput({"message": turn.text, "conversationHistory": history})


def messages_input(turn: Turn) -> FlowInput:
    """Return ``{messages}``, the whole history as Genkit messages, with ``resume`` if the turn answers tool calls."""
    if resume := resume_of(turn):
        messages = genkit_messages(turn.messages, answered=resume.call_ids)
        return FlowInput({"messages": messages, "resume": resume.wire})
    return FlowInput({"messages": genkit_messages(turn.messages)})


def agent_input(turn: Turn) -> FlowInput:
    """Return the input of an agent that stores its sessions; the session's id is derived from the chat's.

    A regenerated or edited message continues from the snapshot of the previous answer.
    """
    init = {"sessionId": session_id(turn)}
    if turn.request.trigger == "regenerate-message" or (turn.request.message_id and not turn.request.continues):
        init |= _snapshot_before(turn)
    return FlowInput(_agent_data(turn), init)


def stateless_agent_input(turn: Turn) -> FlowInput:
    """Return the input of an agent without a store; the earlier messages are sent as its state."""
    if resume := resume_of(turn):
        messages = genkit_messages(turn.messages, answered=resume.call_ids)
    else:
        last = turn.request.last_user_message
        messages = genkit_messages(message for message in turn.messages if message is not last)
    return FlowInput(_agent_data(turn), {"state": {"sessionId": session_id(turn), "messages": messages}})


INPUTS: Final[Mapping[str, InputBuilder]] = {
    "text": text_input,
    "history": history_input,
    "messages": messages_input,
    "agent": agent_input,
    "stateless-agent": stateless_agent_input,
}
"""The builders by their names in the fragment (``#…``) of an address for ``usechat serve``."""


def session_id(turn: Turn) -> str:
    """Return the session id of a chat: the UUIDv5 of the chat id.

    For an authenticated caller the namespace is derived from the subject, so nobody can name another's session.
    """
    namespace = uuid.NAMESPACE_URL
    if turn.identity is not None and turn.identity.subject:
        namespace = uuid.uuid5(namespace, turn.identity.subject)
    return str(uuid.uuid5(namespace, turn.chat_id))


def input_for(name: str, schema: Schema) -> InputBuilder:
    """Return the builder for a flow whose input has this JSON schema.

    Raises :class:`~usechat.errors.CannotAnswer` if a chat has nothing that fits.
    """
    alternatives = list(_alternatives(schema, schema.get("$defs", {})))
    if not schema or any(each.get("type") == "string" for each in alternatives):
        return text_input
    for each in alternatives:
        if builder := _builder_for(each):
            return builder
    takes = ", ".join(name for each in alternatives for name in each.get("properties", ()))
    takes = takes or f"a value of type {schema.get('type')}"
    raise CannotAnswer(
        f"the flow {name} takes {takes}, which a chat does not have;"
        f" serve GenkitChatTransport({name}, build_input=…) instead"
    )


def _builder_for(schema: Schema) -> InputBuilder | None:
    properties: Schema = schema.get("properties", {})
    if schema.get("type") == "array" and schema.get("items", {}).get("type") not in _NOT_A_MESSAGE:
        return _message_list
    if "messages" in properties:
        return messages_input
    if "message" in properties:
        return history_input
    texts = [
        name
        for name, value in properties.items()
        if any(each.get("type") == "string" for each in _alternatives(value, {}))
    ]
    if len(texts) == 1 and set(schema.get("required", ())) <= set(texts):
        return lambda turn: FlowInput({texts[0]: text_input(turn).data})
    return None


def _alternatives(schema: Schema, definitions: Schema) -> Iterator[Schema]:
    """Yield the alternatives of a schema, such as those of an optional value."""
    for each in schema.get("anyOf", (schema,)):
        yield definitions.get(str(each.get("$ref")).rpartition("/")[2], each)


def _message_list(turn: Turn) -> FlowInput:
    return FlowInput(messages_input(turn).data["messages"])


def _agent_data(turn: Turn) -> dict[str, Any]:
    if resume := resume_of(turn):
        return {"resume": resume.wire}
    return {"message": {"role": "user", "content": user_content(turn.request.last_user_message)}}


def _snapshot_before(turn: Turn) -> dict[str, str]:
    for message in reversed(turn.messages):
        if message["role"] == "assistant":
            match message:
                case {"metadata": {"genkit": {"snapshotId": str(snapshot)}}}:
                    return {"snapshotId": snapshot}
            return {}
    return {}


def _refuse_resume(turn: Turn) -> None:
    """Raise instead of sending the same message again, which a page that posts automatically would do endlessly."""
    if turn.request.continues is not None:
        raise PublicError(CANNOT_RESUME)
