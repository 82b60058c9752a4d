"""Stores an answer while it is streamed: what was sent is what is stored.

A recorder takes the very frames that go to the page. Taking them never waits: they are put aside, and a task of the
recorder reads them, when a save is due, with the :class:`~usechat.protocol.message.MessageBuilder` of the page's
release. A save is due when a step has finished, and every ``interval`` seconds in which something was sent, but never
twice within ``pause`` seconds. While nothing is sent the claim is renewed. A database that is away is asked again until
the claim has expired; nothing is lost if it comes back before.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final

from usechat.chats.chat import Outcome
from usechat.chats.store import Begun, ChatStore
from usechat.errors import ChatsUnreachable, ClaimLost, StreamFailed
from usechat.protocol.message import MessageBuilder
from usechat.protocol.sse import ChunkDecoder
from usechat.protocol.ui_messages import UIMessage

__all__ = ["AnswerRecorder"]

_logger: Final = logging.getLogger("usechat.chats")
_STEP: Final = b'"finish-step"'


class AnswerRecorder:
    """Records the answer of one run.

    .. code-block:: python

        recorder = AnswerRecorder(chats, begun, sdk="7", on_lost=run.fail)
        recorder.start()
        recorder.receive(frames)                                  # as often as frames are sent
        message = await recorder.finish("finished")               # before the page sees the end

    ``on_lost`` is called once if the claim is lost: the run must end, because nothing that it says is stored any more.
    """

    def __init__(
        self,
        store: ChatStore,
        begun: Begun,
        *,
        sdk: str,
        interval: float = 3,
        pause: float = 0.25,
        on_lost: Callable[[], object] = lambda: None,
    ) -> None:
        self._store = store
        self._claim = begun.claim
        self._interval = min(interval, store.lease / 3)
        self._pause = min(pause, self._interval)
        self._on_lost = on_lost
        self._decoder = ChunkDecoder()
        self._builder = MessageBuilder(sdk=sdk, message_id=begun.claim.message_id, message=begun.continues)
        self._frames: list[bytes] = []
        self._reads = True
        self._due = asyncio.Event()
        self._over = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to save now and then."""
        self._task = asyncio.get_running_loop().create_task(self._save_while_it_grows(), name="usechat recorder")

    def receive(self, frames: bytes) -> None:
        """Take frames that are sent to the page. Never waits."""
        self._frames.append(frames)
        if _STEP in frames:
            self._due.set()

    @property
    def message(self) -> UIMessage:
        """The answer as the page has it now."""
        frames, self._frames = b"".join(self._frames), []
        for chunk in self._decoder.receive(frames) if self._reads else ():
            try:
                self._builder.receive(chunk)
            except StreamFailed:  # a page does not read behind an `error`
                self._reads = False
                break
        return self._builder.message

    async def finish(self, outcome: Outcome, *, answerable: Collection[str] | None = None) -> UIMessage | None:
        """Store the end of the answer; return it as it is stored.

        Raises :class:`~usechat.errors.ClaimLost`, or :class:`~usechat.errors.ChatsUnreachable` if the database stays
        away for as long as the claim lasts.
        """
        self._over = True
        self._due.set()
        if self._task is not None:
            await self._task
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._store.lease
        while True:
            try:
                return await self._store.finish(self._claim, self.message, outcome, answerable=answerable)
            except ChatsUnreachable:
                if loop.time() >= deadline:
                    raise
                await asyncio.sleep(self._pause)

    def _is_over(self) -> bool:
        return self._over

    async def _save_while_it_grows(self) -> None:
        is_away = False
        while not self._is_over():
            try:
                async with asyncio.timeout(self._interval):
                    await self._due.wait()
            except TimeoutError:
                pass
            self._due.clear()
            if self._is_over():
                return
            try:
                await (self._store.save(self._claim, self.message) if self._frames else self._store.renew(self._claim))
                is_away = False
            except ClaimLost:
                _logger.warning("run %s: its claim on the chat was lost", self._claim.run_id)
                self._on_lost()
                return
            except ChatsUnreachable:
                if not is_away:
                    _logger.warning("run %s: its answer cannot be stored at the moment", self._claim.run_id)
                is_away = True
                self._frames.append(b"")  # what was read is not saved yet
            await asyncio.sleep(self._pause)
