"""One reader's view of a run, wherever the run lives."""

from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final, Generic, Protocol, TypeVar

from usechat.runs.log import Pusher, Reader, Wake
from usechat.runs.replay import Reframer, pieces_of

__all__ = ["LogReading", "Reading"]

Read = TypeVar("Read")

_SLICE: Final = 64 * 1024
"""Bytes: a late reader gets what there is so far in pieces of about this size, so that no server holds all of it."""


class Reading(Protocol):
    """One reader's view of a run."""

    async def read(self) -> bytes | Wake | None:
        """Return what is new, waiting for it; a reason other than frames; or nothing at the end."""
        ...

    def wake(self, reason: Wake) -> None:
        """Make ``read`` return for another reason than frames."""
        ...

    def push_to(self, pusher: Pusher) -> None:
        """Let ``pusher`` take frames while ``read`` waits; ``read`` tells when they are not through."""
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


class LogReading(Generic[Read]):
    """A reader of a log in this process: that of a run, or the mirror of one in another worker.

    ``on_close`` is called with what is read.
    """

    __slots__ = ("_first", "_last_words", "_on_close", "_read", "_reader", "_reframer")

    def __init__(
        self,
        reader: Reader,
        read: Read,
        *,
        on_close: Callable[[Read], None],
        last_words: Callable[[], bytes] | None = None,
    ) -> None:
        self._reader = reader
        self._read = read
        self._on_close = on_close
        self._last_words = last_words
        self._first: Iterator[bytes] | None = None
        self._reframer: Reframer | None = None

    def begin_with(self, frames: bytes) -> None:
        """Read these frames first."""
        self._first = pieces_of(frames, _SLICE)

    def reframe(self, reframer: Reframer, so_far: bytes) -> None:
        """Read everything framed anew, from the start."""
        self._reframer = reframer
        self._first = pieces_of(reframer.receive(so_far), _SLICE)

    def read(self) -> Coroutine[Any, Any, bytes | Wake | None]:
        """Return what is new."""
        # No coroutine of its own around the one that waits: every open stream would keep it.
        return self._reader.read() if self._reframer is None and self._first is None else self._read_anew()

    async def _read_anew(self) -> bytes | Wake | None:
        if self._first is not None:
            if first := next(self._first, b""):
                return first
            self._first = None
        frames = await self._reader.read()
        while isinstance(frames, bytes) and self._reframer is not None:
            if reframed := self._reframer.receive(frames):
                return reframed
            frames = await self._reader.read()
        return frames

    def wake(self, reason: Wake) -> None:
        """Make ``read`` return for another reason than frames."""
        self._reader.wake(reason)

    def push_to(self, pusher: Pusher) -> None:
        """Let ``pusher`` take frames while ``read`` waits, unless they must be framed anew."""
        if self._reframer is None:
            self._reader.pusher = pusher

    def on_too_slow(self, interrupt: Callable[[], None]) -> None:
        """Call ``interrupt`` when this reader has fallen too far behind."""
        self._reader.on_too_slow = interrupt

    def give_up(self) -> bytes:
        """Drop what waits; return the last words."""
        if self._last_words is None:
            return b""
        self._reader.skip()
        return self._last_words()

    def close(self) -> None:
        """Read no further."""
        self._reader.close()
        self._on_close(self._read)
