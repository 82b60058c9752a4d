"""What a run store does: it knows the last run of each chat, and which run may answer it."""

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Final, Protocol

from usechat.pauses.states import PausedStates
from usechat.runs.run import RunInfo

__all__ = ["LOST", "RunStore"]

LOST: Final = "The run was lost."
"""What the page shows when the worker that answered has died."""


class RunStore(PausedStates, Protocol):
    """Shares runs among the workers of a service. At most one run per chat is active; the store decides which.

    usechat has two stores: :class:`~usechat.runs.memory.MemoryRuns` for one process, and
    :class:`~usechat.runs.redis.store.RedisRuns` for any number of workers. A store is given to the application:

    >>> from usechat.server import ChatApp, MemoryRuns
    >>> chats = ChatApp(lambda turn: "Hello", runs=MemoryRuns())

    A store of your own implements this protocol and passes ``tests/contracts/test_run_stores.py``. All methods are
    called in the event loop of the worker; coroutines raise :class:`~usechat.errors.StoreUnreachable` if the store does
    not answer.
    """

    @property
    def is_shared(self) -> bool:
        """Whether the store keeps what runs say, for readers in other workers, so that ``append`` must be called.

        A store that is not shared may know other workers' runs all the same; then ``read`` gives what is stored of the
        answer, and not the chunks that were sent.
        """
        ...

    @property
    def is_concurrent(self) -> bool:
        """Whether several runs of one chat may be running at the same time."""
        ...

    @property
    def remember(self) -> float:
        """Seconds that an ended run is known."""
        ...

    async def claim(
        self, info: RunInfo, *, continues: Mapping[str, Any] | None = None, after: str | None = None
    ) -> RunInfo | None:
        """Make this the active run of its chat, and return ``None``; atomic across all workers.

        If the chat's last run is running, return that run instead. ``after`` is the id of the run that the caller knows
        as the chat's last one (``""`` for none); if there was another since, return that one instead. ``continues`` is
        the message that the run continues; readers in other workers need it.
        """
        ...

    def append(self, run_id: str, frames: bytes) -> None:
        """Store frames for readers in other workers. Never waits; called with whole frames, once per flush."""
        ...

    async def end(self, info: RunInfo) -> bool:
        """Record the end of a run, in the state ``info.state``. Returns False if the run was declared lost before."""
        ...

    async def latest(self, chat_id: str) -> RunInfo | None:
        """Return the chat's last run; ``None`` if there was none, or it is forgotten."""
        ...

    async def continued(self, info: RunInfo) -> Mapping[str, Any] | None:
        """Return the message that another worker's run continues."""
        ...

    async def frames(self, info: RunInfo) -> bytes:
        """Return the frames of another worker's run so far; empty if they are not kept any more."""
        ...

    def read(self, info: RunInfo) -> AsyncGenerator[bytes, None]:
        """Yield the frames of another worker's run: all so far at once, perhaps ``b""``, then more until its end.

        Raises :class:`~usechat.errors.RunLost` if the run is lost, and
        :class:`~usechat.errors.RunRewritten` if its readers must begin again.
        """
        ...

    async def is_read(self, info: RunInfo) -> bool:
        """Return whether another worker reads a run of this one."""
        ...

    async def request_stop(self, info: RunInfo, *, unless_read: bool = False) -> None:
        """Ask the worker that owns a run to stop it; with ``unless_read`` only if nobody reads it."""
        ...

    async def wait_until_ended(self, info: RunInfo) -> None:
        """Wait until a run of any worker has ended; at once if it is not its chat's running run.

        It may return early when the store cannot tell any more, so the caller looks at ``latest`` again.
        """
        ...

    def on_stop_requested(self, stop: Callable[[str, bool], None]) -> None:
        """Call ``stop`` with the id of a run of this worker that should stop, and with ``unless_read``."""
        ...

    def on_failure(self, fail: Callable[[str, str], None]) -> None:
        """Call ``fail`` with the id of a run of this worker that must end at once, and with the error text to show."""
        ...

    def on_lost(self, report: Callable[[RunInfo, float], None]) -> None:
        """Call ``report`` with a run of any worker that was lost, and with the seconds it lasted.

        Each loss is reported once, by the worker that discovered it.
        """
        ...

    async def check(self) -> None:
        """Raise :class:`~usechat.errors.StoreUnreachable` if the store does not answer."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...
