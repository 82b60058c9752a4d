"""What a flow is given of a chat: the shapes that Genkit flows and agents take.

Every builder takes the turn and returns a :class:`FlowInput`. What a page posts is the client's word; system messages
in it are left out, because the flow says itself what the model must obey.
"""

import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from usechat.errors import PublicError
from usechat.genkit.errors import CANNOT_RESUME
from usechat.genkit.history import genkit_messages, resume_of, text_of, user_content
from usechat.turn import Turn

__all__ = [
    "INPUTS",
    "FlowInput",
    "InputBuilder",
    "agent_input",
    "history_input",
    "messages_input",
    "session_id",
    "stateless_agent_input",
    "text_input",
]


class FlowInput(msgspec.Struct, frozen=True):
    """The two halves of a Genkit request: ``data`` is what the flow takes, ``init`` names the session of an agent."""

    data: Any
    init: Mapping[str, Any] | None = None


InputBuilder: TypeAlias = Callable[[Turn], FlowInput]


def text_input(turn: Turn) -> FlowInput:
    """Return the text of the user's last message, for a flow that takes a string."""
    _refuse_resume(turn)
    return FlowInput(turn.text)


def history_input(turn: Turn) -> FlowInput:
    """Return ``{message, conversationHistory}``: the last text, and those before it by ``user`` and ``model``."""
    _refuse_resume(turn)
    earlier = turn.messages[:-1] if turn.messages and turn.messages[-1]["role"] == "user" else turn.messages
    roles = {"user": "user", "assistant": "model"}
    history = [
        {"role": roles[message["role"]], "content": text}
        for message in earlier
        if message["role"] in roles and (text := text_of(message))
    ]
    return FlowInput({"message": turn.text, "conversationHistory": history})


def messages_input(turn: Turn) -> FlowInput:
    """Return ``{messages}``: the whole history as Genkit's own messages; and ``resume``, if a page's tools answered."""
    if resume := resume_of(turn):
        messages = genkit_messages(turn.messages, answered=resume.call_ids)
        return FlowInput({"messages": messages, "resume": resume.wire})
    return FlowInput({"messages": genkit_messages(turn.messages)})


def agent_input(turn: Turn) -> FlowInput:
    """Return the input of an agent that keeps its sessions; the session is named after the chat.

    A regenerated or edited message goes on from the snapshot that the answer before it left.
    """
    init = {"sessionId": session_id(turn)}
    if turn.request.trigger == "regenerate-message" or (turn.request.message_id and not turn.request.continues):
        init |= _snapshot_before(turn)
    return FlowInput(_agent_data(turn), init)


def stateless_agent_input(turn: Turn) -> FlowInput:
    """Return the input of an agent without a store: what was said before goes along as its state."""
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
"""The builders by the names that ``usechat serve`` takes behind the ``#`` of an address."""


def session_id(turn: Turn) -> str:
    """Return the UUIDv5 of the chat id; people who are known have each their own, so nobody can name another's."""
    namespace = uuid.NAMESPACE_URL
    if turn.identity is not None and turn.identity.subject:
        namespace = uuid.uuid5(namespace, turn.identity.subject)
    return str(uuid.uuid5(namespace, turn.chat_id))


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
    """Raise instead of asking the same question again, which a page that posts by itself would do for ever."""
    if turn.request.continues is not None:
        raise PublicError(CANNOT_RESUME)
