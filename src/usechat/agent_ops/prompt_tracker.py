"""Which of the turns on a session's socket answers our prompt.

Several people share a session. Each of their sockets receives every frame of every turn, and no frame says which prompt
it answers. :class:`PromptTracker` follows one prompt from the command to its turn, in four phases:

``SENT``
    The ``prompt`` command was sent. The upstream has not confirmed it yet.
``QUEUED``
    The prompt waits behind others.
``DISPATCHED``
    The prompt is the one the runner works on now. Its turn has not started.
``RUNNING``
    The turn has started, and its id is known.

Two facts move a prompt on. The first is its **message**: most upstreams send every prompt to everyone as a user
message (the *echo*), and ours is the one with our text in our channel. Early releases send it when the prompt is
queued, later releases when it is dispatched. The second is the **queue**: the runner works on one prompt at a time and
in order, so the prompts ahead of ours end one by one. The end of a prompt is reported by ``complete``, by a status, or
by both; :class:`_Ends` counts it once.

An upstream that sends no echo leaves the queue alone to decide. That is safe only while a single prompt is under way,
so :mod:`usechat.agent_ops.transport` sends the prompts of this process one after the other there. If the prompt of
somebody else could be ours as well, no turn is taken, and ``is_unclear`` says so when one starts.

How many prompts are ahead is known from the ``init`` frame. Without one, a prompt that was dispatched before the socket
opened may be ahead, unseen. Then a turn is ours only if something else says so: our place in the queue
(``promptQueued`` right after our message), an empty queue before our message (``runnerBusy: false``), or a release that
sends messages at dispatch. An upstream that has once reported a queued prompt reports them all, so there the turn after
a message of ours that was not queued is ours, too, in the browser's dialect. Otherwise the prompt waits; when a turn
that may be ours has output, or a prompt that may be ours has ended, ``is_unclear`` says that our answer is not found.

When somebody aborts a turn, early releases also delete the prompts that were queued by then, and do not say so. After
an abort a queued prompt is therefore not dispatched by counting: if the queue is reported empty, it ``is_removed``; if
another prompt is dispatched, that may be ours or a later one. A status reports the abort. Without one, a ``complete``
whose turn neither finished nor failed shows it.

When the runner is lost in somebody's turn, early releases put the prompt back to the front of the queue and dispatch it
again. That is one more turn for the same prompt, and no end.

Invariants, on which :mod:`usechat.agent_ops.transport` relies when it sends an abort:

- ``is_active`` is true only if the runner works for us. Otherwise an abort would stop somebody else's turn.
- The number of prompts ahead is exact, or the queue counts as unknown. If it were too small, the prompt would get the
  answer of one before it; if it were too large, the answer of one behind it.
- A message or turn is taken by at most one tracker of a process (``claim``): two people may send the same text at the
  same time.
- Once ``RUNNING``, the turn's id never changes.
"""

import enum
from collections.abc import Callable
from typing import Final, Literal, Self

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


class _Ends:
    """Counts the ends of prompts. Each is reported by ``complete``, by a status, or by both in either order.

    Both kinds are counted apart, and the larger number is the number of ends: a report of one kind never repeats a
    report of the same kind.
    """

    def __init__(self) -> None:
        self.runner_busy = True  # until the upstream says otherwise
        self._completes = 0
        self._statuses = 0

    def count_complete(self) -> bool:
        """Count a ``complete``; return whether it reports a new end."""
        self._completes += 1
        return self._completes > self._statuses

    def count_status(self, *, next_started: bool) -> bool:
        """Count a status that the runner is free or has the next prompt; return whether it reports a new end."""
        was_busy, self.runner_busy = self.runner_busy, next_started
        if not was_busy:
            return False  # "free" twice, or the next prompt after "free"
        self._statuses += 1
        return self._statuses > self._completes


