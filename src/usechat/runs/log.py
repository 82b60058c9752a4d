"""The log of one run in this process: frames in order, and readers that wait for more.

**The idea.** A run appends frames to one log; every client of the run has a :class:`Reader` with a position in it.
There is no queue per client and the writer never waits: a slow client costs its own connection, never the run.

**Positions.** Positions are byte offsets from the start of the run. ``size`` is where the next frame is written,
``flushed`` is how far readers may see. ``append`` only copies bytes; ``flush`` publishes everything up to ``size``. In
between, frames are batched, so that readers get what was written together as one piece and one system call sends it:

- while the run's task drives its source it holds the log (``is_held``) and flushes when the source pauses;
- otherwise the :class:`Flusher` flushes all logs of an event loop at the end of the loop's iteration;
- with ``coalesce`` a timer flushes after that many seconds.

**Two ways to read.** ``Reader.read`` waits on a future and returns bytes. If the reader has a :class:`Pusher` (a
connection that takes bytes by a plain call), frames are pushed while ``read`` waits and no task wakes up; ``read``
returns only for other reasons (:class:`Wake`).

**Memory.** What every reader has taken is merged into a compact replay (consecutive deltas become one), about a tenth
of the bytes that were written. A reader that starts late replays from there and needs no copy; an exact one gets every
delta alone again, because the replay remembers where they met. With ``keep=False`` taken frames are dropped instead;
then nobody can resume. The older part of a very long replay is in a temporary file (:mod:`usechat.runs.replay`).

**Backlog.** With ``maximum_behind`` a reader may have that many unread bytes. Beyond that it is woken with
``Wake.TOO_SLOW`` and its connection is closed; the client can resume from the replay. A burst, which is what is written
within one iteration of the event loop, may exceed the limit if no other such burst is unread: no client can read in
between. So may a single large frame. A reader that still replays has no backlog: the log holds those bytes anyway.

**Room.** A log that is not kept has a writer that can wait, because nobody can resume: it is full (``is_full``) while a
reader has half of its limit unread, and ``room`` returns when that is read.

**Invariants.** ``_first <= reader.place <= flushed <= size`` for every reader; ``_frames`` holds the bytes from
``_first`` to ``size``; frames are cut only at frame ends, never inside of one. Everything runs in the thread of the
log's event loop. A pusher must not raise. If flushing one log fails, the error is logged and the other logs are
flushed.
"""

import asyncio
import contextvars
import enum
import logging
from collections.abc import Callable, Iterator
from typing import Final, Protocol
from weakref import WeakKeyDictionary

from usechat.protocol.sse import Restorer, end_of_piece
from usechat.runs.replay import IN_MEMORY, Replay

__all__ = [
    "Flusher",
    "Log",
    "Pusher",
    "Reader",
    "Wake",
    "flusher_of",
]


_logger: Final = logging.getLogger("usechat.runs")

_MUCH_UNFLUSHED: Final = 4096
"""Bytes: after writing this much without a pause, the writer should flush and yield to the event loop."""
_WORTH_SHORTENING: Final = 1024
"""Bytes: a log that is kept holds about this much verbatim; older frames are in the compact replay."""
_SLICE: Final = 64 * 1024
"""Bytes: a reader that is behind, or replays, takes about this much at once. The rest stays in the log, which all
readers share: many that stall cost little more than one."""


class Wake(enum.Enum):
    """Why ``Reader.read`` returned without frames."""

    SILENCE = "silence"
    """Nothing was sent for a while: time for a keep-alive comment."""
    GONE = "gone"
    """The client has disconnected."""
    TOO_SLOW = "too slow"
    """The client is further behind than the backlog limit allows."""
    SHUTDOWN = "shutdown"
    """The server is shutting down: the connection is closed without an ending, so that the client resumes elsewhere."""
    UNSENT = "unsent"
    """Pushed frames are not sent yet: wait for the connection before reading on."""


