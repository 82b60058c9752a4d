"""The upstream sockets of each session: how many there are, how many there may be, and who follows which turn."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["Room", "Sockets", "TooManySockets"]

_REMEMBERED: Final = 1024


class TooManySockets(Exception):
    """A session has as many upstream sockets as it may."""


class Room:
    """The streams of one session in this process."""

    def __init__(self) -> None:
        self.open = 0
        self._claimed: deque[str] = deque(maxlen=_REMEMBERED)

    def claim(self, message_id: str) -> bool:
        """Take a message or turn, unless another stream has it."""
        if message_id in self._claimed:
            return False
        self._claimed.append(message_id)
        return True


class Sockets:
    """Counts sockets per session; ``maximum`` is how many one session may have."""

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._rooms: dict[str, Room] = {}

    def open_to(self, session_id: str) -> int:
        """Return how many sockets are open to a session."""
        room = self._rooms.get(session_id)
        return 0 if room is None else room.open

    @contextmanager
    def place(self, session_id: str) -> Iterator[Room]:
        """Hold a place for one more socket, or raise :class:`TooManySockets`."""
        room = self._rooms.setdefault(session_id, Room())
        if room.open >= self._maximum:
            raise TooManySockets(session_id)
        room.open += 1
        try:
            yield room
        finally:
            room.open -= 1
            if room.open == 0:
                del self._rooms[session_id]
