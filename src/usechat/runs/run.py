"""One run: the task that owns an assistant turn from first to last."""

import asyncio
import enum
import logging
import secrets
import types
from collections.abc import Callable, Coroutine, Generator, Mapping
from typing import Any, Final, get_args

import msgspec

from usechat.errors import PublicError, UsechatError
from usechat.protocol import chunks, parts
from usechat.protocol.sse import FrameStream, encode_frames
from usechat.protocol.stream import MessageStream
from usechat.protocol.tool_calls import Call
from usechat.protocol.values import json_object
from usechat.runs.log import Log
from usechat.runs.open_calls import (
    NOTHING_PENDING,
    OpenCall,
    approval_signature,
    input_digest,
    pending_in,
    pending_metadata,
    secret_of_chat,
)
from usechat.runs.timers import timer_for
from usechat.sources import Source
from usechat.turn import TurnContext

__all__ = [
    "Run",
    "RunInfo",
    "RunState",
    "Timeouts",
    "describe_with",
]


_logger: Final = logging.getLogger("usechat.runs")

TOO_LONG: Final = "The answer took too long and was stopped."
TOO_MUCH: Final = "The answer grew too long and was stopped."
NO_ENDING: Final = "The answer ended in an error."
SILENT: Final = "The agent was silent for too long, so the answer was stopped."

_HANDLED: Final[frozenset[type]] = frozenset({*get_args(parts.ToolPart), parts.Finish})
"""The parts that a run looks at before it passes them on."""


class RunState(enum.StrEnum):
    """How a run stands. ``waiting``: it ended with a call that the client must answer."""

    RUNNING = "running"
    WAITING = "waiting"
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"
    LOST = "lost"


