"""An agent process: takes turns out of a queue and answers them; web processes stream the answers.

**The idea.** :class:`AgentWorker` is the other half of a ``ChatApp`` whose turns are queued. It has its own run
manager and no readers: runs are driven as in a web server, and their frames go to the run store. One loop takes as many
turns as there is room for; another shows every third of a lease time that this process lives, and looks for turns of
processes that died (:mod:`usechat.runs.redis.turns`).

**Shutting down.** ``stop`` ends the taking of turns. Running turns get ``drain`` seconds, and are stopped after that.

**What fails how.** If Redis does not answer, the loops try again; runs end as :mod:`usechat.runs.redis.store` says.
Entries whose end could not be recorded are removed later.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from usechat.chats.store import ChatStore
from usechat.errors import InvalidSetting, StoreUnreachable
from usechat.runs.manager import RunCallbacks, RunManager
from usechat.runs.quotas import QuotaLimiter, release_run
from usechat.runs.run import PreparedRun, RunInfo
from usechat.runs.settings import RELOADS, Settings
from usechat.server.hooks import FinishFunction, Hooks, title_function
from usechat.server.observers.logs import LoggingObserver
from usechat.server.observers.observer import Observer, Observers, report_start
from usechat.server.remote_apps import AnsweredApps
from usechat.server.requests import RequestHeaders
from usechat.server.turns import RecordedRun, StoredTurns, report_lost
from usechat.sources import (
    FactorySource,
    HasMcpServers,
    Source,
    as_source,
    is_restartable,
    warn_of_forgetting,
    warn_of_process_memory,
)
from usechat.threads import AgentThreads
from usechat.turn import TurnContext

if TYPE_CHECKING:
    from usechat.runs.redis.turns import RedisTurns, TakenTurn

__all__ = ["AgentWorker"]

_logger: Final = logging.getLogger("usechat.server")
_LONGEST_BLOCK: Final = 1.0
"""Seconds that one request for turns waits; a shutdown takes as long to be noticed."""
_RETRY_DELAY: Final = 0.5
_NO_STORE: Final = "the web processes store chats; give the agent process the same store: usechat worker --chats"


class AgentWorker:
    """Answers the turns of a queue, ``concurrency`` at once.

    Args:
        agent: the agent, or its factory, as for a ``ChatApp``.
        turns: the queue; its web processes and agent processes share a Redis.
        version: names the code. A turn whose process died is restarted only by a process of the same version, and only
            if the agent is :func:`~usechat.server.restartable`.
        settings: how runs are made, as of the web processes; what concerns requests has no effect here.
        concurrency: how many turns are answered at once.
        chats: the chat store of the web processes, if they have one; answers are recorded here, through it.
        titles: makes the title of a new chat, as for a ``ChatApp``.
        on_finish: is given each finished message, its turn and its outcome, before the page sees the end.
        observer: receives what happens; by default the end of each run is logged.

    It belongs to one event loop.

    >>> from usechat.server import RedisRuns, RedisTurns
    >>> async def agent(turn):
    ...     yield f"You said: {turn.text}"
    >>> turns = RedisTurns(RedisRuns("redis://localhost:6379"), "my_app:agent")
    >>> worker = AgentWorker(agent, turns, version="2026-11-16")  # await worker.work(drain=3600)
    >>> worker.running
    0
    """

    def __init__(
        self,
        agent: Any,
        turns: "RedisTurns",
        *,
        version: str,
        settings: Settings | None = None,
        concurrency: int = 50,
        chats: ChatStore | None = None,
        titles: Any = None,
        on_finish: FinishFunction | None = None,
        observer: Observer | None = None,
    ) -> None:
        settings, observer = settings or Settings(), Observers(observer or LoggingObserver())
        self._agent = agent
        self._source = as_source(agent)
        self._turns = turns
        self._version = version
        self._concurrency = concurrency
        self._observer = observer
        self._settings = settings
        self._threads = AgentThreads(settings.threads, on_waiting=observer.threads_waiting)
        turns.runs.write_often()
        self._block = min(_LONGEST_BLOCK, turns.runs.lease / 4)
        self._hooks = Hooks(on_finish=on_finish, titles=title_function(titles))
        self._taken_turns: dict[str, TakenTurn] = {}
        self._ended: set[str] = set()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._stopping = asyncio.Event()
        self._manager = RunManager(
            turns.runs,
            # Readers are in other processes and read the store: they can resume although the log is not kept here.
            msgspec.structs.replace(settings, disconnect=settings.disconnect or RELOADS),
            keep_log=False,
            callbacks=RunCallbacks(
                on_start=partial(report_start, observer),
                on_failure=observer.run_failed,
                on_end=observer.run_ended,
                on_loss=observer.run_lost,
                on_done=self._done,
                on_lost_answer=self._report_lost,
            ),
        )
        self._stored = None
        if chats is not None:
            self._stored = StoredTurns(chats, self._manager, self._hooks, file_bytes=settings.history_file_bytes)

    @property
    def running(self) -> int:
        """How many turns are being answered."""
        return len(self._taken_turns)

    def stop(self) -> None:
        """Take no more turns; ``work`` returns when the running ones have ended, at the latest after ``drain``.

        A second call stops the running turns at once.
        """
        if self._stopping.is_set():
            self._manager.stop_runs()
        self._stopping.set()
        self._has_room.set()

    async def work(self, *, drain: float, on_start: Callable[[], None] | None = None) -> None:
        """Answer turns until ``stop`` is called; then let running turns finish for ``drain`` seconds.

        ``on_start`` is called when the agent is there and the first turn can be taken.

        Raises what a factory of the agent raises, or ``UnusableChats``; then nothing was taken.
        """
        if self._stored is not None:
            await self._stored.open()
        source = await self._source.open() if isinstance(self._source, FactorySource) else self._source
        warn_of_process_memory(source)
        if self._stored is None:
            warn_of_forgetting(source)
        if on_start is not None:
            on_start()
        restartable = is_restartable(self._agent) or is_restartable(self._source)
        apps = self._answered_apps(source)
        keeping = asyncio.create_task(self._keep_and_sweep(source, restartable), name="usechat worker")
        try:
            await self._take_turns(source, restartable)
            await self._manager.finish_runs(drain)
        finally:
            keeping.cancel()
            await asyncio.wait([keeping])
            await apps.close()
            await self._leave()

    def _answered_apps(self, source: Source) -> AnsweredApps:
        """Answer what the apps of the agent's tools ask of its MCP servers."""
        servers = source.mcp_servers() if isinstance(source, HasMcpServers) else {}
        return AnsweredApps(self._turns, self._turns.runs, servers)

    async def _take_turns(self, source: Source, restartable: bool) -> None:
        while not self._stopping.is_set():
            _raise_if_cancelled()
            free = self._concurrency - self.running
            if free <= 0:
                self._has_room.clear()
                await self._has_room.wait()
                continue
            try:
                options: dict[str, Any] = {"count": free, "restartable": restartable, "block": self._block}
                async for taken_turn in self._turns.take(self._version, **options):
                    self._begin(taken_turn, source)
            except StoreUnreachable:
                await _pause()
            except Exception:
                _logger.exception("a turn could not be taken from the queue; trying again")
                await _pause()

    def _begin(self, taken_turn: "TakenTurn", source: Source) -> None:
        turn = taken_turn.turn
        self._taken_turns[taken_turn.info.run_id] = taken_turn
        turn_input = msgspec.structs.replace(turn.input, headers=RequestHeaders.of(turn.input.headers))
        context = TurnContext(turn_input, observer=self._observer, threads=self._threads)
        run = self._recorded(taken_turn, context, source)
        self._manager.adopt(
            PreparedRun(taken_turn.info, context, turn_input.request.continues, run.recorder, taken_ids=run.taken_ids),
            run.source,
            chat_secret=turn.secret,
            stop=taken_turn.stop,
        )

    def _recorded(self, taken_turn: "TakenTurn", context: TurnContext, source: Source) -> RecordedRun:
        """Return how a turn is answered and recorded."""
        turn, info = taken_turn.turn, taken_turn.info
        if turn.recording is None:
            return RecordedRun(source, self._hooks.recorder(info, context.turn, turn.input.request.continues))
        if self._stored is None:
            return RecordedRun(_CannotRecord(InvalidSetting(_NO_STORE)))
        try:
            return self._stored.recorded(turn.recording, info, context, source, instead_of=taken_turn.instead_of)
        except msgspec.ValidationError as error:  # queued by another release: without an error the page would only wait
            return RecordedRun(_CannotRecord(error))

    async def _report_lost(self, info: RunInfo) -> None:
        await release_run(self._turns.runs, info.subject, info.origin or info.run_id)
        await report_lost(info, self._manager, self._hooks, self._stored)

    async def _done(self, info: RunInfo, size: int) -> None:
        taken_turn = self._taken_turns.pop(info.run_id)
        self._has_room.set()
        self._ended.add(taken_turn.entry)
        await self._remove_ended()
        quotas = QuotaLimiter(taken_turn.turn.quotas, self._turns.runs)
        await quotas.release(info.subject, taken_turn.turn.info.run_id, size)

    async def _remove_ended(self) -> None:
        ended = tuple(self._ended)
        await self._turns.done(*ended)
        self._ended.difference_update(ended)

    async def _keep_and_sweep(self, source: Source, restartable: bool) -> None:
        while True:
            _raise_if_cancelled()
            await asyncio.sleep(self._turns.runs.lease / 3)
            try:
                await self._remove_ended()
                mine = [taken_turn.entry for taken_turn in self._taken_turns.values()]
                await self._turns.keep(self._version, mine)
                count = 0 if self._stopping.is_set() else self._concurrency - self.running
                options: dict[str, Any] = {"mine": mine, "count": count, "restartable": restartable}
                async for taken_turn in self._turns.take_over_dead(self._version, **options):
                    _logger.warning(
                        "run %s: its agent process died, so it is started here%s",
                        taken_turn.info.run_id,
                        f" again, in the place of run {taken_turn.info.origin}" if taken_turn.info.origin else "",
                        extra={"chat_id": taken_turn.info.chat_id, "run_id": taken_turn.info.run_id},
                    )
                    self._begin(taken_turn, source)
            except StoreUnreachable:
                await _pause()  # the store logs it
            except Exception:
                _logger.exception("cannot look for turns of dead agent processes; trying again")
                await _pause()

    async def _leave(self) -> None:
        with contextlib.suppress(StoreUnreachable):
            await self._remove_ended()
            await self._turns.leave(self._version)
        await self._manager.shut_down(drain=0)
        await self._threads.finish(self._settings.timeouts.stop)
        if self._stored is not None:
            await self._stored.close()
        if isinstance(self._source, FactorySource):
            await self._source.close()


class _CannotRecord:
    """Stands for the agent of a turn whose answer must be stored, in a process that cannot do that."""

    def __init__(self, reason: Exception) -> None:
        self._reason = reason

    async def drive(self, context: TurnContext) -> None:  # noqa: ARG002
        """Fail: an answer that the web processes cannot load would be lost with the next reload."""
        raise self._reason


async def _pause() -> None:
    """Wait before the next attempt."""
    _raise_if_cancelled()
    await asyncio.sleep(_RETRY_DELAY)


def _raise_if_cancelled() -> None:
    """Raise ``CancelledError`` again: redis 8.1 takes one in the middle of a handshake for a failure, and hides it."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
