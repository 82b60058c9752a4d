"""The recording of an answer in the chat store, while its run streams it.

A :class:`StoredAnswer` is the recorder of one run: it takes the frames that readers see, commits them before a tool
starts, stores the steps of ``turn.step``, and stores the end. It also tells the page the title of a new chat. An answer
that another process has begun is taken over first; nothing is stored before that.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, cast

from usechat.chats.blobs import FileUrls
from usechat.chats.chat import Outcome, settled
from usechat.chats.recording import AnswerRecorder
from usechat.chats.store import ChatStore
from usechat.chats.transaction import Claim
from usechat.errors import (
    ChatsUnreachable,
    ClaimLost,
    PublicError,
)
from usechat.protocol.parts import Part
from usechat.protocol.ui_messages import UIMessage
from usechat.runs.run import RunInfo
from usechat.runs.store import LOST
from usechat.server.hooks import Hooks, answerable_calls
from usechat.turn import TurnContext

__all__ = ["StoredAnswer"]

_logger: Final = logging.getLogger("usechat.chats")
_POLL: Final = 0.05
"""Seconds between two attempts to take a chat over while the database is unreachable."""
_TITLE: Final = "chat-title"


class StoredAnswer:
    """Records the answer of a run in the chat store, and tells the page the title of a new chat.

    ``takes_over_from`` says that another process has claimed the chat: it is the run that had begun to answer and died,
    or empty if the turn waited in a queue. Then nothing is stored before ``take_over`` has returned.
    """

    def __init__(
        self,
        store: ChatStore,
        claim: Claim,
        info: RunInfo,
        context: TurnContext,
        hooks: Hooks,
        *,
        continues: UIMessage | None,
        files: FileUrls | None = None,
        takes_over_from: str | None = None,
    ) -> None:
        self.states = store.states_of(claim.chat_id)
        self._store = store
        self._run_id = info.run_id
        self.steps = _AnswerSteps(self)
        self.memory = _Memory(self) if store.outlives_process else None
        self.ended = asyncio.Event()
        """Set when the end was stored and reported, or could not be."""
        self._recorder = AnswerRecorder(
            store, claim, sdk=info.sdk, continues=continues, files=files, on_lost=self._lose
        )
        self._context = context
        self._files = files
        self._hooks = hooks
        self._title = ""
        self._takes_over_from = takes_over_from
        self._has_begun = False
        self._fail: Callable[[str], object] = _ignore

    def start(self, fail: Callable[[str], object]) -> None:
        """Begin to save the answer while it is streamed."""
        self._fail = fail
        if self._takes_over_from is None:
            self._recorder.start()
        if self._title:
            self._send_title_after_first_part()

    async def take_over(self) -> None:
        """Take over an answer that another process has begun, and begin to save it.

        If the database is unreachable, tries again until the lease of the chat expires. Raises ``ClaimLost``.
        """
        await self._take_over()
        self._recorder.start()

    async def _take_over(self) -> None:
        claim, loop = self._recorder.claim, asyncio.get_running_loop()
        deadline = loop.time() + self._store.lease
        while (instead_of := self._takes_over_from) is not None:
            try:
                new_claim = await self._store.take_over(claim, run_id=self._run_id, instead_of=instead_of)
                self._recorder.claim, self._takes_over_from = new_claim, None
            except ChatsUnreachable:
                if loop.time() >= deadline:
                    raise
                await asyncio.sleep(_POLL)

    def receive(self, frames: bytes) -> None:
        """Take frames that readers see."""
        self._recorder.receive(frames)

    async def commit(self) -> None:
        """Store what was received. Raises ``PublicError`` if another run owns the chat by now."""
        try:
            await self._recorder.commit()
        except (ChatsUnreachable, ClaimLost):
            raise PublicError(LOST) from None

    def interrupt(self) -> None:
        """Leave the answer as it is now to another process, if one would continue it after a crash."""
        if self._takes_over_from is None and self._store.would_continue(self._recorder.claim):
            self._recorder.cut()

    def show_title(self, title: str) -> None:
        """Send a title to the page, as data that is not stored, as soon as the answer has begun."""
        self._title = title
        if self._has_begun:
            self._send_title()

    def _send_title_after_first_part(self) -> None:
        """Wait for the first part of the source: its first part may name the message."""
        write = self._context.write

        def write_and_send_title(part: Part) -> bool | None:
            should_yield = write(part)
            if not self._has_begun:
                self._has_begun = True
                self._send_title()
            return should_yield

        self._context.connect(write_and_send_title)

    def _send_title(self) -> None:
        title, self._title = self._title, ""
        self._context.turn.emit(_TITLE, title, transient=True)

    async def finish(self, info: RunInfo) -> None:
        """Store the end of the answer; if the database is unreachable, try again while the chat is claimed."""
        self._fail = _ignore
        try:
            await (self._leave(info) if self._recorder.is_cut else self._end(info))
        finally:
            self.ended.set()

    async def _end(self, info: RunInfo) -> None:
        outcome = cast("Outcome", str(info.state))
        message = self._recorder.message
        try:
            await self._take_over()  # if the run was stopped before it began
            stored = await self._recorder.finish(outcome, answerable=answerable_calls(info))
        except (ChatsUnreachable, ClaimLost) as error:
            _log_unstored(info, error)
            stored = None
        answer = stored or settled(message, outcome, answerable_calls(info))
        if self._files is not None:  # the application gets files by their addresses, as the page does
            answer = self._files.write(answer)
        await self._hooks.finished(answer, self._context.turn, outcome)

    async def _leave(self, info: RunInfo) -> None:
        """Store what the answer was when it was cut, and keep its claim: the process that continues it reports it."""
        try:
            await self._recorder.leave()
        except (ChatsUnreachable, ClaimLost) as error:
            _log_unstored(info, error)

    async def begin_step(self, name: str, ordinal: int, *, is_replayable: bool) -> str | None:
        """Store that a step begins; return its result if it has one. Raises ``PublicError`` if the chat is lost."""
        claim = self._recorder.claim
        if self._recorder.is_cut:
            raise PublicError(LOST)
        try:
            step = await self._store.begin_step(claim, name, ordinal, is_replayable=is_replayable)
        except (ChatsUnreachable, ClaimLost):
            raise PublicError(LOST) from None
        return None if step is None else step.result

    async def end_step(self, name: str, ordinal: int, result: str) -> None:
        """Store the result of a step. Raises ``PublicError`` if the chat is lost."""
        try:
            await self._store.end_step(self._recorder.claim, name, ordinal, result)
        except (ChatsUnreachable, ClaimLost):
            raise PublicError(LOST) from None

    async def recall(self, message_id: str) -> bytes | None:
        """Return the state in which an answer of the chat has left the framework."""
        return await self._store.recall(self._recorder.claim.chat_id, message_id)

    async def remember(self, state: bytes) -> None:
        """Store the state in which this answer leaves the framework, unless another process goes on with it."""
        if self._recorder.is_cut:
            return
        try:
            await self._store.remember(self._recorder.claim, state)
        except (ChatsUnreachable, ClaimLost) as error:
            _logger.error("run %s: the state of its agent could not be stored: %s", self._run_id, error)

    def _lose(self) -> None:
        self._fail(LOST)


class _AnswerSteps:
    """Stores the steps of an answer."""

    def __init__(self, answer: StoredAnswer) -> None:
        self.begin = answer.begin_step
        self.end = answer.end_step


class _Memory:
    """Keeps what a framework remembers with the answers of a chat."""

    def __init__(self, answer: StoredAnswer) -> None:
        self.recall = answer.recall
        self.remember = answer.remember


def _log_unstored(info: RunInfo, error: Exception) -> None:
    _logger.error(
        "run %s: the end of its answer could not be stored: %s",
        info.run_id,
        error,
        extra={"chat_id": info.chat_id, "run_id": info.run_id},
    )


def _ignore(_text: str) -> None:
    """Do nothing: the run has not begun, or has ended."""
