"""Continues the answers of processes that died, in a process that lives.

Whoever looks at a chat whose claim nobody holds asks :class:`Recovering` first: the upkeep of the store, right after
the start and then regularly, and every request for the chat. It takes the claim over, if the agent of the answer may go
on (:func:`rule_for`), and starts a run behind what :mod:`usechat.chats.recovery` leaves of the stored message. The run
has the id of the dead one, so that pages find it, and needs no reader.

Answers that the agent cannot continue, or must not, are declared lost by the store, with what was saved of them.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, cast

import msgspec

from usechat.chats.blobs import FileUrls
from usechat.chats.chat import Outcome
from usechat.chats.recovery import Recovery, RecoveryPolicy, as_continued, recover
from usechat.chats.transaction import Claim, ClaimRow, Orphan
from usechat.errors import ChatNotFound, ChatsUnreachable, ClaimLost, RequestError
from usechat.protocol.releases import releases_for
from usechat.protocol.request import ChatRequest
from usechat.protocol.ui_messages import UIMessage
from usechat.runs.manager import RunManager
from usechat.runs.run import PreparedRun
from usechat.runs.settings import AfterCrash, Settings
from usechat.runs.turns import QueuedTurn
from usechat.server.stored_answer import StoredAnswer
from usechat.server.turns import StoredTurns, with_calls
from usechat.sources import Source, continues_after_crash, rereads_after_crash
from usechat.turn import TurnContext, replayable_tools

__all__ = ["Recovering", "rule_for"]

_logger: Final = logging.getLogger("usechat.chats")
_OUTCOMES: Final[dict[str, Outcome]] = {"complete": "finished", "waiting": "waiting", "stuck": "lost"}

MakeQueuedContext = Callable[[QueuedTurn, ChatRequest], TurnContext]


def rule_for(source: Source | None, setting: AfterCrash | None, *, has_steps: bool) -> AfterCrash:
    """Return what happens to an answer of a source whose process died.

    By itself an answer goes on if its source reports every effect as a call and waits until the call is stored, or if
    it is a function that used ``turn.step``. What sends the prompt elsewhere never sends it twice.
    """
    can_continue = None if source is None else continues_after_crash(source)
    if source is None or can_continue is False:
        return "lose"
    return setting or ("continue" if can_continue or has_steps else "lose")


class _Waiting:
    """An answer that was taken over, until its run has begun. ``subject`` is its owner's."""

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self.stopping = asyncio.Event()
        """Set when somebody has stopped it."""
        self.over = asyncio.Event()
        """Set when its run has begun, or it has ended without one."""


