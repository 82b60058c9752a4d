"""One run: the task that owns an assistant turn from start to end.

**The idea.** One asyncio task drives the source, from its first event to its last. The source sends parts through its
:class:`~usechat.turn.TurnContext`; the run turns each into frames and appends them to its log. Connections never touch
user code: they read the log. So agent frameworks see one task and one context, whatever clients do, and a client that
disconnects does not end the run.

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
a Rust extension): an agent does not end the server. asyncio ends its loop when *any* task raises ``SystemExit`` or
``KeyboardInterrupt``, so tasks that an agent starts (``asyncio.gather``, ``TaskGroup``) raise ``TaskExited`` instead.

**Time limits.** One shared timer calls ``tick`` (:mod:`usechat.runs.timers`); the hot path only sets a flag.
"""

import asyncio
import contextvars
import enum
import functools
import hashlib
import inspect
import logging
import secrets
import types
from collections.abc import Callable, Coroutine, Generator, Mapping, Set
from typing import Any, Final, get_args

import msgspec

from usechat.errors import PublicError, TaskExited, UsechatError
from usechat.protocol import chunks, parts
from usechat.protocol.releases import releases_for
from usechat.protocol.sse import FrameStream, encode_frames
from usechat.protocol.stream import MessageStream
from usechat.protocol.tool_calls import Call
from usechat.protocol.values import json_object, json_text
from usechat.runs.log import Log
from usechat.runs.open_calls import (
    NOTHING_PENDING,
    OpenCall,
    approval_signature,
    input_digest,
    pending_in,
    pending_metadata,
)
from usechat.runs.timers import timer_for
from usechat.sources import Source
from usechat.threads import contained
from usechat.turn import TurnContext

__all__ = [
    "Run",
    "RunInfo",
    "RunState",
    "Timeouts",
    "contain_exits",
    "describe_with",
    "log_native_approval",
    "message_digest",
]


_logger: Final = logging.getLogger("usechat.runs")

TOO_LONG: Final = "The answer took too long and was stopped."
TOO_MUCH: Final = "The answer grew too long and was stopped."
NO_ENDING: Final = "The answer ended in an error."
SILENT: Final = "The agent was silent for too long, so the answer was stopped."

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
    answers it again. ``origin`` is set if the run restarts a turn whose worker died: the id of the turn's first run.

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


class Timeouts(msgspec.Struct, frozen=True):
    """Limit how long an agent may take, in seconds; ``None`` means no limit.

    ``first_event`` runs from the start of the run to the first part, ``idle`` between two parts, and ``total`` from the
    start of the run to its end. ``stop`` is what a cancelled agent may take to clean up; after that the stream ends
    without it. An agent that exceeds a limit is cancelled, and the answer ends with an error that says so.

    >>> Timeouts(first_event=30, total=600)
    Timeouts(first_event=30, idle=120, total=600, stop=5)
    """

    first_event: float | None = 120
    idle: float | None = 120
    total: float | None = None
    stop: float = 5

    @property
    def shortest(self) -> float | None:
        """The shortest of the limits on a running agent."""
        limits = (self.first_event, self.idle, self.total)
        return min((limit for limit in limits if limit is not None), default=None)


