"""Stores an answer while it is streamed: what was sent is what is stored.

A recorder takes the very frames that go to the page. Taking them never waits: they are put aside, and a task of the
recorder reads them, when a save is due, with the :class:`~usechat.protocol.message.MessageBuilder` of the page's
release. A save is due when a step has finished that is not the last, every ``interval`` seconds in which something was
sent, and whenever something was sent while another process reads the answer; but never twice within ``pause`` seconds.
While nothing is sent the claim is renewed. A database that is away is asked again until the claim has expired; nothing
is lost if it comes back before.

A tool call and its outcome do not wait for the next save: the run calls ``commit`` behind each. The commit is the
permission to go on, too. A worker that has lost the chat fails there, and does not start the tool.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Final, TypeVar

from usechat.chats.blobs import FileUrls
from usechat.chats.chat import Outcome
from usechat.chats.store import ChatStore
from usechat.chats.transaction import Claim
from usechat.errors import ChatsUnreachable, ClaimLost, StreamFailed
from usechat.protocol.chunks import FinishStepChunk
from usechat.protocol.message import MessageBuilder
from usechat.protocol.releases import releases_for
from usechat.protocol.sse import DONE, ends_step, own_chunks
from usechat.protocol.ui_messages import UIMessage

__all__ = ["AnswerBuilder", "AnswerRecorder"]

_logger: Final = logging.getLogger("usechat.chats")
_MUCH_UNREAD: Final = 64 * 1024
_Stored = TypeVar("_Stored")


class AnswerBuilder:
    """Builds the message that a page makes of the frames of a run.

    ``sdk`` is the release that the frames are made for; those for several releases are read as the last of them does.
    """

    def __init__(self, *, sdk: str, message_id: str, continues: UIMessage | None = None) -> None:
        last = str(releases_for(sdk).releases[-1])
        self._message_id = message_id
        self._builder = MessageBuilder(sdk=last, message_id=message_id, message=continues)
        self.chunks = 0
        """How many chunks were read so far."""
        self.finished: int | None = None
        """How many parts the message had when the last step ended that has finished here."""
        self._frames: list[bytes] = []
        self._size = 0
        self._reads = True

    @property
    def has_unread(self) -> bool:
        """Whether frames came since the message was read last."""
        return bool(self._frames)

    def receive(self, frames: bytes) -> None:
        """Take frames that are sent to the page."""
        self._frames.append(frames)
        self._size += len(frames)

    @property
    def is_crowded(self) -> bool:
        """Whether so much is unread that it takes more memory than the message would."""
        return self._size > _MUCH_UNREAD

    @property
    def message(self) -> UIMessage:
        """The answer as the page has it now."""
        frames, self._frames, self._size = b"".join(self._frames), [], 0
        try:
            for chunk in own_chunks(frames) if self._reads else ():
                self.chunks += 1
                self._builder.receive(chunk)
                if isinstance(chunk, FinishStepChunk):
                    self.finished = len(self._builder.message["parts"])
        except StreamFailed:  # a page does not read behind an `error`
            self._reads = False
        except Exception:  # what was read is stored, and the chat is given back
            self._reads = False
            _logger.exception("message %s: the rest of the answer cannot be read, nor stored", self._message_id)
        return self._builder.message


class AnswerRecorder:
    """Records the answer of one run.

    .. code-block:: python

        recorder = AnswerRecorder(chats, result.claim, sdk="7", continues=result.continues, on_lost=run.fail)
        recorder.start()
        recorder.receive(frames)                                  # as often as frames are sent
        message = await recorder.finish("finished")               # before the page sees the end

    ``files`` reads the URLs of stored files in a continued message. ``on_lost`` is called once if the claim is lost:
    the run must end, because nothing that it says is stored any more.
    """

    def __init__(
        self,
        store: ChatStore,
        claim: Claim,
        *,
        sdk: str,
        continues: UIMessage | None = None,
        files: FileUrls | None = None,
        interval: float = 3,
        pause: float = 0.25,
        on_lost: Callable[[], object] = lambda: None,
    ) -> None:
        self._store = store
        self.claim = claim
        self._interval = min(interval, store.lease / 3)
        self._pause = min(pause, self._interval)
        self._on_lost = on_lost
        self._answer = AnswerBuilder(sdk=sdk, message_id=claim.message_id, continues=continues)
        self._files = files
        self._readers = store.readers
        self._is_unsaved = False
        self.is_cut = False
        """Whether another process is to continue the answer."""
        self._saving = asyncio.Lock()
        self._due = asyncio.Event()
        self._over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to save the answer regularly while it grows."""
        self._task = asyncio.get_running_loop().create_task(self._save_while_it_grows(), name="usechat recorder")

    def receive(self, frames: bytes) -> None:
        """Take frames that are sent to the page. Never waits."""
        if self.is_cut:
            return
        self._answer.receive(frames)
        is_read = self._readers is not None and self._readers.is_read(self.claim.run_id)
        if (is_read or ends_step(frames)) and not frames.endswith(DONE):  # ``finish`` stores the end of an answer
            self._due.set()

    @property
    def message(self) -> UIMessage:
        """The answer as it would be stored now."""
        message = self._answer.message
        return message if self._files is None else self._files.read(message)

    async def finish(self, outcome: Outcome, *, answerable: Collection[str] | None = None) -> UIMessage | None:
        """Store the end of the answer; return it as it is stored.

        Raises :class:`~usechat.errors.ClaimLost`, or :class:`~usechat.errors.ChatsUnreachable` if the database stays
        away for as long as the claim lasts.
        """
        await self._end_saving()
        return await self._while_claimed(
            lambda: self._store.finish(self.claim, self.message, outcome, answerable=answerable)
        )

    def cut(self) -> None:
        """Take no more frames, and permit no more calls: another process continues the answer as it is now."""
        self.is_cut = True

    async def leave(self) -> None:
        """Store an answer that was cut, and keep its claim, which ends with this process. Raises as ``commit`` does."""
        await self._end_saving()
        await self._while_claimed(self._save)
        await self._while_claimed(lambda: self._store.count_attempt(self.claim, -1))  # it did not die in the answer

    async def commit(self) -> None:
        """Store everything that was received.

        Raises :class:`~usechat.errors.ClaimLost`, also if the answer was cut, or
        :class:`~usechat.errors.ChatsUnreachable` if the database stays away for as long as the claim lasts.
        """
        if self.is_cut:
            raise ClaimLost(f"The run {self.claim.run_id!r} was cut off by the end of its process.")
        await self._while_claimed(self._save)

    async def _end_saving(self) -> None:
        self._over.set()
        self._due.set()
        if self._task is not None:
            await self._task

    async def _while_claimed(self, store: Callable[[], Awaitable[_Stored]]) -> _Stored:
        """Store something; if the database is away, try again until the claim has expired."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._store.lease
        while True:
            try:
                return await store()
            except ChatsUnreachable:
                if loop.time() >= deadline:
                    raise
                await asyncio.sleep(self._pause)

    async def _save(self) -> None:
        """Save what is new, or renew the claim."""
        async with self._saving:  # one save is the difference to the one before
            self._is_unsaved = self._is_unsaved or self._answer.has_unread
            if self._is_unsaved:
                message = self.message
                answer = self._answer
                await self._store.save(self.claim, message, chunks=answer.chunks, finished=answer.finished)
                self._is_unsaved = False
            else:
                await self._store.renew(self.claim)

    async def _save_while_it_grows(self) -> None:
        saving = self._readers.saving(self.claim.run_id, self._due.set) if self._readers else contextlib.nullcontext()
        with saving:
            await self._save_until_over()

    async def _save_until_over(self) -> None:
        is_away = False
        while not self._over.is_set():
            await _set_within(self._due, self._interval)
            self._due.clear()
            if self._over.is_set():
                return
            try:
                await self._save()
                is_away = False
            except ClaimLost:
                _logger.warning("run %s: its claim on the chat was lost", self.claim.run_id)
                self._on_lost()
                return
            except ChatsUnreachable:
                if not is_away:
                    _logger.warning("run %s: its answer cannot be stored at the moment", self.claim.run_id)
                is_away = True
            except Exception:  # nobody renews the claim of an answer that cannot be stored
                _logger.exception("run %s: storing its answer failed", self.claim.run_id)
                self._on_lost()
                return
            await _set_within(self._over, self._pause)


async def _set_within(event: asyncio.Event, seconds: float) -> None:
    """Wait until an event is set, or for some seconds."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
