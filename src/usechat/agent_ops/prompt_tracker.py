"""Which of the turns on a session's socket answers our prompt.

Several people share a session. Each of their sockets receives every frame of every turn, and no frame says which prompt
it answers. :class:`PromptTracker` follows one prompt from the command to its turn, in four phases:

``SENT``
    The ``prompt`` command was sent. The upstream has not confirmed it yet.
``QUEUED``
    The upstream reported that the prompt waits behind others.
``DISPATCHED``
    The prompt is the one the runner works on now. Its turn has not started.
``RUNNING``
    The turn has started, and its id is known.

Two facts move a prompt on. The first is the **message**: the upstream sends every prompt to everyone as a user message,
and ours is the one with our text in our channel. Early releases send that message when the prompt is queued and report
the queueing right after it; later releases send it when the prompt is dispatched. The second is the **queue**: the
runner takes prompts in order, so the number of turns ahead of ours only decreases. A stream in the runner's dialect
alone carries no user messages; there the queue decides by itself.

Invariants, on which :mod:`usechat.agent_ops.transport` relies when it sends an abort:

- The phase is ``DISPATCHED`` or ``RUNNING`` only if the runner works for us. An abort in any other phase would stop
  somebody else's turn.
- A message or turn is taken by at most one tracker of a process (``claim``): two people may send the same text at the
  same time.
- Once ``RUNNING``, the turn's id never changes.
"""

import enum
from collections.abc import Callable
from typing import Final, Self

from usechat.agent_ops.turn_events import TurnStarted
from usechat.agent_ops.wire import Init, MessageObject, channel_key

__all__ = ["PromptPhase", "PromptTracker"]


class PromptPhase(enum.Enum):
    """The phases of a prompt, in order; the module's docstring explains them."""

    SENT = "sent"
    QUEUED = "queued"
    DISPATCHED = "dispatched"
    RUNNING = "running"


_WAITING: Final = (PromptPhase.SENT, PromptPhase.QUEUED)


class PromptTracker:
    """Follows one prompt until its turn starts.

    ``content`` is the prompt's text and ``channel`` the key of its channel. ``author`` is the caller's name; it is
    compared only if the upstream lists that name among the connected users. ``claim`` takes the id of a message or turn
    and returns whether no other tracker has taken it.

    >>> from usechat.agent_ops import SessionAdapter
    >>> prompt = PromptTracker("Hello")
    >>> adapter = SessionAdapter(prompt)
    >>> _ = list(adapter.feed({"type": "message", "data": {"id": "u1", "role": "user", "content": "Hello"}}))
    >>> prompt.phase
    <PromptPhase.DISPATCHED: 'dispatched'>
    """

    def __init__(
        self,
        content: str,
        channel: str = "web:default",
        *,
        author: str | None = None,
        claim: Callable[[str], bool] = bool,
    ) -> None:
        self.phase = PromptPhase.SENT
        self.turn_id: str | None = None
        self.message_id: str | None = None
        """The id under which the upstream stores the prompt."""
        self.channel = channel
        self._content = content.strip()
        self._author = author
        self._claim = claim
        self._connected_users: set[str] = set()
        self._turns_ahead = 0
        self._other_message_was_last = False
        self._may_be_queued = False  # our message came last, while the runner was busy with another turn
        self._runner_busy = True  # until the upstream says otherwise

    @classmethod
    def attached(cls, turn_id: str, channel: str = "web:default") -> Self:
        """Return the tracker of a turn that already runs: it asked a question, which this request answers."""
        prompt = cls("", channel)
        prompt.phase, prompt.turn_id = PromptPhase.RUNNING, turn_id
        return prompt

    @property
    def has_started(self) -> bool:
        """Whether the turn has started and its id is known."""
        return self.phase is PromptPhase.RUNNING

    @property
    def is_active(self) -> bool:
        """Whether the runner works on this prompt, so that an abort stops no other turn."""
        return self.phase in (PromptPhase.DISPATCHED, PromptPhase.RUNNING)

    def has_content(self, content: object) -> bool:
        """Return whether a text is that of our prompt."""
        return isinstance(content, str) and content.strip() == self._content

    def on_init(self, init: Init) -> None:
        """Note the runner's state, the queue and the connected users when the socket opened."""
        queued = init.data.get("promptsQueued")
        self._runner_busy = bool(init.data.get("runnerBusy"))
        self._turns_ahead = self._runner_busy + (queued if isinstance(queued, int) else 0)
        users = init.data.get("connectedUsers")
        for user in users if isinstance(users, list) else ():
            name = user.get("id") or user.get("userId") if isinstance(user, dict) else user
            if isinstance(name, str):
                self._connected_users.add(name)

    def on_message(self, message: MessageObject) -> None:
        """Note a message; a user message is either our prompt or somebody else's."""
        if message.role != "user":
            return
        is_open = self.phase in _WAITING and self.message_id is None
        if is_open and self._is_ours(message) and self._claim(message.id):
            self._may_be_queued = self._runner_busy and self.phase is PromptPhase.SENT
            self.message_id = message.id
            self.phase = PromptPhase.DISPATCHED
            self._turns_ahead = 0
        else:
            self._other_message_was_last = True
            self._may_be_queued = False
            self._runner_busy = True
            self._turns_ahead += self.phase is PromptPhase.SENT

    def on_queued(self, position: object) -> None:
        """Note that a prompt was queued: the one whose message came last, or ours if its message has not come yet."""
        other_was_last, self._other_message_was_last = self._other_message_was_last, False
        if self._may_be_queued or (self.phase is PromptPhase.SENT and not other_was_last):
            self._may_be_queued = False
            self.phase = PromptPhase.QUEUED
            known = position if isinstance(position, int) and position > 0 else None
            self._turns_ahead = known or max(self._turns_ahead, 1)

    def on_turn_over(self, *, busy: bool) -> None:
        """Note that the running turn is over. ``busy`` says that the runner has taken the next prompt."""
        self._runner_busy = busy
        self._turns_ahead = max(self._turns_ahead - 1, 0)
        if self._turns_ahead == 0 and self.phase is PromptPhase.QUEUED and self.message_id is not None:
            self.phase = PromptPhase.DISPATCHED

    def on_turn_started(self, turn: TurnStarted) -> bool:
        """Note that a turn started; return whether it is ours."""
        if self.has_started or turn.channel != self.channel or not self._may_start(turn):
            return False
        if not self._claim(turn.turn_id):
            return False
        self.phase, self.turn_id = PromptPhase.RUNNING, turn.turn_id
        return True

    def _may_start(self, turn: TurnStarted) -> bool:
        if self.phase is PromptPhase.DISPATCHED:
            return True
        # A stream in the runner's dialect alone carries no user messages; then the queue decides.
        return turn.dialect == "runner" and self.message_id is None and self._turns_ahead == 0

    def _is_ours(self, message: MessageObject) -> bool:
        if not self.has_content(message.content or ""):
            return False
        if channel_key(message.channel_type, message.channel_id) != self.channel:
            return False
        return self._author not in self._connected_users or message.author_id in (None, self._author)
