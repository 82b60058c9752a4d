"""Local copies of other workers' runs, for the clients that read them here.

The first reader of a remote run opens a :class:`RemoteRun`: one task that copies the run's frames from the store into a
:class:`~usechat.runs.log.Log` of this process. Further readers share it, and the last one to leave closes it.
Everything else about reading (replay, backlog, rewriting) is the same as for a local run.

If the run is lost or the store cannot be reached any more, the copy ends with an ``error`` chunk that closes every open
block and tool call, so that clients get a legal stream in any case.

A turn whose agent process died may be restarted as another run (:mod:`usechat.runs.turns`). If clients have seen
nothing of the lost run, the copy continues the new one. Otherwise their connections are reset: clients that resume
get the new run from its start, and no text twice. The same happens where an answer continues in another process, if
something of it was taken back.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import Any, Final

from usechat.errors import RunLost, RunRewritten, StoreUnreachable
from usechat.ids import new_id
from usechat.protocol.chunks import ReasoningStartChunk, TextStartChunk
from usechat.protocol.reframing import parts_from_chunk
from usechat.protocol.sse import FrameStream, own_chunks
from usechat.protocol.stream import MessageStream
from usechat.runs.log import Log
from usechat.runs.replay import IN_MEMORY
from usechat.runs.run import RunInfo
from usechat.runs.store import LOST, RunStore

__all__ = ["RemoteRun", "RemoteRuns", "failure_after"]

_logger: Final = logging.getLogger("usechat.runs")


class RemoteRun:
    """The local copy of one run. Its log ends as the run ends; if the run is lost, with an error."""

    def __init__(self, info: RunInfo, store: RunStore, *, event_names: bool, in_memory: int) -> None:
        self.info = info
        self.name = f"{info.run_id}.{new_id()}"
        """The name of this copy, for stores whose copies of a run are not alike, chunk by chunk."""
        self._event_names = event_names
        self.log = Log(in_memory=in_memory)
        self.continued: Mapping[str, Any] | None = None
        """The message that the run continues."""
        self.users = 0
        self._caught_up = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._copy(store), name=f"usechat remote run {info.run_id}")

    async def wait_until_caught_up(self) -> None:
        """Wait until everything that the store has so far is copied."""
        await self._caught_up.wait()

    async def close(self) -> None:
        """Stop copying."""
        self._task.cancel()
        await asyncio.wait([self._task])
        with contextlib.suppress(asyncio.CancelledError):
            self._task.result()  # a task keeps its CancelledError until then, whose traceback refers to this object

    async def _copy(self, store: RunStore) -> None:
        run: RunInfo | None = self.info
        try:
            while run is not None:
                run = await self._copy_one(run, store)
        except RunRewritten:
            self.log.disconnect_readers()
        except Exception as error:
            if not isinstance(error, RunLost | StoreUnreachable):
                _logger.exception(
                    "run %s: reading it from the store failed; its readers get an error", self.info.run_id
                )
            so_far = self.log.so_far()
            self.log.append(failure_after(so_far, self.info, self.continued, LOST, event_names=self._event_names))
        finally:
            self.log.end()
            self._caught_up.set()

    async def _copy_one(self, run: RunInfo, store: RunStore) -> RunInfo | None:
        """Copy a run to its end; return the run to continue, if it was lost and restarted before it said anything."""
        try:
            self.continued = await store.continued(run)
            async with contextlib.aclosing(store.read(run)) as frames:
                async for new in frames:
                    if new:
                        self.log.append(new)
                        self.log.flush()
                    self._caught_up.set()
        except RunLost:
            latest = await store.latest(run.chat_id)
            if latest is None or latest.run_id == run.run_id or not latest.is_same_turn(run):
                raise
            if not self.log.size:
                return latest
            self.log.disconnect_readers()
        return None


class RemoteRuns:
    """The local copies of this process: one per run, shared by its readers."""

    def __init__(self, store: RunStore, *, event_names: bool = False, in_memory: int = IN_MEMORY) -> None:
        self._store = store
        self._options: dict[str, Any] = {"event_names": event_names, "in_memory": in_memory}
        self._remote_runs: dict[str, RemoteRun] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def __contains__(self, run_id: str) -> bool:
        """Return whether there is a copy of this run."""
        return run_id in self._remote_runs

    def name_of(self, run_id: str) -> str:
        """Return the name of the copy of a run; empty if there is none."""
        remote_run = self._remote_runs.get(run_id)
        return "" if remote_run is None else remote_run.name

    def follow(self, info: RunInfo) -> RemoteRun:
        """Return the copy of a run at once; what the store has arrives later. The caller must ``release`` it."""
        remote_run = self._remote_runs.get(info.run_id)
        if remote_run is None:
            remote_run = self._remote_runs[info.run_id] = RemoteRun(info, self._store, **self._options)
        remote_run.users += 1
        return remote_run

    async def open(self, info: RunInfo) -> RemoteRun:
        """Return the copy of a run, caught up with the store. The caller must ``release`` it."""
        remote_run = self.follow(info)
        try:
            await remote_run.wait_until_caught_up()
        except asyncio.CancelledError:
            self.release(remote_run)
            raise
        return remote_run

    def release(self, remote_run: RemoteRun) -> None:
        """Give back a copy that was opened; the last user's release closes it."""
        remote_run.users -= 1
        if not remote_run.users:
            del self._remote_runs[remote_run.info.run_id]
            task = asyncio.get_running_loop().create_task(remote_run.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def disconnect_readers(self) -> None:
        """Close the connection of every client that reads a remote run here, without an ending."""
        for remote_run in self._remote_runs.values():
            remote_run.log.disconnect_readers()

    async def wait_until_closed(self) -> None:
        """Wait until the copies that were released have been closed, and the store knows that they are not read."""
        await asyncio.gather(*self._closing)

    async def close(self) -> None:
        """Stop copying."""
        await asyncio.gather(*[remote_run.close() for remote_run in self._remote_runs.values()], *self._closing)


def failure_after(
    frames: bytes, info: RunInfo, continued: Mapping[str, Any] | None, text: str, *, event_names: bool = False
) -> bytes:
    """Return the frames that end a run whose stream was cut after ``frames``: close everything open, then an error."""
    chunks = list(own_chunks(frames))
    # The blocks keep the ids that clients have seen.
    ids = iter([chunk.id for chunk in chunks if isinstance(chunk, TextStartChunk | ReasoningStartChunk)])
    stream = FrameStream(
        MessageStream(message_id=info.message_id, sdk=info.sdk, continues=continued, new_id=ids.__next__),
        event_names=event_names,
    )
    for chunk in chunks:
        for part in parts_from_chunk(chunk):
            stream.send(part)
    return stream.fail(text)
