"""The manager of runs: starts them, finds them wherever they live, lets readers in, stops them."""

import asyncio
import contextvars
import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final, Literal, TypeAlias
from weakref import WeakSet

import msgspec

from usechat.errors import ChatBusy, ChatNotFound, ShuttingDown, StoreUnreachable
from usechat.protocol.reframing import Reframer, shorten
from usechat.protocol.stream import MessageStream
from usechat.runs.log import Log, Reader
from usechat.runs.reading import LogReading, Reading
from usechat.runs.remote_runs import RemoteRun, RemoteRuns
from usechat.runs.run import Run, RunInfo, RunState, Timeouts
from usechat.runs.store import RunStore
from usechat.sources import HandsOver, Source
from usechat.turn import TurnContext

__all__ = ["Conflict", "Reading", "RunManager"]

Conflict: TypeAlias = Literal["reject", "attach", "queue", "interrupt"]
"""What a second request does while the chat's run goes on."""

Prepare: TypeAlias = Callable[[RunInfo | None], tuple[RunInfo, TurnContext]]
"""Makes a run and its turn from the chat's last run; a RequestError says why not."""

_logger: Final = logging.getLogger("usechat.runs")
_POLL: Final = 0.05
_LOOK_AGAIN: Final = 1.0
_MOMENT: Final = 1.0
"""Seconds that a run of another worker has to give way; longer than that, it is taken for one that is read."""
CANNOT_FOLLOW: Final = "The connection is too slow for this answer, so it was stopped."


def _say_nothing(*_what: object) -> None:
    """Nobody listens."""


