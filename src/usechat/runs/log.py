"""The log of one run in this process: frames in order, and readers that wait for more."""

import asyncio
import enum
from collections.abc import Callable

__all__ = ["Log", "Reader", "Wake"]


class Wake(enum.Enum):
    """Why a reader that waits is woken for another reason than frames."""

    SILENCE = "silence"
    GONE = "gone"
    TOO_SLOW = "too slow"
    BROKEN_OFF = "broken off"


class Log:
    """Frames as they were written; what one turn of the event loop wrote is one entry.

    ``keep=False`` forgets what every reader has taken: enough when nobody can come back for it.
    """

    def __init__(self, *, keep: bool = True, on_flush: Callable[[bytes], None] | None = None) -> None:
        self.size = 0
        """All bytes written so far."""
        self.ended = False
        self._keep = keep
        self._on_flush = on_flush
        self._entries: list[bytes] = []
        self._first = 0  # the number of the first entry that is kept
        self._pending: list[bytes] = []
        self._readers: set[Reader] = set()

    @property
    def pending(self) -> int:
        """How many pieces were written since readers last got something."""
        return len(self._pending)

    @property
    def readers(self) -> int:
        """How many read."""
        return len(self._readers)

    def append(self, frames: bytes) -> None:
        """Write frames; those of one turn of the event loop reach readers together."""
        if not self._pending:
            asyncio.get_running_loop().call_soon(self.flush)
        self._pending.append(frames)
        self.size += len(frames)

    def flush(self) -> None:
        """Hand what was written to the readers."""
        if not self._pending:
            return
        entry = b"".join(self._pending)
        self._pending.clear()
        self._entries.append(entry)
        if self._on_flush is not None:
            self._on_flush(entry)
        for reader in list(self._readers):
            reader.notice(len(entry))

    def end(self) -> None:
        """Say that nothing follows."""
        self.flush()
        self.ended = True
        for reader in list(self._readers):
            reader.notice()

    def break_off(self) -> None:
        """Cut every reader off without an ending: its client sees a network error, and resumes elsewhere."""
        for reader in list(self._readers):
            reader.wake(Wake.BROKEN_OFF)

    def so_far(self) -> bytes:
        """Return all frames that are kept."""
        self.flush()
        return b"".join(self._entries)

    def reader(self, *, from_start: bool = True, maximum_behind: int | None = None) -> "Reader":
        """Begin to read, from the start or behind what was written so far."""
        self.flush()
        kept = sum(map(len, self._entries)) if from_start else 0
        position = self._first + (0 if from_start else len(self._entries))
        reader = Reader(self, position, self.size - kept, maximum_behind)
        self._readers.add(reader)
        return reader

    def take(self, position: int) -> list[bytes]:
        """Return the entries from a position on."""
        return self._entries[position - self._first :]

    def release(self, reader: "Reader") -> None:
        """A reader reads no further."""
        self._readers.discard(reader)

    def forget(self) -> None:
        """Drop what every reader has taken, unless the log is kept."""
        if not self._keep:
            oldest = min((reader.position for reader in self._readers), default=self._first)
            del self._entries[: oldest - self._first]
            self._first = oldest


class Reader:
    """One reader of a log: a cursor, and a future while it waits."""

    def __init__(self, log: Log, position: int, taken: int, maximum_behind: int | None) -> None:
        self.position = position
        self._log = log
        self._taken = taken
        self._maximum_behind = maximum_behind
        self._waiter: asyncio.Future[None] | None = None
        self._reason: Wake | None = None
        self.on_too_slow: Callable[[], None] | None = None

    @property
    def behind(self) -> int:
        """How many bytes wait for this reader."""
        return self._log.size - self._taken

    async def read(self) -> bytes | Wake | None:
        """Return all that is new, waiting for it; a reason other than frames; or nothing at the end."""
        while True:
            if self._reason is not None:
                reason, self._reason = self._reason, None
                return reason
            entries = self._log.take(self.position)
            if entries:
                self.position += len(entries)
                frames = b"".join(entries)
                self._taken += len(frames)
                self._log.forget()
                return frames
            if self._log.ended:
                return None
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def notice(self, size: int = 0) -> None:
        """There is something new, of this size, or the end.

        A reader is slow for what waited already: one thing that is larger than all that may wait can be said.
        """
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        elif self._maximum_behind is not None and size and self.behind - size >= self._maximum_behind:
            self.wake(Wake.TOO_SLOW)
            if self.on_too_slow is not None:
                self.on_too_slow()

    def wake(self, reason: Wake) -> None:
        """Make the next or the current read return for another reason than frames; silence is the weakest."""
        if self._reason in (None, Wake.SILENCE):
            self._reason = reason
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def skip(self) -> None:
        """Drop what waits for this reader."""
        entries = self._log.take(self.position)
        self.position += len(entries)
        self._taken = self._log.size
        self._log.forget()

    def close(self) -> None:
        """Read no further."""
        self._log.release(self)
