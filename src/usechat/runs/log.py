"""The log of one run in this process: frames in order, and readers that wait for more."""

import asyncio
import contextvars
import enum
import logging
from collections.abc import Callable
from typing import Final, Protocol
from weakref import WeakKeyDictionary

from usechat.protocol.sse import ShortenedFrames, end_of_piece

__all__ = [
    "Flusher",
    "Log",
    "Pusher",
    "Reader",
    "Wake",
    "flusher_of",
]


_CROWD: Final = 4096
"""Bytes: whoever wrote so much without a pause lets others have their turn."""
_WORTH_SHORTENING: Final = 1024
"""Bytes: a log that is kept holds about so many as they were written, and those before in short."""
_SLICE: Final = 64 * 1024
"""Bytes: a reader that has fallen behind takes about so many at once, so that the rest waits here and is counted."""
_REPLAYED: Final = 1024 * 1024
"""Bytes: a reader that has no limit takes about so many at once of what was written before it came."""


class Wake(enum.Enum):
    """Why a reader that waits is woken for another reason than frames."""

    SILENCE = "silence"
    GONE = "gone"
    TOO_SLOW = "too slow"
    BROKEN_OFF = "broken off"
    UNSENT = "unsent"
    """Frames that were pushed are not through: whoever reads waits until they are."""


_CUTS: Final = (Wake.TOO_SLOW, Wake.BROKEN_OFF)


class Pusher(Protocol):
    """Takes frames by a plain call."""

    def push(self, frames: bytes) -> None:
        """Take frames, and never raise. The reader is woken if somebody has to wait until they are through."""
        ...