class Run:
    """Drives a source in one task and writes its frames to the log. It ends exactly once.

    ``describe`` turns an exception into the text of the ``error`` chunk. ``chat_secret`` is the chat's own secret:
    it signs approval requests, and calls that wait for the page. ``on_end`` is called once, after the last frame was
    appended; it ends the log when the store has recorded the end. A source cannot give the message one of the
    ``taken_ids``, which other messages of the chat have.
    """

    # With a thousand runs the objects of each delta are not in the processor's caches: few of them, no __dict__.
    __slots__ = (
        "_began",
        "_chat_secret",
        "_context",
        "_describe",
        "_entered",
        "_frames",
        "_grace",
        "_last_part",
        "_loop",
        "_maximum_bytes",
        "_on_end",
        "_ordered",
        "_sent_part",
        "_stream",
        "_taken_ids",
        "_task",
        "_timeouts",
        "_timer",
        "info",
        "log",
    )

    def __init__(
        self,
        info: RunInfo,
        context: TurnContext,
        stream: MessageStream,
        log: Log,
        *,
        timeouts: Timeouts,
        describe: Callable[[BaseException, RunInfo], str],
        on_end: Callable[["Run"], None],
        maximum_bytes: int = 64 * 1024 * 1024,
        chat_secret: str | None = None,
        event_names: bool = False,
        taken_ids: Set[str] = frozenset(),
    ) -> None:
        self.info = info
        self.log = log
        self._context = context
        self._stream = stream
        self._frames = FrameStream(stream, event_names=event_names)
        self._timeouts = timeouts
        self._describe = describe
        self._on_end = on_end
        self._maximum_bytes = maximum_bytes
        self._chat_secret = chat_secret
        self._taken_ids = taken_ids
        self._loop = asyncio.get_running_loop()
        self._entered = False
        self._sent_part = False  # since the last tick
        self._last_part: float | None = None  # the time of the last tick before which a part was sent
        self._began = self._loop.time()
        self._timer = timer_for(limit) if (limit := timeouts.shortest) is not None else None
        self._grace: asyncio.TimerHandle | None = None
        self._ordered: parts.Error | parts.Abort | None = None
        self._task: asyncio.Task[None] | None = None
        context.connect(self.write)

    @property
    def seconds(self) -> float:
        """How long ago the run began."""
        return self._loop.time() - self._began

    @property
    def message_id(self) -> str:
        """The id of the message; a source may have replaced the planned one."""
        return str(self._stream.message_id)

    def start(self, source: Source) -> None:
        """Start the task. From here on every failure ends in the stream."""
        if self._timer is not None:
            self._timer.add(self)  # first: a task may run, and end, as soon as it is made (asyncio.eager_task_factory)
        contain_exits(self._loop)
        self._task = self._loop.create_task(self._own(source), name="usechat run")

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
        return crowded

    def stop(self, reason: str | None = None) -> None:
        """Cancel the source. The stream ends when the source has ended, at the latest after ``Timeouts.stop``."""
        self._order(parts.Abort(reason))

    def fail(self, text: str) -> bytes:
        """Cancel the source, end the stream at once with an error, and return the last frames."""
        self._order(parts.Error(text))
        frames = self._last_frames(parts.Error(text))
        if frames:
            self.log.append(frames)
        self._end(parts.Error(text))
        return frames

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until the task has ended, at most ``seconds``; by default as long as a stop may take."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=self._timeouts.stop if seconds is None else seconds)

    def tick(self, now: float) -> None:
        """Cancel the source if it has exceeded a time limit."""
        if self._sent_part:
            self._sent_part, self._last_part = False, now
        limits = self._timeouts
        if self._last_part is None:
            since, limit = self._began, limits.first_event
        else:
            since, limit = self._last_part, limits.idle
        if limits.total is not None and now >= self._began + limits.total:
            self._order(parts.Error(TOO_LONG))
        elif limit is not None and now >= since + limit:
            self._order(parts.Error(SILENT))

    async def _own(self, source: Source) -> None:
        ending: parts.Finish | parts.Error | parts.Abort
        self._entered = True
        _of_an_agent.set(True)  # the context is this task's own
        try:
            self._context.enter()
            await _flushing_at_pauses(source.drive(self._context), self.log)
            ending = self._ordered or parts.Finish()
        except asyncio.CancelledError as error:
            self._context.stop()  # of a loop that is closed: a thread must hear of it, too
            ending = self._ordered or self._uncalled_for(error)
        except BaseException as error:  # user code may raise anything, SystemExit too: the stream ends well-formed
            if isinstance(error, GeneratorExit) and not self._loop.is_running():
                raise  # not the agent's: the loop is gone, and this coroutine is closed
            ending = self._ordered or parts.Error(self._describe(error, self.info))
        self._end(ending)

    def _uncalled_for(self, error: asyncio.CancelledError) -> parts.Error | parts.Abort:
        """Return the ending of a run that nobody stopped: its task was cancelled, or one that the agent awaited."""
        task = asyncio.current_task()
        is_cancelled = task is not None and task.cancelling() > 0
        return parts.Abort() if is_cancelled else parts.Error(self._describe(error, self.info))

    def _order(self, ending: parts.Error | parts.Abort) -> None:
        # A source that continues after its own Finish can still be stopped.
        if self._ordered is not None or self.info.state is not RunState.RUNNING or self._task is None:
            return
        self._ordered = ending
        self._context.stop()
        self._task.cancel()
        if not self._entered:
            # A task that is cancelled before its first step never runs.
            self._loop.call_soon(self._end, ending)
        self._grace = self._loop.call_later(self._timeouts.stop, self._give_up, ending)

    def _outgrow(self) -> None:
        if self._ordered is None:
            self.fail(TOO_MUCH)

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
        state, found, given = self._outcome(), self.info.open_calls, self.info.given_calls
        if state not in (RunState.FAILED, RunState.STOPPED):
            found = given = ()
        left = self._open_calls()
        ids = {call.tool_call_id for call in left}
        self.info = msgspec.structs.replace(
            self.info,
            message_id=self.message_id,
            state=state,
            # A page that has not seen this end may still answer the calls that were open before.
            open_calls=(*left, *(call for call in found if call.tool_call_id not in ids)),
            given_calls=given,
        )
        self.log.flush()
        self._context.disconnect(self.write)
        self._on_end(self)

    def _last_frames(self, ending: parts.Finish | parts.Error | parts.Abort) -> bytes:
        try:
            return self._handle(ending)
        except UsechatError:  # such as an error text that is none: the run ends all the same
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
        waiting = [(call, self._as_made(call)) for call in self._stream.waiting_calls]
        return tuple(
            msgspec.structs.replace(made, approval_id=call.approval_id) if call.asked else made
            for call, made in waiting
            if made is not None
        )

    def _as_made(self, call: Call) -> OpenCall | None:
        """Return a call with the tool and input it was made with; None if only the client says that it was made.

        An approval that the client answered was compared with the call that was made, so its call is known.
        """
        is_answered = any(answer.tool_call_id == call.wire_id for answer in self._context.turn.approvals)
        if call.restored and call.approved is None and not is_answered:
            return next((made for made in self.info.open_calls if made.tool_call_id == call.wire_id), None)
        return OpenCall(call.wire_id, call.name, input_digest(call.input), call.approval_id)

    def _handle(self, part: parts.Part) -> bytes:
        """Return the frames of a part: a good ending and an approval request are signed, outcomes close open calls."""
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
        if self.info.sdk == "any" and any(call.asked for call in self._stream.waiting_calls):
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
        made = self._as_made(call)
        if made is None:
            return part
        asked = msgspec.structs.replace(made, approval_id=part.approval_id)
        return msgspec.structs.replace(part, signature=approval_signature(self._chat_secret, asked))

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


