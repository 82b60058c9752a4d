"""What agents remember of a chat: the messages exchanged with their model."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from usechat import Turn, current_turn
from usechat.errors import LocalProtocolError
from usechat.open_harness.engine.store import FlowRunStore
from usechat.open_harness.threads import in_thread

__all__ = [
    "AgentSession",
    "AgentSessions",
    "id_of_current_message",
    "message_id",
]


_NAMESPACE: Final = uuid.UUID("6f1c2a52-7f0e-4c55-9a53-2b1f6a2f7f0b")


class AgentSession:
    """The messages that one agent of one chat has exchanged with its model, as plain JSON values.

    ``message_ids`` holds the id of the user's message for each turn that has one. A run begins at ``first_turn``; a
    message that is sent to it while it runs, or that resumes it, begins another turn.
    """

    def __init__(
        self,
        session_id: str,
        entries: Sequence[tuple[int, Any]],
        turn: int,
        message_ids: Mapping[int, str] | None = None,
    ) -> None:
        self.session_id = session_id
        self.turn = turn
        self.first_turn = turn
        self.message_ids = dict(message_ids or {})
        self._entries = list(entries)

    @property
    def messages(self) -> list[Any]:
        """All messages so far."""
        return [message for _, message in self._entries]

    @property
    def has_begun(self) -> bool:
        """Whether there are messages of this run."""
        return any(turn >= self.first_turn for turn, _ in self._entries)

    @property
    def entries(self) -> list[tuple[int, Any]]:
        """All messages, each with the number of the turn it belongs to."""
        return list(self._entries)

    def begin_turn(self, message_id: Any) -> None:
        """Begin the turn of a further message of the user, unless the message has one already or has no id."""
        if isinstance(message_id, str) and message_id not in self.message_ids.values():
            self.turn += 1
            self.message_ids[self.turn] = message_id

    def add(self, messages: Sequence[Any], begins: Sequence[tuple[int, Any]] = ()) -> None:
        """Add messages of this turn. ``begins`` tells where further messages of the user begin, and their ids."""
        for place, message in enumerate(messages):
            for _, message_id in (each for each in begins if each[0] == place):
                self.begin_turn(message_id)
            self._entries.append((self.turn, message))


class AgentSessions:
    """The sessions of a run's agents.

    A session is identified by flow, owner, chat and node. A page may send all its messages or the last one alone, so
    their number says nothing. Their ids do: if the user's message is known, its answer is regenerated or it was edited,
    and what came from there on is dropped. If it is new but the one before it is known, what came after that is.
    """

    def __init__(
        self, store: FlowRunStore, *, flow_name: str, owner: str, flow_input: Mapping[str, Any], ids: dict[str, str]
    ) -> None:
        self.ids = ids
        self._store = store
        self._flow_name = flow_name
        self._owner = owner
        self._chat_id = flow_input.get("chatId")
        self._user_messages = _user_messages(flow_input)
        self._first_turns: dict[str, int] = {}

    async def open(self, name: str) -> AgentSession:
        """Return the session of an agent. Within one run it continues where it was."""
        is_known = name in self.ids
        session_id = self.ids.setdefault(name, self._session_id(name))
        record = await in_thread(lambda: self._store.load_session(session_id)) or {}
        entries = [(turn, message) for turn, message in record.get("messages", ())]
        message_ids: dict[int, str] = dict(record.get("asked", ()))
        last = max([0, *(turn for turn, _ in entries)])
        if is_known:
            session = AgentSession(session_id, entries, max(last, *message_ids, 1), message_ids)
            session.first_turn = self._first_turns.get(name, session.turn)
            return session
        turn = self._turn(message_ids, last)
        message_ids = {each: message_id for each, message_id in message_ids.items() if each < turn}
        if self._user_messages:
            message_ids[turn] = self._user_messages[-1]
        self._first_turns[name] = turn
        session = AgentSession(session_id, [entry for entry in entries if entry[0] < turn], turn, message_ids)
        self.save(session)  # if the process ends, the session tells that this turn has no messages yet
        return session

    def save(self, session: AgentSession) -> None:
        """Store a session."""
        message_ids = list(session.message_ids.items())
        self._store.save_session(session.session_id, {"messages": session.entries, "asked": message_ids})

    def _turn(self, message_ids: Mapping[int, str], last: int) -> int:
        """Return the number of this turn; what the session has from this number on is dropped."""
        numbers = {message_id: turn for turn, message_id in message_ids.items()}
        before, latest = ["", "", *self._user_messages][-2:]
        if latest in numbers:
            return numbers[latest]
        return numbers[before] + 1 if before in numbers else last + 1

    def _session_id(self, name: str) -> str:
        if not isinstance(self._chat_id, str):
            return str(uuid.uuid4())
        key = msgspec.json.encode([self._owner, self._chat_id, self._flow_name, name])
        return str(uuid.uuid5(_NAMESPACE, key.decode()))


def message_id(turn: Turn) -> str | None:
    """Return the id of the user's message that a turn answers."""
    message = turn.request.last_user_message
    return None if message is None else str(message["id"])


def id_of_current_message() -> str | None:
    """Return the id of the user's message in the turn that runs, if there is one."""
    try:
        return message_id(current_turn())
    except LocalProtocolError:
        return None


def _user_messages(flow_input: Mapping[str, Any]) -> list[str]:
    """Return the ids of the user's messages that the page sent."""
    messages = flow_input.get("messages")
    if not isinstance(messages, Sequence) or isinstance(messages, str):
        return []
    user_messages = [message for message in messages if isinstance(message, Mapping) and message.get("role") == "user"]
    return [str(message["id"]) for message in user_messages if message.get("id")]