class RunInfo(msgspec.Struct, frozen=True):
    """What is known of a run, wherever it lives.

    ``open_calls`` are the calls that it left to the client; while it goes on, those that it found open and unanswered.
    ``given_calls`` are those whose outputs its request brought; none after a good end. An approval counts once: whoever
    was given it may have run the tool.
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

    @property
    def answerable(self) -> tuple[OpenCall, ...]:
        """The calls that the client may answer: also those whose answers came to nothing, for it may try again."""
        came_to_nothing = self.state in (RunState.FAILED, RunState.STOPPED, RunState.LOST)
        return (*self.open_calls, *self.given_calls) if came_to_nothing else self.open_calls


class Timeouts(msgspec.Struct, frozen=True):
    """Seconds that an agent may take; ``None`` is for ever. ``stop`` is how long a stopped agent may clean up."""

    first_event: float | None = 120
    idle: float | None = 120
    total: float | None = None
    stop: float = 5

    @property
    def shortest(self) -> float | None:
        """The shortest time that an agent may take for anything."""
        limits = (self.first_event, self.idle, self.total)
        return min((limit for limit in limits if limit is not None), default=None)


class Run:
    """Drives a source in one task and writes its frames to the log. It ends exactly once.

    ``on_end`` closes the log, when everybody may know that the run is over.
    """

    # A thousand runs are driven in turn, so that each delta finds its run out of the processor's caches: no __dict__.
    __slots__ = (
        "_approval_secret",
        "_began",
        "_context",
        "_describe",
        "_entered",
        "_frames",
        "_grace",
        "_heard",
        "_loop",
        "_maximum_bytes",
        "_on_end",
        "_ordered",
        "_spoke",
        "_stream",
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
        describe: Callable[[Exception, RunInfo], str],
        on_end: Callable[["Run"], None],
        maximum_bytes: int = 64 * 1024 * 1024,
        approval_secret: str | None = None,
        event_names: bool = False,
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
        self._approval_secret = approval_secret
        self._loop = asyncio.get_running_loop()
        self._entered = False
        self._spoke = False  # since anybody looked at the time
        self._heard: float | None = None
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
        """The id of the message: the one that was meant, or the one that the source gave it."""
        return str(self._stream.message_id)

    def start(self, source: Source) -> None:
        """Begin: from here on everything ends in the stream."""
        if self._timer is not None:
            self._timer.add(self)  # first: a task may run, and end, as soon as it is made (asyncio.eager_task_factory)
        self._task = self._loop.create_task(self._own(source), name="usechat run")

    def write(self, part: parts.Part) -> bool:
        """Write what the source said; nothing once the run has ended. Tells whether to yield to the event loop."""
        self._spoke = True
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
        """Stop the source; the stream ends as stopped when it has gone, or after the time it has to go."""
        self._order(parts.Abort(reason))

    def fail(self, text: str) -> bytes:
        """Stop the source and end the stream at once with an error; return the last frames."""
        self._order(parts.Error(text))
        frames = self._last_frames(parts.Error(text))
        if frames:
            self.log.append(frames)
        self._end(parts.Error(text))
        return frames

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until the source has gone, but no longer than a stop may take, or than ``seconds`` says."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=self._timeouts.stop if seconds is None else seconds)

    def tick(self, now: float) -> None:
        """Stop the source if it is silent for too long, or has taken too long."""
        if self._spoke:
            self._spoke, self._heard = False, now
        limits = self._timeouts
        if self._heard is None:
            since, limit = self._began, limits.first_event
        else:
            since, limit = self._heard, limits.idle
        if limits.total is not None and now >= self._began + limits.total:
            self._order(parts.Error(TOO_LONG))
        elif limit is not None and now >= since + limit:
            self._order(parts.Error(SILENT))

    async def _own(self, source: Source) -> None:
        ending: parts.Finish | parts.Error | parts.Abort
        self._entered = True
        try:
            self._context.enter()
            await _flushing_at_pauses(source.drive(self._context), self.log)
            ending = self._ordered or parts.Finish()
        except asyncio.CancelledError:
            ending = self._ordered or parts.Abort()
        except Exception as error:  # whatever user code raises, the stream ends well-formed
            ending = self._ordered or parts.Error(self._describe(error, self.info))
        except GeneratorExit:
            raise  # the loop is gone
        except BaseException:  # such as a panic of a Rust extension: the loop goes on, and so do the readers
            self._end(self._ordered or parts.Error(NO_ENDING))
            raise
        self._end(ending)

    def _order(self, ending: parts.Error | parts.Abort) -> None:
        # A source that goes on after its own last word can still be stopped.
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
            "run %s: the agent did not stop in time; the stream ends without it",
            self.info.run_id,
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
            # A page that did not see this end may still answer what was open before.
            open_calls=(*left, *(call for call in found if call.tool_call_id not in ids)),
            given_calls=given,
        )
        self.log.flush()
        self._context.disconnect(self.write)
        self._on_end(self)

    def _last_frames(self, ending: parts.Finish | parts.Error | parts.Abort) -> bytes:
        try:
            return self._handle(ending)
        except UsechatError:  # the source named the message badly, or an error text is none: the run ends all the same
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
        """Return a call as it was made: what the client alone tells of its calls is nothing that was asked."""
        if call.restored:
            return next((made for made in self.info.open_calls if made.tool_call_id == call.wire_id), None)
        return OpenCall(call.wire_id, call.name, input_digest(call.input), call.approval_id)

    def _handle(self, part: parts.Part) -> bytes:
        """Return the frames of a part: a good ending and an approval request are signed, outcomes close open calls."""
        match part:
            case parts.Finish():
                return self._finish(part)
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
        pending = self._pending()
        if pending:
            own = {key: value for key, value in json_object(part.metadata or {}).items() if key not in pending}
            part = msgspec.structs.replace(part, metadata=own or None)
            settled += self._frames.send(parts.Metadata(pending))
        return settled + self._frames.send(part)

    def _signed(self, part: parts.ApprovalRequest) -> parts.ApprovalRequest:
        """Sign an approval request, so that its answer can be checked when this run is forgotten."""
        call = self._stream.call_meant_by(part.tool_call_id)
        if call is None or call.settled or self._approval_secret is None or part.signature is not None:
            return part
        made = self._as_made(call)
        if made is None:
            return part
        secret = secret_of_chat(self._approval_secret, self.info.chat_id, self.info.subject)
        asked = msgspec.structs.replace(made, approval_id=part.approval_id)
        return msgspec.structs.replace(part, signature=approval_signature(secret, asked))

    def _pending(self) -> Mapping[str, Any]:
        """Return metadata that signs the calls which wait for the page's outputs.

        With it the outputs are accepted even when this run is forgotten.
        """
        calls = [call for call in self._open_calls() if call.approval_id is None]
        if self._approval_secret is None:
            return {}
        if calls:
            return pending_metadata(secret_of_chat(self._approval_secret, self.info.chat_id, self.info.subject), calls)
        continued: Mapping[str, Any] = self._context.turn.request.continues or {}
        earlier = pending_in(continued.get("metadata"))
        return NOTHING_PENDING if earlier is not None and earlier.call_ids else {}


@types.coroutine
def _flushing_at_pauses(driving: Coroutine[Any, Any, None], log: Log) -> Generator[Any, Any, None]:
    """Drive a source in the calling task; what it said reaches the readers when it pauses, by a plain call.

    A callback would do it one turn of the loop later, which is long when many streams speak. A log that gathers frames
    flushes by its own clock.
    """
    error: BaseException | None = None
    holds = not log.gathers
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
            except BaseException as raised:  # such as a cancellation, which is for the source to hear
                error = raised
    except StopIteration:
        return
    finally:
        error = None  # it knows this frame by its traceback
        log.release()


# -- What people see of a failure, and what the log keeps of it.

_server_logger: Final = logging.getLogger("usechat.server")


def describe_with(on_error: Callable[[Exception], str] | None) -> Callable[[Exception, RunInfo], str]:
    """Return the function that turns an exception into the text of the ``error`` chunk."""

    def describe(error: Exception, run: RunInfo) -> str:
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
            if on_error is not None:
                return on_error(error)
        except Exception:  # it is user code as well
            _server_logger.exception("on_error failed; reference %s", reference)
        return f"An error occurred. Reference: {reference}"

    return describe
