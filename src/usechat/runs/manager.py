"""The run manager: starts runs, finds them on any worker, attaches readers, stops runs.

**The idea.** A process has one manager per chat application. It owns the :class:`~usechat.runs.run.Run` objects of this
process; the :class:`~usechat.runs.store.RunStore` knows the last run of each chat across all workers. Everything that a
request wants (start, attach, stop) goes through the manager, which does it here if the run is here, and through the
store otherwise.

**One run per chat.** ``RunStore.claim`` is the only decision who may answer a chat, and it is atomic. ``start`` looks
at the chat's last run. If it has ended, ``start`` prepares the new run from it and claims the chat *after* that very
run; if another request was faster, the claim fails and ``start`` looks again. If it is running, the conflict policy
decides: ``reject`` (409), ``attach`` to it, ``queue`` behind it, or ``interrupt`` it. A retry of the same user message
always attaches. A message that was edited (the same id, other content) always interrupts. The decision which answers a
request brings (approvals, tool outputs) is made after the previous run has ended.

**Readers.** The request that started a run, a reload, a second tab: each gets a :class:`~usechat.runs.reading.Reading`.
A run that nobody reads for ``unread_timeout`` seconds is stopped, unless the store knows of a reader in another worker;
the next request of its chat stops it at once. With ``unread_timeout=None`` runs continue without readers.

**Agent processes.** With a ``dispatcher`` a web process drives no runs: ``start`` claims the chat,
queues the turn and follows the run's log (:mod:`usechat.runs.turns`). A turn that still waits is stopped
here, by becoming its owner. In an agent process ``adopt`` drives such a run; it has no reader there, so the store is
asked regularly whether a web process reads it.

**The order at the end.** The store records the end first, then the log ends. A page posts again as soon as it sees the
end of a stream (tool outputs, approvals), and must not find its chat still busy.

**What fails how.** If the store cannot be reached, ``start`` and ``stop`` raise
:class:`~usechat.errors.StoreUnreachable` (503); a run that is already going continues, and no reader waits for the
store. If the store raises when an end is recorded, that is logged and the readers see the end all the same. If the
store ends a run of this worker (its lease expired, its log is too large), it calls ``on_failure`` and the run fails at
once.

**Threads.** Everything runs in the thread of one event loop.
"""

import asyncio
import contextlib
import contextvars
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Set
from functools import partial
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias
from weakref import WeakSet

import msgspec

from usechat.errors import ChatBusy, ChatNotFound, ClientLeft, ShuttingDown, StoreUnreachable
from usechat.paused_states import PausedStates
from usechat.protocol.reframing import Reframer, shorten
from usechat.protocol.request import ChatRequest
from usechat.protocol.stream import MessageStream
from usechat.runs.log import Log, Reader
from usechat.runs.open_calls import secret_of_chat
from usechat.runs.reading import LogReading, Reading
from usechat.runs.remote_runs import RemoteRun, RemoteRuns
from usechat.runs.replay import IN_MEMORY
from usechat.runs.run import Run, RunInfo, RunState, Timeouts
from usechat.runs.store import RunStore
from usechat.runs.turns import Dispatcher
from usechat.sources import HandsOver, Source
from usechat.turn import TurnContext

__all__ = ["Conflict", "MakeRecorder", "Prepare", "PreparedRun", "Reading", "RunManager", "RunRecorder"]

Conflict: TypeAlias = Literal["reject", "attach", "queue", "interrupt"]
"""What a request does while the chat has a running run."""


class RunRecorder(Protocol):
    """Records what a run says, such as in a chat store."""

    @property
    def states(self) -> PausedStates | None:
        """What keeps the states of paused agents unless workers share the run store; ``None`` if the run store does."""
        ...

    def start(self, fail: Callable[[str], object]) -> None:
        """Begin to record; ``fail`` ends the run at once with an error of this text."""
        ...

    def receive(self, frames: bytes) -> None:
        """Take frames that readers see. Must neither wait nor raise."""
        ...

    async def finish(self, info: RunInfo) -> None:
        """Record the end of the run. Readers see the end when this returns."""
        ...