class Log:
    """Frames as they were written. Readers get what was written together as one piece.

    What every reader has taken is kept in short, for those who come later; ``keep=False`` forgets it, which is enough
    when nobody comes. ``gather`` is how many seconds frames may wait for others to go with them.
    """

    # With a thousand streams each delta finds its objects out of the processor's caches: few of them, without __dict__.
    __slots__ = (
        "__weakref__",
        "_first",
        "_flusher",
        "_gather",
        "_kept",
        "_on_flush",
        "_only",
        "_pushers",
        "_readers",
        "_shortened",
        "_shortened_to",
        "_timer",
        "_worth_forgetting",
        "ended",
        "flushed",
        "held",
        "keep",
        "loop",
        "size",
    )

    def __init__(
        self, *, keep: bool = True, gather: float = 0, on_flush: Callable[[bytes], None] | None = None
    ) -> None:
        self.size = 0
        """All bytes written so far."""
        self.flushed = 0
        """The bytes that readers may see."""
        self.ended = False
        self.held = False
        """Whether whoever writes will flush."""
        self.keep = keep
        self.loop = asyncio.get_running_loop()
        self._gather = gather
        self._on_flush = on_flush
        self._flusher = flusher_of(self.loop)
        self._shortened: ShortenedFrames | None = None
        self._shortened_to = 0  # the place up to which frames are kept in short, perhaps also as they were written
        self._kept = bytearray()
        self._first = 0  # the place of the first byte that is kept as it was written
        self._only: bytes | None = None  # what was written since, if it was written in one piece
        self._timer: asyncio.TimerHandle | None = None
        self._worth_forgetting = _WORTH_SHORTENING if keep else 0
        # Replaced, never changed: they are gone through.
        self._readers: tuple[Reader, ...] = ()
        self._pushers: tuple[Pusher, ...] = ()  # of readers that wait, and have all that was flushed

    @property
    def gathers(self) -> bool:
        """Whether frames wait for others."""
        return self._gather > 0

    @property
    def readers(self) -> int:
        """How many read."""
        return len(self._readers)

    def append(self, frames: bytes) -> bool:
        """Write frames; those of one turn of the event loop, or of the time in which they gather, go together.

        Tells whether so much waits for the readers that they should have it now.
        """
        if self.flushed != self.size:
            self._only = None
        else:
            self._only = frames
            if self._gather:
                self._timer = self.loop.call_later(self._gather, self.flush)
            elif not self.held:
                self._flusher.add(self)
        self._kept += frames
        self.size += len(frames)
        return self.size - self.flushed >= _CROWD

    def flush(self) -> None:
        """Hand what was written to the readers."""
        flushed, self.flushed = self.flushed, self.size
        if flushed == self.size:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        frames = self._only
        if frames is None:
            frames = bytes(self._kept[flushed - self._first :])
        self._only = None
        for pusher in self._pushers:
            pusher.push(frames)
        if len(self._pushers) != len(self._readers):
            for reader in self._readers:
                reader.notice(frames)
        if self.size - self._first > self._worth_forgetting:
            self.forget()
        if self._on_flush is not None:
            self._on_flush(frames)

    def release(self) -> None:
        """Whoever held the log does so no longer; what was written is flushed with what follows at once."""
        self.held = False
        if self.flushed != self.size:
            self._flusher.add(self)

    def end(self) -> None:
        """Say that nothing follows."""
        self.flush()
        self.ended = True
        for reader in self._readers:
            reader.notice()

    def break_off(self) -> None:
        """Cut every reader off without an ending: its client sees a network error, and resumes elsewhere."""
        for reader in self._readers:
            reader.wake(Wake.BROKEN_OFF)

    def so_far(self) -> bytes:
        """Return all frames that are kept; those of long ago in short."""
        self.flush()
        as_written = self._kept[max(0, self._shortened_to - self._first) :]
        return b"".join([b"" if self._shortened is None else bytes(self._shortened), as_written])

    def reader(self, *, maximum_behind: int | None = None, from_start: bool = False) -> "Reader":
        """Begin to read: behind what was written so far, or from the start, of which :meth:`Reader.replay` tells."""
        self.flush()
        reader = Reader(self, self.flushed, maximum_behind, replays=from_start)
        self._readers = (*self._readers, reader)
        return reader

    def history(self, place: int, size: int) -> bytes:
        """Return what was written so far in short, from a place in that on: whole frames of about so many bytes."""
        self.flush()
        self._shorten(self.flushed)
        return b"" if self._shortened is None else self._shortened.read(place, size)

    def take(self, place: int) -> bytes:
        """Return what readers may see from a place on: a slice of whole frames if that is much."""
        begin, end = place - self._first, self.flushed - self._first
        if end - begin > _SLICE:
            end = end_of_piece(self._kept, begin, _SLICE, end)
        return bytes(self._kept[begin:end])

    def leave(self, reader: "Reader") -> None:
        """A reader reads no further."""
        self._readers = tuple(each for each in self._readers if each is not reader)

    def begin_to_push(self, pusher: Pusher) -> None:
        """A reader has everything; what is flushed from now on is pushed."""
        self._pushers = (*self._pushers, pusher)

    def end_to_push(self, pusher: Pusher) -> None:
        """Push no more."""
        self._pushers = tuple(each for each in self._pushers if each is not pusher)

    def forget(self) -> None:
        """Drop what every reader has taken; a log that is kept holds it in short."""
        oldest = min((reader.place for reader in self._readers), default=self.flushed)
        if self.keep:
            self._shorten(oldest)
        del self._kept[: oldest - self._first]
        self._first = oldest

    def _shorten(self, until: int) -> None:
        begin = max(self._shortened_to, self._first)
        if until > begin:
            self._shortened = self._shortened or ShortenedFrames()
            self._shortened.add(bytes(self._kept[begin - self._first : until - self._first]))
            self._shortened_to = until


