"""Tasks of frameworks that wait for a person in this process, over the end of a turn.

Some frameworks cannot save a paused run: their task waits for an answer inside a callback. Stock clients post an answer
only when the stream has ended, so the turn ends as *waiting* while the task lives on. The turn that brings the answer
reads on where the last one ended.

The task is a separate one, since the task of a turn ends with it. It is cancelled if its turn is stopped, if another
message supersedes it, or if nobody has answered for ``seconds``; time limits of runs do not count while it waits. An
answer that comes later, or after a restart of the process, is refused with a sentence that the page shows. Answers
reach it from other workers through :mod:`usechat.forwarded_turns`.

A source calls :meth:`WaitingTasks.events`, and the framework's callback :meth:`WaitingTask.ask`. ``emit`` works in the
task in later turns, too.

Questions are the last events of a turn. A page posts its answers when every call of the last step has one, so what a
parallel branch does after a question must not be in the question's step, nor begin another step behind it.
"""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from typing import Final, Generic, TypeAlias, TypeVar

from usechat.errors import LocalProtocolError, PublicError, StreamFailed
from usechat.protocol.parts import Part
from usechat.protocol.request import ApprovalAnswer, ToolOutput
from usechat.turn import Turn, TurnContext, current_context

__all__ = ["PAUSE_IS_GONE", "WAIT_SECONDS", "Answer", "WaitingTask", "WaitingTasks", "has_answers"]

PAUSE_IS_GONE: Final = "This request is no longer waiting for an answer. Please ask again."
WAIT_SECONDS: Final = 3600.0
"""How long a task waits for an answer."""
_MOST_WAITING: Final = 1000
_AHEAD: Final = 256
"""How many events a task may be ahead of its reader."""
_MOST_KEPT: Final = 10_000
"""How many parts a task may send between two turns."""

Event = TypeVar("Event")
Answer: TypeAlias = ApprovalAnswer | ToolOutput | None
"""What a person answered; ``None`` if the next turn brought no answer to this call."""


class _Question(Generic[Event]):
    """An entry of a queue: the event that asks the page about a call."""

    def __init__(self, call_id: str, event: Event) -> None:
        self.call_id = call_id
        self.event = event


class _Ended:
    """The last entry of a queue: how the task ended."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def has_answers(turn: Turn) -> bool:
    """Tell whether a turn brings any answer of the page."""
    return bool(turn.approvals or turn.tool_outputs)


class WaitingTask(Generic[Event]):
    """A task that gives events, and may ask for answers meanwhile. One turn at a time reads it.

    ``start`` makes the events; it gets this object, for :meth:`ask`. A turn ends ``settle_seconds`` after the last
    question, so that questions that are asked in parallel reach the page together.
    """

    def __init__(
        self, start: "Callable[[WaitingTask[Event]], AsyncGenerator[Event]]", *, settle_seconds: float = 0
    ) -> None:
        self._queue: asyncio.Queue[Event | _Question[Event] | _Ended] = asyncio.Queue(_AHEAD)
        self._settle_seconds = settle_seconds
        self._asked: dict[str, asyncio.Future[Answer]] = {}
        self._shown: frozenset[str] = frozenset()
        """The questions that the page has."""
        self._kept: list[Part] = []
        """What was sent between two turns."""
        self._is_cancelled = False
        self._context = _context_here()
        self._task = asyncio.create_task(self._run(start), name="usechat waiting task")

    @property
    def is_waiting(self) -> bool:
        """Whether the task waits for answers, and everything that it said before was read."""
        return bool(self._asked) and self._queue.empty() and not self._task.done()

    @property
    def is_over(self) -> bool:
        """Whether the task has ended, or was cancelled."""
        return self._is_cancelled or self._task.done()

    async def ask(self, call_id: str, question: Event) -> Answer:
        """Give an event that asks the page about a call, and wait for the answer of a later turn."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._asked[call_id] = answer
        try:
            await self._queue.put(_Question(call_id, question))
            return await answer
        finally:
            self._asked.pop(call_id, None)

    async def send(self, event: Event) -> None:
        """Give an event, from code that the framework calls."""
        await self._queue.put(event)

    def answer(self, turn: Turn) -> None:
        """Pass the answers of a turn to the code that asked, and send events to that turn from now on."""
        context = _context_here()
        if self._context is not None and context is not None:
            kept, self._kept = self._kept, []
            for part in kept:
                context.send(part)
            self._context.connect(context.relay)
            self._context.ask = context.ask or self._context.ask
        given: dict[str | None, Answer] = {answer.tool_call_id: answer for answer in turn.approvals}
        given |= {output.tool_call_id: output for output in turn.tool_outputs}
        for call_id in self._shown & self._asked.keys():
            _settle(self._asked.pop(call_id), given.get(call_id))

    def pause(self, *, keeps_parts: bool) -> None:
        """Note that the turn ends; keep what is sent from now on for the turn that brings the answers, if told so."""
        self._shown = frozenset(self._asked)
        if keeps_parts and self._context is not None:
            self._context.connect(self._keep)

    def _keep(self, part: Part) -> None:
        self._kept.append(part)
        if len(self._kept) > _MOST_KEPT:
            self._task.cancel()

    async def events(self) -> AsyncGenerator[Event]:
        """Yield events until the task waits for answers, or has ended; raise what it raised."""
        questions: list[_Question[Event]] = []
        while True:
            entry = await self._queue.get()
            if isinstance(entry, _Ended):
                if entry.error is not None:
                    raise entry.error
                return
            if isinstance(entry, _Question):
                questions.append(entry)
            else:
                yield entry
            if self.is_waiting:
                await asyncio.sleep(self._settle_seconds)  # parallel calls ask one after the other
            if not self.is_waiting:
                continue
            for question in questions:
                if question.call_id in self._asked:  # it may be withdrawn
                    yield question.event
            questions.clear()
            if self.is_waiting:
                return

    async def cancel(self) -> None:
        """Cancel the task, and wait until it has ended. Questions without an answer get ``None``."""
        self._is_cancelled = True
        for asked in self._asked.values():  # also of other tasks, such as that of an MCP session
            _settle(asked, None)
        if self._context is not None and not self._task.done():
            self._context.stop()
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self, start: "Callable[[WaitingTask[Event]], AsyncGenerator[Event]]") -> None:
        error: BaseException | None = None
        try:
            async with contextlib.aclosing(start(self)) as events:
                async for event in events:
                    await self._queue.put(event)
        except asyncio.CancelledError:
            if self._is_cancelled:
                raise
            error = StreamFailed("the task of the agent was cancelled")
        except BaseException as raised:  # SystemExit, too: it must not leave the event loop
            error = raised
        await self._queue.put(_Ended(error))


