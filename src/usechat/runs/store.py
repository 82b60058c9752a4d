"""Where runs are known: the protocol that the memory and the Redis store share."""

from collections.abc import AsyncIterator, Callable
from typing import Protocol

from usechat.runs.log import Wake
from usechat.runs.run import RunInfo

__all__ = ["RunStore"]


class RunStore(Protocol):
    """What the workers know together. One run is active per chat; the store decides which."""

    async def claim(self, info: RunInfo) -> RunInfo | None:
        """Make this the active run of its chat. Returns the active run instead, if there is one."""
        ...

    def append(self, run_id: str, frames: bytes) -> None:
        """Keep frames for readers in other workers; called once per turn of the event loop, never waits."""
        ...

    async def end(self, info: RunInfo) -> None:
        """The run has ended as ``info.state`` says."""
        ...

    async def latest(self, chat_id: str) -> RunInfo | None:
        """Return the chat's last run."""
        ...

    def read(self, run_id: str) -> AsyncIterator[bytes | Wake]:
        """Yield the frames of a run of another worker from its start to its end; ``Wake.SILENCE`` now and then."""
        ...

    async def order_stop(self, info: RunInfo) -> None:
        """Tell the worker that owns the run to stop it."""
        ...

    def on_stop_ordered(self, stop: Callable[[str], None]) -> None:
        """Call ``stop`` with the id of a run of this worker that someone wants stopped."""
        ...

    async def check(self) -> None:
        """Raise if the store cannot be reached."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...
