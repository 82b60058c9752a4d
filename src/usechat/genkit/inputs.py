"""The input of a flow: the shapes that Genkit flows and agents take.

Every builder takes the turn and returns a :class:`FlowInput`. The page's messages are untrusted client input; system
messages among them are left out, because the flow sets its system prompts.
"""

import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from usechat import Turn, UIMessage
from usechat.errors import PublicError
from usechat.genkit.approvals import MapApproval
from usechat.genkit.errors import CANNOT_RESUME, NO_FILES, cannot_tell_apart
from usechat.genkit.history import genkit_messages, resume_of, resumed_history, user_content
from usechat.input_mapping import mapped_values, require_sources
from usechat.ui_messages import text_of

__all__ = [
    "INPUTS",
    "AsyncInputBuilder",
    "FlowInput",
    "InputBuilder",
    "agent_input",
    "history_input",
    "mapped_input",
    "messages_input",
    "require_text",
    "restarted_tools",
    "session_id",
    "stateless_agent_input",
    "text_input",
]


class FlowInput(msgspec.Struct, frozen=True):
    """A Genkit request: ``data`` is the input of the flow, ``init`` names the session of an agent.

    >>> from usechat import Turn
    >>> def build_input(turn: Turn) -> FlowInput:
    ...     return FlowInput({"question": turn.text})
    """

    data: Any
    init: Mapping[str, Any] | None = None


def restarted_tools(flow_input: FlowInput) -> list[str]:
    """Return the names of the interrupted tools that a request runs again."""
    match flow_input:
        case FlowInput({"resume": {"restart": [*requests]}}) | FlowInput(_, {"restart": [*requests]}):
            return [str(request["toolRequest"]["name"]) for request in requests]
    return []


InputBuilder: TypeAlias = Callable[[Turn], FlowInput]
"""Makes the input of a flow from a turn."""
AsyncInputBuilder: TypeAlias = Callable[[Turn], Awaitable[FlowInput]]
"""Does the same with the help of I/O."""


def text_input(turn: Turn) -> FlowInput:
    """Return the text of the user's last message, for a flow that takes a string: ``FlowInput("Hello")``.

    Raises :class:`~usechat.errors.PublicError` if the turn answers a tool call or has files, which a text cannot hold.

    >>> from usechat.testing import AgentClient
    >>> with AgentClient(lambda turn: str(text_input(turn))) as client:
    ...     client.ask("Hello").text
    "FlowInput(data='Hello', init=None)"
    """
    require_text(turn)
    return FlowInput(turn.text)


def history_input(turn: Turn) -> FlowInput:
    """Return ``{message, conversationHistory}``: the last text, and the earlier ones with their role.

    Files of earlier messages are named in the text, because they have no place here, either: ``[file: plan.pdf]``.

    Raises :class:`~usechat.errors.PublicError` if the turn answers a tool call or has files, which have no place here.

    >>> from usechat.testing import AgentClient
    >>> with AgentClient(lambda turn: str(history_input(turn).data)) as client:
    ...     client.ask("Hello").text
    "{'message': 'Hello', 'conversationHistory': []}"
    """
    require_text(turn)
    earlier = turn.messages[:-1] if turn.messages and turn.messages[-1]["role"] == "user" else turn.messages
    roles = {"user": "user", "assistant": "model"}
    history = [
        {"role": roles[message["role"]], "content": text}
        for message in earlier
        if message["role"] in roles and (text := _text_with_files(message))
    ]
    return FlowInput({"message": turn.text, "conversationHistory": history})


def _text_with_files(message: UIMessage) -> str:
    """Return the text of a message, with a line for each of its files."""
    files = [part for part in message["parts"] if part["type"] == "file"]
    names = [f"[file: {part.get('filename') or part.get('mediaType')}]" for part in files]
    return "\n".join([*filter(None, [text_of(message)]), *names])


def messages_input(turn: Turn, *, map_approval: MapApproval | None = None) -> FlowInput:
    """Return ``{messages}``, the whole history as Genkit messages, with ``resume`` if the turn answers tool calls.

    ``map_approval`` says how an approved or denied call is resumed, as in :class:`GenkitChatTransport`.

    >>> from usechat.testing import AgentClient
    >>> with AgentClient(lambda turn: str(messages_input(turn).data)) as client:
    ...     client.ask("Hello").text
    "{'messages': [{'role': 'user', 'content': [{'text': 'Hello'}]}]}"
    """
    if resumed := resumed_history(turn, map_approval):
        messages, resume = resumed
        return FlowInput({"messages": messages, "resume": resume.wire})
    return FlowInput({"messages": genkit_messages(turn.messages)})


