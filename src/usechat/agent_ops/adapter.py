"""The frames of a session's socket to the parts of one turn.

The socket carries everything that happens in a session: other people's turns, presence, git state, queue. The adapter
takes every frame and yields the parts of one turn only. It combines four things, each in a separate module:

- :mod:`~usechat.agent_ops.prompt_tracker` decides which turn is ours;
- :mod:`~usechat.agent_ops.turn_events` puts both dialects into one vocabulary;
- :mod:`~usechat.agent_ops.turn_parts` yields what is new in a turn;
- :mod:`~usechat.agent_ops.questions` shows what the agent asks people.

**Endings.** The upstream reports the end of a turn in many ways: a ``finish`` part, ``message.finalize``, ``complete``,
``runnerBusy: false``, an idle agent, an aborted or emptied queue, a session that is terminated. Whichever comes first
ends the turn, with one exception: tools may report their outcome after their turn has ended, and an agent may go idle
before it says why. Then the adapter is *settling*: the ending is known but for what may arrive late. The caller waits
for a short time and calls ``close``, which yields the ending.

Invariants: nothing is yielded after an ending; every text and every tool state is yielded once; an event of another
turn or another channel yields nothing.
"""

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from usechat.agent_ops.prompt_tracker import PromptPhase, PromptTracker
from usechat.agent_ops.questions import QuestionMode, Questions, parts_from_answer, without_questions
from usechat.agent_ops.turn_events import (
    FileAdded,
    TextAppended,
    TextSnapshot,
    ToolChanged,
    TurnEnded,
    TurnEvent,
    TurnOutput,
    TurnStarted,
    turn_event_from_runner,
    turn_events_from_message,
    turn_start_from_message,
)
from usechat.agent_ops.turn_parts import TURN_FAILED, RunningTurn
from usechat.agent_ops.wire import (
    AgentStatus,
    Complete,
    Frame,
    Init,
    InteractivePrompt,
    MessageAdded,
    MessageChunk,
    MessageCreate,
    MessageFinalize,
    MessageObject,
    MessageUpdated,
    PromptClosed,
    Question,
    QueueState,
    QueueWithdrawn,
    SessionError,
    SessionEvent,
    SessionStatus,
    TextDelta,
    ToolUpdate,
    channel_key,
    kind_of,
    read_event,
)
from usechat.errors import UnknownEvent
from usechat.parts import Abort, Data, Error, Finish, Part
from usechat.transports import ApprovalAnswer

__all__ = [
    "INTERRUPTED",
    "REMOVED",
    "RUNNER_LOST",
    "TOO_LATE",
    "UNCLEAR",
    "WITHDRAWN",
    "SessionAdapter",
    "SessionInput",
]

INTERRUPTED: Final = "Stream interrupted"
REMOVED: Final = "The prompt was removed from the queue."
RUNNER_LOST: Final = "The agent lost its connection, so the answer is incomplete."
UNCLEAR: Final = "The session does not say which answer belongs to this message; please send it again later."
WITHDRAWN: Final = "The prompt was withdrawn from the queue, because a newer one replaced it."
TOO_LATE: Final = "The turn had ended before the answer came."

_FINAL_STATES: Final = ("terminated", "archived", "error")
_STATES_WITHOUT_TURNS: Final = (*_FINAL_STATES, "hibernated")

SessionInput: TypeAlias = Frame | ApprovalAnswer
"""What the adapter takes: a frame of the socket, or a person's answer that was sent to the agent."""


