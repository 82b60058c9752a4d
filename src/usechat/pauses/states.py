"""The states of paused agents: what a framework needs to continue when a person has answered.

A state may hold the whole history of a chat, so it never goes to the page. It is kept under a handle that tells
nothing, and taken once. A run store that workers share keeps states, so with Redis any worker can continue. Otherwise
they are kept with the stored chat, and survive a restart; without stored chats, in the memory of the process.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Protocol, runtime_checkable

__all__ = ["STATE_SECONDS", "AnswerMemory", "Mailbox", "MemoryStates", "PausedStates"]

STATE_SECONDS: Final = 7 * 24 * 3600
"""How long a state waits for its answer, where a store can let it expire."""
_MAXIMUM_BYTES: Final = 64 * 1024 * 1024


class PausedStates(Protocol):
    """Keeps states of paused agents; each is taken once."""

    async def keep_state(self, handle: str, state: bytes) -> None:
        """Keep a state, instead of an earlier one under the same handle."""
        ...

    async def take_state(self, handle: str) -> bytes | None:
        """Return a state and forget it, atomic across all workers; nothing if there is none."""
        ...


class AnswerMemory(Protocol):
    """What a framework remembers of a stored chat: the state in which each answer has left it."""

    async def recall(self, message_id: str) -> bytes | None:
        """Return the state in which an answer has left the framework; nothing if none is stored."""
        ...

    async def remember(self, state: bytes) -> None:
        """Store the state in which this turn leaves the framework, instead of an earlier one of the same answer."""
        ...


@runtime_checkable
class Mailbox(PausedStates, Protocol):
    """States that all workers share, and messages from one worker to another."""

    @property
    def worker(self) -> str:
        """The id of this worker, to which others post."""
        ...

    async def post(self, worker: str, address: str, message: bytes) -> None:
        """Post a message to an address of a worker. Messages of one worker arrive in order; those to no one are lost.

        Raises :class:`~usechat.errors.StoreUnreachable` if the store does not answer.
        """
        ...

    def receive(self, address: str, on_message: Callable[[bytes], None]) -> None:
        """Call ``on_message`` with each message to an address of this worker, in the event loop."""
        ...


class MemoryStates:
    """Keeps states in this process. When they are too many, the oldest ones are forgotten.

    >>> import asyncio
    >>> async def main(states: PausedStates) -> list[bytes | None]:
    ...     await states.keep_state("h1", b"state")
    ...     return [await states.take_state("h1"), await states.take_state("h1")]
    >>> asyncio.run(main(MemoryStates()))
    [b'state', None]
    """

    def __init__(self, *, maximum_bytes: int = _MAXIMUM_BYTES) -> None:
        self._maximum_bytes = maximum_bytes
        self._bytes = 0
        self._states: OrderedDict[str, bytes] = OrderedDict()

    async def keep_state(self, handle: str, state: bytes) -> None:
        """Keep a state, instead of an earlier one under the same handle."""
        await self.take_state(handle)
        self._states[handle] = state
        self._bytes += len(state)
        while self._bytes > self._maximum_bytes:
            self._bytes -= len(self._states.popitem(last=False)[1])

    async def take_state(self, handle: str) -> bytes | None:
        """Return a state and forget it."""
        state = self._states.pop(handle, None)
        self._bytes -= len(state or b"")
        return state
