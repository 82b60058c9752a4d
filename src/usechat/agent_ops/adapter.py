"""The frames of a session's socket to the parts of one turn: ours, whoever else is on the socket."""

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from usechat.agent_ops.prompt_tracker import OwnTurn, Phase
from usechat.agent_ops.questions import Questions, without_questions
from usechat.agent_ops.turn_events import (
    Ended,
    Happening,
    TextAppended,
    TextSnapshot,
    ToolChanged,
    TurnStarted,
    beginning_of,
    changes_of,
    happening_of,
)
from usechat.agent_ops.turn_parts import TURN_FAILED, RunningTurn
from usechat.agent_ops.wire import (
    AgentStatus,
    Chunk,
    Complete,
    Event,
    Failure,
    Frame,
    Init,
    InteractivePrompt,
    Message,
    MessageCreate,
    MessageFinalize,
    MessageObject,
    MessageUpdated,
    PromptClosed,
    Question,
    QueueState,
    Status,
    TextDelta,
    ToolUpdate,
    channel_key,
    kind_of,
    read_event,
)
from usechat.errors import UnknownEvent
from usechat.protocol.parts import Abort, Data, Error, Finish, Part

__all__ = ["INTERRUPTED", "SessionAdapter"]

INTERRUPTED: Final = "Stream interrupted"
REMOVED: Final = "The prompt was removed from the queue."
TOO_LATE: Final = "The turn had ended before the answer came."

_ABOUT_TURNS: Final = frozenset({"runnerBusy", "promptQueued", "promptDequeued"})
_FINAL_STATES: Final = ("terminated", "archived", "error")
_STATES_WITHOUT_TURNS: Final = (*_FINAL_STATES, "hibernated")


def _forget(_kind: str) -> None:
    """Nobody counts."""