_CUTS: Final = (Wake.TOO_SLOW, Wake.SHUTDOWN)
"""The reasons to close the connection at once."""


class Pusher(Protocol):
    """A connection that takes frames by a plain call."""

    def push(self, frames: bytes) -> None:
        """Send frames. Must not raise; wakes the reader with ``Wake.UNSENT`` if sending needs to wait."""
        ...


class Log:
    """The frames of a run. Readers get frames that were written together as one piece.

    ``keep=False`` drops frames that every reader has taken; use it when nobody can resume. ``coalesce`` is how many
    seconds a frame may wait for others to be sent with it. ``on_flush`` is called with the frames of every flush.
    ``in_memory`` is how many bytes of the compact replay are held in memory (:mod:`usechat.runs.replay`).
    """

    # With a thousand streams the objects of each delta are not in the processor's caches: few of them, no __dict__.
    __slots__ = (
        "__weakref__",
        "_coalesce",
        "_first",
        "_flusher",
        "_frames",
        "_in_memory",
        "_on_flush",
        "_only",
        "_pushers",
        "_readers",
        "_replay",
        "_replay_end",
        "_room",
        "_timer",
        "_worth_forgetting",
        "ended",
        "flushed",
        "is_full",
        "is_held",
        "keep",
        "loop",
        "size",
    )

    def __init__(
        self,
        *,
        keep: bool = True,
        coalesce: float = 0,
        on_flush: Callable[[bytes], None] | None = None,
        in_memory: int = IN_MEMORY,
    ) -> None:
        self.size = 0
        """How many bytes were written."""
        self.flushed = 0
        """How many bytes readers may see."""
        self.ended = False
        self.is_held = False
        """Whether the writer itself will flush."""
        self.is_full = False
        """Whether the writer should wait for ``room``."""
        self.keep = keep
        self.loop = asyncio.get_running_loop()
        self._coalesce = coalesce
        self._on_flush = on_flush
        self._in_memory = in_memory
        self._flusher = flusher_of(self.loop)
        self._replay: Replay | None = None
        self._replay_end = 0  # the position up to which frames are in the replay; they may be in _frames, too
        self._frames = bytearray()
        self._first = 0  # the position of the first byte in _frames
        self._only: bytes | None = None  # the unflushed bytes, if they were appended by one call
        self._timer: asyncio.TimerHandle | None = None
        self._room: asyncio.Future[None] | None = None
        self._worth_forgetting = _WORTH_SHORTENING if keep else 0
        # Replaced, never modified: a flush iterates over them.
        self._readers: tuple[Reader, ...] = ()
        self._pushers: tuple[Pusher, ...] = ()  # of waiting readers that have everything that was flushed

    @property
    def coalesces(self) -> bool:
        """Whether a timer flushes this log."""
        return self._coalesce > 0

    @property
    def readers(self) -> int:
        """How many readers there are."""
        return len(self._readers)

    @property
    def taken(self) -> int:
        """The position up to which every reader has taken the frames of a log that is not kept."""
        return self._first

    def append(self, frames: bytes) -> bool:
        """Write frames. They are flushed by the writer if it holds the log, by the timer, or by the loop's flusher.

        Returns whether so much is unflushed, or unread, that the writer should flush and yield to the event loop.
        """
        if self.flushed != self.size:
            self._only = None
        else:
            self._only = frames
            if self._coalesce:
                self._timer = self.loop.call_later(self._coalesce, self.flush)
            elif not self.is_held:
                self._flusher.add(self)
        self._frames += frames
        self.size += len(frames)
        return self.is_full or self.size - self.flushed >= _MUCH_UNFLUSHED

    def flush(self) -> None:
        """Make everything that was written visible to the readers."""
        flushed, self.flushed = self.flushed, self.size
        if flushed == self.size:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        frames = self._only
        if frames is None:
            frames = bytes(self._frames[flushed - self._first :])
        self._only = None
        for pusher in self._pushers:
            pusher.push(frames)
        if len(self._pushers) != len(self._readers):
            for reader in self._readers:
                reader.notify(frames)
            self.check_room()
        if self.size - self._first > self._worth_forgetting:
            self.forget()
        if self._on_flush is not None:
            self._on_flush(frames)

    async def room(self) -> None:
        """Wait until the log is not full."""
        while self.is_full:
            if self._room is None:
                self._room = self.loop.create_future()
            await asyncio.shield(self._room)

    def check_room(self) -> None:
        """Look whether the log is full, after a reader has taken something or left."""
        self.is_full = not self.keep and any(reader.has_much_unread for reader in self._readers)
        if not self.is_full and self._room is not None:
            self._room.set_result(None)
            self._room = None

    def release(self) -> None:
        """Stop holding the log; what is unflushed is flushed at the end of this iteration of the event loop."""
        self.is_held = False
        if self.flushed != self.size:
            self._flusher.add(self)

    def end(self) -> None:
        """Flush, and let readers return ``None`` once they have read everything."""
        self.flush()
        self.ended = True
        for reader in self._readers:
            reader.notify()

    def disconnect_readers(self) -> None:
        """Wake every reader with ``Wake.SHUTDOWN``: its client sees a network error, and resumes elsewhere."""
        for reader in self._readers:
            reader.wake(Wake.SHUTDOWN)

    def so_far(self) -> bytes:
        """Return all frames: the compact replay, then the verbatim rest."""
        self.flush()
        as_written = self._frames[max(0, self._replay_end - self._first) :]
        return b"".join([b"" if self._replay is None else bytes(self._replay), as_written])

    def reader(self, *, maximum_behind: int | None = None, from_start: bool = False, exact: bool = False) -> "Reader":
        """Add a reader at the end, or ``from_start``: then :meth:`Reader.replay` returns what came before.

        With ``exact`` that is every frame as it was written.
        """
        self.flush()
        restorer = Restorer() if exact else None
        reader = Reader(self, self.flushed, maximum_behind, replays=from_start, restorer=restorer)
        self._readers = (*self._readers, reader)
        return reader

    def history(self, place: int, size: int) -> bytes:
        """Return about ``size`` bytes of the compact replay from ``place`` on, in whole frames."""
        self.flush()
        self._shorten(self.flushed)
        return b"" if self._replay is None else self._replay.read(place, size)

    def restore(self, frames: bytes, restorer: Restorer) -> bytes:
        """Return the next frames of the compact replay as they were written."""
        return frames if self._replay is None else restorer.restore(frames, self._replay.cuts)

    def compact(self) -> Replay:
        """Return all frames in the compact form. A log that has ended is done with it."""
        self._shorten(self.flushed)
        return self._replay or Replay()

    @classmethod
    def ended_with(cls, replay: Replay) -> "Log":
        """Return a log that has ended, with these frames."""
        log = cls()
        log._replay, log.ended = replay, True
        return log

    def take(self, place: int) -> bytes:
        """Return the flushed bytes from ``place`` on; if they are many, a slice of whole frames."""
        begin, end = place - self._first, self.flushed - self._first
        if end - begin > _SLICE:
            end = end_of_piece(self._frames, begin, _SLICE, end)
        return bytes(self._frames[begin:end])

    def remove_reader(self, reader: "Reader") -> None:
        """Remove a reader that was closed."""
        self._readers = tuple(each for each in self._readers if each is not reader)
        self.check_room()

    def start_pushing(self, pusher: Pusher) -> None:
        """Push what is flushed from now on."""
        self._pushers = (*self._pushers, pusher)

    def stop_pushing(self, pusher: Pusher) -> None:
        """Push no more to ``pusher``."""
        self._pushers = tuple(each for each in self._pushers if each is not pusher)

    def forget(self) -> None:
        """Drop the verbatim frames that every reader has taken; a log that is kept moves them to the replay."""
        oldest = min((reader.place for reader in self._readers), default=self.flushed)
        if self.keep:
            self._shorten(oldest)
        del self._frames[: oldest - self._first]
        self._first = oldest

    def _shorten(self, until: int) -> None:
        begin = max(self._replay_end, self._first)
        if until > begin:
            self._replay = self._replay or Replay(self._in_memory)
            self._replay.add(bytes(self._frames[begin - self._first : until - self._first]))
            self._replay_end = until


