"""Tasks that drive sources, and may wait for a person over the end of a turn; :mod:`usechat.pauses` has the idea.

A :class:`WaitingTask` has one owner at a time, such as a run. The owner starts it, or continues one that waits, with
:meth:`~usechat.pauses.tasks.WaitingTasks.begin`, and hears once how its turn went: ``task_paused`` or ``task_ended``.

**A pause.** ``ask`` notes a question. When no other has followed for a moment, the task shows all of them, keeps what
is sent from now on for the next turn, lets other workers find it, and leaves its owner. Questions are the last parts of
a turn: a page posts its answers when every call of the last step has one, so what a parallel branch does after a
question must not be in the question's step, nor begin another step behind it.

**An ending during a pause** (the agent returns while other code still asks) is kept, and told to the next owner.
"""

import asyncio
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Final, Protocol

from usechat.pauses.handles import state_handle
from usechat.pauses.questions import answers_of
from usechat.pauses.states import Mailbox
from usechat.protocol.parts import Part, Step
from usechat.sources import Source
from usechat.turn import Answer, PageQuestion, Turn, TurnContext

__all__ = ["Buffer", "TurnOwner", "WaitingTask", "waiting_handle"]

_MOST_KEPT: Final = 10_000
"""How many parts a task may send between two turns."""


def waiting_handle(turn: Turn) -> str:
    """Return the handle under which the waiting task of a chat is kept."""
    return state_handle(turn, "waiting")


class Buffer(Protocol):
    """What is flushed whenever the source waits for something: the log of a run."""

    is_held: bool

    def flush(self) -> None:
        """Make everything that was written visible."""
        ...

    def release(self) -> None:
        """Flush on its own from now on."""
        ...


class TurnOwner(Protocol):
    """What a task belongs to during one turn."""

    def task_paused(self) -> None:
        """The task has shown its questions, and waits without an owner: the turn ends."""
        ...

    def task_ended(self, error: BaseException | None) -> None:
        """The task has ended: the source returned, or raised ``error``. Called in the task, if it has begun."""
        ...


