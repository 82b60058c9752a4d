"""The run manager: starts runs, finds them on any worker, attaches readers, stops runs.

**The idea.** A process has one manager per chat application. It owns the :class:`~usechat.runs.run.Run` objects of this
process; the :class:`~usechat.runs.store.RunStore` knows the last run of each chat across all workers. Everything that a
request wants (start, attach, stop) goes through the manager, which does it here if the run is here, and through the
store otherwise.

**One run per chat.** ``RunStore.claim`` is the only decision who may answer a chat, and it is atomic. ``start`` looks
at the chat's last run. If it has ended, ``start`` prepares the new run from it and claims the chat *after* that very
run; if another request was faster, the claim fails and ``start`` looks again. If it is running, the conflict policy
decides: ``reject`` (409), ``queue`` behind it, ``interrupt`` it, or ``attach``: that is ``queue``, except that a
repeated continuation (a double click on Approve) reads the running one. A retry of the same user message always
attaches. A message that was edited (the same id, other content) always interrupts. The decision which answers a request
brings (approvals, tool outputs) is made after the previous run has ended.

**Readers.** The request that started a run, a reload, a second tab: each gets a :class:`~usechat.runs.reading.Reading`.
Each has a view, which a client that was cut off names to go on at an index; ended runs can be read so for a minute.
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
store. If the store raises when an end is recorded, that is logged and the readers see the end all the same; so they do
if a recorder takes longer than a few seconds, which continues without them. If the
store ends a run of this worker (its lease expired, its log is too large), it calls ``on_failure`` and the run fails at
once.

**Threads.** Everything runs in the thread of one event loop.
"""

import asyncio
import contextlib
import contextvars
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias
from weakref import WeakSet

import msgspec

from usechat.errors import ChatBusy, ChatNotFound, ClientLeft, ShuttingDown, StoreUnreachable
from usechat.ids import new_id
from usechat.pauses.tasks import WaitingTasks
from usechat.protocol.reframing import Reframer, shorten
from usechat.protocol.request import ChatRequest
from usechat.protocol.sse import chunks_json
from usechat.runs.ended import LONGEST, EndedRun, EndedRuns
from usechat.runs.log import Log, Reader
from usechat.runs.open_calls import secret_of_chat
from usechat.runs.reading import LogReading, Reading
from usechat.runs.remote_runs import RemoteRun, RemoteRuns
from usechat.runs.run import CANNOT_FOLLOW, PreparedRun, Run, RunInfo, RunRecorder, RunState
from usechat.runs.settings import Settings, linger
from usechat.runs.store import RunStore
from usechat.runs.turns import Dispatcher
from usechat.runs.views import Tail, View
from usechat.sources import HandsOver, Source
from usechat.turn import TurnContext, TurnInput

__all__ = ["MakeRecorder", "Prepare", "Reading", "RunCallbacks", "RunManager"]

MakeRecorder: TypeAlias = Callable[[RunInfo, TurnContext, Mapping[str, Any] | None], Awaitable[RunRecorder | None]]
"""Returns what records the end of a run that another process has prepared, given the message that it continues."""
Prepare: TypeAlias = Callable[[RunInfo | None], Awaitable[PreparedRun]]
"""Makes a run, given the chat's last run; raises a RequestError to refuse the request."""

_logger: Final = logging.getLogger("usechat.runs")
_LOOK_AGAIN: Final = 1.0
"""Seconds after which a request that waits for the end of a run sees whether its client, or that run's, has left."""
_RECHECK_UNREAD: Final = 1.0
"""Seconds until a run that other workers read is checked again, if there is no ``unread_timeout``."""
_LEAVING: Final = 1.0
"""Seconds that the readers of a run get to leave before another message is refused: a page that stops an answer and
sends a message at once is faster than the proxy that reports its closed connection."""
_LOOK_FOR_READERS: Final = 0.2
"""Seconds after which a run is looked at again whose readers may leave, or that another worker was asked to stop."""
_FIRST_READER: Final = 5.0
"""Seconds that a web process gets to register as a reader of a run that was adopted here."""
_SLOW_RECORDING: Final = 5.0
"""Seconds that the readers of a run wait until its end is stored; a page that posts again must find its chat free."""
_REMEMBERED: Final = 1000
"""How many runs are remembered that ended here but were declared lost."""


