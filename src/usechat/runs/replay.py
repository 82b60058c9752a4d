"""The replay of a run: its frames in compact form, for clients that resume.

The newest frames are in memory. Once they exceed a limit they are written to a temporary file, which has no name and
vanishes with the run: a very long answer costs disk, not memory. Positions go through both, so readers notice nothing.
If the file cannot be written (the disk is full), the frames stay in memory, and one line in the log says so.

The compact form has one delta where many were sent. Where they met is kept, too (:class:`~usechat.protocol.sse.Cuts`),
always in memory: about a byte for each. So a client that counts chunks can be served exactly those that were sent.
"""

import logging
import tempfile
from typing import IO, Final

from usechat.protocol.sse import Cuts, ShortenedFrames, end_of_first_frame, end_of_last_frame

__all__ = ["IN_MEMORY", "Replay"]

_logger: Final = logging.getLogger("usechat.runs")

IN_MEMORY: Final = 1024 * 1024
"""Bytes of a replay that are in memory by default."""
_AT_ONCE: Final = 1024 * 1024
"""Bytes: a frame of an unknown size is read from the file in pieces of this size."""


class Replay:
    """Merged frames in memory up to ``in_memory`` bytes, older ones in a temporary file."""

    __slots__ = ("_file", "_in_file", "_in_memory", "_recent")

    def __init__(self, in_memory: int = IN_MEMORY) -> None:
        self._in_memory = in_memory
        self._recent = ShortenedFrames()
        self._in_file = 0  # how many bytes of the beginning are in the file
        self._file: IO[bytes] | None = None

    def __bytes__(self) -> bytes:
        return self._read_file(0, self._in_file) + bytes(self._recent)

    @property
    def cuts(self) -> Cuts:
        """Where deltas were merged."""
        return self._recent.cuts

    @property
    def size(self) -> int:
        """How many bytes it takes, in memory and in the file."""
        return self._in_file + len(self._recent) + len(self.cuts)

    def add(self, frames: bytes) -> None:
        """Add whole frames."""
        self._recent.add(frames)
        if len(self._recent) > self._in_memory:
            self._write_file()

    def read(self, place: int, size: int) -> bytes:
        """Return whole frames from a place on: at most ``size`` bytes, but at least one frame if there is any."""
        if place >= self._in_file:
            return self._recent.read(place - self._in_file, size)
        frames = self._read_file(place, size)
        end = end_of_last_frame(frames)
        while not end:  # one frame that is larger than `size`
            frames += self._read_file(place + len(frames), _AT_ONCE)
            end = end_of_first_frame(frames)
        return frames[:end]

    def _write_file(self) -> None:
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="usechat-")  # noqa: SIM115 (closed by __del__)
            self._file.seek(self._in_file)
            self._file.write(bytes(self._recent))
            self._file.flush()
        except OSError as error:
            _logger.warning("a long answer stays in memory, because no temporary file can be written: %s", error)
            self._in_memory *= 2
        else:
            self._in_file += len(self._recent)
            self._recent = ShortenedFrames(self._in_file, self.cuts)

    def _read_file(self, place: int, size: int) -> bytes:
        if self._file is None:
            return b""
        self._file.seek(place)
        return self._file.read(min(size, self._in_file - place))

    def __del__(self) -> None:
        if self._file is not None:
            self._file.close()