def agent_input(turn: Turn, *, map_approval: MapApproval | None = None) -> FlowInput:
    """Return the input of an agent that stores its sessions; the session's id is derived from the chat's.

    A regenerated or edited message continues from the snapshot of the previous answer. ``map_approval`` says how an
    approved or denied call is resumed, as in :class:`GenkitChatTransport`.

    Raises :class:`~usechat.errors.PublicError` if calls of one tool without a ``ref`` have different answers.

    >>> from usechat.testing import AgentClient
    >>> with AgentClient(lambda turn: str(agent_input(turn).data)) as client:
    ...     client.ask("Hello").text
    "{'message': {'role': 'user', 'content': [{'text': 'Hello'}]}}"
    """
    init = {"sessionId": session_id(turn)}
    if turn.request.trigger == "regenerate-message" or (turn.request.message_id and not turn.request.continues):
        init |= _snapshot_before(turn)
    resume = resume_of(turn, map_approval)
    if resume is None:
        return FlowInput(_message(turn), init)
    if resume.confused is not None:
        raise cannot_tell_apart(resume.confused)
    return FlowInput({"resume": resume.wire}, init)


def stateless_agent_input(turn: Turn, *, map_approval: MapApproval | None = None) -> FlowInput:
    """Return the input of an agent without a store; the earlier messages are sent as its state.

    ``map_approval`` says how an approved or denied call is resumed, as in :class:`GenkitChatTransport`.

    >>> from usechat.testing import AgentClient
    >>> with AgentClient(lambda turn: str(sorted(stateless_agent_input(turn).init["state"]))) as client:
    ...     client.ask("Hello").text
    "['messages', 'sessionId']"
    """
    data: dict[str, Any]
    if resumed := resumed_history(turn, map_approval):
        messages, data = resumed[0], {"resume": resumed[1].wire}
    else:
        last = turn.request.last_user_message
        messages, data = genkit_messages(message for message in turn.messages if message is not last), _message(turn)
    return FlowInput(data, {"state": {"sessionId": session_id(turn), "messages": messages}})


def mapped_input(mapping: Mapping[str, str]) -> InputBuilder:
    """Return the builder of an object whose keys come from ``text``, the last message, or from ``body.FIELD``.

    A field that the request body does not have is left out, so that the flow's default counts.

    >>> build_input = mapped_input({"question": "text", "lang": "body.lang"})

    Raises :class:`~usechat.errors.InvalidSetting` for another source. The builder raises
    :class:`~usechat.errors.PublicError` if the turn answers a tool call or has files.
    """
    require_sources(mapping)

    def build_input(turn: Turn) -> FlowInput:
        require_text(turn)
        return FlowInput(mapped_values(mapping, turn))

    return build_input


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

    For an authenticated caller the namespace is derived from the subject, so that no caller can name another's session.

    >>> import uuid
    >>> from usechat.testing import AgentClient
    >>> with AgentClient(session_id) as client:
    ...     first, second = client.ask("Hello").text, client.ask("again").text
    >>> first == second, uuid.UUID(first).version
    (True, 5)
    """
    namespace = uuid.NAMESPACE_URL
    if turn.identity is not None and turn.identity.subject:
        namespace = uuid.uuid5(namespace, turn.identity.subject)
    return str(uuid.uuid5(namespace, turn.chat_id))


def _message(turn: Turn) -> dict[str, Any]:
    return {"message": {"role": "user", "content": user_content(turn.request.last_user_message)}}


def _snapshot_before(turn: Turn) -> dict[str, str]:
    for message in reversed(turn.messages):
        if message["role"] == "assistant":
            match message:
                case {"metadata": {"genkit": {"snapshotId": str(snapshot)}}}:
                    return {"snapshotId": snapshot}
            return {}
    return {}


def require_text(turn: Turn) -> None:
    """Raise :class:`~usechat.errors.PublicError` if a turn has more than text: files, or an answer to a tool call.

    For such an answer the last text would be sent again, and a page that posts automatically would do so endlessly.
    """
    if turn.request.continues is not None:
        raise PublicError(CANNOT_RESUME)
    if turn.files:
        raise PublicError(NO_FILES)