class WaitingTask:
    """Drives a source in one task, over one turn or several.

    ``keep`` is awaited when the task begins to wait for answers: it makes the task known to the turns that bring them.
    """

    # With a thousand runs the objects of each delta are not in the processor's caches: few of them, no __dict__.
    __slots__ = (
        "_context",
        "_ending",
        "_has_begun",
        "_is_cancelled",
        "_is_pausing",
        "_keep",
        "_kept_parts",
        "_page_calls",
        "_pausing",
        "_questions",
        "_task",
        "_timer",
        "buffer",
        "owner",
    )

    def __init__(
        self,
        context: TurnContext,
        owner: TurnOwner,
        buffer: Buffer | None,
        keep: "Callable[[WaitingTask], Awaitable[None]]",
    ) -> None:
        self.owner: TurnOwner | None = owner
        self.buffer = buffer
        self._keep = keep
        self._context = context
        self._task: asyncio.Task[None] | None = None
        self._has_begun = False
        self._is_cancelled = False
        self._questions: dict[str, tuple[PageQuestion, asyncio.Future[Answer]]] = {}
        self._page_calls: frozenset[str] = frozenset()
        """The calls of the questions that the page has."""
        self._kept_parts: list[Part] = []
        self._timer: asyncio.TimerHandle | None = None
        self._is_pausing = False
        self._pausing: asyncio.Task[None] | None = None
        self._ending: tuple[BaseException | None] | None = None
        """How the task ended when it had no owner."""

    @property
    def handle(self) -> str:
        """The handle of the chat."""
        return waiting_handle(self._context.turn)

    @property
    def mailbox(self) -> Mailbox | None:
        """The mailbox through which answers come from other workers; ``None`` if there are none."""
        states = self._context.states
        return states if isinstance(states, Mailbox) else None

    @property
    def page_calls(self) -> frozenset[str]:
        """The calls of the questions that the page has."""
        return self._page_calls

    @property
    def wait_seconds(self) -> float:
        """How long the task waits for its answers."""
        return min(question.wait_seconds for question, _answer in self._questions.values())

    def start(self, source: Source) -> None:
        """Start to drive a source."""
        self._context.ask = self._ask
        self._task = self._context.loop.create_task(self._drive(source), name="usechat run")

    def cancel(self) -> None:
        """Cancel the task. Questions without an answer get ``None``."""
        self._is_cancelled = True
        self._context.withdraw_ask()
        self._settle_all()
        self._context.stop()
        if self._is_pausing and self._pausing is not None:
            self._pausing.cancel()
        self._is_pausing = False
        if self._task is None:
            return
        self._task.cancel()
        if self._ending is not None:
            self._context.loop.call_soon(self._end, *self._ending)
        elif not self._has_begun:
            # A task that is cancelled before its first step never runs.
            self._context.loop.call_soon(self._end, asyncio.CancelledError())

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until the task has ended, at most ``seconds``."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=seconds)

    def is_answered_by(self, turn: Turn) -> bool:
        """Tell whether a turn answers a question of this task."""
        return not self._page_calls.isdisjoint(answers_of(turn))

    def answer(self, context: TurnContext, owner: TurnOwner, buffer: Buffer | None) -> None:
        """Pass the answers of a turn to the code that asked, and send everything to that turn from now on."""
        self.owner, self.buffer = owner, buffer
        parts, self._kept_parts = self._kept_parts, []
        for part in parts:
            context.send(part)
        self._context.connect(context.relay)
        self._context.pause = context.pause
        answers = answers_of(context.turn)
        for call_id in self._page_calls & self._questions.keys():
            _settle(self._questions.pop(call_id)[1], answers.get(call_id))
        self._page_calls = frozenset()
        if self._ending is not None:
            self._context.loop.call_soon(self._end, *self._ending)
        elif self._questions:
            self._pause_after(max(question.settle_seconds for question, _answer in self._questions.values()))

    async def _drive(self, source: Source) -> None:
        self._has_begun = True
        try:
            self._context.enter()
            await _flushing_at_pauses(source.drive(self._context), self)
        except BaseException as error:  # user code may raise anything, SystemExit too: it is the owner's to tell
            if isinstance(error, GeneratorExit) and not self._context.loop.is_running():
                raise  # not the agent's: the loop is gone, and this coroutine is closed
            if isinstance(error, asyncio.CancelledError):
                self._context.stop()  # of a loop that is closed: a thread must hear of it, too
            self._end(error)
        else:
            self._end(None)

    def _end(self, error: BaseException | None) -> None:
        self._context.withdraw_ask()
        if self._is_pausing or self.owner is None:
            self._ending = (error,)
            return
        self._settle_all()
        owner, self.owner = self.owner, None
        owner.task_ended(error)

    async def _ask(self, question: PageQuestion) -> Answer:
        if self._is_cancelled:
            return None
        answer: asyncio.Future[Answer] = self._context.loop.create_future()
        self._questions[question.call_id] = question, answer
        if self.owner is not None and not self._is_pausing:
            self._pause_after(question.settle_seconds)
        try:
            return await answer
        finally:
            self._questions.pop(question.call_id, None)

    def _pause_after(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._context.loop.call_later(seconds, self._pause)

    def _pause(self) -> None:
        self._timer = None
        if self._questions:  # otherwise they were withdrawn
            self._is_pausing = True  # first: a task may run as soon as it is made (asyncio.eager_task_factory)
            self._pausing = self._context.loop.create_task(self._leave_owner(), name="usechat pause")

    async def _leave_owner(self) -> None:
        """Show the questions, and wait without an owner."""
        self._show_questions()
        self._context.connect(self._keep_part)
        self._page_calls = frozenset(self._questions)
        owner = self.owner
        assert owner is not None
        try:
            await self._keep(self)
        except Exception as error:  # such as a store that is unreachable: nobody could answer
            self._is_pausing, self.owner = False, None
            self.cancel()
            owner.task_ended(error)
            return
        self._is_pausing, self.owner, self.buffer = False, None, None
        owner.task_paused()

    def _show_questions(self) -> None:
        questions = sorted((question for question, _answer in self._questions.values()), key=_is_apart)
        has_step = False
        for question in questions:
            if question.is_apart and not has_step:
                has_step = True
                self._context.send(Step(leaves_calls=True))
            question.show()

    def _keep_part(self, part: Part) -> None:
        self._kept_parts.append(part)
        if len(self._kept_parts) > _MOST_KEPT:
            self.cancel()

    def _settle_all(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for _question, answer in self._questions.values():  # also of other tasks, such as that of an MCP session
            _settle(answer, None)


def _is_apart(question: PageQuestion) -> bool:
    return question.is_apart


def _settle(future: "asyncio.Future[Answer]", answer: Answer) -> None:
    if not future.done():
        future.set_result(answer)


@types.coroutine
def _flushing_at_pauses(driving: Coroutine[Any, Any, None], task: WaitingTask) -> Generator[Any, Any, None]:
    """Drive a source in the calling task, and flush the buffer whenever the source waits for something.

    A callback would flush one iteration of the event loop later, which is long with many streams.
    """
    error: BaseException | None = None
    try:
        while True:
            buffer = task.buffer
            if buffer is not None:
                buffer.is_held = True
            waiting = driving.send(None) if error is None else driving.throw(error)
            error = None
            try:
                if buffer is not None:
                    buffer.is_held = False
                    buffer.flush()
                    buffer = None  # a task that waits for a person must not keep it
                yield waiting
            except BaseException as raised:  # such as a cancellation: pass it to the source
                error = raised
    except StopIteration:
        return
    finally:
        error = None  # its traceback refers to this frame
        if task.buffer is not None:
            task.buffer.release()