class Reader:
    """One reader of a log: a position in it, and a future while it waits.

    A reader that begins at the start has a position in the compact replay until it has caught up. The log holds nothing
    for such a reader alone, however slow it is.
    """

    __slots__ = (
        "_bulk",
        "_bulk_end",
        "_burst",
        "_history",
        "_log",
        "_maximum_behind",
        "_place",
        "_pushes",
        "_read_size",
        "_reason",
        "_restorer",
        "_unsent",
        "_waiter",
        "on_cut",
        "pusher",
    )

    def __init__(
        self, log: Log, place: int, maximum_behind: int | None, *, replays: bool, restorer: Restorer | None
    ) -> None:
        self.on_cut: Callable[[Wake], None] | None = None
        """Called with ``TOO_SLOW`` or ``SHUTDOWN`` when no ``read`` is waiting: the sender may never be unblocked."""
        self.pusher: Pusher | None = None
        """Takes frames while ``read`` waits, so that no task has to wake up."""
        self._log = log
        self._place = place
        self._maximum_behind = maximum_behind
        self._history = 0 if replays else None
        self._restorer = restorer
        self._read_size = 0  # the size of what read() returned last: the caller may still hold it
        self._bulk = 0  # the size of the one unread burst that exceeds the backlog limit,
        self._bulk_end = 0  # and the position behind it
        self._burst: int | None = None  # where the burst begins that is being written
        self._waiter: asyncio.Future[None] | None = None
        self._pushes = False
        self._reason: Wake | None = None
        self._unsent = False

    @property
    def place(self) -> int:
        """The position behind the last byte that was taken."""
        return self._log.flushed if self._pushes or self._history is not None else self._place

    @property
    def behind(self) -> int:
        """How many bytes are unread, or were returned by the last ``read`` and may not be sent yet."""
        return self._log.size - self.place + self._read_size

    @property
    def has_much_unread(self) -> bool:
        """Whether half of what may be unread is."""
        return self._maximum_behind is not None and self.behind > self._maximum_behind // 2

    def replay(self) -> bytes | None:
        """Return the next part of the replay, a slice of whole frames; ``None`` once this reader has caught up."""
        if self._history is None:
            return None
        if frames := self._log.history(self._history, min(_SLICE, self._maximum_behind or _SLICE)):
            self._history += len(frames)
            return frames if self._restorer is None else self._log.restore(frames, self._restorer)
        self._history = None
        self._place = self._log.flushed
        return None

    def so_far(self) -> Iterator[bytes]:
        """Go through the replay from its start on, beside this reader, which must be at the start, too."""
        scout = self._log.reader(from_start=True, exact=self._restorer is not None)
        while (frames := scout.replay()) is not None:
            yield frames
        scout.close()

    def take_wake(self) -> Wake | None:
        """Return the reason for which this reader was woken, and clear it."""
        if self._unsent:
            self._unsent = False
            return Wake.UNSENT
        reason, self._reason = self._reason, None
        return reason

    async def read(self) -> bytes | Wake | None:
        """Wait for new frames and return them; a :class:`Wake` if woken for another reason; ``None`` at the end."""
        self._read_size = 0
        if self._log.is_full:
            self._log.check_room()
        while True:
            if (reason := self.take_wake()) is not None:
                return reason
            if frames := self._log.take(self._place):
                self._place += len(frames)
                self._read_size = len(frames)
                if self._bulk and self._place >= self._bulk_end:
                    self._bulk = self._read_size = 0
                if not self._log.keep:
                    self._log.forget()
                return frames
            if self._log.ended:
                return None
            self._waiter = self._log.loop.create_future()
            if self.pusher is not None:
                self._pushes = True
                self._log.start_pushing(self.pusher)
            try:
                await self._waiter
            finally:
                self._stop_waiting()

    def notify(self, frames: bytes = b"") -> None:
        """Wake up for new frames or the end, and check the backlog; within a burst that waits until its end."""
        limit = self._maximum_behind
        if limit is not None and self._burst is None and len(frames) >= min(limit, _MUCH_UNFLUSHED):
            self._burst = self._log.flushed - len(frames)
            self._log.loop.call_soon(self._end_burst)
        if self._waiter is not None:
            if not frames or not self._pushes:
                self._wake()
        elif frames and self._burst is None:
            self._check_backlog()

    def _end_burst(self) -> None:
        """Let what was written since the burst began exceed the backlog limit, if nothing else does."""
        begin, self._burst = self._burst, None
        end = self._log.flushed
        if begin is not None and not self._bulk and self.place < end and end - begin > (self._maximum_behind or 0):
            self._bulk, self._bulk_end = end - begin, end
        self._check_backlog()

    def _check_backlog(self) -> None:
        limit = self._maximum_behind
        if limit is None or self._waiter is not None or self._history is not None:
            return
        if self.behind > limit + self._bulk:
            self.wake(Wake.TOO_SLOW)

    def wake(self, reason: Wake) -> None:
        """Make the current or next ``read`` return ``reason``; any other reason overrides ``SILENCE``."""
        if reason is Wake.UNSENT:
            self._unsent = True
        elif self._reason in (None, Wake.SILENCE):
            self._reason = reason
        if self._waiter is None and self.on_cut is not None and reason in _CUTS:
            self.on_cut(reason)
        self._wake()

    def skip(self) -> None:
        """Drop everything unread."""
        self._place = self._log.flushed
        self._history = None
        self._read_size = self._bulk = 0
        if not self._log.keep:
            self._log.forget()
            self._log.check_room()

    def close(self) -> None:
        """Stop reading and leave the log."""
        self._stop_waiting()
        self._log.remove_reader(self)
        # They refer back to this reader: without the cycle no garbage collection is needed.
        self.pusher = self.on_cut = None

    def _wake(self) -> None:
        waiter = self._waiter
        self._stop_waiting()
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _stop_waiting(self) -> None:
        self._waiter = None
        if self._pushes and self.pusher is not None:
            self._pushes = False
            self._place = self._log.flushed
            self._log.stop_pushing(self.pusher)


class Flusher:
    """Flushes the logs of one event loop together, at the end of the iteration in which they were written to.

    One callback flushes them all: a callback per log would cost as much as framing a delta. And a client process that
    was woken for the first log's frames need not be woken by the kernel again for the others.
    """

    __slots__ = ("_context", "_logs")

    def __init__(self) -> None:
        self._context = contextvars.Context()  # empty: the first writer's belongs to one request
        self._logs: list[Log] = []

    def add(self, log: "Log") -> None:
        """Flush a log at the end of this iteration of the event loop."""
        if not self._logs:
            log.loop.call_soon(self._flush_all, context=self._context)
        self._logs.append(log)

    def _flush_all(self) -> None:
        logs, self._logs = self._logs, []
        for log in logs:
            try:
                log.flush()
            except Exception:  # the other logs are flushed all the same
                _logger.exception("flushing a log failed: its clients miss frames until they resume")


_flushers: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Flusher]] = WeakKeyDictionary()


def flusher_of(loop: asyncio.AbstractEventLoop) -> Flusher:
    """Return the flusher of an event loop."""
    return _flushers.get(loop) or _flushers.setdefault(loop, Flusher())
