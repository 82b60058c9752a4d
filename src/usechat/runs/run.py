"""One run: the task that owns an assistant turn from start to end.

**The idea.** One asyncio task drives the source, from its first event to its last
(:class:`~usechat.pauses.waiting.WaitingTask`). The source sends parts through its :class:`~usechat.turn.TurnContext`;
the run turns each into frames and appends them to its log. Connections never touch user code: they read the log. So
agent frameworks see one task and one context, independent of clients, and a client that disconnects does not end the
run. A task whose code asks the page leaves its run, which ends as ``waiting``; the run that brings the answer owns it
from then on (:mod:`usechat.pauses`).

**The states.** A run is ``running`` until it ends, exactly once, in one of these:

- ``finished``: the source returned, or sent ``Finish``;
- ``waiting``: the same, with a tool call or an approval that the client must answer;
- ``failed``: the source raised or sent ``Error``, a time or size limit was reached, or a client without resume was too
  slow;
- ``stopped``: ``stop`` was called, the task was cancelled, or the source sent ``Abort``;
- ``lost``: the worker is gone. Only the store sets it (see :mod:`usechat.runs.redis.store`).

**Ending.** ``_end`` is the only place where a run ends; every later call does nothing. It writes the last frames, notes
which calls are open, disconnects the turn context (what a leftover thread sends is dropped) and calls ``on_end``, which
records the end in the store and then ends the log. The first ending that was asked for wins: a stop that is followed by
an exception is a stop.

**Stopping.** ``stop`` cancels the task and gives it ``Timeouts.stop`` seconds to clean up. A source that takes longer
is left behind: the stream ends without it, and a warning names the run. ``fail`` ends the stream at once.

**Failures.** An exception becomes an ``error`` chunk whose text is that of a :class:`~usechat.errors.PublicError`, or a
sentence with a reference that the log has, too: nothing internal reaches the page. If even the ending cannot be
encoded, a fixed one is written. The same holds for every other ``BaseException`` (``sys.exit()`` in a tool, a panic of
a Rust extension): an agent does not end the server (:mod:`usechat.runs.containment`).

**Commits.** Where a recorder stores the answer, a complete tool call is stored before its tool can start, and its
outcome when it arrives. ``write`` asks for a pause behind these parts, and the pause waits until the recorder has
stored them. A recorder that has lost the chat ends the run there, before the tool starts.

**Slow readers.** Where the log is kept, a run never waits: a reader that is too slow is disconnected, and resumes.
Where it is not, the source is held back while the log is full, when it pauses (``TurnContext.pause``). A reader that
takes nothing for as long as an agent may be idle ends the run.

**Time limits.** One shared timer calls ``tick`` (:mod:`usechat.runs.timers`); the hot path only sets a flag.
"""

import asyncio
import enum
import functools
import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Final, NamedTuple, Protocol, get_args

import msgspec

from usechat.errors import UsechatError
from usechat.pauses.states import AnswerMemory, PausedStates
from usechat.pauses.tasks import WaitingTasks
from usechat.pauses.waiting import WaitingTask
from usechat.protocol import chunks, parts
from usechat.protocol.releases import releases_for
from usechat.protocol.sse import FrameStream, encode_frames
from usechat.protocol.stream import MessageStream
from usechat.protocol.tool_calls import Call
from usechat.protocol.values import json_object, json_text
from usechat.runs.containment import of_an_agent
from usechat.runs.error_texts import error_text
from usechat.runs.log import Log
from usechat.runs.open_calls import (
    NOTHING_PENDING,
    OpenCall,
    approval_signature,
    input_digest,
    pending_in,
    pending_metadata,
)
from usechat.runs.settings import Settings
from usechat.runs.timers import timer_for
from usechat.sources import Source, must_commit
from usechat.turn import Steps, TurnContext

__all__ = [
    "PreparedRun",
    "Run",
    "RunInfo",
    "RunRecorder",
    "RunState",
    "log_native_approval",
    "message_digest",
]


_logger: Final = logging.getLogger("usechat.runs")