class Recovering:
    """Continues answers in this process, ``settings.recover`` at once; the others wait, and keep their chats.

    ``source_of`` returns the source of an agent, by its name, if it is open. ``make_context`` makes the context of a
    turn that another process has begun.
    """

    def __init__(
        self,
        stored: StoredTurns,
        manager: RunManager,
        settings: Settings,
        source_of: Callable[[str], Source | None],
        make_context: MakeQueuedContext,
    ) -> None:
        self._stored = stored
        self._store = stored.store
        self._manager = manager
        self._setting = settings.after_crash
        self._slots = asyncio.Semaphore(settings.recover)
        self._source_of = source_of
        self._make_context = make_context
        self._store.recover = self.recover
        self._store.continues = self._continues
        self._underway: dict[str, asyncio.Task[bool]] = {}
        self._waiting: dict[str, _Waiting] = {}

    async def recover(self, chat_id: str) -> bool:
        """Take over the answer of a chat whose process died; return whether that was done.

        Returns when the answer runs, or waits for others to end.
        """
        if chat_id not in self._underway:
            task = self._underway[chat_id] = self._stored.spawn(self._recover(chat_id))
            task.add_done_callback(lambda _: self._underway.pop(chat_id, None))
        return await asyncio.shield(self._underway[chat_id])

    async def settle(self, chat_id: str) -> None:
        """Wait until an answer that is being taken over runs: its claim is held already, and nobody can read it yet."""
        if (underway := self._underway.get(chat_id)) is not None:
            await asyncio.wait([underway])

    async def look(self, chat_id: str, subject: str) -> None:
        """Take the answer of a chat over if its process has died, and wait until it runs."""
        with contextlib.suppress(ChatNotFound, ChatsUnreachable):
            await self._store.look_up(chat_id, owner=subject)
        await self.settle(chat_id)

    async def stop(self, chat_id: str, subject: str) -> bool:
        """End an answer that was taken over and whose run has not begun; return whether there was one."""
        await self.look(chat_id, subject)
        waiting = self._waiting.get(chat_id)
        if waiting is None or waiting.subject != subject:
            return False
        with contextlib.suppress(ChatsUnreachable):
            await self._store.order_stop(chat_id)  # it counts although this process may die, too
        waiting.stopping.set()
        await waiting.over.wait()
        return True

    async def _recover(self, chat_id: str) -> bool:
        orphan = await self._store.take(chat_id, self._accepts)
        if orphan is None:
            return False
        begun = asyncio.Event()
        self._stored.spawn(self._carry_on(orphan, begun))
        await begun.wait()
        return True

    def _accepts(self, row: ClaimRow, has_steps: bool) -> bool:
        """Tell whether an answer is continued here."""
        return row.journal.stop or self._continues(row.claim, has_steps)

    def _continues(self, claim: Claim, has_steps: bool) -> bool:
        return self._rule(claim.agent, has_steps) != "lose"

    def _rule(self, agent: str, has_steps: bool) -> AfterCrash:
        return rule_for(self._source_of(agent), self._setting, has_steps=has_steps)

    async def _carry_on(self, orphan: Orphan, begun: asyncio.Event) -> None:
        claim = orphan.claim
        extra = {"chat_id": claim.chat_id, "run_id": claim.run_id}
        waiting = self._waiting[claim.chat_id] = _Waiting(orphan.chat.owner)
        if orphan.journal.stop:
            waiting.stopping.set()
        try:
            with self._stored.keeping(claim.run_id):
                async with self._slot(orphan, waiting, begun):
                    await self._store.count_attempt(claim)  # not before: it may wait for others until its process dies
                    _logger.warning(
                        "run %s: its process died; attempt %d is here", claim.run_id, claim.attempt, extra=extra
                    )
                    await self._answer(orphan, waiting, begun)
        except (ChatsUnreachable, ClaimLost):
            pass  # another process continues it
        except Exception:  # what cannot be continued is lost: the chat must be free
            _logger.exception("run %s: it cannot be continued, so its answer is lost", claim.run_id, extra=extra)
            with contextlib.suppress(ChatsUnreachable, ClaimLost):
                await self._store.finish(claim, orphan.message or _nothing(claim.message_id), "lost")
        finally:
            self._has_begun(claim.chat_id, waiting)
            begun.set()

    def _has_begun(self, chat_id: str, waiting: _Waiting) -> None:
        if self._waiting.get(chat_id) is waiting:
            del self._waiting[chat_id]
        waiting.over.set()

    @asynccontextmanager
    async def _slot(self, orphan: Orphan, waiting: _Waiting, begun: asyncio.Event) -> AsyncIterator[None]:
        """Wait until one more answer may be continued, or this one is stopped, and keep the chat meanwhile."""
        if self._slots.locked():
            begun.set()
        acquiring = asyncio.ensure_future(self._slots.acquire())
        stopping = asyncio.ensure_future(waiting.stopping.wait())
        try:
            while not await _any_done(acquiring, stopping, within=self._store.lease / 3):
                await self._store.renew(orphan.claim)
            yield
        finally:
            stopping.cancel()
            if not acquiring.cancel() and not acquiring.cancelled():
                self._slots.release()

    async def _answer(self, orphan: Orphan, waiting: _Waiting, begun: asyncio.Event) -> None:
        """Continue an answer to its end."""
        turn = QueuedTurn.decode(orphan.journal.turn.encode())
        files = FileUrls(str((turn.recording or {})["files"]))
        if waiting.stopping.is_set():
            await self._end(orphan, turn, orphan.message or _nothing(orphan.claim.message_id), "stopped", files)
            return
        recovery = self._recovery(orphan, turn.info.sdk)
        if recovery.kind in _OUTCOMES:
            await self._end(orphan, turn, recovery.message, _OUTCOMES[recovery.kind], files)
        else:
            answer = await self._start(orphan, turn, recovery, files)
            if waiting.stopping.is_set():
                await self._manager.stop(turn.info)
            self._has_begun(orphan.claim.chat_id, waiting)
            begun.set()
            await answer.ended.wait()

    def _recovery(self, orphan: Orphan, sdk: str) -> Recovery:
        claim, source = orphan.claim, self._source_of(orphan.claim.agent)
        if orphan.message is None:
            return Recovery("restart", _nothing(claim.message_id))
        if orphan.has_steps or (source is not None and rereads_after_crash(source)):  # it finds its results
            before = as_continued(orphan.message, claim.begun, answerable=claim.answerable, given=claim.given)
            return Recovery("restart", before)
        policy = RecoveryPolicy(
            asks=self._rule(claim.agent, has_steps=False) == "ask",
            has_approvals=releases_for(sdk).knows("tool-approval-request"),
            replayable=replayable_tools(),
            answerable=frozenset(claim.answerable),
        )
        return recover(orphan.message, orphan.journal.finished, policy)

    async def _end(
        self, orphan: Orphan, turn: QueuedTurn, message: UIMessage, outcome: Outcome, files: FileUrls
    ) -> None:
        """End an answer that needs no agent any more."""
        answer = await self._store.finish(orphan.claim, message, outcome) or message
        context = self._make_context(turn, turn.input.request)
        await self._stored.hooks.finished(files.write(answer), context.turn, outcome)

    async def _start(self, orphan: Orphan, turn: QueuedTurn, recovery: Recovery, files: FileUrls) -> StoredAnswer:
        claim = orphan.claim
        source = self._source_of(claim.agent)
        if source is None:
            raise RequestError("The agent of this answer is not served any more.")
        message = recovery.message if recovery.message["parts"] else None
        is_new = recovery.kind == "restart"
        request = msgspec.structs.replace(
            turn.input.request,
            messages=[*orphan.history, *([] if message is None else [message])],
            message_id=None if message is None else message["id"],
            trigger=turn.input.request.trigger if message is None else "submit-message",
            pending_calls=frozenset(claim.given if is_new else ()),
        )
        request = await self._stored.with_files(await self._stored.for_agent(request, files), files)
        context = self._make_context(turn, request)
        context.has_begun_before = True
        info = with_calls(turn.info, claim, message if is_new else None)
        continues = None if message is None else files.write(message)
        answer = StoredAnswer(self._store, claim, info, context, self._stored.hooks, continues=continues, files=files)
        prepared = PreparedRun(info, context, cast("Any", continues), answer, taken_ids=orphan.known_ids)
        await self._manager.carry_on(prepared, source)
        return answer


async def _any_done(*futures: "asyncio.Future[Any]", within: float) -> bool:
    """Wait until one of the futures is done, and return whether that was so ``within`` some seconds."""
    done, _ = await asyncio.wait(futures, timeout=within, return_when=asyncio.FIRST_COMPLETED)
    return bool(done)


def _nothing(message_id: str) -> UIMessage:
    return {"id": message_id, "role": "assistant", "parts": []}
