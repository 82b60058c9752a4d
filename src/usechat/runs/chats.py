"""The run store of several processes that share nothing but the database of their chats.

Each process runs its own answers, as with :class:`~usechat.runs.memory.MemoryRuns`. What another one runs is found by
its claim in the chat store, read from its stored message while that grows, and stopped by a signal
(:mod:`usechat.chats.remote_readers`). So what is read here is the message, and not the chunks that were sent there:
nobody can count them, and what is not stored (transient data) is not seen.
"""

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from usechat.chats.blobs import FileUrls
from usechat.chats.recovery import as_continued
from usechat.chats.remote_readers import RemoteReaders
from usechat.chats.store import ChatStore
from usechat.chats.transaction import Claim, Progress
from usechat.errors import ChatsUnreachable, RunLost, RunRewritten, StoreUnreachable
from usechat.protocol.parts import Abort, Error, Part
from usechat.protocol.reframing import grown_parts
from usechat.protocol.sse import FrameStream
from usechat.protocol.stream import MessageStream
from usechat.runs.memory import MemoryRuns
from usechat.runs.run import NO_ENDING, RunInfo, RunState
from usechat.runs.store import LOST, RunStore
from usechat.runs.turns import QueuedTurn

__all__ = ["ChatRuns", "runs_of"]

_ENDINGS: Final[Mapping[str | None, Part]] = {"failed": Error(NO_ENDING), "stopped": Abort()}


def runs_of(chats: ChatStore | None) -> RunStore:
    """Return the run store of an app that names none: processes that share a PostgreSQL share their runs."""
    return MemoryRuns() if chats is None or chats.readers is None else ChatRuns(chats, chats.readers)


class ChatRuns(MemoryRuns):
    """Runs of this process in memory, and those of the other processes through the store of their chats."""

    def __init__(self, chats: ChatStore, readers: RemoteReaders, *, remember: float = 600) -> None:
        super().__init__(remember=remember)
        self._chats = chats
        self._readers = readers

    async def latest(self, chat_id: str) -> RunInfo | None:
        """Return the run that is running in a chat, wherever that is; otherwise its last one here."""
        here = await super().latest(chat_id)
        if here is not None and here.state is RunState.RUNNING:
            return here
        progress = await self._progress(chat_id)
        turn = self._turn_elsewhere(progress)
        if turn is None or progress.row is None:
            return here
        message_id = progress.row.claim.message_id if progress.message is None else progress.message["id"]
        return msgspec.structs.replace(turn.info, message_id=message_id)

    async def continued(self, info: RunInfo) -> Mapping[str, Any] | None:
        """Return the message that another process's run continues, as it was when that began."""
        progress = await self._progress(info.chat_id)
        turn, row = self._turn_elsewhere(progress), progress.row
        if turn is None or row is None or progress.message is None or row.claim.run_id != info.run_id:
            return None
        claim = row.claim
        if not claim.begun:
            return None
        message = as_continued(progress.message, claim.begun, answerable=claim.answerable, given=claim.given)
        return _written(message, turn)

    async def read(self, info: RunInfo) -> AsyncGenerator[bytes, None]:
        """Yield the frames of another process's run, made of its stored message whenever that has grown."""
        progress = await self._progress(info.chat_id)
        row = progress.row
        if row is None or row.claim.run_id != info.run_id:
            return
        turn = QueuedTurn.decode(row.journal.turn.encode())
        reading = _GrowingMessage(info, turn, await self.continued(info))
        async with self._readers.watch(info.run_id, reads=True) as watch:
            while progress.row is not None and progress.row.claim.run_id == info.run_id:
                yield reading.receive(progress)
                with _reachable():
                    await watch.tell(progress.row.instance)
                await watch.wait()
                progress = await self._progress(info.chat_id, row.claim)
        yield reading.receive(progress) + reading.end(progress)

    async def is_read(self, info: RunInfo) -> bool:
        """Return whether another process reads a run of this one."""
        return self._readers.is_read(info.run_id)

    async def request_stop(self, info: RunInfo, *, unless_read: bool = False) -> None:
        """Ask the process that owns a run to stop it; with ``unless_read`` only if nobody reads it."""
        row = (await self._progress(info.chat_id)).row
        if row is not None and row.claim.run_id == info.run_id and row.instance:
            with _reachable():
                await self._readers.order_stop(row.instance, info.run_id, unless_read=unless_read)

    async def wait_until_ended(self, info: RunInfo) -> None:
        """Wait until a run of any process has ended."""
        await super().wait_until_ended(info)
        async with self._readers.watch(info.run_id, reads=False) as watch:
            while (row := (await self._progress(info.chat_id)).row) is not None and row.claim.run_id == info.run_id:
                with _reachable():
                    await watch.tell(row.instance)
                await watch.wait()

    def on_stop_requested(self, stop: Callable[[str, bool], None]) -> None:
        """Call ``stop`` with the id of a run of this process that another one asks to stop."""
        self._readers.on_stop = stop

    async def _progress(self, key: str, claim: Claim | None = None) -> Progress:
        with _reachable():
            return await self._chats.progress(unquote(key, errors="surrogatepass"), claim)

    def _turn_elsewhere(self, progress: Progress) -> QueuedTurn | None:
        """Return the turn that another process answers, if one does."""
        row = progress.row
        if row is None or not row.is_held or not row.journal.turn or row.instance == self._readers.signals.instance:
            return None
        return QueuedTurn.decode(row.journal.turn.encode())


class _GrowingMessage:
    """Writes the frames of a run from its stored message."""

    def __init__(self, info: RunInfo, turn: QueuedTurn, continues: Mapping[str, Any] | None) -> None:
        self._info = info
        self._turn = turn
        self._message: Mapping[str, Any] = continues or {"parts": []}
        self._continues = continues
        self._frames: FrameStream | None = None

    def receive(self, progress: Progress) -> bytes:
        """Return the frames of what is new in the message. Raises ``RunRewritten`` if something was taken back."""
        if progress.message is None:
            return b""
        message = _written(progress.message, self._turn)
        grown = grown_parts(self._message, message)
        if grown is None:
            raise RunRewritten
        self._message = message
        frames = self._opened(str(message["id"]))
        return b"".join([frames.send(part) for part in grown])

    def end(self, progress: Progress) -> bytes:
        """Return the last frames. Raises ``RunLost`` if nobody knows how the answer ended."""
        if progress.outcome == "lost" or (progress.outcome is None and self._frames is not None):
            raise RunLost(LOST)
        frames = self._opened(self._info.message_id)
        ending = _ENDINGS.get(progress.outcome)
        return (b"" if ending is None else frames.send(ending)) + frames.close()

    def _opened(self, message_id: str) -> FrameStream:
        if self._frames is None:
            stream = MessageStream(message_id=message_id, sdk=self._info.sdk, continues=self._continues)
            self._frames = FrameStream(stream)
        return self._frames


def _written(message: Mapping[str, Any], turn: QueuedTurn) -> Mapping[str, Any]:
    """Return a message with the addresses of its stored files."""
    return FileUrls(str((turn.recording or {})["files"])).write(message)  # type: ignore[arg-type]


@contextmanager
def _reachable() -> Iterator[None]:
    try:
        yield
    except ChatsUnreachable:
        raise StoreUnreachable from None