def _ignore(*_event: object) -> None:
    """Do nothing: the default of the callbacks."""


def _as_sent(frames: bytes) -> bytes:
    """Return frames unchanged: the rewriting of a client that gets a run as it was sent."""
    return frames


def _count(rewrite: Callable[[bytes], bytes], pieces: Iterator[bytes]) -> int:
    return sum(len(chunks_json(rewrite(frames))) for frames in pieces)


class _Withdrawn:
    """Stands for the source of a run that ends before anything drives it."""

    async def drive(self, context: TurnContext) -> None:
        """Say nothing."""


async def _finish(recorder: RunRecorder, info: RunInfo) -> None:
    try:
        await recorder.finish(info)
    except Exception:  # a recorder that fails must not keep the run from ending
        _logger.exception("run %s: its end was not recorded", info.run_id)


async def _nothing(*_event: object) -> None:
    """Do nothing: the default of the callbacks that are awaited."""


def _disconnect_slow(run: Run | RemoteRun) -> bytes:
    """Log that a client is disconnected which can resume."""
    _log_slow(run.info, "it is disconnected, and can resume")
    return b""


def _fail_slow(run: Run) -> bytes:
    """End a run that nobody can resume, and return its last frames."""
    _log_slow(run.info, "the run is stopped, because nothing is kept to resume from")
    return run.fail(CANNOT_FOLLOW)


def _log_slow(info: RunInfo, consequence: str) -> None:
    _logger.warning(
        "run %s: its client reads too slowly; %s",
        info.run_id,
        consequence,
        extra={"chat_id": info.chat_id, "run_id": info.run_id},
    )


def _always(prepared: PreparedRun) -> Prepare:
    async def prepare(_latest: RunInfo | None) -> PreparedRun:
        return prepared

    return prepare


class RunCallbacks(NamedTuple):
    """What a manager calls when something happens to a run.

    - ``on_start``: called with the headers of the request, in the context (:mod:`contextvars`) of the run.
    - ``on_failure``: called with the exception that ended a run, and the reference under which it was logged.
    - ``on_end``: called once for every run, with its seconds, in the worker that ended it or found it lost.
    - ``on_loss``: called when another worker declares one of our runs lost.
    - ``on_done``: called for every run of this worker after its end was recorded, with the size of its log.
    - ``on_lost_answer``: called with every run of another worker that was found lost here, unless it was restarted.
    - ``make_recorder``: makes the recorder of a run whose turn was queued, and is withdrawn.
    """

    on_start: Callable[[RunInfo, Mapping[str, str]], None] = _ignore
    on_failure: Callable[[RunInfo, BaseException, str], None] = _ignore
    on_end: Callable[[RunInfo, float], None] = _ignore
    on_loss: Callable[[RunInfo], None] = _ignore
    on_done: Callable[[RunInfo, int], Awaitable[None]] = _nothing
    on_lost_answer: Callable[[RunInfo], Awaitable[None]] = _nothing
    make_recorder: MakeRecorder = _nothing


_NO_CALLBACKS: Final = RunCallbacks()


