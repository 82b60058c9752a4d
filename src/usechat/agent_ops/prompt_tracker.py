"""Which of the turns on a socket is ours: no frame says which prompt it answers.

A prompt is recognised by the message that the upstream tells everybody, and its turn by the order of the queue.
"""

import enum
from collections.abc import Callable
from typing import Final

from usechat.agent_ops.turn_events import TurnStarted
from usechat.agent_ops.wire import Init, MessageObject, channel_key

__all__ = ["OwnTurn", "Phase"]


class Phase(enum.Enum):
    """How far a prompt has come."""

    SENT = "sent"
    QUEUED = "queued"
    DISPATCHED = "dispatched"
    RUNNING = "running"


_UNHEARD: Final = (Phase.SENT, Phase.QUEUED)


class OwnTurn:
    """Follows one prompt until its turn begins. ``author`` is the caller's name, which counts if the upstream uses it.

    ``claim`` tells whether a message or turn is not taken by another stream of this process: two people may say the
    same thing at the same moment.
    """

    def __init__(
        self,
        content: str,
        channel: str = "web:default",
        *,
        author: str | None = None,
        claim: Callable[[str], bool] = bool,
    ) -> None:
        self.phase = Phase.SENT
        self.turn_id: str | None = None
        self.message_id: str | None = None
        """The id under which the upstream keeps the prompt."""
        self._content = content.strip()
        self.channel = channel
        self._author = author
        self._claim = claim
        self._users: set[str] = set()
        self._ahead = 0
        self._others_spoke_last = False
        self._may_be_queued = False  # our message was told last, and the runner had something else to do
        self._busy = True  # until it is known

    @classmethod
    def attached(cls, turn_id: str, channel: str = "web:default") -> "OwnTurn":
        """Return a turn that is known already, because it asked and is being answered."""
        own = cls("", channel)
        own.phase, own.turn_id = Phase.RUNNING, turn_id
        return own

    @property
    def has_begun(self) -> bool:
        """Whether the turn runs and its id is known."""
        return self.phase is Phase.RUNNING

    @property
    def is_running(self) -> bool:
        """Whether the agent works for us: an abort now hits nobody else."""
        return self.phase in (Phase.DISPATCHED, Phase.RUNNING)

    def opened(self, init: Init) -> None:
        """Hear what was going on when the socket opened."""
        queued = init.data.get("promptsQueued")
        self._busy = bool(init.data.get("runnerBusy"))
        self._ahead = self._busy + (queued if isinstance(queued, int) else 0)
        users = init.data.get("connectedUsers")
        for user in users if isinstance(users, list) else ():
            known = user.get("id") or user.get("userId") if isinstance(user, dict) else user
            if isinstance(known, str):
                self._users.add(known)

    def is_content(self, content: object) -> bool:
        """Tell whether this is what our prompt says."""
        return isinstance(content, str) and content.strip() == self._content

    def said(self, message: MessageObject) -> None:
        """Hear what a user said, perhaps we."""
        if message.role != "user":
            return
        if self.phase in _UNHEARD and self.message_id is None and self._is_ours(message) and self._claim(message.id):
            # Early releases tell the message when it is queued and say so right behind it; later ones when it runs.
            self._may_be_queued = self._busy and self.phase is Phase.SENT
            self.message_id = message.id
            self.phase = Phase.DISPATCHED
            self._ahead = 0
        else:
            self._others_spoke_last = True
            self._may_be_queued = False
            self._busy = True
            self._ahead += self.phase is Phase.SENT

    def queued(self, position: object) -> None:
        """Hear that a prompt waits: the one whose message was told last, or else perhaps ours, not yet told."""
        others, self._others_spoke_last = self._others_spoke_last, False
        if self._may_be_queued or (self.phase is Phase.SENT and not others):
            self._may_be_queued = False
            self.phase = Phase.QUEUED
            self._ahead = position if isinstance(position, int) and position > 0 else max(self._ahead, 1)

    def turn_over(self, *, busy: bool) -> None:
        """Hear that the turn that ran is over; if the runner is still busy, the next prompt has its turn."""
        self._busy = busy
        self._ahead = max(self._ahead - 1, 0)
        if self._ahead == 0 and self.phase is Phase.QUEUED and self.message_id is not None:
            self.phase = Phase.DISPATCHED

    def began(self, turn: TurnStarted) -> bool:
        """Hear that a turn begins; tell whether it is ours."""
        if self.has_begun or turn.channel != self.channel or not self._may_begin(turn):
            return False
        if not self._claim(turn.turn_id):
            return False
        self.phase, self.turn_id = Phase.RUNNING, turn.turn_id
        return True

    def _may_begin(self, turn: TurnStarted) -> bool:
        if self.phase is Phase.DISPATCHED:
            return True
        # A bare stream of the runner's events tells nobody's message; then the queue alone decides.
        return turn.dialect == "runner" and self.message_id is None and self._ahead == 0

    def _is_ours(self, message: MessageObject) -> bool:
        if not self.is_content(message.content or ""):
            return False
        if channel_key(message.channel_type, message.channel_id) != self.channel:
            return False
        return self._author not in self._users or message.author_id in (None, self._author)