class Reader:
    """One reader of a log: a place in it, and a future while it waits.

    One that begins at the start has a place in what is kept in short, and takes from there until it has everything: so
    nothing waits for it alone, however slow it is.
    """

    __slots__ = (
        "_bulk",
        "_bulk_end",
        "_handed",
        "_history",
        "_log",
        "_maximum_behind",
        "_place",
        "_pushes",
        "_reason",
        "_unsent",
        "_waiter",
        "on_cut",
        "pusher",
    )

    def __init__(self, log: Log, place: int, maximum_behind: int | None, *, replays: bool = False) -> None:
        self.on_cut: Callable[[Wake], None] | None = None
        """Told of a reason to read no further while nobody waits here: whoever sends may wait for ever."""
        self.pusher: Pusher | None = None
        """Takes frames while this reader waits, so that it need not wake."""
        self._log = log
        self._place = place
        self._maximum_behind = maximum_behind
        self._history = 0 if replays else None
        self._handed = 0  # the bytes that were taken last: until more are wanted, somebody holds them
        self._bulk = 0  # the bytes of one thing that waits and is larger than all that may,
        self._bulk_end = 0  # and the place behind it
        self._waiter: asyncio.Future[None] | None = None
        self._pushes = False
        self._reason: Wake | None = None
        self._unsent = False

    @property
    def place(self) -> int:
        """The place behind the last byte that was taken."""
        return self._log.flushed if self._pushes or self._history is not None else self._place

    @property
    def behind(self) -> int:
        """How many bytes wait for this reader, or for whoever took them."""
        return self._log.size - self.place + self._handed

    def replay(self) -> bytes | None:
        """Return more of what was written so far, in short; nothing once this reader has it all.

        It is as much as may wait for a reader; what is written meanwhile waits in the log, which keeps it anyway.
        """
        if self._history is None:
            return None
        if frames := self._log.history(self._history, self._maximum_behind or _REPLAYED):
            self._history += len(frames)
            return frames
        self._history = None
        self._place = self._log.flushed
        return None

    def woken(self) -> Wake | None:
        """Return the reason for which this reader was woken, once."""
        if self._unsent:
            self._unsent = False
            return Wake.UNSENT
        reason, self._reason = self._reason, None
        return reason

    async def read(self) -> bytes | Wake | None:
        """Return what is new, waiting for it; a reason other than frames; or nothing at the end."""
        self._handed = 0
        while True:
            if (reason := self.woken()) is not None:
                return reason
            if frames := self._log.take(self._place):
                self._place += len(frames)
                self._handed = len(frames)
                if self._bulk and self._place >= self._bulk_end:
                    self._bulk = self._handed = 0
                if not self._log.keep:
                    self._log.forget()
                return frames
            if self._log.ended:
                return None
            self._waiter = self._log.loop.create_future()
            if self.pusher is not None:
                self._pushes = True
                self._log.begin_to_push(self.pusher)
            try:
                await self._waiter
            finally:
                self._stop_waiting()

    def notice(self, frames: bytes = b"") -> None:
        """There are new frames, or nothing follows.

        One thing that is larger than all that may wait can be said, while no other such waits: it is not counted.
        """
        limit = self._maximum_behind
        if limit is not None and len(frames) > limit and not self._bulk and self.place < self._log.flushed:
            self._bulk, self._bulk_end = len(frames), self._log.flushed
        if self._waiter is not None:
            if not frames or not self._pushes:
                self._wake()
        elif frames and limit is not None and self._history is None and self.behind > limit + self._bulk:
            self.wake(Wake.TOO_SLOW)

    def wake(self, reason: Wake) -> None:
        """Make the next or the current read return for another reason than frames; silence is the weakest."""
        if reason is Wake.UNSENT:
            self._unsent = True
        elif self._reason in (None, Wake.SILENCE):
            self._reason = reason
        if self._waiter is None and self.on_cut is not None and reason in _CUTS:
            self.on_cut(reason)
        self._wake()

    def skip(self) -> None:
        """Drop what waits for this reader."""
        self._place = self._log.flushed
        self._history = None
        self._handed = self._bulk = 0
        if not self._log.keep:
            self._log.forget()

    def close(self) -> None:
        """Read no further."""
        self._stop_waiting()
        self._log.leave(self)
        # Whoever reads knows this reader: without their names here nothing waits for the garbage collector.
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
            self._log.end_to_push(self.pusher)


# -- Handing over what was written to the logs of one event loop: all of them together, when a turn of it ends.

_logger: Final = logging.getLogger("usechat.runs")


class Flusher:
    """The logs of one event loop that were written to in this turn of it.

    One callback flushes them all: one for each log would cost as much as the framing of a delta. And while a process
    that reads is awake for the first, the kernel need not wake it for the others.
    """

    __slots__ = ("_context", "_logs")

    def __init__(self) -> None:
        self._context = contextvars.Context()  # not that of whoever writes first, which belongs to one request
        self._logs: list[Log] = []

    def add(self, log: "Log") -> None:
        """Flush a log when everybody who says something in this turn has done so."""
        if not self._logs:
            log.loop.call_soon(self._flush_all, context=self._context)
        self._logs.append(log)

    def _flush_all(self) -> None:
        logs, self._logs = self._logs, []
        for log in logs:
            try:
                log.flush()
            except Exception:  # one log that fails is no reason for the others to wait
                _logger.exception("what was said could not be handed over")


_flushers: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Flusher]] = WeakKeyDictionary()


def flusher_of(loop: asyncio.AbstractEventLoop) -> Flusher:
    """Return the one flusher of an event loop."""
    return _flushers.get(loop) or _flushers.setdefault(loop, Flusher())
