"""Frames that everybody has read, kept short: the deltas of a block that follow each other become one."""

import re
from typing import Final

__all__ = ["Shortened"]

_END: Final = b'"}\n\n'
_DELTA: Final = re.compile(
    rb'(?:event: [a-z-]+\n)?data: \{"type":"(?:text|reasoning)-delta","id":"(?:[^"\\\n]|\\.)*","delta":"'
)
"""The beginning of a delta, up to its text. Only frames end with empty lines: JSON has no line breaks of its own."""
_LARGEST: Final = 64 * 1024
"""Bytes of a frame: whoever reads the log anew takes frames that are not too large."""
_BETWEEN: Final = re.compile(rb"(?<=\n\n)(?!\Z)")


class Shortened:
    """The frames of a run in few bytes. A delta of one word takes ten times as many as the word.

    What is read out of it makes the same message. Tool inputs are left as they are: they are short, and end.
    """

    __slots__ = ("_beginning", "_frames", "_last")

    def __init__(self) -> None:
        self._frames = bytearray()
        self._last = 0  # where the last frame begins
        self._beginning = b""  # of the last frame, if others can be added to it

    def __bytes__(self) -> bytes:
        return bytes(self._frames)

    def read(self, place: int, size: int) -> bytes:
        """Return whole frames from a place on: about so many bytes, at least one frame if there is any."""
        end = len(self._frames)
        if end - place > size:
            cut = self._frames.rfind(b"\n\n", place, place + size)
            cut = cut if cut >= 0 else self._frames.find(b"\n\n", place)
            end = cut + 2
        if end > self._last:
            self._beginning = b""  # nothing is added any more to what somebody has
        return bytes(self._frames[place:end])

    def add(self, frames: bytes) -> None:
        """Add whole frames."""
        if len(frames) > _LARGEST or not self._add_deltas(frames):  # mostly they all are deltas of one block
            for frame in _BETWEEN.split(frames):
                if not self._add_deltas(frame):
                    self._frames += frame
                    self._beginning = b""

    def _add_deltas(self, frames: bytes) -> bool:
        """Add frames if they are deltas of one block that hold nothing but text; tell whether they are."""
        found = _DELTA.match(frames)
        if found is None:
            return False
        beginning = found[0]
        merged = frames.replace(_END + beginning, b"")
        if not merged.endswith(_END) or merged.find(b"\n\n") != len(merged) - 2:
            return False
        if beginning == self._beginning and len(self._frames) - self._last + len(merged) <= _LARGEST:
            del self._frames[-len(_END) :]
            merged = merged[len(beginning) :]
        else:
            self._last = len(self._frames)
        self._frames += merged
        self._beginning = beginning
        return True
