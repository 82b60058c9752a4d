"""The tasks of a process that wait for a person, and the turns that continue them; see :mod:`usechat.pauses`."""

import asyncio
from collections import OrderedDict
from typing import Final

from usechat.pauses.forwarding import Forwarding
from usechat.pauses.questions import has_answers
from usechat.pauses.waiting import Buffer, TurnOwner, WaitingTask, waiting_handle
from usechat.sources import Source
from usechat.turn import TurnContext

__all__ = ["WaitingTasks"]

_MOST_WAITING: Final = 1000


class WaitingTasks:
    """The tasks of this process that wait for a person, by the handle of their chat.

    When too many wait, the oldest is cancelled. A process that answers for another may be silent for ``patience``.
    """

    def __init__(self, *, maximum: int = _MOST_WAITING, patience: float = 5.0) -> None:
        self._maximum = maximum
        self._waiting: OrderedDict[str, tuple[WaitingTask, asyncio.TimerHandle]] = OrderedDict()
        self._forwarding = Forwarding(self.take, patience)

    def begin(self, source: Source, context: TurnContext, owner: TurnOwner, buffer: Buffer | None) -> WaitingTask:
        """Return the task that drives a turn: the one that waits for its answers, or a new one."""
        turn = context.turn
        earlier = self.take(waiting_handle(turn)) if self._waiting else None
        if earlier is not None and earlier.is_answered_by(turn):
            earlier.answer(context, owner, buffer)
            return earlier
        if earlier is not None:
            earlier.cancel()
            source = _AfterTask(earlier, source)
        elif has_answers(turn):
            source = self._forwarding.elsewhere(source, waiting_handle(turn))
        task = WaitingTask(context, owner, buffer, self._keep)
        task.start(source)
        return task

    def take(self, handle: str) -> WaitingTask | None:
        """Return the task that waits under a handle, and forget it."""
        entry = self._waiting.pop(handle, None)
        if entry is None:
            return None
        task, timer = entry
        timer.cancel()
        return task

    async def close(self, seconds: float) -> None:
        """Cancel all tasks that wait, and wait at most ``seconds`` until they have ended."""
        tasks = [task for task in map(self.take, list(self._waiting)) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*(task.wait(seconds) for task in tasks))

    async def _keep(self, task: WaitingTask) -> None:
        """Keep a task until its answers come, from here or from another worker.

        Raises :class:`~usechat.errors.StoreUnreachable` if other workers cannot be told.
        """
        handle, seconds = task.handle, task.wait_seconds
        await self._forwarding.announce(task)
        timer = asyncio.get_running_loop().call_later(seconds, self._forget, handle)
        self._waiting[handle] = task, timer
        if len(self._waiting) > self._maximum:
            self._forget(next(iter(self._waiting)))

    def _forget(self, handle: str) -> None:
        task = self.take(handle)
        if task is not None:
            task.cancel()


class _AfterTask:
    """A source that answers once the task has ended which its turn supersedes."""

    def __init__(self, task: WaitingTask, source: Source) -> None:
        self._task = task
        self._source = source

    async def drive(self, context: TurnContext) -> None:
        """Answer one turn."""
        await self._task.wait()
        await self._source.drive(context)