def _settle(asked: "asyncio.Future[Answer]", answer: Answer) -> None:
    if not asked.done():
        asked.set_result(answer)


def _context_here() -> TurnContext | None:
    try:
        return current_context()
    except LocalProtocolError:  # a source that is driven without a run
        return None


class WaitingTasks(Generic[Event]):
    """The tasks of one source that wait in this process, by the handle of their chat.

    When too many wait, the oldest is cancelled. ``is_answer`` tells whether a turn answers what these tasks ask.
    ``keeps_parts`` keeps what is sent between two turns for the second one, for tasks that send parts on their own;
    where the reader makes parts of the events, those at the turn's end would be kept, too.
    """

    def __init__(
        self,
        *,
        seconds: float = WAIT_SECONDS,
        maximum: int = _MOST_WAITING,
        settle_seconds: float = 0,
        keeps_parts: bool = False,
        is_answer: Callable[[Turn], bool] = has_answers,
    ) -> None:
        self._seconds = seconds
        self._maximum = maximum
        self._settle_seconds = settle_seconds
        self._keeps_parts = keeps_parts
        self._is_answer = is_answer
        self._waiting: OrderedDict[str, tuple[WaitingTask[Event], asyncio.TimerHandle]] = OrderedDict()
        self._cancelling: set[asyncio.Task[None]] = set()

    async def events(
        self, turn: Turn, handle: str, start: Callable[[WaitingTask[Event]], AsyncGenerator[Event]]
    ) -> AsyncGenerator[Event]:
        """Yield the events of a turn: of the task that waits for its answers, or of a new one.

        Raises :class:`~usechat.errors.PublicError` if the turn brings answers and no task waits for them.
        """
        task = self._take(handle)
        if self._is_answer(turn):
            if task is None:
                raise PublicError(PAUSE_IS_GONE)
            task.answer(turn)
        else:
            if task is not None:
                await task.cancel()
            task = WaitingTask(start, settle_seconds=self._settle_seconds)
        is_paused = False
        try:
            async with contextlib.aclosing(task.events()) as events:
                async for event in events:
                    yield event
            is_paused = task.is_waiting and not turn.stopped
        finally:
            if is_paused:
                self._keep(handle, task)
            else:
                await task.cancel()

    def is_waiting(self, handle: str) -> bool:
        """Tell whether a task waits in this process."""
        return handle in self._waiting

    def _take(self, handle: str) -> WaitingTask[Event] | None:
        found = self._waiting.pop(handle, None)
        if found is None:
            return None
        found[1].cancel()
        return found[0]

    def _keep(self, handle: str, task: WaitingTask[Event]) -> None:
        task.pause(keeps_parts=self._keeps_parts)
        timer = asyncio.get_running_loop().call_later(self._seconds, self._forget, handle)
        self._waiting[handle] = task, timer
        if len(self._waiting) > self._maximum:
            self._forget(next(iter(self._waiting)))

    def _forget(self, handle: str) -> None:
        task = self._take(handle)
        if task is not None:
            cancelling = asyncio.ensure_future(task.cancel())
            self._cancelling.add(cancelling)
            cancelling.add_done_callback(self._cancelling.discard)