class SessionAdapter:
    """Turns the frames of a session's socket into the parts of one turn. It does no I/O.

    ``prompt`` decides which turn on the socket is ours. ``questions`` says how the agent's questions are shown, and
    ``answered`` names those that this request answers. ``events`` are the types of further frames that become
    ``data-…`` parts. ``shown`` is the page's message of a turn that this request continues.

    ``feed`` raises :class:`~usechat.errors.UnknownEvent` for a frame of an unknown type.

    >>> adapter = SessionAdapter(PromptTracker("Hello"))
    >>> frames = [
    ...     {"type": "init", "data": {"runnerBusy": False}},
    ...     {"type": "message.create", "turnId": "t1"},
    ...     {"type": "message.part.text-delta", "turnId": "t1", "delta": "Hi!"},
    ...     {"type": "message.finalize", "turnId": "t1", "reason": "end_turn"},
    ... ]
    >>> [type(part).__name__ for frame in frames for part in adapter.feed(frame)]
    ['Start', 'Text', 'Text', 'Finish']
    """

    def __init__(
        self,
        prompt: PromptTracker,
        *,
        questions: QuestionMode = "data",
        answered: frozenset[str] = frozenset(),
        events: frozenset[str] = frozenset(),
        shown: Mapping[str, Any] | None = None,
    ) -> None:
        self.prompt = prompt
        self.ended = False
        """Whether the ending was yielded."""
        self.withdrawable = False
        """Whether our prompt is alone in the queue of an upstream that can withdraw it."""
        self._questions = Questions(questions, answered)
        self._events = events
        self._early_status: Part | None = None
        self._turn: RunningTurn | None = None
        if prompt.turn_id is not None and shown is not None:
            self._turn = RunningTurn(prompt.turn_id, without_questions(shown))
        self._is_continued = self._turn is not None
        self._settling = False
        self._runner_is_lost = False

    @property
    def settling(self) -> bool:
        """Whether the turn has ended but for what may come late: outcomes of tools, the reason why it went idle."""
        return self._settling and not self.ended

    @property
    def is_asking(self) -> bool:
        """Whether the agent waits for a person."""
        return self._questions.are_open

    def feed(self, event: SessionInput) -> Iterator[Part]:
        """Yield the parts of our turn in a frame; nothing after the ending."""
        if self.ended:
            return
        if isinstance(event, ApprovalAnswer):
            yield from parts_from_answer(event)
            return
        for part in self._parts_of(event):
            yield part
            if isinstance(part, Finish | Error | Abort):
                self.ended = True
                return

    def close(self, error: BaseException | None = None) -> Iterator[Part]:
        """Yield the ending of a turn whose socket was closed or fell silent; ``error`` ends it by itself."""
        if self.ended:
            return
        self.ended = True
        if error is None and self._settling:
            yield from self._end_of_ours()
        elif error is None:
            yield Error(INTERRUPTED)

    def _parts_of(self, frame: Frame) -> Iterable[Part]:
        try:
            event = read_event(frame)
        except UnknownEvent:
            if kind_of(frame) not in self._events:
                raise
            return self._as_data(frame)
        if event is None:
            return self._as_data(frame)
        if isinstance(event, AgentStatus | Question | InteractivePrompt | SessionError) and self._is_elsewhere(event):
            return ()
        if isinstance(event, SessionStatus):
            return itertools.chain(self._as_data(frame), self._session_status(event.data))
        return self._handle(event, frame)

    def _handle(self, event: SessionEvent, frame: Frame) -> Iterable[Part]:
        match event:
            case MessageChunk():
                self.prompt.on_browser_frame()
                return self._turn_event(TextAppended(event.message_id, event.content, "client"))
            case MessageCreate() | TextDelta() | ToolUpdate() | MessageFinalize():
                return self._turn_event(turn_event_from_runner(event))
            case MessageAdded():
                self.prompt.on_message(event.data)
                start = turn_start_from_message(event)
                return () if start is None else self._turn_event(start)
            case MessageUpdated():
                self.prompt.on_browser_frame()
                return self._message_updated(event.data)
            case Complete():
                return self._end_of_ours() if self.prompt.on_complete() else self._unclear()
            case AgentStatus():
                return self._agent_status(event)
            case Question() | InteractivePrompt():
                return self._question(event, frame)
            case PromptClosed():
                self._questions.close(event.prompt_id)
            case SessionError():
                return self._session_error(event)
            case Init():
                return self._init(event)
            case QueueState() | QueueWithdrawn():
                return self._queue_event(event)
        return ()

    def _is_elsewhere(self, event: SessionEvent) -> bool:
        """Return whether an event names another channel than ours."""
        names_channel = event.channel_type is not None or event.channel_id is not None
        return names_channel and channel_key(event.channel_type, event.channel_id) != self.prompt.channel

    def _as_data(self, frame: Frame) -> Iterator[Part]:
        """Yield a frame as a data part, if its type is one of those that the caller chose."""
        kind = kind_of(frame)
        if self._turn is not None and kind in self._events:
            yield Data(kind, {key: value for key, value in frame.items() if key != "type"})

    # Turns

    def _turn_event(self, event: TurnEvent) -> Iterator[Part]:
        if isinstance(event, TurnStarted):
            yield from self._turn_started(event)
            return
        turn = self._turn
        if turn is None or event.turn_id != turn.turn_id:
            yield from self._other_turn_event(event)
            return
        if turn.ending is None:
            self._settling = False
        for part in self._own_turn_event(turn, event):
            self._runner_is_lost = False  # not before there is a part: whole messages may repeat what is known
            yield part

    def _own_turn_event(self, turn: RunningTurn, event: TurnOutput) -> Iterator[Part]:
        match event:
            case TextAppended():
                yield from turn.append_text(event.text, event.dialect)
            case TextSnapshot():
                yield from turn.update_text(event.text)
            case FileAdded():
                yield from turn.add_file(event)
            case ToolChanged():
                yield from turn.update_tool(event)
                if turn.ending is not None and not turn.has_open_tools:
                    yield from turn.settle()
            case TurnEnded() if turn.ending is None:
                yield from turn.end(event)
                if turn.has_open_tools:
                    self._settling = True
                else:
                    yield from turn.settle()

    def _turn_started(self, start: TurnStarted) -> Iterator[Part]:
        if self._runner_is_lost and self.prompt.is_displaced_by(start):
            yield Error(RUNNER_LOST)
        elif self.prompt.on_turn_started(start):
            self._turn = RunningTurn(start.turn_id)
            yield from self._turn.start()
            if self._early_status is not None:
                yield self._early_status
        else:
            yield from self._unclear()

    def _other_turn_event(self, event: TurnOutput) -> Iterator[Part]:
        """Handle an event of a turn that is not ours, or that failed before it had an id."""
        if not isinstance(event, TurnEnded):
            self.prompt.on_other_output(event.turn_id)
        elif event.turn_id is None and (self.prompt.is_next or self.prompt.is_active):
            yield Error(event.error or TURN_FAILED)
        else:
            self.prompt.on_other_finished(event.turn_id)
        yield from self._unclear()

    def _unclear(self) -> Iterator[Part]:
        """Yield an error if our answer may be among those of others, and nothing on the socket can tell."""
        if self.prompt.is_unclear:
            yield Error(UNCLEAR)

    def _message_updated(self, message: MessageObject) -> Iterator[Part]:
        is_ours = self._turn is not None and message.id == self._turn.turn_id
        if is_ours or not self.prompt.has_started:
            for event in turn_events_from_message(message):
                yield from self._turn_event(event)

    def _end_of_ours(self) -> Iterator[Part]:
        """Handle the end of our prompt: of its turn, or before any output.

        If the runner disconnected before it reported the end of the turn, the turn is incomplete, even if a report
        follows later.
        """
        turn = self._turn
        if self._runner_is_lost and (turn is None or turn.ending is None):
            yield Error(RUNNER_LOST)
        elif turn is not None:
            yield from turn.settle()
        else:
            yield Error(TURN_FAILED)

    # The state of agent, session and queue

    def _agent_status(self, event: AgentStatus) -> Iterator[Part]:
        detail = {} if event.detail is None else {"detail": event.detail}
        status = Data("agent-status", {"status": event.status, **detail}, transient=True)
        if self._turn is not None:
            yield status
            # An agent is also idle while a question waits; and early releases end an aborted turn with this alone.
            if self._turn.ending is None:
                self._settling = event.status == "idle" and not self.is_asking
        elif self.prompt.phase is PromptPhase.DISPATCHED and event.status != "idle":
            self._early_status = status  # an idle status is about the turn before

    def _session_status(self, data: Mapping[str, Any]) -> Iterator[Part]:
        is_free = data.get("runnerBusy") is False
        if data.get("promptQueued"):
            self.prompt.on_queued(data.get("queuePosition"))
        if "questionAnswered" in data or "questionExpired" in data:
            self._questions.close(data.get("questionAnswered") or data.get("questionExpired"))
        if data.get("queueCleared") and self.prompt.phase is PromptPhase.QUEUED:
            yield Abort(REMOVED)
        elif data.get("aborted") and self.prompt.is_active:
            yield Abort("aborted")
        elif data.get("status") in (_STATES_WITHOUT_TURNS if self.prompt.is_active else _FINAL_STATES):
            yield Error(TURN_FAILED)
        elif data.get("runnerDisconnected") or (is_free and data.get("watchdogRecovery")):
            yield from self._runner_lost(data)
        elif is_free or data.get("promptDequeued"):
            yield from self._runner_free(data)
        elif data.get("runnerBusy"):
            self.prompt.on_runner_busy()

    def _runner_free(self, data: Mapping[str, Any]) -> Iterator[Part]:
        if data.get("aborted"):
            self.prompt.on_abort()
        # With nothing else in it, this status says that no prompt is left in the queue, either.
        is_empty = data.keys() == {"runnerBusy"}
        if self.prompt.on_runner_free(next_started=bool(data.get("promptDequeued")), queue_is_empty=is_empty):
            yield from self._end_of_ours()
        elif self.prompt.is_removed:
            yield Error(REMOVED)
        else:
            yield from self._unclear()

    def _runner_lost(self, data: Mapping[str, Any]) -> Iterator[Part]:
        """End our turn if it is given up, which ``runnerBusy: false`` says.

        Valet sends ``runnerDisconnected`` alone and waits a minute: a runner that connects again may continue its
        turn. Until there is new output of the turn, an idle or free runner does not end it well. Early releases
        dispatch its prompt again, and so does a watchdog.
        """
        is_given_up = data.get("runnerBusy") is False
        if self.prompt.is_active:
            self._runner_is_lost = True
            if is_given_up:
                yield from self._end_of_ours()
        else:
            self.prompt.on_runner_lost(is_given_up=is_given_up and not data.get("watchdogRecovery"))

    def _init(self, init: Init) -> Iterator[Part]:
        if self._turn is None or not self._is_continued:
            self.prompt.on_init(init)
            return
        messages = init.session.get("messages")
        for message in messages if isinstance(messages, list) else ():
            if isinstance(message, dict) and message.get("id") == self._turn.turn_id:
                with contextlib.suppress(msgspec.ValidationError):
                    yield from self._message_updated(msgspec.convert(message, MessageObject))
        if init.data.get("runnerConnected") is False:
            self._runner_is_lost = True  # behind the messages: what they add was sent before the runner was lost
        if init.data.get("runnerBusy") is False and not self.settling:
            yield Error(TOO_LATE)

    def _queue_event(self, event: QueueState | QueueWithdrawn) -> Iterator[Part]:
        """Handle a change of the queue with one slot, in which a newer prompt replaces the one that waits."""
        self.prompt.on_single_slot()
        if isinstance(event, QueueState):
            pending = event.data.get("pending")
            waiting = pending if isinstance(pending, dict) else {}
            self.withdrawable = self.prompt.on_pending(waiting.get("messageId"), waiting.get("content"))
        elif self.prompt.is_withdrawn_as(event.data.get("messageId"), event.data.get("content")):
            yield Error(WITHDRAWN)  # a page of an older release gets no reason with an abort

    def _session_error(self, error: SessionError) -> Iterator[Part]:
        """Yield an error of ours: a refused command, which only its sender sees, or an agent that fails in our turn."""
        names_ours = error.message_id is not None and error.message_id == self.prompt.message_id
        if error.error is None or self.prompt.is_active or names_ours:
            yield Error(error.error or error.message or TURN_FAILED)

    def _question(self, question: Question | InteractivePrompt, frame: Frame) -> Iterator[Part]:
        if self._turn is not None and self._turn.ending is None:
            self._settling = False
            if self._questions.end_stream:
                yield from self._turn.complete_inputs()
            yield from self._questions.ask(question, frame)