TOO_LONG: Final = "The answer took too long and was stopped."
TOO_MUCH: Final = "The answer grew too long and was stopped."
NO_ENDING: Final = "The answer ended in an error."
SILENT: Final = "The agent was silent for too long, so the answer was stopped."
CANNOT_FOLLOW: Final = "The connection is too slow for this answer, so it was stopped."

_HANDLED: Final[frozenset[type]] = frozenset({*get_args(parts.ToolPart), parts.Start, parts.Finish})
"""The parts that a run looks at before it passes them on."""


class RunState(enum.StrEnum):
    """The state of a run: ``running``, or how it ended.

    ``finished`` ended well, ``waiting`` with a call that the client must answer, ``failed`` with an error, ``stopped``
    on purpose, and ``lost`` because its worker died.

    >>> RunState("waiting") is RunState.WAITING
    True
    """

    RUNNING = "running"
    WAITING = "waiting"
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"
    LOST = "lost"


class RunInfo(msgspec.Struct, frozen=True):
    """Everything that is stored about a run; it may be a run of another worker.

    ``message_id`` is the id of the answer, ``sdk`` the release that its stream is made for, and ``subject`` the
    identity that owns the chat (empty without authentication). ``open_calls`` are the calls that the run left for the
    client to answer; while it is running, those that were open before it and that its request did not answer.
    ``given_calls`` are the calls whose outputs its request brought; empty after a successful end. Approvals are not
    among them: an approval counts once, because the tool may have run. ``user_message_id`` and ``user_message_digest``
    (a hash of its content) identify the message that is answered; both are empty for a run that answers none, or
    answers it again. For a run that continues an answer only the hash is set: that of the answer as the request brought
    it. ``origin`` is set if the run restarts a turn whose worker died: the id of the turn's first run.

    >>> info = RunInfo("r1", "c1", "m1", sdk="7", state=RunState.FINISHED)
    >>> info.chat_id, info.state.value, info.answerable
    ('c1', 'finished', ())
    """

    run_id: str
    chat_id: str
    message_id: str
    sdk: str
    user_message_id: str = ""
    subject: str = ""
    state: RunState = RunState.RUNNING
    open_calls: tuple[OpenCall, ...] = ()
    given_calls: tuple[OpenCall, ...] = ()
    user_message_digest: str = ""
    origin: str = ""

    @property
    def answerable(self) -> tuple[OpenCall, ...]:
        """The calls that the client may answer: the open ones, and after a failure those that it had answered."""
        came_to_nothing = self.state in (RunState.FAILED, RunState.STOPPED, RunState.LOST)
        return (*self.open_calls, *self.given_calls) if came_to_nothing else self.open_calls

    def answers_same_message(self, other: "RunInfo") -> bool:
        """Return whether both runs answer the same user message, with the same content."""
        return self.answers_same_id(other) and self.user_message_digest == other.user_message_digest

    def continues_same_answer(self, other: "RunInfo") -> bool:
        """Return whether both runs continue the same answer, with the same outputs and approvals in it."""
        are_continuations = not self.user_message_id and not other.user_message_id and bool(self.user_message_digest)
        return are_continuations and self.user_message_digest == other.user_message_digest

    def is_same_turn(self, other: "RunInfo") -> bool:
        """Return whether both are runs of one turn: the same run, or one restarts the other."""
        return (self.origin or self.run_id) == (other.origin or other.run_id)

    def answers_same_id(self, other: "RunInfo") -> bool:
        """Return whether both runs answer a user message of the same id; a page that edits a message keeps the id."""
        return bool(self.user_message_id) and self.user_message_id == other.user_message_id


def message_digest(message: Mapping[str, Any]) -> str:
    """Return the digest of a message's content, that is of its parts."""
    try:
        content = msgspec.json.encode(message["parts"])
    except UnicodeEncodeError:  # a lone surrogate
        content = json_text(message["parts"]).encode()
    return hashlib.sha256(content).hexdigest()


