"""One reader's view of a run, wherever the run lives."""

from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from usechat.protocol.sse import pieces_of
from usechat.runs.log import Pusher, Reader, Wake

__all__ = ["LogReading", "Reading"]

Read = TypeVar("Read")
Rewrite: TypeAlias = Callable[[bytes], bytes]
"""Writes whole frames in another way."""

_SLICE: Final = 64 * 1024
"""Bytes: a late reader gets what there is so far in pieces of about this size, so that no server holds all of it."""
_NO_PIECES: Final[Iterator[bytes]] = iter(())


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

    def on_cut(self, interrupt: Callable[[Wake], None]) -> None:
        """Call ``interrupt`` when this reader has fallen too far behind, or is broken off, while nobody reads."""
        ...

    def give_up(self) -> bytes:
        """The reader cannot follow: return its last words, none if it may come back for the rest."""
        ...

    def close(self) -> None:
        """Read no further."""
        ...


class LogReading(Generic[Read]):
    """A reader of a log in this process: that of a run, or the remote_run of one in another worker.

    ``on_close`` is called with the source, which is what is read.
    """

    __slots__ = ("_last_words", "_on_close", "_pieces", "_reader", "_reframes", "_rewrite", "_source")

    def __init__(
        self,
        reader: Reader,
        source: Read,
        *,
        on_close: Callable[[Read], None],
        last_words: Callable[[], bytes] | None = None,
    ) -> None:
        self._reader = reader
        self._source = source
        self._on_close = on_close
        self._last_words = last_words
        if last_words is not None:
            reader.on_cut = self._give_up_unsent
        self._pieces = _NO_PIECES
        self._rewrite: Rewrite | None = None
        self._reframes = False

    def rewrite(self, rewrite: Rewrite, *, live: bool) -> None:
        """Read what the reader replays as this function writes it, and if ``live`` also what follows."""
        self._rewrite = rewrite
        self._reframes = live

    def read(self) -> Coroutine[Any, Any, bytes | Wake | None]:
        """Return what is new."""
        # No coroutine of its own around the one that waits: every open stream would keep it.
        return self._reader.read() if self._rewrite is None else self._read_anew(self._rewrite)

    async def _read_anew(self, rewrite: Rewrite) -> bytes | Wake | None:
        while True:
            if (reason := self._reader.woken()) is not None:
                return reason
            if piece := next(self._pieces, b""):
                return piece
            if (frames := self._reader.replay()) is None:
                new = await self._reader.read()
                if not self._reframes:
                    self._rewrite = None
                    return new
                if not isinstance(new, bytes):
                    return new
                frames = new
            self._pieces = pieces_of(rewrite(frames), _SLICE)

    def wake(self, reason: Wake) -> None:
        """Make ``read`` return for another reason than frames."""
        self._reader.wake(reason)

    def push_to(self, pusher: Pusher) -> None:
        """Let ``pusher`` take frames while ``read`` waits, unless they must be framed anew."""
        if not self._reframes:
            self._reader.pusher = pusher

    def on_cut(self, interrupt: Callable[[Wake], None]) -> None:
        """Call ``interrupt`` when this reader has fallen too far behind, or is broken off, while nobody reads."""
        self._reader.on_cut = interrupt

    def give_up(self) -> bytes:
        """Drop what waits; return the last words."""
        if self._last_words is None:
            return b""
        self._reader.skip()
        return self._last_words()

    def _give_up_unsent(self, why: Wake) -> None:
        """Nobody sends yet, and too much waits already: what is dropped is not held until somebody does."""
        if why is Wake.TOO_SLOW:
            words = self.give_up()
            self._last_words = lambda: words

    def close(self) -> None:
        """Read no further."""
        self._reader.close()
        self._on_close(self._source)
