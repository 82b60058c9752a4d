"""What chats keep between their turns: the flow that runs, or the runtime that is paused."""

from collections import OrderedDict
from typing import Final, TypeAlias

from usechat.open_harness.flow_turns import FlowTurns
from usechat.open_harness.interface import Runtime
from usechat.turn import Turn

__all__ = ["Conversation", "Conversations"]

_Key: TypeAlias = tuple[str, ...]

MAXIMUM: Final = 1_000
IDLE_SECONDS: Final = 3_600.0


class Conversation:
    """One chat: ``flow`` runs, ``paused`` waits for the next message."""

    def __init__(self) -> None:
        self.flow: FlowTurns | None = None
        self.paused: Runtime | None = None
        self.used = 0.0

    @property
    def is_running(self) -> bool:
        """Whether a flow runs, be it between two turns."""
        return self.flow is not None and not self.flow.is_over

    def holds(self, runtime: Runtime) -> bool:
        """Tell whether this chat uses a runtime."""
        return self.paused is runtime or (self.is_running and self.flow is not None and self.flow.runtime is runtime)


class Conversations:
    """The chats of one transport. Those that were idle for long are forgotten, the oldest first."""

    def __init__(self, *, maximum: int = MAXIMUM, idle_seconds: float = IDLE_SECONDS) -> None:
        self._maximum = maximum
        self._idle_seconds = idle_seconds
        self._chats: OrderedDict[_Key, Conversation] = OrderedDict()

    def __len__(self) -> int:
        return len(self._chats)

    def open(self, turn: Turn, now: float) -> Conversation:
        """Return the chat of a turn; ``now`` is the time in seconds."""
        conversation = self._chats.setdefault(_key(turn), Conversation())
        conversation.used = now
        self._chats.move_to_end(_key(turn))
        return conversation

    def find(self, turn: Turn) -> Conversation | None:
        """Return the chat of a turn, if it is known."""
        return self._chats.get(_key(turn))

    def holder(self, runtime: Runtime) -> Conversation | None:
        """Return the chat that uses a runtime."""
        return next((chat for chat in self._chats.values() if chat.holds(runtime)), None)

    def forget(self, now: float) -> list[Runtime]:
        """Make room; return the paused runtimes that nobody holds any more."""
        let_go: list[Runtime] = []
        for key, conversation in list(self._chats.items()):
            is_idle = now - conversation.used > self._idle_seconds
            if not is_idle and len(self._chats) < self._maximum:
                break
            if not conversation.is_running:
                del self._chats[key]
                let_go += [conversation.paused] if conversation.paused is not None else []
        return let_go


def _key(turn: Turn) -> _Key:
    """Return whose chat it is: ids are chosen by pages, so that two people may have the same."""
    subject = turn.identity.subject if turn.identity is not None else ""
    others = [str(value) for name, value in turn.path_params.items() if name != "chat_id"]
    return (subject, *others, turn.chat_id)