class RunRecorder(Protocol):
    """Records what a run says, such as in a chat store."""

    @property
    def states(self) -> PausedStates | None:
        """What keeps the states of paused agents unless workers share the run store; ``None`` if the run store does."""
        ...

    @property
    def memory(self) -> AnswerMemory | None:
        """What keeps the states of frameworks with the answers; ``None`` if the chats end with the process."""
        ...

    @property
    def steps(self) -> Steps | None:
        """What stores the steps of an agent function; ``None`` if they are called without."""
        ...

    def start(self, fail: Callable[[str], object]) -> None:
        """Begin to record; ``fail`` ends the run at once with an error of this text."""
        ...

    def receive(self, frames: bytes) -> None:
        """Take frames that readers see. Must neither wait nor raise."""
        ...

    async def commit(self) -> None:
        """Store what was received before the source goes on. Raises a ``PublicError`` if the run must end instead."""
        ...

    def interrupt(self) -> None:
        """The process is about to end: if another one may continue the answer, record nothing of what follows."""
        ...

    async def finish(self, info: RunInfo) -> None:
        """Record the end of the run. Readers see the end when this returns."""
        ...


class PreparedRun(NamedTuple):
    """A run that may start: what it is, its turn, the message that it continues, and what records it.

    A run that is queued for an agent process is recorded there: ``recording`` is what that process needs.
    ``taken_ids`` are those of the chat's other messages. ``outcomes`` are those of calls of the continued message that
    are known to the agent and not to the page: they are sent first.
    """

    info: RunInfo
    context: TurnContext
    continues: Mapping[str, Any] | None = None
    recorder: RunRecorder | None = None
    recording: Mapping[str, Any] | None = None
    taken_ids: Set[str] = frozenset()
    outcomes: Sequence[parts.Part] = ()