class PromptTracker:
    """Follows one prompt until its turn starts.

    ``content`` is the prompt's text and ``channel`` the key of its channel. ``author`` is the caller's name; it is
    compared only if the upstream lists that name among the connected users. ``claim`` takes the id of a message or turn
    and returns whether no other tracker has taken it. ``echoes`` says that the upstream is known to send every prompt
    as a user message, so that no turn is ours before its message was seen. ``reports_queued`` says that it is known to
    report prompts that are queued.

    >>> from usechat.agent_ops import SessionAdapter
    >>> prompt = PromptTracker("Hello")
    >>> adapter = SessionAdapter(prompt)
    >>> _ = list(adapter.feed({"type": "init", "data": {"runnerBusy": False}}))
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
        echoes: bool = False,
        reports_queued: bool = False,
    ) -> None:
        self.phase = PromptPhase.SENT
        self.turn_id: str | None = None
        self.message_id: str | None = None
        """The id under which the upstream stores the prompt."""
        self.channel = channel
        self.echoes = echoes
        """Whether the upstream sends prompts as user messages, as far as known."""
        self.reports_queued = reports_queued
        """Whether the upstream reports prompts that are queued, as far as known."""
        self.is_unclear = False
        """Whether a turn started that may be ours or somebody else's, and nothing on the socket can tell."""
        self.is_removed = False
        """Whether our prompt was deleted from the queue by an abort of another turn."""
        self._content = content.strip()
        self._author = author
        self._claim = claim
        self._connected_users: set[str] = set()
        self._queue_is_known = False  # whether `_ahead` counts every prompt ahead
        self._echo_at_dispatch = False
        self._last_message: Literal["ours", "other"] | None = None  # since the last prompt was reported as queued
        self._ahead = 0
        self._ends = _Ends()
        self._was_queued = False  # our prompt was reported as queued
        self._is_ambiguous = False  # a prompt was queued, and it may be ours or another
        self._may_be_removed = False  # a turn was aborted while ours was queued
        self._runner_was_free = False  # when our message came
        self._pending_id: str | None = None  # of our message in the queue with one slot, before it is sent to everyone
        self._other_pending_id: object = None  # of the message that was there before ours
        self._has_slot_state = False
        self._candidates: set[str] = set()  # turns that started while the queue was unknown, and may be ours
        self._other_turns: set[str] = set()
        self._finished_turns: set[str] = set()
        self._other_is_finished = False  # the turn ahead has ended, but the runner has not reported that it is free
        self._dequeue_follows = False  # the slot was emptied behind our message; the status that says so comes next
        self._runner_is_lost = False  # in a turn that is not ours, and it has not come back
        self._is_watched = False  # the socket was open before the prompt ended on which the runner works
        self._end_is_explained = False  # the turn of the prompt that ends next was finished, or failed: not aborted
        self._is_between = False  # a prompt has ended by `complete`, and nothing says that the next one has started
        self._may_be_early = False  # dispatched for such an end: until our turn starts, an abort might reach the other

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
        return self.phase is PromptPhase.RUNNING or (self.phase is PromptPhase.DISPATCHED and not self._may_be_early)

    @property
    def is_next(self) -> bool:
        """Whether the next turn is ours: the prompt is dispatched, or no other is ahead on a socket without echoes."""
        if self.phase is PromptPhase.DISPATCHED:
            return True
        return self.phase in _WAITING and not self.echoes and self._queue_is_known and self._ahead == 0

    def has_content(self, content: object) -> bool:
        """Return whether a text is that of our prompt."""
        return isinstance(content, str) and content.strip() == self._content

    def is_withdrawn_as(self, message_id: object, content: object) -> bool:
        """Return whether a message that was taken out of the queue is our prompt: by its id, or else by its text."""
        own_id = self.message_id or self._pending_id
        if own_id is not None or self._has_slot_state:
            return own_id is not None and message_id == own_id
        return self.phase is PromptPhase.QUEUED and self.has_content(content)

    def is_displaced_by(self, turn: TurnStarted) -> bool:
        """Return whether a turn that starts after our runner was lost shows that it does not work for us any more.

        Later releases wait for the runner, and it may begin our turn then. Early releases give it other prompts.
        """
        if self.has_started:
            return turn.turn_id != self.turn_id
        return self.phase is PromptPhase.DISPATCHED and not self._echo_at_dispatch

    def on_init(self, init: Init) -> None:
        """Note the runner's state, the queue and the connected users when the socket opened."""
        users = init.data.get("connectedUsers")
        for user in users if isinstance(users, list) else ():
            name = user.get("id") or user.get("userId") if isinstance(user, dict) else user
            if isinstance(name, str):
                self._connected_users.add(name)
        if "pendingPrompt" in init.data:
            pending = init.data["pendingPrompt"]
            self._other_pending_id = pending.get("messageId") if isinstance(pending, dict) else None
            self.on_single_slot()
        if self.phase is PromptPhase.SENT:
            queued = init.data.get("promptsQueued")
            self._queue_is_known = True
            self._ends.runner_busy = bool(init.data.get("runnerBusy"))
            self._is_watched = not self._ends.runner_busy
            self._ahead = self._ends.runner_busy + (queued if isinstance(queued, int) else 0)

    def on_single_slot(self) -> None:
        """Note that the upstream is a later release: its queue has one slot, and echoes come at dispatch."""
        self._echo_at_dispatch = True
        if self.phase is PromptPhase.QUEUED and self.message_id is not None and not self._queue_is_known:
            self.phase = PromptPhase.DISPATCHED

    def on_pending(self, message_id: str | None, content: object) -> bool:
        """Note which message waits in the queue with one slot; return whether it is ours."""
        self._has_slot_state = True
        is_dispatched = self.phase is PromptPhase.DISPATCHED and self._last_message == "ours"
        self._dequeue_follows = is_dispatched and message_id is None
        is_open = self.phase in _WAITING and self.message_id is None and self._pending_id is None
        may_be_ours = message_id not in (None, self._other_pending_id) and self.has_content(content)
        if is_open and may_be_ours and self._claim(f"pending {message_id}"):
            self._pending_id = message_id
            self.phase = PromptPhase.QUEUED
        return self._pending_id is not None and message_id == self._pending_id

    def on_browser_frame(self) -> None:
        """Note a frame of the browser's dialect: such an upstream echoes prompts."""
        self.echoes = True

    def on_message(self, message: MessageObject) -> None:
        """Note a message; a user message is either our prompt or somebody else's."""
        if message.role != "user":
            return
        self.echoes = True
        self._candidates.clear()  # they started before our message, or without one
        is_open = self.phase in _WAITING and self.message_id is None
        if is_open and self._is_ours(message) and self._claim(message.id):
            self._on_own_message(message.id)
            return
        self._last_message = "other"
        self._note_message()
        if self._echo_at_dispatch:
            self._ahead = max(self._ahead, 1)
        elif self.phase is PromptPhase.SENT:
            self._ahead += 1

    def _note_message(self) -> None:
        """Note that the runner works, unless it was lost or sleeps and others wait for it: then this one waits, too."""
        if self._echo_at_dispatch or self._ahead == 0:
            self._ends.runner_busy = True

    def _on_own_message(self, message_id: str) -> None:
        self._last_message = "ours"
        self._is_ambiguous = False
        self.message_id = message_id
        self._runner_was_free = self._queue_is_known and self._ahead == 0
        if self.phase is PromptPhase.QUEUED and self._runner_was_free:
            self._echo_at_dispatch = True  # it was queued without a message, and its message comes now
        self._note_message()
        is_first = self._queue_is_known and self._ahead <= self._other_is_finished
        if self._echo_at_dispatch or is_first:
            self._may_be_early = not self._echo_at_dispatch and self._ahead > 0
            self.phase = PromptPhase.DISPATCHED
            self._ahead = 0
        else:
            self.phase = PromptPhase.QUEUED

    def on_queued(self, position: object) -> None:
        """Note that a prompt was queued: the one whose message came last, or ours if there are no messages."""
        self.reports_queued = True
        last_message = None if self._echo_at_dispatch else self._last_message
        self._last_message = None
        place = position if isinstance(position, int) and position > 0 else 1
        if last_message == "ours":
            if not self._queue_is_known:
                # Right behind an end, the place may count the prompt that has ended: then it says nothing for sure.
                self._queue_is_known, self._ahead = isinstance(position, int) and not self._is_between, 0
            self._on_own_queued(place)
        elif last_message == "other" or not (self._queue_is_known or self._echo_at_dispatch):
            return
        elif self.phase is PromptPhase.SENT:
            self._is_ambiguous = self._queue_is_known and self._ahead == 0 and not self._is_between
            self.phase = PromptPhase.QUEUED
            self._ahead = max(self._ahead, place - self._is_between)
        elif self.message_id is None:
            self._is_ambiguous = True

    def _on_own_queued(self, position: int) -> None:
        self.phase = PromptPhase.QUEUED
        self._was_queued, self._may_be_early = True, False
        if self._runner_was_free:
            # The runner is asleep and the queue waits; or works on something unknown; or another prompt was queued.
            self._is_ambiguous = True
            self._ends.runner_busy = False
            position -= 1
        elif self._is_between or not self._ends.runner_busy:
            position -= 1  # it counts those in the queue, and the runner works on none, or on one that has ended
        self._ahead = max(self._ahead, position)

    def on_complete(self) -> bool:
        """Note ``complete``; return whether it ends our prompt."""
        if not self._ends.count_complete():
            return False
        self._is_between = True
        if self._is_watched and not self._end_is_explained:
            self.on_abort()
        return self._on_end()

    def on_runner_busy(self) -> None:
        """Note that the runner works on a prompt; if our message came last, on ours."""
        self._last_message = None
        self._ends.runner_busy = True
        self._is_between = False

    def on_abort(self) -> None:
        """Note that a turn was aborted that is not ours; early releases delete the prompts in the queue, too."""
        if self._echo_at_dispatch:
            return
        if self.phase is PromptPhase.QUEUED:
            self._may_be_removed = True
        elif self.phase is PromptPhase.SENT and self._ahead > 1:
            self._queue_is_known = False  # which of those ahead are left?

    def on_runner_lost(self, *, is_given_up: bool) -> None:
        """Note that the runner was lost in a turn that is not ours.

        Its prompt goes back to the front of the queue, and is dispatched again: that is not the end of the prompt. If
        the upstream says that the turn ``is_given_up``, it may be the end.
        """
        self._runner_is_lost, self._ends.runner_busy = True, False
        self._other_is_finished = False  # even if its turn has ended: the runner has not reported it
        if self.phase is PromptPhase.DISPATCHED and self._may_be_early:
            self.phase, self._ahead = PromptPhase.QUEUED, 1
        if is_given_up and not self._echo_at_dispatch:
            self._queue_is_known = False

    def on_runner_free(self, *, next_started: bool, queue_is_empty: bool = False) -> bool:
        """Note a status that the runner is free; return whether it ends our prompt.

        ``next_started`` says that it has taken the next prompt already, ``queue_is_empty`` that no prompt waits.
        """
        self.is_removed = queue_is_empty and self._may_be_removed
        if queue_is_empty and self.echoes and self.message_id is None:
            self._queue_is_known, self._ahead = True, 0
        is_end = self._ends.count_status(next_started=next_started)
        self._is_between = self._runner_is_lost = False
        if next_started and self._dequeue_follows:
            self._dequeue_follows = self._other_is_finished = False
            return False
        if is_end:
            return self._on_end()
        if next_started:
            self._dispatch_if_first()
        return False

    def _on_end(self) -> bool:
        other_is_finished, self._other_is_finished = self._other_is_finished, False
        self._end_is_explained, self._is_watched = False, True
        if self.has_started:
            return True
        if self.is_next and not other_is_finished:
            return True  # it failed before any output
        if self.message_id is not None and not self._queue_is_known:
            self.is_unclear = True  # was that our prompt, or one ahead of it?
        self._ahead = max(self._ahead - 1, 0)
        self._dispatch_if_first()
        return False

    def _dispatch_if_first(self) -> None:
        is_first = self._queue_is_known and self._ahead == 0
        if is_first and self.phase is PromptPhase.QUEUED and self.message_id is not None:
            self._is_ambiguous = self._may_be_removed
            self.phase = PromptPhase.QUEUED if self._may_be_removed else PromptPhase.DISPATCHED

    def on_turn_started(self, turn: TurnStarted) -> bool:
        """Note that a turn started; return whether it is ours."""
        if self.has_started:
            return False
        self._is_between = False
        if self._runner_is_lost and not self._echo_at_dispatch:
            self._queue_is_known = False  # no prompt was taken from the queue, so this one was sent past it
        self._runner_is_lost = False
        if turn.dialect == "client":
            self.on_browser_frame()
        may_be_ours = self.message_id is not None or not self.echoes
        is_unclear = may_be_ours and (self._may_be_removed or (self._is_ambiguous and self._ahead == 0))
        if turn.channel == self.channel:
            if may_be_ours and not self._queue_is_known and self.phase in _WAITING:
                # Our message was not queued, on an upstream that would report it.
                was_dispatched = turn.dialect == "client" and self.reports_queued and not self._was_queued
                if not was_dispatched or self.message_id is None:
                    self._candidates.add(turn.turn_id)
                    return False
                self.phase = PromptPhase.DISPATCHED
            self.is_unclear = is_unclear
            if self.is_next and not is_unclear and self._claim(turn.turn_id):
                self.phase, self.turn_id = PromptPhase.RUNNING, turn.turn_id
                self._last_message = None
                self._ends.runner_busy = True
                self._other_is_finished = False
                self._candidates.clear()
                return True
        self._on_other_turn(turn.turn_id)
        return False

    def on_other_output(self, turn_id: str) -> None:
        """Note output of a turn that is not known to be ours."""
        self._is_watched = True
        if self._runner_is_lost:  # no more: it continues its turn
            self._runner_is_lost, self._ends.runner_busy = False, True
        self.is_unclear = self.is_unclear or turn_id in self._candidates

    def on_other_finished(self, turn_id: str | None) -> None:
        """Note that a turn that is not ours has ended; one that failed before any output may have no id.

        The runner is free after its own report only.
        """
        self._end_is_explained = True
        if turn_id is None:
            return
        self.on_other_output(turn_id)
        if turn_id not in self._finished_turns:  # an end may be repeated, when tools report late
            self._finished_turns.add(turn_id)
            self._other_is_finished = self.phase in _WAITING and self._ahead > 0

    def _on_other_turn(self, turn_id: str) -> None:
        if turn_id in self._other_turns:
            return
        self._other_turns.add(turn_id)
        self._ends.runner_busy = self._is_watched = True
        if self.phase in _WAITING:
            self._ahead = max(self._ahead, 1)

    def _is_ours(self, message: MessageObject) -> bool:
        if not self.has_content(message.content or "") or message.id == self._other_pending_id:
            return False
        if channel_key(message.channel_type, message.channel_id) != self.channel:
            return False
        return self._author not in self._connected_users or message.author_id in (None, self._author)