class SessionAdapter:
    """Takes every frame of a socket, says the parts of one turn, and knows when that turn is over.

    ``shown`` is the message that the page has of a turn to which this stream comes back. ``events`` are the names of
    further events that become ``data-…`` parts. Frames that nobody knows are told to ``on_unknown``.
    """

    def __init__(
        self,
        own: OwnTurn,
        questions: Questions,
        *,
        events: frozenset[str] = frozenset(),
        shown: Mapping[str, Any] | None = None,
        on_unknown: Callable[[str], None] = _forget,
    ) -> None:
        self.own = own
        self.ended = False
        """Whether the last part was said."""
        self.withdrawable = False
        """Whether our prompt stands alone in the queue, and the upstream can take it out."""
        self._questions = questions
        self._events = events
        self._on_unknown = on_unknown
        self._early_status: Part | None = None
        self._turn: RunningTurn | None = None
        if own.turn_id is not None and shown is not None:
            self._turn = RunningTurn(own.turn_id, without_questions(shown))
        self._is_back = self._turn is not None
        self._settling = False
        self._has_statuses = False  # then `complete`, from the other dialect, would count the same end twice

    @property
    def settling(self) -> bool:
        """Whether the turn is over but for what may come late: outcomes of tools, the reason why it went idle."""
        return self._settling and not self.ended

    @property
    def asking(self) -> bool:
        """Whether the agent waits for a person."""
        return self._questions.are_open

    def feed(self, frame: Frame) -> Iterator[Part]:
        """Yield what a frame means for our turn; nothing once it has ended."""
        if self.ended:
            return
        for part in self._parts_of(frame):
            yield part
            if isinstance(part, Finish | Error | Abort):
                self.ended = True
                return

    def close(self, error: str | None = None) -> Iterator[Part]:
        """Yield the ending when nothing more comes, and ``error`` or a cut connection is why."""
        if self.settling and error is None:
            yield from self.settle()
        elif not self.ended:
            self.ended = True
            yield Error(error or INTERRUPTED)

    def settle(self) -> Iterator[Part]:
        """Yield the ending: nothing late came in time."""
        if self._turn is not None and not self.ended:
            self.ended = True
            yield from self._turn.settle()

    def _parts_of(self, frame: Frame) -> Iterable[Part]:
        try:
            event = read_event(frame)
        except UnknownEvent as unknown:
            if kind_of(frame) not in self._events:
                self._on_unknown(unknown.kind)
            return self._listed(frame)
        if event is None:
            return self._listed(frame)
        if isinstance(event, AgentStatus | Question | InteractivePrompt | Failure) and self._is_elsewhere(event):
            return ()
        if isinstance(event, Status):
            return itertools.chain(self._listed(frame), self._status(event.data))
        return self._handle(event, frame)

    def _handle(self, event: Event, frame: Frame) -> Iterable[Part]:
        match event:
            case Chunk():
                return self._happened(TextAppended(event.message_id, event.content, "client"))
            case MessageCreate() | TextDelta() | ToolUpdate() | MessageFinalize():
                return self._happened(happening_of(event))
            case Message():
                self.own.said(event.data)
                began = beginning_of(event)
                return () if began is None else self._happened(began)
            case MessageUpdated():
                return self._updated(event.data)
            case Complete() if self._turn is not None or not self._has_statuses:
                return self._turn_over(busy=self.own.phase is Phase.QUEUED)
            case AgentStatus():
                return self._status_of_agent(event)
            case Question() | InteractivePrompt():
                return self._asked(event, frame)
            case PromptClosed():
                self._questions.close(event.prompt_id)
            case Failure():
                return self._failed(event)
            case Init():
                return self._opened(event)
            case QueueState():
                self._note_queue(event)
        return ()

    def _is_elsewhere(self, event: Event) -> bool:
        """Tell whether an event names another channel than ours."""
        named = event.channel_type is not None or event.channel_id is not None
        return named and channel_key(event.channel_type, event.channel_id) != self.own.channel

    # Turns

    def _happened(self, what: Happening) -> Iterator[Part]:
        if isinstance(what, TurnStarted):
            yield from self._begun(what)
            return
        turn = self._turn
        if turn is None or what.turn_id != turn.turn_id:
            if isinstance(what, Ended) and what.turn_id is None and self.own.is_running:
                yield Error(what.error or TURN_FAILED)
            return
        if turn.ended is None:
            self._settling = False
        match what:
            case TextAppended():
                yield from turn.write(what.text, what.dialect)
            case TextSnapshot():
                yield from turn.write_so_far(what.text)
            case ToolChanged():
                yield from turn.change_tool(what)
                if turn.ended is not None and not turn.has_open_tools:
                    yield from turn.settle()
            case Ended() if turn.ended is None:
                yield from turn.end(what)
                if turn.has_open_tools:
                    self._settling = True
                else:
                    yield from turn.settle()

    def _begun(self, began: TurnStarted) -> Iterator[Part]:
        if self.own.began(began):
            self._turn = RunningTurn(began.turn_id)
            yield from self._turn.begin()
            if self._early_status is not None:
                yield self._early_status

    def _updated(self, message: MessageObject) -> Iterator[Part]:
        if self._turn is not None and message.id == self._turn.turn_id:
            for change in changes_of(message):
                yield from self._happened(change)

    def _turn_over(self, *, busy: bool) -> Iterator[Part]:
        """The runner is done with whatever it did. What ran was ours, or somebody else's before ours."""
        if self._turn is not None:
            yield from self._turn.settle()
        elif self.own.phase is Phase.DISPATCHED:
            yield Error(TURN_FAILED)  # it failed before it said anything
        else:
            self.own.turn_over(busy=busy)

    # How things stand

    def _status_of_agent(self, event: AgentStatus) -> Iterator[Part]:
        detail = {} if event.detail is None else {"detail": event.detail}
        shown = Data("agent-status", {"status": event.status, **detail}, transient=True)
        if self._turn is not None:
            yield shown
            # While a question waits the agent is idle, too; and early releases end an aborted turn with this alone.
            if self._turn.ended is None:
                self._settling = event.status == "idle" and not self.asking
        elif self.own.phase is Phase.DISPATCHED and event.status != "idle":
            self._early_status = shown  # idle was said of the turn before

    def _status(self, data: Mapping[str, Any]) -> Iterator[Part]:
        self._has_statuses = self._has_statuses or not _ABOUT_TURNS.isdisjoint(data)
        if data.get("promptQueued"):
            self.own.queued(data.get("queuePosition"))
        if "questionAnswered" in data or "questionExpired" in data:
            self._questions.close(data.get("questionAnswered") or data.get("questionExpired"))
        if data.get("queueCleared") and self.own.phase is Phase.QUEUED:
            yield Abort(REMOVED)
        elif data.get("aborted") and self.own.is_running:
            yield Abort("aborted")
        elif data.get("status") in (_STATES_WITHOUT_TURNS if self.own.is_running else _FINAL_STATES):
            yield Error(TURN_FAILED)
        elif data.get("runnerBusy") is False or data.get("promptDequeued"):
            yield from self._turn_over(busy="promptDequeued" in data)

    def _opened(self, init: Init) -> Iterator[Part]:
        if self._turn is None or not self._is_back:
            self.own.opened(init)
            return
        messages = init.session.get("messages")
        for message in messages if isinstance(messages, list) else ():
            if isinstance(message, dict) and message.get("id") == self._turn.turn_id:
                with contextlib.suppress(msgspec.ValidationError):
                    yield from self._updated(msgspec.convert(message, MessageObject))
        if init.data.get("runnerBusy") is False and not self.settling:
            yield Error(TOO_LATE)

    def _failed(self, failure: Failure) -> Iterator[Part]:
        """A refused command is ours: nobody else is told. A failed agent is ours while it works for us."""
        names_ours = failure.message_id is not None and failure.message_id == self.own.message_id
        if failure.error is None or self.own.is_running or names_ours:
            yield Error(failure.error or failure.message or TURN_FAILED)

    # Everything else

    def _asked(self, question: Question | InteractivePrompt, frame: Frame) -> Iterator[Part]:
        if self._turn is not None and self._turn.ended is None:
            self._settling = False
            if self._questions.end_the_stream:
                yield from self._turn.complete_inputs()
            yield from self._questions.ask(question, frame)

    def _note_queue(self, state: QueueState) -> None:
        pending = state.data.get("pending")
        self.withdrawable = isinstance(pending, dict) and self.own.is_content(pending.get("content"))

    def _listed(self, frame: Frame) -> Iterator[Part]:
        kind = kind_of(frame)
        if self._turn is not None and kind in self._events:
            yield Data(kind, {key: value for key, value in frame.items() if key != "type"})
