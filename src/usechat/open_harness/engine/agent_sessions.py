"""What agents remember of a chat: the messages exchanged with their model."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from usechat.open_harness.engine.store import FlowRunStore
from usechat.open_harness.threads import in_thread

__all__ = [
    "AgentSession",
    "AgentSessions",
]


_NAMESPACE: Final = uuid.UUID("6f1c2a52-7f0e-4c55-9a53-2b1f6a2f7f0b")


class AgentSession:
    """The messages that one agent of one chat has exchanged with its model, as plain JSON values."""

    def __init__(self, session_id: str, entries: Sequence[tuple[int, Any]], turn: int) -> None:
        self.session_id = session_id
        self.turn = turn
        self._entries = list(entries)

    @property
    def messages(self) -> list[Any]:
        """All messages so far."""
        return [message for _, message in self._entries]

    @property
    def entries(self) -> list[tuple[int, Any]]:
        """All messages, each with the number of the turn it belongs to."""
        return list(self._entries)

    def add(self, messages: Sequence[Any]) -> None:
        """Add messages of this turn."""
        self._entries.extend((self.turn, message) for message in messages)


class AgentSessions:
    """The sessions of a run's agents.

    A session is identified by flow, owner, chat and node. If the user edits a message or regenerates an answer, what
    came after that point is dropped: ``messages`` of the flow's input tell how many turns there are.
    """

    def __init__(
        self, store: FlowRunStore, *, flow_name: str, owner: str, flow_input: Mapping[str, Any], ids: dict[str, str]
    ) -> None:
        self.ids = ids
        self._store = store
        self._flow_name = flow_name
        self._owner = owner
        self._chat_id = flow_input.get("chatId")
        self._turn = _turn_of(flow_input)

    async def open(self, name: str) -> AgentSession:
        """Return the session of an agent. Within one run it continues where it was."""
        is_known = name in self.ids
        session_id = self.ids.setdefault(name, self._session_id(name))
        kept = await in_thread(lambda: self._store.load_session(session_id))
        entries = [(turn, message) for turn, message in kept["messages"]] if kept else []
        last = entries[-1][0] if entries else 0
        if is_known:
            return AgentSession(session_id, entries, last or self._turn or 1)
        turn = self._turn or last + 1
        return AgentSession(session_id, [entry for entry in entries if entry[0] < turn], turn)

    def save(self, session: AgentSession) -> None:
        """Store a session."""
        self._store.save_session(session.session_id, {"messages": session.entries})

    def _session_id(self, name: str) -> str:
        if not isinstance(self._chat_id, str):
            return str(uuid.uuid4())
        key = msgspec.json.encode([self._owner, self._chat_id, self._flow_name, name])
        return str(uuid.uuid5(_NAMESPACE, key.decode()))


def _turn_of(flow_input: Mapping[str, Any]) -> int | None:
    messages = flow_input.get("messages")
    if not isinstance(messages, Sequence) or isinstance(messages, str):
        return None
    roles = [message.get("role") if isinstance(message, Mapping) else None for message in messages]
    return roles.count("user") or None
