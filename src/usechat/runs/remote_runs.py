"""Runs of other workers, copied into logs of this process while somebody reads them here."""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import Any, Final

from usechat.errors import RunLost, StoreUnreachable
from usechat.protocol.chunks import ReasoningStartChunk, TextStartChunk
from usechat.protocol.reframing import parts_from_chunk
from usechat.protocol.sse import ChunkDecoder, FrameStream
from usechat.protocol.stream import MessageStream
from usechat.runs.log import Log
from usechat.runs.run import RunInfo
from usechat.runs.store import LOST, RunStore

__all__ = ["RemoteRun", "RemoteRuns", "failure_after"]

_logger: Final = logging.getLogger("usechat.runs")


class RemoteRun:
    """The copy of one run. Its log ends as the run's does; that of a lost run with an error."""

    def __init__(self, info: RunInfo, store: RunStore, *, event_names: bool) -> None:
        self.info = info
        self._event_names = event_names
        self.log = Log()
        self.continued: Mapping[str, Any] | None = None
        """The message that the run goes on with."""
        self.users = 0
        self._began = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._copy(store), name=f"usechat remote_run {info.run_id}")

    async def begun(self) -> None:
        """Wait until all that there is so far was copied."""
        await self._began.wait()

    async def close(self) -> None:
        """Copy no further."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _copy(self, store: RunStore) -> None:
        try:
            self.continued = await store.continued(self.info)
            async with contextlib.aclosing(store.read(self.info)) as frames:
                async for new in frames:
                    if new:
                        self.log.append(new)
                        self.log.flush()
                    self._began.set()
        except Exception as error:
            if not isinstance(error, RunLost | StoreUnreachable):
                _logger.exception("run %s: it cannot be read any more", self.info.run_id)
            so_far = self.log.so_far()
            self.log.append(failure_after(so_far, self.info, self.continued, LOST, event_names=self._event_names))
        finally:
            self.log.end()
            self._began.set()


class RemoteRuns:
    """The remote_runs of this process: one per run, however many read it."""

    def __init__(self, store: RunStore, *, event_names: bool = False) -> None:
        self._store = store
        self._event_names = event_names
        self._remote_runs: dict[str, RemoteRun] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def open(self, info: RunInfo) -> RemoteRun:
        """Return the run's remote_run, filled with all that there is so far; whoever opens it leaves it in the end."""
        remote_run = self._remote_runs.get(info.run_id)
        if remote_run is None:
            remote_run = self._remote_runs[info.run_id] = RemoteRun(info, self._store, event_names=self._event_names)
        remote_run.users += 1
        try:
            await remote_run.begun()
        except asyncio.CancelledError:
            self.leave(remote_run)
            raise
        return remote_run

    def leave(self, remote_run: RemoteRun) -> None:
        """A user of the remote_run has gone; nobody copies what nobody reads."""
        remote_run.users -= 1
        if not remote_run.users:
            del self._remote_runs[remote_run.info.run_id]
            task = asyncio.get_running_loop().create_task(remote_run.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def break_off(self) -> None:
        """Cut every reader off without an ending."""
        for remote_run in self._remote_runs.values():
            remote_run.log.break_off()

    async def close(self) -> None:
        """Copy no further."""
        await asyncio.gather(*[remote_run.close() for remote_run in self._remote_runs.values()], *self._closing)


def failure_after(
    frames: bytes, info: RunInfo, continued: Mapping[str, Any] | None, text: str, *, event_names: bool = False
) -> bytes:
    """Return the frames that end a run which broke off behind ``frames``: an error, with everything open closed."""
    found = ChunkDecoder().receive(frames)
    # The blocks keep the ids under which their readers know them.
    ids = iter([chunk.id for chunk in found if isinstance(chunk, TextStartChunk | ReasoningStartChunk)])
    stream = FrameStream(
        MessageStream(message_id=info.message_id, sdk=info.sdk, continues=continued, new_id=ids.__next__),
        event_names=event_names,
    )
    for chunk in found:
        for part in parts_from_chunk(chunk):
            stream.send(part)
    return stream.fail(text)