class PreparedRun(NamedTuple):
    """A run that may start: what it is, its turn, the message that it continues, and what records it.

    A run that is queued for an agent process is recorded there: ``recording`` is what that process needs.
    """

    info: RunInfo
    context: TurnContext
    continues: Mapping[str, Any] | None = None
    recorder: RunRecorder | None = None
    recording: Mapping[str, Any] | None = None


MakeRecorder: TypeAlias = Callable[[RunInfo, TurnContext, Mapping[str, Any] | None], Awaitable[RunRecorder | None]]
"""Returns what records the end of a run that another process has prepared, given the message that it continues."""
Prepare: TypeAlias = Callable[[RunInfo | None], Awaitable[PreparedRun]]
"""Makes a run, given the chat's last run; raises a RequestError to refuse the request."""

_logger: Final = logging.getLogger("usechat.runs")
_LOOK_AGAIN: Final = 1.0
"""Seconds after which a request that waits for the end of a run sees whether its client, or that run's, has left."""
_RECHECK_UNREAD: Final = 1.0
"""Seconds until a run that other workers read is checked again, if there is no ``unread_timeout``."""
_REMOTE_STOP: Final = 1.0
"""Seconds that an unread run of another worker has to stop; if it takes longer, it counts as one that is read."""
_FIRST_READER: Final = 5.0
"""Seconds that a web process gets to register as a reader of a run that was adopted here."""
_REMEMBERED: Final = 1000
"""How many runs are remembered that ended here but were declared lost."""
CANNOT_FOLLOW: Final = "The connection is too slow for this answer, so it was stopped."


def _ignore(*_event: object) -> None:
    """Do nothing: the default of the callbacks."""


class _Withdrawn:
    """Stands for the source of a run that ends before anything drives it."""

    async def drive(self, context: TurnContext) -> None:
        """Say nothing."""


async def _record_nothing(*_run: object) -> None:
    """Return no recorder: the default."""


def _always(prepared: PreparedRun) -> Prepare:
    async def prepare(_latest: RunInfo | None) -> PreparedRun:
        return prepared

    return prepare