class RunManager:
    """Starts, attaches to and stops the runs of this process and, through the store, those of all workers.

    - ``settings``: how runs are made; without ``approval_secret`` nothing is signed.
    - ``keep_log``: whether clients can resume. Without it a client that is too slow ends the run.
    - ``dispatcher``: queues turns for agent processes; without it runs are driven here.
    """

    def __init__(
        self,
        store: RunStore,
        settings: Settings,
        *,
        keep_log: bool = True,
        dispatcher: Dispatcher | None = None,
        callbacks: RunCallbacks = _NO_CALLBACKS,
    ) -> None:
        self._store = store
        self._is_shared = store.is_shared
        self._settings = settings
        self._unread_timeout = linger(settings.disconnect, keeps_log=keep_log)
        self._keep_log = keep_log
        self._dispatcher = dispatcher
        self._callbacks = callbacks
        self._closing = False
        self._has_disconnected = False
        """Whether the server ends, so that readers are gone who would have stayed."""
        self._recorded: deque[str] = deque(maxlen=_REMEMBERED)
        self._runs: dict[str, Run] = {}
        self._waiting_tasks = WaitingTasks()
        self._continued: dict[str, Mapping[str, Any]] = {}
        self._recorders: dict[str, RunRecorder] = {}
        # By their ids, the runs that continue the answer of a process that died: the names of their logs, whose chunks
        # are counted anew. Those that the dead process sent are unknown here.
        self._carried_on: dict[str, str] = {}
        """The runs that continue answers of processes that died."""
        self._timers: dict[str, asyncio.TimerHandle] = {}
        # The logs of runs that ended while they were read; a log lives as long as its readers.
        self._ended_logs: WeakSet[Log] = WeakSet()
        self._ended_runs = EndedRuns(seconds=min(store.remember, LONGEST))
        self._tasks: set[asyncio.Task[None]] = set()
        self._remote_runs = RemoteRuns(store, event_names=settings.event_names, in_memory=settings.log_memory_bytes)
        store.on_stop_requested(self._stop_here)
        store.on_failure(self._fail_here)
        store.on_lost(self._found_lost)

    @property
    def is_shared(self) -> bool:
        """Whether the run store keeps what runs say, for other workers."""
        return self._is_shared

    @property
    def running(self) -> int:
        """How many runs are running in this process."""
        return len(self._runs)

    def has(self, run_id: str) -> bool:
        """Return whether a run of this process is running, or one of another process is read here."""
        return run_id in self._runs or run_id in self._remote_runs

    def drives(self, run_id: str) -> bool:
        """Return whether a run is running in this process."""
        return run_id in self._runs

    async def start(
        self,
        info: RunInfo,
        source: Source | None,
        run: PreparedRun | Prepare,
        *,
        has_left: Callable[[], Awaitable[bool]] | None = None,
    ) -> Reading:
        """Start a run, or do what the conflict policy says about the one that is running; return a reading.

        Read the frames with ``Reading.read`` until it returns ``None``, and call ``Reading.close`` in any case.

        ``source`` drives the run; it is ``None`` if there is a dispatcher, which queues the turn. ``run`` may be a
        function that prepares the run from the chat's last run. It is called after the previous run has ended,
        perhaps more than once. ``has_left`` tells whether the client is gone: a request that waited for another run
        starts none then.

        Raises :class:`~usechat.errors.ChatBusy`, :class:`~usechat.errors.ChatNotFound`,
        :class:`~usechat.errors.ClientLeft`, :class:`~usechat.errors.ShuttingDown`,
        :class:`~usechat.errors.StoreUnreachable`, :class:`~usechat.errors.TooManyWaiting`, and what ``run`` raises.
        """
        self._refuse_if_closing()
        prepare = _always(run) if isinstance(run, PreparedRun) else run
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
                    reading = await self._dispatch(prepared, after=after)
                else:
                    reading = await self._claim_and_start(prepared, source, after=after)
                if reading is not None:
                    return reading
            elif (reading := await self.resolve_conflict(active, info, source, prepare)) is not None:
                return reading
            else:
                await self.has_ended(active)
                if has_left is not None and await has_left():
                    raise ClientLeft("The client left before its request was answered.")

    async def take_over(self, prepared: PreparedRun, source: Source | None) -> Reading:
        """Start a run to which a chat store has given its chat; return a reading.

        A run that is still known as running is about to end, or has lost the chat, and is stopped. Without a
        ``source`` the turn is queued. Raises what :meth:`start` does, but refuses no chat.
        """
        self._refuse_if_closing()
        if source is None:
            return await self._take_over_dispatched(prepared)
        while (active := await self._store.claim(prepared.info, continues=prepared.continues)) is not None:
            await self.stop(active)
        return self._start_claimed(prepared, source)

    async def _take_over_dispatched(self, prepared: PreparedRun) -> Reading:
        assert self._dispatcher is not None
        await self._dispatcher.admit()
        while True:
            latest = await self._store.latest(prepared.info.chat_id)
            if latest is not None and latest.state is RunState.RUNNING:
                await self.stop(latest)
            elif (reading := await self._dispatch(prepared, after="" if latest is None else latest.run_id)) is not None:
                return reading

    def _refuse_if_closing(self) -> None:
        if self._closing:
            raise ShuttingDown("The server is about to restart. Please try again.")

    async def resolve_conflict(
        self, active: RunInfo, info: RunInfo, source: Source | None, prepare: Prepare
    ) -> Reading | None:
        """Apply the conflict policy to the run that is running; return a reading if the request attaches to it.

        Otherwise the caller looks again after a moment. Raises :class:`~usechat.errors.ChatBusy`.
        """
        is_repeated = self._settings.conflict == "attach" and active.continues_same_answer(info)
        if is_repeated or active.answers_same_message(info):
            return await self.attach(active, sdk=info.sdk, exact=True)
        is_edited = active.answers_same_id(info)
        if source is not None and isinstance(source, HandsOver):
            source.hand_over((await prepare(active)).context.turn)
        elif self._settings.conflict == "interrupt" or is_edited:
            await self.stop(active)  # nobody waits for the answer to a message that is replaced
        elif self._settings.conflict == "reject":
            await self._refuse_while_read(active)
        else:
            await self._stop_if_unread(active)
        return None

    async def _refuse_while_read(self, active: RunInfo) -> None:
        """Stop a run whose readers have left, or leave within a moment; otherwise raise ``ChatBusy``."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (0 if self._unread_timeout is None else _LEAVING)
        while not await self._stop_if_unread(active):
            if loop.time() >= deadline:
                raise ChatBusy("This chat is being answered already.")
            if await self.has_ended(active, within=_LOOK_FOR_READERS):
                return

    async def _claim_and_start(self, prepared: PreparedRun, source: Source, *, after: str) -> Reading | None:
        """Start a run here; return ``None`` if another request was faster."""
        if await self._store.claim(prepared.info, continues=prepared.continues, after=after) is not None:
            return None
        return self._start_claimed(prepared, source)

    def _start_claimed(self, prepared: PreparedRun, source: Source) -> Reading:
        run = self._make_run(prepared, self._chat_secret(prepared.info))
        reading = self._reading(run, run.log.reader(maximum_behind=self._settings.maximum_waiting_bytes))
        reading.view = View(run.info.run_id)
        self._begin_in_context(run, source)
        return reading

    def _chat_secret(self, info: RunInfo) -> str | None:
        secret = self._settings.approval_secret
        return None if secret is None else secret_of_chat(secret, info.chat_id, info.subject)

    def _make_run(self, prepared: PreparedRun, chat_secret: str | None) -> Run:
        info, recorder, settings = prepared.info, prepared.recorder, self._settings
        states = None if recorder is None or self._is_shared else recorder.states
        prepared.context.states = self._store if states is None else states
        prepared.context.memory = None if recorder is None else recorder.memory
        prepared.context.outlet.steps = None if recorder is None else recorder.steps
        log = Log(
            keep=self._keep_log,
            coalesce=settings.coalesce_ms / 1000,
            on_flush=self._on_flush(info, recorder),
            in_memory=settings.log_memory_bytes,
        )
        run = Run(
            prepared,
            log,
            settings,
            on_end=self._ended,
            on_failure=self._callbacks.on_failure,
            chat_secret=chat_secret,
            waiting_tasks=self._waiting_tasks,
        )
        self._runs[info.run_id] = run
        if recorder is not None:
            self._recorders[info.run_id] = recorder
            recorder.start(run.fail)
        if prepared.continues is not None:
            self._continued[info.run_id] = prepared.continues
        return run

    def _begin_in_context(self, run: Run, source: Source) -> None:
        # A separate context: the agent sees what an observer sets there, such as a span.
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
        self._callbacks.on_start(run.info, run.headers)
        run.start(source)

    # Runs of agent processes

    async def _dispatch(self, prepared: PreparedRun, *, after: str) -> Reading | None:
        """Queue a turn and follow its run; return ``None`` if another request was faster."""
        assert self._dispatcher is not None
        assert prepared.recorder is None, "what another process says is not recorded here"
        info = prepared.info
        offer = self._dispatcher.offer(info, prepared.context.turn.input, after=after, recording=prepared.recording)
        offering = asyncio.ensure_future(offer)
        try:
            active = await asyncio.shield(offering)
        except asyncio.CancelledError:  # the request is gone, but the turn may have been queued
            offering.add_done_callback(lambda _: self._spawn(self._stop_unread_elsewhere(info)))
            raise
        if active is not None:
            return None
        reading = self._remote_reading(self._remote_runs.follow(info), exact=True)
        reading.rewrite(_as_sent, live=False)
        reading.view = View(info.run_id)
        return reading

    def adopt(self, prepared: PreparedRun, source: Source, *, chat_secret: str | None, stop: bool = False) -> None:
        """Drive a run that this process has taken from a queue and owns in the store; with ``stop``, end it at once."""
        run = self._make_run(prepared, chat_secret)
        self._begin_in_context(run, source)
        if stop:
            run.stop("stopped")
        elif self._unread_timeout is not None:
            self._schedule_unread_stop(max(self._unread_timeout, _FIRST_READER), run)

    async def _withdraw(self, info: RunInfo) -> bool:
        """End a run whose turn no agent process has taken yet; return whether that was so."""
        if self._dispatcher is None or not await self._dispatcher.withdraw(info):
            return False
        context = TurnContext(TurnInput(ChatRequest(chat_id=info.chat_id, messages=[])))
        continues = await self._store.continued(info)
        recorder = await self._callbacks.make_recorder(info, context, continues)
        run = self._make_run(PreparedRun(info, context, continues, recorder), self._chat_secret(info))
        run.start(_Withdrawn())
        run.stop("stopped")
        await self.has_ended(info, within=self._settings.timeouts.stop)
        return True

    def _remote_reading(self, remote_run: RemoteRun, *, exact: bool) -> LogReading[RemoteRun]:
        reader = self._reader_from_start(remote_run.log, exact=exact)
        return LogReading(reader, remote_run, on_close=self._remote_reader_left, on_too_slow=_disconnect_slow)

    def _reader_from_start(self, log: Log, *, exact: bool) -> Reader:
        return log.reader(maximum_behind=self._settings.maximum_waiting_bytes, from_start=True, exact=exact)

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
        if self._dispatcher is not None:
            if await self._store.is_read(active):
                return False
            if await self._withdraw(active):
                return True
        await self._store.request_stop(active, unless_read=True)
        return await self.has_ended(active, within=_LOOK_FOR_READERS)

    async def carry_on(self, prepared: PreparedRun, source: Source) -> None:
        """Start a run that continues the answer of a process that died; it needs no reader to run to its end.

        Raises what :meth:`take_over` does.
        """
        run_id = prepared.info.run_id
        self._carried_on[run_id] = f"{run_id}.{new_id()}"
        try:
            reading = await self.take_over(prepared, source)
        except BaseException:
            self._carried_on.pop(run_id, None)
            raise
        reading.close()

    async def attach(
        self, info: RunInfo, *, sdk: str, has_message: bool = False, exact: bool = False
    ) -> Reading | None:
        """Return a reading of a running run, from its start; ``None`` if it has ended meanwhile.

        ``has_message`` says that the client has the message which the run continues: it is not sent again. With
        ``exact`` every chunk is as it was sent: the client may count them, and go on with :meth:`tail`.
        """
        pair = await self._find(info, exact=exact) if info.state is RunState.RUNNING else None
        if pair is None:
            return None
        reading, continued = pair
        reading.view = self._view_of(info, continued, sdk=sdk, has_message=has_message)
        if reading.view.sdk:
            reading.rewrite(self._reframer(reading.view, info, continued, exact=exact), live=True)
        elif exact:
            reading.rewrite(_as_sent, live=False)
        else:
            reading.rewrite(partial(shorten, event_names=self._settings.event_names), live=False)
        return reading

    async def tail(self, info: RunInfo, view: View | str, start: int) -> tuple[Reading, int] | None:
        """Return a reading of a view from a chunk on, and how many chunks there are now; ``None`` if it is not known.

        ``info`` is that of the chat's last run, and ``view`` may be one of an earlier run; a release stands for the
        view of the last run that a page without its answer has. A negative ``start`` counts from the last chunk.
        """
        log = self._log_of(info)
        if isinstance(view, View):
            if view.run_id == info.run_id != log:  # the chunks that a dead process sent
                return None
            if view.run_id != log:
                info = msgspec.structs.replace(info, run_id=view.run_id, state=RunState.FINISHED)
        elif start and log != info.run_id:  # nobody knows which chunks this client has counted
            return None
        pair = await self._find(info, exact=True)
        if pair is None:
            return None
        reading, continued = pair
        if isinstance(view, str):
            view = self._view_of(info, continued, sdk=view, has_message=False)
        if view.earlier and not continued:
            reading.close()
            return None
        reading.view = view
        make_rewrite = partial(self._reframer, view, info, continued, exact=True) if view.sdk else lambda: _as_sent
        count = 0
        if start < 0:
            count = _count(make_rewrite(), reading.so_far())
            start = max(0, count + start)
        tail = Tail(start, make_rewrite())
        reading.rewrite(tail.receive, live=True, at_end=tail.end)
        return reading, count

    async def _find(self, info: RunInfo, *, exact: bool) -> tuple[LogReading[Any], Mapping[str, Any] | None] | None:
        """Return a reading of a run from its start, and the message that it continues."""
        if (run := self._runs.get(info.run_id)) and run.info.chat_id == info.chat_id:
            self._cancel_timer(info.run_id)
            return self._reading(run, self._reader_from_start(run.log, exact=exact)), self._continued.get(info.run_id)
        if ended := self._ended_runs.find(info.run_id, info.chat_id):
            return self._ended_reading(Log.ended_with(ended.replay), exact=exact), ended.continued
        if info.state is not RunState.RUNNING:
            frames = await self._store.frames(info)
            log = Log()
            log.append(frames)
            log.end()
            return (self._ended_reading(log, exact=exact), await self._store.continued(info)) if frames else None
        remote_run = await self._remote_runs.open(info)
        if not remote_run.log.size and remote_run.log.ended:
            self._remote_runs.release(remote_run)
            return None
        return self._remote_reading(remote_run, exact=exact), remote_run.continued

    def _log_of(self, info: RunInfo) -> str:
        """Return the name of the log that this process has of a run: the run's id, if it has the whole of it."""
        is_here = info.run_id in self._runs or info.state is not RunState.RUNNING
        if self._is_shared or is_here:
            return self._carried_on.get(info.run_id, info.run_id)
        return self._remote_runs.name_of(info.run_id)

    def _view_of(self, info: RunInfo, continued: Mapping[str, Any] | None, *, sdk: str, has_message: bool) -> View:
        """Return the view of a client of a release, which has the message that the run continues, or not."""
        log = self._log_of(info)
        if sdk == info.sdk and (continued is None or has_message):
            return View(log)
        return View(log, sdk, "" if continued is None else "known" if has_message else "shown")

    def _ended_reading(self, log: Log, *, exact: bool) -> LogReading[None]:
        return LogReading(self._reader_from_start(log, exact=exact), None, on_close=_ignore)

    def _reframer(
        self, view: View, info: RunInfo, continued: Mapping[str, Any] | None, *, exact: bool
    ) -> Callable[[bytes], bytes]:
        """Return what writes a run again for a view."""
        before = {"earlier": continued if view.earlier == "shown" else None}
        before["continues"] = continued if view.earlier == "known" else None
        reframer = Reframer(info.message_id, view.sdk, **before, exact=exact, event_names=self._settings.event_names)
        return reframer.receive

    def forget(self, chat_id: str) -> None:
        """Drop what is kept of the ended runs of a chat."""
        self._ended_runs.forget(chat_id)

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
        await self.has_ended(info, within=self._settings.timeouts.stop)

    async def has_ended(self, info: RunInfo, *, within: float = _LOOK_AGAIN) -> bool:
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
        self._has_disconnected = True
        for log in [*(run.log for run in self._runs.values()), *self._ended_logs]:
            log.disconnect_readers()
        self._remote_runs.disconnect_readers()

    async def finish_runs(self, drain: float) -> None:
        """Start no more runs, wait ``drain`` seconds for runs to end, and stop the others.

        A stored answer that another process would continue after a crash is left to it.
        """
        self._closing = True
        await asyncio.gather(*[run.wait(drain) for run in self._runs.values()])
        runs = list(self._runs.values())
        self.stop_runs()
        await asyncio.gather(*[run.wait() for run in runs])
        await asyncio.gather(*self._tasks)

    def stop_runs(self) -> None:
        """Stop all runs of this process."""
        for run in self._runs.values():
            run.interrupt()

    async def shut_down(self, *, drain: float) -> None:
        """Disconnect clients at once, wait ``drain`` seconds for runs to end, stop the others, close the store.

        Tasks that wait for a person are cancelled: nobody knows when the person answers.
        """
        self._closing = True
        self.disconnect_readers()
        await self.finish_runs(drain)
        await self._waiting_tasks.close(self._settings.timeouts.stop)
        await self._remote_runs.close()
        await self._store.close()

    def _reader_left(self, run: Run) -> None:
        """Schedule the stop of a run whose last reader was closed."""
        if run.log.readers or self._unread_timeout is None or run.info.state is not RunState.RUNNING:
            return
        if run.info.run_id in self._carried_on:
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
        elif self._has_disconnected:
            run.interrupt()
        else:
            run.stop("disconnected")

    def _reading(self, run: Run, reader: Reader) -> LogReading[Run]:
        on_too_slow = _disconnect_slow if self._keep_log else _fail_slow
        return LogReading(reader, run, on_close=self._reader_left, on_too_slow=on_too_slow)

    def _ended(self, run: Run) -> None:
        self._cancel_timer(run.info.run_id)
        self._spawn(self._record_end(run, run.seconds))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _record_end(self, run: Run, seconds: float) -> None:
        """Record the end in the store, then end the log: a page posts again as soon as it sees the end."""
        try:
            await self._finish_recording(run)
            if await self._store_end(run.info):
                self._callbacks.on_end(run.info, seconds)
            else:
                self._recorded.append(run.info.run_id)
                self._callbacks.on_loss(msgspec.structs.replace(run.info, state=RunState.LOST))
        finally:
            del self._runs[run.info.run_id]
            continued = self._continued.pop(run.info.run_id, None)
            log = self._carried_on.pop(run.info.run_id, run.info.run_id)
            if run.log.readers:
                self._ended_logs.add(run.log)
            run.log.end()
            if self._keep_log and not self._is_shared:
                self._ended_runs.add(EndedRun(log, run.info.chat_id, run.log.compact(), continued))
            await self._report_done(run)

    async def _finish_recording(self, run: Run) -> None:
        """Let the recorder store the end. Readers wait for it, but no longer than for a database that is slow."""
        if (recorder := self._recorders.pop(run.info.run_id, None)) is not None:
            await asyncio.wait([self._spawn(_finish(recorder, run.info))], timeout=_SLOW_RECORDING)

    async def _report_done(self, run: Run) -> None:
        with contextlib.suppress(StoreUnreachable):  # what was not counted expires
            await self._callbacks.on_done(run.info, run.log.size)

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
        self._callbacks.on_end(info, seconds)
        # The end of a run that this worker gave up was recorded when it failed here.
        if info.state is RunState.LOST and info.run_id not in self._recorded:
            self._spawn(self._report_lost_answer(info))

    async def _report_lost_answer(self, info: RunInfo) -> None:
        with contextlib.suppress(StoreUnreachable):
            latest = await self._store.latest(info.chat_id)
            is_restarted = latest is not None and latest.run_id != info.run_id and latest.is_same_turn(info)
            if not is_restarted:
                await self._callbacks.on_lost_answer(info)

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
