"""The keeper of runs: starts them, finds them wherever they live, lets readers in, stops them."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final, Literal, Protocol, TypeAlias

from usechat.errors import RequestError
from usechat.runs.log import Log, Reader, Wake
from usechat.runs.replay import Reframer, shorten
from usechat.runs.run import Run, RunInfo, RunState, Timeouts
from usechat.runs.store import RunStore
from usechat.stream import MessageStream
from usechat.transport import Source
from usechat.turn import Turn

__all__ = ["ChatBusy", "Conflict", "Keeper", "Reading"]

Conflict: TypeAlias = Literal["reject", "attach", "queue", "interrupt"]
"""What a second request does while the chat's run goes on."""

_logger: Final = logging.getLogger("usechat.runs")
_POLL: Final = 0.05
CANNOT_FOLLOW: Final = "The connection is too slow for this answer, so it was stopped."


class ChatBusy(RequestError):
    """The chat is being answered already."""

    status = 409


class Reading(Protocol):
    """One reader's view of a run."""

    async def read(self) -> bytes | Wake | None:
        """Return what is new, waiting for it; a reason other than frames; or nothing at the end."""
        ...

    def wake(self, reason: Wake) -> None:
        """Make ``read`` return for another reason than frames."""
        ...

    def on_too_slow(self, interrupt: Callable[[], None]) -> None:
        """Call ``interrupt`` when this reader has fallen too far behind."""
        ...

    def give_up(self) -> bytes:
        """The reader cannot follow: return its last words, none if it may come back for the rest."""
        ...

    def close(self) -> None:
        """Read no further."""
        ...


def _say_nothing(*_what: object) -> None:
    """Nobody listens."""


class Keeper:
    """The runs of this process, and through the store those of all workers.

    ``linger`` is how many seconds a run goes on without any reader: 0 stops it at once, ``None`` never.
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
        maximum_behind: int = 1024 * 1024,
        on_start: Callable[[RunInfo], None] = _say_nothing,
        on_end: Callable[[RunInfo, float], None] = _say_nothing,
    ) -> None:
        self._store = store
        self._timeouts = timeouts
        self._linger = linger
        self._conflict = conflict
        self._describe = describe
        self._approval_secret = approval_secret
        self._keep_log = keep_log
        self._maximum_behind = maximum_behind
        self._on_start = on_start
        self._on_end = on_end
        self._runs: dict[str, Run] = {}
        self._continued: dict[str, Mapping[str, Any] | None] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._ends: set[asyncio.Task[None]] = set()
        store.on_stop_ordered(self._stop_here)

    @property
    def running(self) -> int:
        """How many runs go on in this process."""
        return len(self._runs)

    async def start(self, info: RunInfo, source: Source, turn: Turn, *, continues: Mapping[str, Any] | None) -> Reading:
        """Start a run, or do with the one that goes on what the policy says; return a reading of it."""
        while (active := await self._store.claim(info)) is not None:
            if self._conflict == "attach" or (info.user_message_id and active.user_message_id == info.user_message_id):
                reading = await self.attach(active, sdk=info.sdk)
                if reading is not None:
                    return reading
            elif self._conflict == "reject":
                raise ChatBusy("This chat is being answered already.")
            elif self._conflict == "interrupt":
                await self.stop(active)
            await asyncio.sleep(_POLL)
        log = Log(keep=self._keep_log, on_flush=lambda frames: self._store.append(info.run_id, frames))
        stream = MessageStream(message_id=info.message_id, sdk=info.sdk, continues=continues)
        run = Run(
            info,
            turn,
            stream,
            log,
            timeouts=self._timeouts,
            describe=self._describe,
            on_end=self._ended,
            approval_secret=self._approval_secret,
        )
        self._runs[info.run_id] = run
        self._continued[info.run_id] = continues
        reading = _LocalReading(log.reader(maximum_behind=self._maximum_behind), self, run, resumable=self._keep_log)
        run.start(source)
        self._on_start(info)
        return reading

    async def attach(self, info: RunInfo, *, sdk: str) -> Reading | None:
        """Read a run that goes on, from its start; nothing if it has ended meanwhile."""
        run = self._runs.get(info.run_id)
        if run is None:
            return None if info.state is not RunState.RUNNING else _RemoteReading(self._store.read(info.run_id))
        so_far = run.log.so_far()
        earlier = self._continued[info.run_id]
        reader = run.log.reader(from_start=False, maximum_behind=self._maximum_behind)
        reading = _LocalReading(reader, self, run, resumable=self._keep_log)
        self._cancel_timer(info.run_id)
        if earlier is None and sdk == info.sdk:
            reading.begin_with(shorten(so_far))
        else:
            reading.reframe(Reframer(info.message_id, sdk, earlier=earlier), so_far)
        return reading

    async def latest(self, chat_id: str) -> RunInfo | None:
        """Return the chat's last run."""
        return await self._store.latest(chat_id)

    async def stop(self, info: RunInfo) -> None:
        """Stop a run wherever it lives, and wait a bounded time for it."""
        if run := self._runs.get(info.run_id):
            run.stop("stopped")
            await run.wait()
            await asyncio.gather(*self._ends)
            return
        await self._store.order_stop(info)
        deadline = asyncio.get_running_loop().time() + self._timeouts.stop
        while asyncio.get_running_loop().time() < deadline:
            latest = await self._store.latest(info.chat_id)
            if latest is None or latest.run_id != info.run_id or latest.state is not RunState.RUNNING:
                return
            await asyncio.sleep(_POLL)

    def break_off(self) -> None:
        """Cut every reader off without an ending: its client sees a network error, and resumes elsewhere."""
        for run in self._runs.values():
            run.log.break_off()

    async def shut_down(self, *, drain: float) -> None:
        """Break readers off at once; give runs some time, then stop them."""
        self.break_off()
        await asyncio.gather(*[run.wait(drain) for run in self._runs.values()])
        runs = list(self._runs.values())
        for run in runs:
            run.stop("shutdown")
        await asyncio.gather(*[run.wait() for run in runs])
        await asyncio.gather(*self._ends)
        await self._store.close()

    def reader_left(self, run: Run) -> None:
        """A reader of the run has gone; perhaps it was the last."""
        if run.log.readers or self._linger is None or run.info.state is not RunState.RUNNING:
            return
        if self._linger == 0:
            run.stop("disconnected")
        else:
            self._cancel_timer(run.info.run_id)
            loop = asyncio.get_running_loop()
            self._timers[run.info.run_id] = loop.call_later(self._linger, run.stop, "disconnected")

    def _ended(self, run: Run) -> None:
        self._cancel_timer(run.info.run_id)
        self._on_end(run.info, run.seconds)
        task = asyncio.get_running_loop().create_task(self._record_end(run))
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)

    async def _record_end(self, run: Run) -> None:
        """Let the store know first, then the readers: a page posts again as soon as it sees the end."""
        try:
            await self._store.end(run.info)
        except Exception:
            _logger.exception("run %s: its end could not be recorded", run.info.run_id)
        finally:
            del self._runs[run.info.run_id]
            del self._continued[run.info.run_id]
            run.log.end()

    def _stop_here(self, run_id: str) -> None:
        if run := self._runs.get(run_id):
            run.stop("stopped")

    def _cancel_timer(self, run_id: str) -> None:
        if timer := self._timers.pop(run_id, None):
            timer.cancel()