class RunManager:
    """Starts, attaches to and stops the runs of this process and, through the store, those of all workers.

    - ``unread_timeout``: seconds that a run continues without any reader. 0 stops it at once, ``None`` never.
    - ``conflict``: what a request does while the chat has a running run.
    - ``keep_log``: whether clients can resume. Without it a client that is too slow ends the run.
    - ``maximum_behind``: the backlog limit of a reader, in bytes. ``maximum_run_bytes``: that of all frames of a run.
      ``log_memory_bytes``: how much of a run's replay is in memory; the rest is in a temporary file.
    - ``coalesce``: seconds that a frame may wait for others to be sent with it.
    - ``dispatcher``: queues turns for agent processes; without it runs are driven here.
    - ``on_start``: called in the context (:mod:`contextvars`) in which the run is driven.
    - ``on_end``: called once for every run, with its seconds, in the worker that ended it or found it lost.
    - ``on_loss``: called when another worker declares one of our runs lost.
    - ``on_done``: called for every run of this worker after its end was recorded, with the size of its log.
    - ``on_lost_answer``: called with every run of another worker that was found lost here, unless it was restarted.
    - ``make_recorder``: makes the recorder of a run whose turn was queued, and is withdrawn.
    """

    def __init__(
        self,
        store: RunStore,
        *,
        timeouts: Timeouts,
        unread_timeout: float | None,
        conflict: Conflict,
        describe: Callable[[BaseException, RunInfo], str],
        approval_secret: str | None = None,
        keep_log: bool = True,
        event_names: bool = False,
        maximum_behind: int = 1024 * 1024,
        maximum_run_bytes: int = 64 * 1024 * 1024,
        log_memory_bytes: int = IN_MEMORY,
        coalesce: float = 0,
        dispatcher: Dispatcher | None = None,
        on_start: Callable[[RunInfo], None] = _ignore,
        on_end: Callable[[RunInfo, float], None] = _ignore,
        on_loss: Callable[[RunInfo], None] = _ignore,
        on_done: Callable[[RunInfo, int], Awaitable[None]] | None = None,
        on_lost_answer: Callable[[RunInfo], Awaitable[None]] | None = None,
        make_recorder: MakeRecorder = _record_nothing,
    ) -> None:
        self._store = store
        self._is_shared = store.is_shared
        self._timeouts = timeouts
        self._unread_timeout = unread_timeout
        self._conflict = conflict
        self._describe = describe
        self._approval_secret = approval_secret
        self._keep_log = keep_log
        self._event_names = event_names
        self._maximum_behind = maximum_behind
        self._maximum_run_bytes = maximum_run_bytes
        self._log_memory_bytes = log_memory_bytes
        self._coalesce = coalesce
        self._dispatcher = dispatcher
        self._closing = False
        self._on_start = on_start
        self._on_end = on_end
        self._on_loss = on_loss
        self._on_done = on_done
        self._on_lost_answer = on_lost_answer
        self._make_recorder = make_recorder
        self._recorded: deque[str] = deque(maxlen=_REMEMBERED)
        self._runs: dict[str, Run] = {}
        self._continued: dict[str, Mapping[str, Any]] = {}
        self._recorders: dict[str, RunRecorder] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        # The logs of runs that ended while they were read; a log lives as long as its readers.
        self._ended_logs: WeakSet[Log] = WeakSet()
        self._tasks: set[asyncio.Task[None]] = set()
        self._remote_runs = RemoteRuns(store, event_names=event_names, in_memory=log_memory_bytes)
        store.on_stop_requested(self._stop_here)
        store.on_failure(self._fail_here)
        store.on_lost(self._found_lost)

    @property
    def running(self) -> int:
        """How many runs are running in this process."""
        return len(self._runs)

    def has(self, run_id: str) -> bool:
        """Return whether a run of this process is running, or one of another process is read here."""
        return run_id in self._runs or run_id in self._remote_runs

    async def start(
        self,
        info: RunInfo,
        source: Source | None,
        context: TurnContext | Prepare,
        *,
        continues: Mapping[str, Any] | None = None,
        has_left: Callable[[], Awaitable[bool]] | None = None,
        recorder: RunRecorder | None = None,
        recording: Mapping[str, Any] | None = None,
        takes_over: bool = False,
        taken_ids: Set[str] = frozenset(),
    ) -> Reading:
        """Start a run, or do what the conflict policy says about the one that is running; return a reading.

        ``source`` drives the run; it is ``None`` if there is a dispatcher, which queues the turn. ``context`` may be a
        function that makes the run, with all that belongs to it, from the chat's last run. It is called after the
        previous run has ended, perhaps more than once. ``has_left`` tells whether the client is gone: a request that
        waited for another run starts none then. ``takes_over`` says that a chat store has given the chat to this
        run: a run that is still known as running is about to end, or has lost the chat, and is stopped. ``taken_ids``
        are those of the chat's other messages. Raises :class:`~usechat.errors.ChatBusy`,
        :class:`~usechat.errors.ChatNotFound`, :class:`~usechat.errors.ClientLeft`,
        :class:`~usechat.errors.ShuttingDown`, :class:`~usechat.errors.StoreUnreachable`,
        :class:`~usechat.errors.TooManyWaiting`, and what ``context`` raises.
        """
        if self._closing:
            raise ShuttingDown("The server is about to restart. Please try again.")
        if isinstance(context, TurnContext):
            prepare = _always(PreparedRun(info, context, continues, recorder, recording))
        else:
            prepare = context
        while True:
            latest = await self._store.latest(info.chat_id)
            if latest is not None and latest.subject != info.subject:
                raise ChatNotFound("No such chat.")
            active = None if latest is None or self._store.is_concurrent else latest
            if active is None or active.state is not RunState.RUNNING:
                if self._dispatcher is not None:
                    await self._dispatcher.admit()
                prepared = await prepare(latest)
                after = "" if latest is None else latest.run_id
                if source is None:
                    begun = await self._dispatch(prepared, after=after)
                else:
                    begun = await self._claim_and_start(prepared, source, taken_ids, after=after)
                if begun is not None:
                    return begun
            elif takes_over:
                await self.stop(active)
            elif (reading := await self.resolve_conflict(active, info, source, prepare)) is not None:
                return reading
            else:
                await self._has_ended(active, within=_LOOK_AGAIN)
                if has_left is not None and await has_left():
                    raise ClientLeft("The client left before its request was answered.")

    async def resolve_conflict(
        self, active: RunInfo, info: RunInfo, source: Source | None, prepare: Prepare
    ) -> Reading | None:
        """Apply the conflict policy to the run that is running; return a reading if the request attaches to it.

        Otherwise the caller looks again after a moment. Raises :class:`~usechat.errors.ChatBusy`.
        """
        is_edited = active.answers_same_id(info) and not active.answers_same_message(info)
        if active.answers_same_message(info) or (self._conflict == "attach" and not is_edited):
            return await self.attach(active, sdk=info.sdk)
        if source is not None and isinstance(source, HandsOver):
            source.hand_over((await prepare(active)).context.turn)
        elif self._conflict == "interrupt" or is_edited:  # nobody waits for the answer to a message that is replaced
            await self.stop(active)
        elif not await self._stop_if_unread(active) and self._conflict == "reject":
            raise ChatBusy("This chat is being answered already.")
        return None

    async def _claim_and_start(
        self, prepared: PreparedRun, source: Source, taken_ids: Set[str], *, after: str
    ) -> Reading | None:
        """Start a run here; return ``None`` if another request was faster."""
        if await self._store.claim(prepared.info, continues=prepared.continues, after=after) is not None:
            return None
        run = self._make_run(prepared, self._chat_secret(prepared.info), taken_ids)
        reading = self._reading(run, run.log.reader(maximum_behind=self._maximum_behind))
        self._begin_in_context(run, source)
        return reading

    def _chat_secret(self, info: RunInfo) -> str | None:
        secret = self._approval_secret
        return None if secret is None else secret_of_chat(secret, info.chat_id, info.subject)

    def _make_run(self, prepared: PreparedRun, chat_secret: str | None, taken_ids: Set[str] = frozenset()) -> Run:
        info, context, continues, recorder, _ = prepared
        states = None if recorder is None or self._is_shared else recorder.states
        context.states = self._store if states is None else states
        on_flush = self._on_flush(info, recorder)
        log = Log(keep=self._keep_log, coalesce=self._coalesce, on_flush=on_flush, in_memory=self._log_memory_bytes)
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
            chat_secret=chat_secret,
            event_names=self._event_names,
            taken_ids=taken_ids,
        )
        self._runs[info.run_id] = run
        if recorder is not None:
            self._recorders[info.run_id] = recorder
            recorder.start(run.fail)
        if continues is not None:
            self._continued[info.run_id] = continues
        return run

    def _begin_in_context(self, run: Run, source: Source) -> None:
        # A context of its own: the agent sees what an observer sets there, such as a span.
        contextvars.copy_context().run(self._begin, run, source)

    def _on_flush(self, info: RunInfo, recorder: RunRecorder | None) -> Callable[[bytes], None] | None:
        """Return what takes the frames of a run besides its readers."""
        append = partial(self._store.append, info.run_id) if self._is_shared else None
        if append is None or recorder is None:
            return append if recorder is None else recorder.receive

        def pass_on(frames: bytes) -> None:
            append(frames)
            recorder.receive(frames)

        return pass_on

    def _begin(self, run: Run, source: Source) -> None:
        self._on_start(run.info)
        run.start(source)

    # Runs of agent processes

    async def _dispatch(self, prepared: PreparedRun, *, after: str) -> Reading | None:
        """Queue a turn and follow its run; return ``None`` if another request was faster."""
        assert self._dispatcher is not None
        assert prepared.recorder is None, "what another process says is not recorded here"
        info, turn = prepared.info, prepared.context.turn
        offer = self._dispatcher.offer(info, turn, after=after, recording=prepared.recording)
        offering = asyncio.ensure_future(offer)
        try:
            active = await asyncio.shield(offering)
        except asyncio.CancelledError:  # the request is gone, but the turn may have been queued
            offering.add_done_callback(lambda _: self._spawn(self._stop_unread_elsewhere(info)))
            raise
        if active is not None:
            return None
        reading = self._remote_reading(self._remote_runs.follow(info))
        reading.rewrite(partial(shorten, event_names=self._event_names), live=False)
        return reading

    def adopt(
        self,
        info: RunInfo,
        source: Source,
        context: TurnContext,
        *,
        continues: Mapping[str, Any] | None,
        chat_secret: str | None,
        recorder: RunRecorder | None = None,
        taken_ids: Set[str] = frozenset(),
        stop: bool = False,
    ) -> None:
        """Drive a run that this process has taken from a queue and owns in the store; with ``stop``, end it at once."""
        run = self._make_run(PreparedRun(info, context, continues, recorder), chat_secret, taken_ids)
        self._begin_in_context(run, source)
        if stop:
            run.stop("stopped")
        elif self._unread_timeout is not None:
            self._schedule_unread_stop(max(self._unread_timeout, _FIRST_READER), run)

    async def _withdraw(self, info: RunInfo) -> bool:
        """End a run whose turn no agent process has taken yet; return whether that was so."""
        if self._dispatcher is None or not await self._dispatcher.withdraw(info):
            return False
        context = TurnContext(ChatRequest(chat_id=info.chat_id, messages=[]))
        continues = await self._store.continued(info)
        recorder = await self._make_recorder(info, context, continues)
        run = self._make_run(PreparedRun(info, context, continues, recorder), self._chat_secret(info))
        run.start(_Withdrawn())
        run.stop("stopped")
        await self._has_ended(info, within=self._timeouts.stop)
        return True

    def _remote_reading(self, remote_run: RemoteRun) -> LogReading[RemoteRun]:
        reader = remote_run.log.reader(maximum_behind=self._maximum_behind, from_start=True)
        return LogReading(reader, remote_run, on_close=self._remote_reader_left)

    def _remote_reader_left(self, remote_run: RemoteRun) -> None:
        """Let go of a copy; if it was the last reader of an agent process's run, schedule the stop of that run."""
        self._remote_runs.release(remote_run)
        seconds = self._unread_timeout
        if self._dispatcher is None or seconds is None or self._closing or remote_run.users or remote_run.log.ended:
            return
        loop = asyncio.get_running_loop()
        loop.call_later(seconds, lambda: self._spawn(self._stop_unread_elsewhere(remote_run.info)))

    async def _stop_unread_elsewhere(self, info: RunInfo) -> None:
        await self._remote_runs.wait_until_closed()
        with contextlib.suppress(StoreUnreachable):  # its owner finds by itself that nobody reads it
            if not self._closing and not self.has(info.run_id):
                await self._stop_if_unread(info)

    async def _stop_if_unread(self, active: RunInfo) -> bool:
        """Stop a run that nobody reads any more: its page was stopped, and sends a new message. Return whether it was.

        With ``unread_timeout=None`` runs are meant to continue without readers, and none is stopped. Another worker is
        asked to stop its run if it is unread, and has a limited time to do so.
        """
        if self._unread_timeout is None:
            return False
        if run := self._runs.get(active.run_id):
            is_unread = not run.log.readers and not await self._store.is_read(active)
            if is_unread:
                await self.stop(active)
            return is_unread
        if not self._is_shared:
            return False
        if self._dispatcher is not None:
            if await self._store.is_read(active):
                return False
            if await self._withdraw(active):
                return True
        await self._store.request_stop(active, unless_read=True)
        return await self._has_ended(active, within=_REMOTE_STOP)

    async def attach(self, info: RunInfo, *, sdk: str, has_message: bool = False) -> Reading | None:
        """Return a reading of a running run, from its start; ``None`` if it has ended meanwhile.

        ``has_message`` says that the client has the message which the run continues: it is not sent again.
        """
        reading: LogReading[Run] | LogReading[RemoteRun]
        if run := self._runs.get(info.run_id):
            earlier = self._continued.get(info.run_id)
            reading = self._reading(run, run.log.reader(maximum_behind=self._maximum_behind, from_start=True))
            self._cancel_timer(info.run_id)
        elif info.state is RunState.RUNNING:
            remote_run = await self._remote_runs.open(info)
            log, earlier = remote_run.log, remote_run.continued
            if not log.size and log.ended:
                self._remote_runs.release(remote_run)
                return None
            reading = self._remote_reading(remote_run)
        else:
            return None
        if (earlier is None or has_message) and sdk == info.sdk:
            reading.rewrite(partial(shorten, event_names=self._event_names), live=False)
        else:
            before = {"continues" if has_message else "earlier": earlier}
            reframer = Reframer(info.message_id, sdk, **before, event_names=self._event_names)
            reading.rewrite(reframer.receive, live=True)
        return reading

    async def latest(self, chat_id: str) -> RunInfo | None:
        """Return the chat's last run."""
        info = await self._store.latest(chat_id)
        run = None if info is None else self._runs.get(info.run_id)
        return info if info is None or run is None else msgspec.structs.replace(info, message_id=run.message_id)

    async def lost_answer(self, info: RunInfo) -> tuple[bytes, Mapping[str, Any] | None]:
        """Return what the store has of the run of a worker that died: its frames, and the message that it continues."""
        return await self._store.frames(info), await self._store.continued(info)

    async def stop(self, info: RunInfo) -> None:
        """Stop a run on any worker, and wait for its end, at most ``Timeouts.stop`` seconds."""
        if run := self._runs.get(info.run_id):
            run.stop("stopped")
            await run.wait()
            await asyncio.gather(*self._tasks)
            return
        if await self._withdraw(info):
            return
        await self._store.request_stop(info)
        await self._has_ended(info, within=self._timeouts.stop)

    async def _has_ended(self, info: RunInfo, *, within: float) -> bool:
        """Wait ``within`` seconds for the end of a run, and return whether it has ended."""
        try:
            async with asyncio.timeout(within):
                await self._store.wait_until_ended(info)
        except TimeoutError:
            return False
        return True

    async def finish_unread(self) -> None:
        """Wait for the runs that are being stopped because nobody reads them; not for runs that may continue."""
        if self._unread_timeout == 0:
            runs = [run for run in self._runs.values() if not run.log.readers]
            await asyncio.gather(*self._tasks, *[run.wait() for run in runs])

    def disconnect_readers(self) -> None:
        """Close every client's connection without an ending: it sees a network error, and resumes at another worker."""
        for log in [*(run.log for run in self._runs.values()), *self._ended_logs]:
            log.disconnect_readers()
        self._remote_runs.disconnect_readers()

    async def finish_runs(self, drain: float) -> None:
        """Start no more runs, wait ``drain`` seconds for runs to end, and stop the others."""
        self._closing = True
        await asyncio.gather(*[run.wait(drain) for run in self._runs.values()])
        runs = list(self._runs.values())
        self.stop_runs()
        await asyncio.gather(*[run.wait() for run in runs])
        await asyncio.gather(*self._tasks)

    def stop_runs(self) -> None:
        """Stop all runs of this process."""
        for run in self._runs.values():
            run.stop("shutdown")

    async def shut_down(self, *, drain: float) -> None:
        """Disconnect clients at once, wait ``drain`` seconds for runs to end, stop the others, close the store."""
        self._closing = True
        self.disconnect_readers()
        await self.finish_runs(drain)
        await self._remote_runs.close()
        await self._store.close()

    def _reader_left(self, run: Run) -> None:
        """Schedule the stop of a run whose last reader was closed."""
        if run.log.readers or self._unread_timeout is None or run.info.state is not RunState.RUNNING:
            return
        self._schedule_unread_stop(self._unread_timeout, run)

    def _schedule_unread_stop(self, seconds: float, run: Run) -> None:
        self._cancel_timer(run.info.run_id)
        if seconds:
            timer = asyncio.get_running_loop().call_later(seconds, lambda: self._spawn(self._stop_unread(run)))
            self._timers[run.info.run_id] = timer
        else:
            self._spawn(self._stop_unread(run))

    async def _stop_unread(self, run: Run) -> None:
        """Stop a run that has no reader here and none in another worker."""
        try:
            is_read = await self._store.is_read(run.info)
        except StoreUnreachable:
            is_read = True
        if run.log.readers or run.info.state is not RunState.RUNNING:
            return
        if is_read:
            self._schedule_unread_stop(self._unread_timeout or _RECHECK_UNREAD, run)
        else:
            run.stop("disconnected")

    def _reading(self, run: Run, reader: Reader) -> LogReading[Run]:
        final_frames = None if self._keep_log else partial(run.fail, CANNOT_FOLLOW)
        return LogReading(reader, run, on_close=self._reader_left, final_frames=final_frames)

    def _ended(self, run: Run) -> None:
        self._cancel_timer(run.info.run_id)
        self._spawn(self._record_end(run, run.seconds))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _record_end(self, run: Run, seconds: float) -> None:
        """Record the end in the store, then end the log: a page posts again as soon as it sees the end."""
        try:
            await self._finish_recording(run)
            if await self._store_end(run.info):
                self._on_end(run.info, seconds)
            else:
                self._recorded.append(run.info.run_id)
                self._on_loss(msgspec.structs.replace(run.info, state=RunState.LOST))
        finally:
            del self._runs[run.info.run_id]
            self._continued.pop(run.info.run_id, None)
            if run.log.readers:
                self._ended_logs.add(run.log)
            run.log.end()
            await self._report_done(run)

    async def _finish_recording(self, run: Run) -> None:
        if (recorder := self._recorders.pop(run.info.run_id, None)) is not None:
            try:
                await recorder.finish(run.info)
            except Exception:  # whatever it does, the run ends
                _logger.exception("run %s: its end was not recorded", run.info.run_id)

    async def _report_done(self, run: Run) -> None:
        if self._on_done is not None:
            with contextlib.suppress(StoreUnreachable):  # what was not counted expires
                await self._on_done(run.info, run.log.size)

    async def _store_end(self, info: RunInfo) -> bool:
        """Record an end in the store; return False if another worker had declared the run lost."""
        try:
            return await self._store.end(info)
        except Exception:
            _logger.exception(
                "run %s: the store did not record its end, so its chat may stay busy; check that it is reachable",
                info.run_id,
                extra={"chat_id": info.chat_id, "run_id": info.run_id},
            )
            return True

    def _found_lost(self, info: RunInfo, seconds: float) -> None:
        self._on_end(info, seconds)
        # The end of a run that this worker gave up was recorded when it failed here.
        if info.state is RunState.LOST and info.run_id not in self._recorded and self._on_lost_answer is not None:
            self._spawn(self._report_lost_answer(info, self._on_lost_answer))

    async def _report_lost_answer(self, info: RunInfo, report: Callable[[RunInfo], Awaitable[None]]) -> None:
        with contextlib.suppress(StoreUnreachable):
            latest = await self._store.latest(info.chat_id)
            is_restarted = latest is not None and latest.run_id != info.run_id and latest.is_same_turn(info)
            if not is_restarted:
                await report(info)

    def _stop_here(self, run_id: str, unless_read: bool) -> None:
        run = self._runs.get(run_id)
        if run is not None and not unless_read:
            run.stop("stopped")
        elif run is not None and self._unread_timeout is not None:
            self._spawn(self._stop_unread(run))

    def _fail_here(self, run_id: str, text: str) -> None:
        if run := self._runs.get(run_id):
            run.fail(text)

    def _cancel_timer(self, run_id: str) -> None:
        if timer := self._timers.pop(run_id, None):
            timer.cancel()