_of_an_agent: contextvars.ContextVar[bool] = contextvars.ContextVar("usechat_of_an_agent", default=False)
"""Whether this code is an agent's: the task of a run, and every task that it starts."""


class _TaskFactory:
    """Make tasks as before, except that the tasks of agents cannot end the event loop."""

    def __init__(self, earlier: Callable[..., asyncio.Future[Any]] | None) -> None:
        self._earlier = earlier or _new_task

    def __call__(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Future[Any]:
        context = options.get("context")
        of_an_agent = _of_an_agent.get() if context is None else context.get(_of_an_agent, False)
        if of_an_agent and inspect.iscoroutine(coroutine):
            coroutine = _Contained(coroutine)
        return self._earlier(loop, coroutine, **options)


def _new_task(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Future[Any]:
    return asyncio.Task(coroutine, loop=loop, **options)


class _Contained(Coroutine[Any, Any, Any]):
    """A coroutine that raises ``TaskExited`` instead of what would end the event loop; in all else the one it is given.

    No ``async def`` around it, because others look at a task's coroutine: debuggers, and :mod:`usechat.genkit.local`.
    """

    __slots__ = ("_coroutine",)

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coroutine, name)

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        try:
            return self._coroutine.send(value)
        except (SystemExit, KeyboardInterrupt) as error:
            raise _exited(error) from error

    def throw(self, *error: Any) -> Any:
        try:
            return self._coroutine.throw(*error)
        except (SystemExit, KeyboardInterrupt) as raised:
            raise _exited(raised) from raised

    def close(self) -> None:
        self._coroutine.close()


def _exited(error: BaseException) -> TaskExited:
    return TaskExited(f"a task of the agent raised {error!r}")


def contain_exits(loop: asyncio.AbstractEventLoop) -> None:
    """Let no task that an agent starts on this loop end the loop by ``SystemExit`` or ``KeyboardInterrupt``."""
    earlier: Any = loop.get_task_factory()
    if not isinstance(earlier, _TaskFactory):
        loop.set_task_factory(_TaskFactory(earlier))


@functools.cache
def log_native_approval() -> None:
    """Log once per process that streams for ``any`` have approvals, which AI SDK 5 does not know."""
    _logger.info(
        "an approval request is sent as AI SDK 6 and 7 know it; AI SDK 5 rejects it: serve such pages with --sdk 5"
    )


@types.coroutine
def _flushing_at_pauses(driving: Coroutine[Any, Any, None], log: Log) -> Generator[Any, Any, None]:
    """Drive a source in the calling task, and flush the log whenever the source waits for something.

    A callback would flush one iteration of the event loop later, which is long with many streams. A log that coalesces
    frames is flushed by its timer instead.
    """
    error: BaseException | None = None
    holds = not log.coalesces
    try:
        while True:
            log.held = holds
            waiting = driving.send(None) if error is None else driving.throw(error)
            error = None
            try:
                if holds:
                    log.held = False
                    log.flush()
                yield waiting
            except BaseException as raised:  # such as a cancellation: pass it to the source
                error = raised
    except StopIteration:
        return
    finally:
        error = None  # its traceback refers to this frame
        log.release()


# The text of a failure: what the page shows, and what the server's log holds.

_server_logger: Final = logging.getLogger("usechat.server")


def describe_with(on_error: Callable[[Exception], str] | None) -> Callable[[BaseException, RunInfo], str]:
    """Return a function that turns an exception into the text of the ``error`` chunk, and logs it with a reference.

    A :class:`~usechat.errors.PublicError` keeps its text. Otherwise ``on_error`` makes the text; without it, or if it
    fails, the text holds the reference alone.
    """

    def describe(error: BaseException, run: RunInfo) -> str:
        if isinstance(error, PublicError):
            return str(error)
        reference = secrets.token_hex(4)
        _server_logger.error(
            "run %s of chat %s failed; reference %s",
            run.run_id,
            run.chat_id,
            reference,
            exc_info=error,
            extra={"chat_id": run.chat_id, "run_id": run.run_id, "reference": reference},
        )
        try:
            if on_error is not None and isinstance(error, Exception):
                with contained():
                    return on_error(error)
        except Exception:  # it is user code, too
            _server_logger.exception("on_error raised, so the page gets the default text; reference %s", reference)
        return f"An error occurred. Reference: {reference}"

    return describe
