"""Signals: short messages between the processes that share a database of chats.

PostgreSQL passes them on (``LISTEN``, ``NOTIFY``), over the session that every instance has anyway
(:mod:`usechat.chats.instances`), so that several processes need nothing besides their database. A signal is for one
instance, and for an address in it. One that is sent to nobody is lost, and so are those of a moment in which a session
is away: whoever waits for a signal looks again by himself after a while.

A payload of PostgreSQL is shorter than 8,000 bytes, so a message is sent in pieces, in one transaction.
"""

import base64
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from usechat.ids import new_id

__all__ = ["NotifyFunction", "Signals"]

NotifyFunction: TypeAlias = Callable[[str, Sequence[str]], Awaitable[None]]
"""Passes texts on to an instance, in one transaction."""

_LONGEST_PIECE: Final = 7_000


class Signals:
    """The signals of one instance, whose id is ``instance``; ``notify`` sends the payloads of a message."""

    def __init__(self, instance: str, notify: NotifyFunction) -> None:
        self.instance = instance
        self._notify = notify
        self._receivers: dict[str, Callable[[bytes], None]] = {}
        self._pieces: dict[str, list[str]] = {}

    async def send(self, instance: str, address: str, message: bytes) -> None:
        """Send a message to an address of an instance. Raises :class:`~usechat.errors.ChatsUnreachable`."""
        text = base64.b64encode(message).decode()
        pieces = [text[start : start + _LONGEST_PIECE] for start in range(0, len(text), _LONGEST_PIECE)] or [""]
        head = f"{address} {new_id()} {len(pieces)}"
        # PostgreSQL sends two that are alike within one transaction only once: they are numbered.
        await self._notify(instance, [f"{head} {number} {piece}" for number, piece in enumerate(pieces)])

    def receive(self, address: str, on_message: Callable[[bytes], None]) -> None:
        """Call ``on_message`` with each message to an address of this instance, in the event loop."""
        self._receivers[address] = on_message

    def take(self, payload: str) -> None:
        """Take a payload as it has arrived. The pieces of a message follow each other in order."""
        address, message_id, count, _number, piece = payload.split(" ")
        pieces = self._pieces.setdefault(message_id, [])
        pieces.append(piece)
        if len(pieces) == int(count):
            del self._pieces[message_id]
            if (on_message := self._receivers.get(address)) is not None:
                on_message(base64.b64decode("".join(pieces)))

    def forget_pieces(self) -> None:
        """Forget what has arrived of messages whose rest is lost, because the session has ended."""
        self._pieces.clear()