class _LocalReading:
    """A reader of a run in this process."""

    def __init__(self, reader: Reader, keeper: Keeper, run: Run, *, resumable: bool) -> None:
        self._reader = reader
        self._keeper = keeper
        self._run = run
        self._resumable = resumable
        self._first = b""
        self._reframer: Reframer | None = None

    def begin_with(self, frames: bytes) -> None:
        self._first = frames

    def reframe(self, reframer: Reframer, so_far: bytes) -> None:
        self._reframer = reframer
        self._first = reframer.receive(so_far)

    async def read(self) -> bytes | Wake | None:
        if self._first:
            first, self._first = self._first, b""
            return first
        frames = await self._reader.read()
        while isinstance(frames, bytes) and self._reframer is not None:
            if reframed := self._reframer.receive(frames):
                return reframed
            frames = await self._reader.read()
        return frames

    def wake(self, reason: Wake) -> None:
        self._reader.wake(reason)

    def on_too_slow(self, interrupt: Callable[[], None]) -> None:
        self._reader.on_too_slow = interrupt

    def give_up(self) -> bytes:
        if self._resumable:
            return b""
        self._reader.skip()
        return self._run.fail(CANNOT_FOLLOW)

    def close(self) -> None:
        self._reader.close()
        self._keeper.reader_left(self._run)


class _RemoteReading:
    """A reader of a run in another worker."""

    def __init__(self, frames: AsyncIterator[bytes | Wake]) -> None:
        self._frames = frames
        self._gone = False

    async def read(self) -> bytes | Wake | None:
        frames = await anext(self._frames, None)
        return Wake.GONE if self._gone else frames

    def wake(self, reason: Wake) -> None:
        self._gone = reason is not Wake.SILENCE

    def on_too_slow(self, interrupt: Callable[[], None]) -> None:
        """Never: it reads no faster than it sends."""

    def give_up(self) -> bytes:
        return b""

    def close(self) -> None:
        """Nothing waits for this reader."""