class RunManager:
    """The runs of this process, and through the store those of all workers.

    ``linger`` is how many seconds a run goes on without any reader: 0 stops it at once, ``None`` never. ``on_start`` is
    called in the context in which the run goes on. ``on_end`` is told of every run once, in one worker: the one that
    ended it, or that found it lost. ``on_loss`` is told of a run of this worker of whose end others tell.
    ``gather`` is how many seconds frames may wait for others to go with them.
    """

    def __init__(
        self,
        store: RunStore,
        *,
        timeouts: Timeouts,
        linger: float | None,
        conflict: Conflict,
        describe: Callable[[Exception, RunInfo], str],
        approval_secret: str | None = None,
        keep_log: bool = True,
        event_names: bool = False,
        maximum_behind: int = 1024 * 1024,
        maximum_run_bytes: int = 64 * 1024 * 1024,
        gather: float = 0,
        on_start: Callable[[RunInfo], None] = _say_nothing,
        on_end: Callable[[RunInfo, float], None] = _say_nothing,
        on_loss: Callable[[RunInfo], None] = _say_nothing,
    ) -> None:
        self._store = store
        self._is_shared = store.is_shared
        self._timeouts = timeouts
        self._linger = linger
        self._conflict = conflict
        self._describe = describe
        self._approval_secret = approval_secret
        self._keep_log = keep_log
        self._event_names = event_names
        self._maximum_behind = maximum_behind
        self._maximum_run_bytes = maximum_run_bytes
        self._gather = gather
        self._closing = False
        self._on_start = on_start
        self._on_end = on_end
        self._on_loss = on_loss
        self._runs: dict[str, Run] = {}
        self._continued: dict[str, Mapping[str, Any]] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        # Of runs that have ended while somebody read them; whoever still does keeps the log.
        self._ended_logs: WeakSet[Log] = WeakSet()
        self._ends: set[asyncio.Task[None]] = set()
        self._remote_runs = RemoteRuns(store, event_names=event_names)
        store.on_stop_ordered(self._stop_here)
        store.on_failure(self._fail_here)
        store.on_lost(on_end)

    @property
    def running(self) -> int:
        """How many runs go on in this process."""
        return len(self._runs)

    async def start(
        self, info: RunInfo, source: Source, context: TurnContext | Prepare, *, continues: Mapping[str, Any] | None
    ) -> Reading:
        """Start a run, or do with the one that goes on what the policy says; return a reading of it.

        Instead of a context there may be a function that makes it: what a request answers is decided by the chat's last
        run, when that has ended.
        """
        if self._closing:
            raise ShuttingDown("The server is about to restart. Please try again.")
        prepare: Prepare = (lambda _latest: (info, context)) if isinstance(context, TurnContext) else context
        while True:
            latest = await self._store.latest(info.chat_id)
            if latest is not None and latest.subject != info.subject:
                raise ChatNotFound("No such chat.")
            active = None if latest is None or self._store.is_concurrent else latest
            if active is None or active.state is not RunState.RUNNING:
                prepared, asked = prepare(latest)
                after = "" if latest is None else latest.run_id
                active = await self._store.claim(prepared, continues=continues, after=after)
                if active is None:
                    return self._start(prepared, source, asked, continues)
            elif (reading := await self._settle(active, info, source, prepare)) is not None:
                return reading
            else:
                await asyncio.sleep(_POLL)

    async def _settle(self, active: RunInfo, info: RunInfo, source: Source, prepare: Prepare) -> Reading | None:
        """Do with the run that goes on what the policy says; return a reading of it if that is the answer."""
        if self._conflict == "attach" or (info.user_message_id and active.user_message_id == info.user_message_id):
            return await self.attach(active, sdk=info.sdk)
        if isinstance(source, HandsOver):
            source.hand_over(prepare(active)[1].turn)
        elif self._conflict == "interrupt":
            await self.stop(active)
        elif not await self._gives_way(active) and self._conflict == "reject":
            raise ChatBusy("This chat is being answered already.")
        return None

    def _start(
        self, info: RunInfo, source: Source, context: TurnContext, continues: Mapping[str, Any] | None
    ) -> Reading:
        on_flush = partial(self._store.append, info.run_id) if self._is_shared else None
        log = Log(keep=self._keep_log, gather=self._gather, on_flush=on_flush)
        stream = MessageStream(message_id=info.message_id, sdk=info.sdk, continues=continues)
        run = Run(
            info,
            context,
            stream,
            log,
            timeouts=self._timeouts,
            describe=self._describe,
            on_end=self._ended,
            maximum_bytes=self._maximum_run_bytes,
            approval_secret=self._approval_secret,
            event_names=self._event_names,
        )
        self._runs[info.run_id] = run
        if continues is not None:
            self._continued[info.run_id] = continues
        reading = self._reading(run, log.reader(maximum_behind=self._maximum_behind))
        # A context of its own: what an observer sets there, such as a span, is what the agent finds.
        contextvars.copy_context().run(self._begin, run, source)
        return reading

    def _begin(self, run: Run, source: Source) -> None:
        self._on_start(run.info)
        run.start(source)

    async def _gives_way(self, active: RunInfo) -> bool:
        """Stop a run that nobody reads any more, and tell whether it was one: its page was stopped, and asks anew.

        A run that is to go on without readers does not give way. One of another worker is asked to, and has a moment.
        """
        if self._linger is None:
            return False
        if run := self._runs.get(active.run_id):
            is_unread = not run.log.readers and not await self._store.is_read(active)
            if is_unread:
                await self.stop(active)
            return is_unread
        if not self._is_shared:
            return False
        await self._store.order_stop(active, unless_read=True)
        return await self._has_ended(active, within=_MOMENT)

    async def attach(self, info: RunInfo, *, sdk: str) -> Reading | None:
        """Read a run that goes on, from its start; nothing if it has ended meanwhile."""
        reading: LogReading[Run] | LogReading[RemoteRun]
        if run := self._runs.get(info.run_id):
            earlier = self._continued.get(info.run_id)
            reading = self._reading(run, run.log.reader(maximum_behind=self._maximum_behind, from_start=True))
            self._cancel_timer(info.run_id)
        elif info.state is RunState.RUNNING:
            remote_run = await self._remote_runs.open(info)
            log, earlier = remote_run.log, remote_run.continued
            if not log.size and log.ended:
                self._remote_runs.leave(remote_run)
                return None
            reader = log.reader(maximum_behind=self._maximum_behind, from_start=True)
            reading = LogReading(reader, remote_run, on_close=self._remote_runs.leave)
        else:
            return None
        if earlier is None and sdk == info.sdk:
            reading.rewrite(partial(shorten, event_names=self._event_names), live=False)
        else:
            reframer = Reframer(info.message_id, sdk, earlier=earlier, event_names=self._event_names)
            reading.rewrite(reframer.receive, live=True)
        return reading

    async def latest(self, chat_id: str) -> RunInfo | None:
        """Return the chat's last run."""
        info = await self._store.latest(chat_id)
        run = None if info is None else self._runs.get(info.run_id)
        return info if info is None or run is None else msgspec.structs.replace(info, message_id=run.message_id)

    async def stop(self, info: RunInfo) -> None:
        """Stop a run wherever it lives, and wait a bounded time for it."""
        if run := self._runs.get(info.run_id):
            run.stop("stopped")
            await run.wait()
            await asyncio.gather(*self._ends)
            return
        await self._store.order_stop(info)
        await self._has_ended(info, within=self._timeouts.stop)

    async def _has_ended(self, info: RunInfo, *, within: float) -> bool:
        """Wait for the end of a run of another worker, and tell whether it came."""
        deadline = asyncio.get_running_loop().time() + within
        while asyncio.get_running_loop().time() < deadline:
            latest = await self._store.latest(info.chat_id)
            if latest is None or latest.run_id != info.run_id or latest.state is not RunState.RUNNING:
                return True
            await asyncio.sleep(_POLL)
        return False

    def break_off(self) -> None:
        """Cut every reader off without an ending: its client sees a network error, and resumes elsewhere."""
        for log in [*(run.log for run in self._runs.values()), *self._ended_logs]:
            log.break_off()
        self._remote_runs.break_off()

    async def shut_down(self, *, drain: float) -> None:
        """Break readers off at once; give runs some time, then stop them."""
        self._closing = True
        self.break_off()
        await asyncio.gather(*[run.wait(drain) for run in self._runs.values()])
        runs = list(self._runs.values())
        for run in runs:
            run.stop("shutdown")
        await asyncio.gather(*[run.wait() for run in runs])
        await asyncio.gather(*self._ends)
        await self._remote_runs.close()
        await self._store.close()

    def _reader_left(self, run: Run) -> None:
        """A reader of the run has gone; perhaps it was the last."""
        if run.log.readers or self._linger is None or run.info.state is not RunState.RUNNING:
            return
        self._stop_unread_after(self._linger, run)

    def _stop_unread_after(self, seconds: float, run: Run) -> None:
        self._cancel_timer(run.info.run_id)
        if seconds:
            timer = asyncio.get_running_loop().call_later(seconds, lambda: self._spawn(self._stop_unread(run)))
            self._timers[run.info.run_id] = timer
        else:
            self._spawn(self._stop_unread(run))

    async def _stop_unread(self, run: Run) -> None:
        """Stop a run that nobody reads, unless somebody does so in another worker."""
        try:
            is_read = await self._store.is_read(run.info)
        except StoreUnreachable:
            is_read = True
        if run.log.readers or run.info.state is not RunState.RUNNING:
            return
        if is_read:
            self._stop_unread_after(self._linger or _LOOK_AGAIN, run)
        else:
            run.stop("disconnected")

    def _reading(self, run: Run, reader: Reader) -> LogReading[Run]:
        last_words = None if self._keep_log else partial(run.fail, CANNOT_FOLLOW)
        return LogReading(reader, run, on_close=self._reader_left, last_words=last_words)

    def _ended(self, run: Run) -> None:
        self._cancel_timer(run.info.run_id)
        self._spawn(self._record_end(run, run.seconds))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)

    async def _record_end(self, run: Run, seconds: float) -> None:
        """Let the store know first, then the readers: a page posts again as soon as it sees the end."""
        try:
            if await self._is_ours(run.info):
                self._on_end(run.info, seconds)
            else:
                self._on_loss(msgspec.structs.replace(run.info, state=RunState.LOST))
        finally:
            del self._runs[run.info.run_id]
            self._continued.pop(run.info.run_id, None)
            if run.log.readers:
                self._ended_logs.add(run.log)
            run.log.end()

    async def _is_ours(self, info: RunInfo) -> bool:
        """Tell the store that a run has ended; tell whether that is how it ended for everyone."""
        try:
            return await self._store.end(info)
        except Exception:
            _logger.exception("run %s: its end could not be recorded", info.run_id)
            return True

    def _stop_here(self, run_id: str, unless_read: bool) -> None:
        run = self._runs.get(run_id)
        if run is not None and not unless_read:
            run.stop("stopped")
        elif run is not None and self._linger is not None:
            self._spawn(self._stop_unread(run))

    def _fail_here(self, run_id: str, text: str) -> None:
        if run := self._runs.get(run_id):
            run.fail(text)

    def _cancel_timer(self, run_id: str) -> None:
        if timer := self._timers.pop(run_id, None):
            timer.cancel()