class Run:
    """Drives a source in one task and writes its frames to the log. It ends exactly once.

    ``chat_secret`` is the chat's own secret: it signs approval requests, and calls that wait for the page. ``on_end``
    is called once, after the last frame was appended; it ends the log when the store has recorded the end. A source
    cannot give the message one of the ``taken_ids``, which other messages of the chat have. ``waiting_tasks`` has the
    tasks that wait for answers, which the run may bring.
    """

    # With a thousand runs the objects of each delta are not in the processor's caches: few of them, no __dict__.
    __slots__ = (
        "_began",
        "_chat_secret",
        "_context",
        "_frames",
        "_grace",
        "_is_left",
        "_last_part",
        "_leaving",
        "_loop",
        "_maximum_bytes",
        "_must_commit",
        "_on_end",
        "_on_error",
        "_on_failure",
        "_ordered",
        "_outcomes",
        "_recorder",
        "_sent_part",
        "_stream",
        "_taken",
        "_taken_ids",
        "_task",
        "_timeouts",
        "_timer",
        "_waiting_tasks",
        "info",
        "log",
    )

    def __init__(
        self,
        prepared: PreparedRun,
        log: Log,
        settings: Settings,
        *,
        on_end: Callable[["Run"], None],
        on_failure: Callable[[RunInfo, BaseException, str], None] = lambda *_failure: None,
        chat_secret: str | None = None,
        waiting_tasks: WaitingTasks | None = None,
    ) -> None:
        self.info = info = prepared.info
        self.log = log
        self._context = prepared.context
        self._recorder = prepared.recorder
        self._must_commit = False
        self._stream = MessageStream(message_id=info.message_id, sdk=info.sdk, continues=prepared.continues)
        self._frames = FrameStream(self._stream, event_names=settings.event_names)
        self._timeouts = timeouts = settings.timeouts
        self._on_error = settings.on_error
        self._on_end = on_end
        self._on_failure = on_failure
        self._maximum_bytes = settings.maximum_run_bytes
        self._chat_secret = chat_secret
        self._taken_ids = prepared.taken_ids
        self._outcomes = prepared.outcomes
        self._loop = asyncio.get_running_loop()
        self._sent_part = False  # since the last tick
        self._taken = 0  # what readers had taken at the last tick
        self._last_part: float | None = None  # the time of the last tick before which a part was sent
        self._began = self._loop.time()
        self._timer = timer_for(limit) if (limit := timeouts.shortest) is not None else None
        self._grace: asyncio.TimerHandle | None = None
        self._ordered: parts.Error | parts.Abort | None = None
        self._waiting_tasks = waiting_tasks or WaitingTasks()
        self._task: WaitingTask | None = None
        self._is_left = False  # by its task
        self._leaving: asyncio.Future[None] | None = None
        self._context.connect(self.write)
        self._context.run_id = info.origin or info.run_id
        self._context.pause = self._pause

    @property
    def seconds(self) -> float:
        """How long ago the run began."""
        return self._loop.time() - self._began

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the request that the run answers."""
        return self._context.turn.headers

    @property
    def message_id(self) -> str:
        """The id of the message; a source may have replaced the planned one."""
        return str(self._stream.message_id)

    def start(self, source: Source) -> None:
        """Start the task, or continue the one that waits for the turn's answers. Every failure ends in the stream."""
        if self._timer is not None:
            self._timer.add(self)  # first: a task may run, and end, as soon as it is made (asyncio.eager_task_factory)
        for outcome in self._outcomes:
            self.write(outcome)
        buffer = None if self.log.coalesces else self.log  # one that coalesces frames is flushed by its timer
        with of_an_agent():
            self._task = self._waiting_tasks.begin(source, self._context, self, buffer)

    def write(self, part: parts.Part) -> bool:
        """Write a part to the log; dropped once the run has ended. Returns whether to yield to the event loop."""
        self._sent_part = True
        frames = self._handle(part) if part.__class__ in _HANDLED else self._frames.send(part)
        if not frames:
            return False
        log = self.log
        crowded = log.append(frames)
        if log.size > self._maximum_bytes:
            self._loop.call_soon(self._outgrow)
        if crowded:
            log.flush()
        return crowded or self._must_commit

    def stop(self, reason: str | None = None) -> None:
        """Cancel the source. The stream ends when the source has ended, at the latest after ``Timeouts.stop``."""
        self._order(parts.Abort(reason))

    def interrupt(self) -> None:
        """Stop because the process is about to end. What is recorded so far may be continued by another process."""
        is_cut_off = self._ordered is None and self.info.state is RunState.RUNNING and self._stream.ending is None
        if is_cut_off and self._recorder is not None:
            self.log.flush()  # the recorder takes what readers see
            self._recorder.interrupt()
        self.stop("shutdown")

    def fail(self, text: str) -> bytes:
        """Cancel the source, end the stream at once with an error, and return the last frames."""
        self._order(parts.Error(text))
        frames = self._last_frames(parts.Error(text))
        if frames:
            self.log.append(frames)
        self._end(parts.Error(text))
        return frames

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until the task has ended or paused, at most ``seconds``; by default as long as a stop may take."""
        if self._task is None or self._is_left:
            return
        if self._leaving is None:
            self._leaving = self._loop.create_future()
        await asyncio.wait([self._leaving], timeout=self._timeouts.stop if seconds is None else seconds)

    def tick(self, now: float) -> None:
        """Cancel the source if it has exceeded a time limit; one that is held back is not silent."""
        if self._sent_part or (self.log.is_full and self._taken != self.log.taken):
            self._sent_part, self._last_part, self._taken = False, now, self.log.taken
        limits = self._timeouts
        if self._last_part is None:
            since, limit = self._began, limits.first_event
        else:
            since, limit = self._last_part, limits.idle
        if limits.total is not None and now >= self._began + limits.total:
            self._order(parts.Error(TOO_LONG))
        elif limit is not None and now >= since + limit:
            self._order(parts.Error(CANNOT_FOLLOW if self.log.is_full else SILENT))

    async def _pause(self) -> None:
        if self._must_commit and self._recorder is not None:
            self._must_commit = False
            self.log.flush()  # the recorder takes what readers see
            await self._recorder.commit()
        else:
            await asyncio.sleep(0)
        await self.log.room()

    def task_paused(self) -> None:
        """End the stream: the task waits for the page's answers."""
        self._end(self._ordered or parts.Finish())
        self._leave()

    def task_ended(self, error: BaseException | None) -> None:
        """End the stream as the source has ended. The first ending that was asked for wins."""
        ending: parts.Finish | parts.Error | parts.Abort
        if error is None:
            ending = self._ordered or parts.Finish()
        elif isinstance(error, asyncio.CancelledError):
            ending = self._ordered or self._uncalled_for(error)
        else:
            ending = self._ordered or parts.Error(self._text_of(error))
        self._end(ending)
        self._leave()

    def _leave(self) -> None:
        self._is_left = True
        if self._leaving is not None and not self._leaving.done():
            self._leaving.set_result(None)

    def _uncalled_for(self, error: asyncio.CancelledError) -> parts.Error | parts.Abort:
        """Return the ending of a run that nobody stopped: its task was cancelled, or one that the agent awaited."""
        task = asyncio.current_task()
        is_cancelled = task is not None and task.cancelling() > 0
        return parts.Abort() if is_cancelled else parts.Error(self._text_of(error))

    def _order(self, ending: parts.Error | parts.Abort) -> None:
        # A source that continues after its own Finish can still be stopped.
        if self._ordered is not None or self.info.state is not RunState.RUNNING or self._task is None:
            return
        self._ordered = ending
        self._context.stop()
        self._task.cancel()
        self._grace = self._loop.call_later(self._timeouts.stop, self._give_up, ending)

    def _outgrow(self) -> None:
        if self._ordered is None:
            self.fail(TOO_MUCH)

    def _text_of(self, error: BaseException) -> str:
        on_failure = functools.partial(self._on_failure, self.info)
        return error_text(error, self._on_error, on_failure, run_id=self.info.run_id, chat_id=self.info.chat_id)

    def _give_up(self, ending: parts.Error | parts.Abort) -> None:
        _logger.warning(
            "run %s: the agent did not stop within %s s, so the stream ends without it; let the agent handle"
            " asyncio.CancelledError and look at turn.stopped in threads, or raise Timeouts.stop",
            self.info.run_id,
            self._timeouts.stop,
            extra={"chat_id": self.info.chat_id, "run_id": self.info.run_id},
        )
        self._end(ending)

    def _end(self, ending: parts.Finish | parts.Error | parts.Abort) -> None:
        if self._timer is not None:
            self._timer.discard(self)
        if self._grace is not None:
            self._grace.cancel()
        if self.info.state is not RunState.RUNNING:
            return
        if frames := self._last_frames(ending):
            self.log.append(frames)
        state, open_calls, given_calls = self._outcome(), self.info.open_calls, self.info.given_calls
        if state not in (RunState.FAILED, RunState.STOPPED):
            open_calls = given_calls = ()
        left = self._open_calls()
        ids = {call.tool_call_id for call in left}
        self.info = msgspec.structs.replace(
            self.info,
            message_id=self.message_id,
            state=state,
            # A page that has not seen this end may still answer the calls that were open before.
            open_calls=(*left, *(call for call in open_calls if call.tool_call_id not in ids)),
            given_calls=given_calls,
        )
        self.log.flush()
        self._context.disconnect(self.write)
        self._on_end(self)

    def _last_frames(self, ending: parts.Finish | parts.Error | parts.Abort) -> bytes:
        try:
            return self._handle(ending)
        except UsechatError:  # such as an invalid error text: the run must end anyway
            _logger.exception("run %s: its ending cannot be written", self.info.run_id)
            self._stream.ending = parts.Error(NO_ENDING)
            last = (chunks.ErrorChunk(NO_ENDING), chunks.FinishChunk())
            return encode_frames(last, event_names=self._frames.event_names)

    def _outcome(self) -> RunState:
        match self._stream.ending:
            case parts.Error():
                return RunState.FAILED
            case parts.Abort():
                return RunState.STOPPED
        return RunState.WAITING if self._stream.waiting_calls else RunState.FINISHED

    def _open_calls(self) -> tuple[OpenCall, ...]:
        """Return the calls that the client must answer now."""
        waiting = [(call, self._open_call(call)) for call in self._stream.waiting_calls]
        return tuple(
            msgspec.structs.replace(open_call, approval_id=call.approval_id) if call.was_requested else open_call
            for call, open_call in waiting
            if open_call is not None
        )

    def _open_call(self, call: Call) -> OpenCall | None:
        """Return a call with the tool and input it was made with; None if only the client says that it was made.

        An approval that the client answered was compared with the call that was made, so its call is known.
        """
        is_answered = any(answer.tool_call_id == call.wire_id for answer in self._context.turn.approvals)
        if call.restored and call.approved is None and not is_answered:
            return next(
                (open_call for open_call in self.info.open_calls if open_call.tool_call_id == call.wire_id), None
            )
        return OpenCall(call.wire_id, call.name, input_digest(call.input), call.approval_id)

    def _handle(self, part: parts.Part) -> bytes:
        """Return the frames of a part: a good ending and an approval request are signed, outcomes close open calls."""
        if self._recorder is not None and must_commit(part):
            self._must_commit = True
        match part:
            case parts.Finish():
                return self._finish(part)
            case parts.Start() if part.message_id in self._taken_ids:
                part = msgspec.structs.replace(part, message_id=None)
            case parts.ApprovalRequest():
                part = self._signed(part)
            case parts.ToolResult() | parts.ToolError() | parts.ToolDenied() if self.info.open_calls:
                still = [call for call in self.info.open_calls if call.tool_call_id != part.tool_call_id]
                self.info = msgspec.structs.replace(self.info, open_calls=tuple(still))
        return self._frames.send(part)

    def _finish(self, part: parts.Finish) -> bytes:
        """Return the frames of a good ending: everything is settled first, so that it is known which calls stay open.

        The metadata that signs them is sent before the ending, whose own metadata must not replace it on the page.
        """
        if self._stream.ending is not None:
            return b""
        settled = self._frames.settle()
        if self.info.sdk == "any" and any(call.was_requested for call in self._stream.waiting_calls):
            log_native_approval()
        pending = self._pending()
        if pending:
            own = {key: value for key, value in json_object(part.metadata or {}).items() if key not in pending}
            part = msgspec.structs.replace(part, metadata=own or None)
            settled += self._frames.send(parts.Metadata(pending))
        return settled + self._frames.send(part)

    def _signed(self, part: parts.ApprovalRequest) -> parts.ApprovalRequest:
        """Sign an approval request, so that its answer can be verified when the store no longer has this run."""
        call = self._stream.call_meant_by(part.tool_call_id)
        if call is None or call.settled or self._chat_secret is None or part.signature is not None:
            return part
        open_call = self._open_call(call)
        if open_call is None:
            return part
        open_call = msgspec.structs.replace(open_call, approval_id=part.approval_id)
        return msgspec.structs.replace(part, signature=approval_signature(self._chat_secret, open_call))

    def _pending(self) -> Mapping[str, Any]:
        """Return metadata that signs the calls which wait for the page.

        With it the page's answers are accepted even when this run is forgotten. Approval requests carry their own
        signature, if every release that the stream is made for knows it.
        """
        if self._chat_secret is None:
            return {}
        knows = releases_for(self.info.sdk).knows
        unsigned = knows("tool-approval-request") and not knows("tool-approval-request", "signature")
        calls = [call for call in self._open_calls() if call.approval_id is None or unsigned]
        if calls:
            return pending_metadata(self._chat_secret, calls)
        continued: Mapping[str, Any] = self._context.turn.request.continues or {}
        earlier = pending_in(continued.get("metadata"))
        return NOTHING_PENDING if earlier is not None and earlier.call_ids else {}


@functools.cache
def log_native_approval() -> None:
    """Log once per process that streams for ``any`` have approvals, which AI SDK 5 does not know."""
    _logger.info(
        "an approval request is sent as AI SDK 6 and 7 know it; AI SDK 5 rejects it: serve such pages with --sdk 5"
    )
