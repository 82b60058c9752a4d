"""Where runs are known: the protocol that the memory and the Redis store share."""

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Final, Protocol

from usechat.runs.run import RunInfo

__all__ = ["LOST", "RunStore"]

LOST: Final = "The run was lost."
"""What people see when the worker that answered them has died."""


class RunStore(Protocol):
    """What the workers know together. One run is active per chat; the store decides which."""

    @property
    def is_shared(self) -> bool:
        """Whether there are other workers, for whose readers frames must be kept."""
        ...

    @property
    def is_concurrent(self) -> bool:
        """Whether runs of one chat may go on at the same time."""
        ...

    async def claim(
        self, info: RunInfo, *, continues: Mapping[str, Any] | None = None, after: str | None = None
    ) -> RunInfo | None:
        """Make this the active run of its chat. Returns the chat's last run instead, if that goes on.

        ``continues`` is the message that the run goes on with; readers in other workers need it. ``after`` is the id of
        the run that is known as the last; if there was another since, that one is returned.
        """
        ...

    def append(self, run_id: str, frames: bytes) -> None:
        """Keep frames for readers in other workers; called once per turn of the event loop, never waits."""
        ...

    async def end(self, info: RunInfo) -> bool:
        """The run has ended as ``info.state`` says. Returns whether it has for everyone: not if it was lost before."""
        ...

    async def latest(self, chat_id: str) -> RunInfo | None:
        """Return the chat's last run."""
        ...

    async def continued(self, info: RunInfo) -> Mapping[str, Any] | None:
        """Return the message that a run of another worker goes on with."""
        ...

    def read(self, info: RunInfo) -> AsyncGenerator[bytes, None]:
        """Yield the frames of a run of another worker: all so far at once, perhaps none, then more until its end.

        A run that is lost raises :class:`RunLost`.
        """
        ...

    async def is_read(self, info: RunInfo) -> bool:
        """Tell whether another worker reads a run of this one."""
        ...

    async def order_stop(self, info: RunInfo, *, unless_read: bool = False) -> None:
        """Tell the worker that owns the run to stop it: in any case, or only if nobody reads it."""
        ...

    def on_stop_ordered(self, stop: Callable[[str, bool], None]) -> None:
        """Call ``stop`` with the id of a run of this worker that someone wants stopped, and with ``unless_read``."""
        ...

    def on_failure(self, fail: Callable[[str, str], None]) -> None:
        """Call ``fail`` with the id of a run of this worker that must end at once, and with the error to show."""
        ...

    def on_lost(self, tell: Callable[[RunInfo, float], None]) -> None:
        """Call ``tell`` with a run of any worker that was lost, and with the seconds it went on.

        That is in one worker: the first that found it out.
        """
        ...

    async def check(self) -> None:
        """Raise if the store cannot be reached."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...
