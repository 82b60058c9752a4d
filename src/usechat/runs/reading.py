"""A reading: one client's view of a run on any worker.

A connection pulls from a :class:`Reading` and knows nothing else of runs. A reading either follows a run from its start
(the request that started it) or replays what there is and then follows (a resumed client). Replayed frames are
rewritten on the way: deltas are merged, or, for a client of another AI SDK release or a run that continues an earlier
message, the whole stream is framed again (:mod:`usechat.protocol.reframing`). Only in that case are live frames
rewritten, too; a :class:`~usechat.runs.log.Pusher` is not used then. A client that counts chunks gets them exactly as
they were sent (:mod:`usechat.runs.views`).

A client that falls too far behind is disconnected and can resume. Where it cannot, because the log keeps nothing, the
run fails instead, and ``give_up`` returns the frames that tell the client so. Either is logged.
"""

from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from usechat.protocol.sse import pieces_of
from usechat.runs.log import Pusher, Reader, Wake
from usechat.runs.views import View

__all__ = ["LogReading", "Reading"]

Read = TypeVar("Read")
Rewrite: TypeAlias = Callable[[bytes], bytes]
"""Turns whole frames into other whole frames."""

_SLICE: Final = 64 * 1024
"""Bytes: a replay is returned in pieces of about this size, so that no server buffers all of it."""
_NO_PIECES: Final[Iterator[bytes]] = iter(())
_NO_RUN: Final = View("none")


class Reading(Protocol):
    """One client's view of a run."""

    view: View
    """What is read, for a client that goes on at an index; one that nobody finds if that cannot be done."""

    async def read(self) -> bytes | Wake | None:
        """Wait for new frames and return them; a :class:`Wake` if woken for another reason; ``None`` at the end."""
        ...

    def wake(self, reason: Wake) -> None:
        """Make the current or next ``read`` return ``reason``."""
        ...

    def push_to(self, pusher: Pusher) -> None:
        """Push frames to ``pusher`` while ``read`` waits; ``read`` returns ``Wake.UNSENT`` if sending has to wait."""
        ...

    def on_cut(self, interrupt: Callable[[Wake], None]) -> None:
        """Call ``interrupt`` when the connection must be closed (too slow, shutdown) while no ``read`` waits."""
        ...

    def give_up(self) -> bytes:
        """Give up a client that is too slow; return its final frames, none if it can resume."""
        ...

    def close(self) -> None:
        """Stop reading."""
        ...


class LogReading(Generic[Read]):
    """Reads a log of this process: that of a run, or of the local copy of another worker's run.

    ``on_close`` is called with ``source``, the run or the copy. So is ``on_too_slow``, once, if the client is too slow:
    it ends a run that cannot be resumed, and returns the frames to send to the client.
    """

    __slots__ = (
        "_at_end",
        "_final_frames",
        "_on_close",
        "_on_too_slow",
        "_pieces",
        "_reader",
        "_reframes",
        "_rewrite",
        "_source",
        "view",
    )

    def __init__(
        self,
        reader: Reader,
        source: Read,
        *,
        on_close: Callable[[Read], None],
        on_too_slow: Callable[[Read], bytes] = lambda _source: b"",
    ) -> None:
        self.view = _NO_RUN
        self._reader = reader
        self._source = source
        self._on_close = on_close
        self._on_too_slow = on_too_slow
        self._final_frames: bytes | None = None
        reader.on_cut = self._give_up_unsent
        self._pieces = _NO_PIECES
        self._rewrite: Rewrite | None = None
        self._reframes = False
        self._at_end: Callable[[], bytes] | None = None

    def so_far(self) -> Iterator[bytes]:
        """Go through the replay, and return to its start."""
        return self._reader.so_far()

    def rewrite(self, rewrite: Rewrite, *, live: bool, at_end: Callable[[], bytes] | None = None) -> None:
        """Pass the replay through ``rewrite``, and if ``live`` everything that follows, too.

        What ``at_end`` returns is read behind everything else.
        """
        self._rewrite = rewrite
        self._reframes = live
        self._at_end = at_end

    def read(self) -> Coroutine[Any, Any, bytes | Wake | None]:
        """Wait for new frames and return them; a :class:`Wake` if woken for another reason; ``None`` at the end."""
        # Not a coroutine around the reader's: every open stream would keep both in memory.
        return self._reader.read() if self._rewrite is None else self._read_rewritten(self._rewrite)

    async def _read_rewritten(self, rewrite: Rewrite) -> bytes | Wake | None:
        while True:
            if (reason := self._reader.take_wake()) is not None:
                return reason
            if piece := next(self._pieces, b""):
                return piece
            if (frames := self._reader.replay()) is None:
                new = await self._reader.read()
                if not self._reframes:
                    self._rewrite = None
                    return new
                if new is None and self._at_end is not None:
                    new, self._at_end = self._at_end(), None
                    return new or None
                if not isinstance(new, bytes):
                    return new
                frames = new
            self._pieces = pieces_of(rewrite(frames), _SLICE)

    def wake(self, reason: Wake) -> None:
        """Make the current or next ``read`` return ``reason``."""
        self._reader.wake(reason)

    def push_to(self, pusher: Pusher) -> None:
        """Push frames to ``pusher`` while ``read`` waits, unless live frames are rewritten."""
        if not self._reframes:
            self._reader.pusher = pusher

    def on_cut(self, interrupt: Callable[[Wake], None]) -> None:
        """Call ``interrupt`` when the connection must be closed (too slow, shutdown) while no ``read`` waits."""
        self._reader.on_cut = interrupt

    def give_up(self) -> bytes:
        """Give up a client that is too slow; return its final frames, none if it can resume."""
        if self._final_frames is None:
            self._final_frames = self._on_too_slow(self._source)
            if self._final_frames:
                self._reader.skip()
        return self._final_frames

    def _give_up_unsent(self, why: Wake) -> None:
        """Give up before a connection has begun to send: the backlog is dropped now, not when sending begins."""
        if why is Wake.TOO_SLOW:
            self.give_up()

    def close(self) -> None:
        """Stop reading."""
        self._reader.close()
        self._on_close(self._source)
