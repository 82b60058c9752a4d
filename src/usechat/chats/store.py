"""Chats that last: what a chat store does, whichever database is below it.

**The server owns the history.** A page may send all messages, the last one, or none: what the store has wins. A request
is turned into one of a few meanings (:mod:`usechat.chats.meaning`) over the tree of the chat
(:mod:`usechat.chats.chat`), and :meth:`ChatStore.begin` carries it out in one transaction::

    begun = await chats.begin(request, owner="ada", run_id="r1")     # the user's message is stored, the chat is claimed
    ...                                                              # the agent gets begun.request
    await chats.save(begun.claim, message)                           # while the answer grows
    await chats.finish(begun.claim, message, "finished")             # however it ends

**One running answer per chat.** The store has at most one claim per chat (a primary key, not a process, guarantees it).
A claim is held for ``lease`` seconds; every write renews it, and :meth:`ChatStore.renew` does so when nothing is
written. A claim is void when its lease expires, and as soon as its process is known to be dead
(:mod:`usechat.chats.instances`): the chat is free, and its answer is *lost*, with what was stored of it. Whoever looks
at the chat first declares that, so that what is shown is running or final. From then on the worker cannot write any
more (:class:`~usechat.errors.ClaimLost`), even if it wakes up later. Until then the claim is still its own, however
long it slept: the fence decides, not the clock. Time is the database's, so that the clocks of workers do not matter; a
jump of its clock ends no lease.

**Answers to open calls are taken once.** A call that waits for the page is open in the stored message. ``begin`` puts
the answer into that message in the transaction that claims the chat. A second request finds the call answered: it
joins the answer while it runs, and gets the stored message when it has ended (:class:`~usechat.chats.Answered`).

**A growing answer is not rewritten.** A save writes the difference to the save before (:mod:`usechat.chats.growth`).
The whole message is written when the differences have become as large as it is, so that all writes of an answer
together are linear in its size.

**A store is a transaction.** Everything here is written once, over :class:`~usechat.chats.transaction.Transaction`; a
database implements that, and four queries over all chats. ``MemoryChats`` and ``SqlChats`` are the two.
"""

import abc
import contextlib
import logging
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar, Final, TypeAlias, TypeVar

import msgspec

from usechat.chats.beginning import Answered, Beginning, Begun, Busy, Claimant, Expired, Joined, clean_if_valid
from usechat.chats.blobs import BLOB_ID, Blob, BlobStore, FileUrls, extract_files, inline_files, stored_file_ids
from usechat.chats.chat import (
    ENDED_BADLY,
    MessageNode,
    Outcome,
    Tree,
    check_id,
    is_id,
    settled,
    without_transient,
    write_text,
)
from usechat.chats.documents import (
    ChatDocument,
    DocumentFile,
    DocumentMessage,
    markdown_of,
    nodes_of,
    read_document,
)
from usechat.chats.growth import difference
from usechat.chats.meaning import Continue, interpret
from usechat.chats.remote_readers import RemoteReaders
from usechat.chats.signals import Signals
from usechat.chats.titles import clean_title
from usechat.chats.transaction import (
    ChatPage,
    ChatRow,
    Claim,
    ClaimRow,
    Journal,
    ListedChat,
    LostAnswer,
    Orphan,
    Progress,
    StoredStep,
    Transaction,
    existing_chat,
    owned_chat,
    paced,
)
from usechat.chats.view import ChatView, LoadedChat
from usechat.errors import (
    ChatChanged,
    ChatExists,
    ChatNotFound,
    ChatsUnreachable,
    ClaimLost,
    StoreUnreachable,
    UnknownOutcome,
    Unprocessable,
)
from usechat.pauses.states import PausedStates
from usechat.protocol.request import ChatRequest
from usechat.protocol.ui_messages import UIMessage

__all__ = ["ChatStore", "ContinuesFunction", "DrivesFunction", "LoggedAnswer", "RecoverFunction", "RestFunction"]

_Found = TypeVar("_Found")

_logger: Final = logging.getLogger("usechat.chats")
_ATTEMPTS: Final = 5
_MOST_STALLED: Final = 3
"""How many processes may die in an answer while no further step of it finishes."""
_LARGEST_INLINE: Final = 16 * 1024


class LoggedAnswer(msgspec.Struct, frozen=True):
    """The answer of a worker that died, as the log of its run has it: made of so many ``chunks``."""

    message: UIMessage
    chunks: int


RestFunction: TypeAlias = Callable[[Claim], Awaitable[LoggedAnswer | None]]
"""Returns what is known elsewhere of the answer of a worker that died, such as in the log of its run."""


DrivesFunction: TypeAlias = Callable[[str], bool]
"""Tells whether a run is alive in this process, given its id."""


RecoverFunction: TypeAlias = Callable[[str], Awaitable[bool]]
"""Takes over the answer of a chat whose process died, and tells whether it did (:meth:`ChatStore.take`)."""


ContinuesFunction: TypeAlias = Callable[[Claim, bool], bool]
"""Tells whether another process continues the answer of a claim, given whether its agent has used steps."""


class _Growing(msgspec.Struct):
    """What is stored of an answer that grows."""

    message: UIMessage
    number: int = 0
    room: int = 0
    """How many bytes may be written as growth before the whole message is written again."""


class ChatStore(abc.ABC):
    """Stores chats: :class:`MemoryChats` in memory, :class:`SqlChats` in a database. Users do not subclass it.

    ``lease`` is how many seconds a chat stays claimed after the last sign of life of its worker. Inline files of more
    than ``inline_limit`` characters go to ``blobs``, or to the database if there is no such store. ``owner`` is the
    subject of the identity that asks; a chat of somebody else raises :class:`~usechat.errors.ChatNotFound`, like one
    that does not exist. An owner of ``None`` is not checked: for commands of the operator.

    All methods raise :class:`~usechat.errors.ChatsUnreachable` if the database does not answer. A store belongs to the
    event loop in which it is used first.

    >>> from usechat import ChatRequest
    >>> import asyncio
    >>> from usechat.chats import MemoryChats
    >>> question = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Hello"}]}
    >>> answer = {"id": "m1", "role": "assistant", "parts": [{"type": "text", "text": "Hi"}]}
    >>> async def main(chats: ChatStore):
    ...     request = ChatRequest.parse({"id": "c1", "messages": [question]})
    ...     begun = await chats.begin(request, owner="ada", run_id="r1")
    ...     await chats.finish(begun.claim, answer | {"id": begun.claim.message_id}, "finished")
    ...     return [message["role"] for message in (await chats.load("c1", owner="ada")).messages]
    >>> asyncio.run(main(MemoryChats()))
    ['user', 'assistant']
    """

    outlives_process: ClassVar[bool] = True
    """Whether the chats are there when their process has ended, so that another one may continue an answer."""

    def __init__(
        self, *, lease: float = 30, inline_limit: int = _LARGEST_INLINE, blobs: BlobStore | None = None
    ) -> None:
        self.lease = lease
        self.rest: RestFunction | None = None
        """Returns what the log of a run holds beyond what was saved of its answer; asked when a worker has died."""
        self._inline_limit = inline_limit
        self._blobs = blobs
        self.drives: DrivesFunction = _drives_nothing
        """Tells whether a run is alive here: then its claim is held, although its lease may have expired."""
        self.recover: RecoverFunction | None = None
        """Continues the answer of a process that died; asked before the answer is declared lost."""
        self.continues: ContinuesFunction | None = None
        """Tells whether an answer goes on when its process ends."""
        self.readers: RemoteReaders | None = None
        """Who reads the answers of this process elsewhere; ``None`` if this database tells processes nothing."""
        self._growing: dict[str, _Growing] = {}
        self._stepped: set[str] = set()
        """The runs that are known to have steps."""
        self._lost: list[LostAnswer] = []

    # -- What a database brings.

    @abc.abstractmethod
    def transaction(self, chat_id: str, *, writes: bool = True) -> AbstractAsyncContextManager[Transaction]:
        """Begin a transaction over one chat, which need not exist; without ``writes`` it only reads."""

    @abc.abstractmethod
    def ending(self, claim: Claim, *, is_new: bool) -> AbstractAsyncContextManager[Transaction]:
        """Begin the transaction that ends an answer: the claim is gone, and the chat has one version more.

        An answer that ``is_new`` becomes the leaf, unless the page shows another branch by now. Raises ``ClaimLost``.
        """

    @abc.abstractmethod
    async def list_chats(
        self,
        owner: str | None,
        *,
        limit: int = 20,
        cursor: str | None = None,
        starting_after: str | None = None,
        query: str = "",
        archived: bool | None = None,
    ) -> ChatPage:
        """Return chats, pinned ones first, then the last updated ones.

        ``limit`` is how many a page has at most.

        ``cursor`` is that of the page before; ``starting_after`` is the id of its last chat. A chat that is added or
        updated meanwhile does not shift a page. ``query`` is looked for in titles and texts, in any case.
        ``archived`` selects archived chats (``True``) or all others (``False``); by default both are listed.
        """

    @abc.abstractmethod
    async def ids_of(self, *, owner: str | None = None, unchanged_for: float | None = None) -> list[str]:
        """Return the ids of an owner's chats, or of those in which nothing was said for ``unchanged_for`` seconds."""

    @abc.abstractmethod
    async def id_of_shared(self, token: str) -> str | None:
        """Return the id of the chat that a token shares."""

    @abc.abstractmethod
    async def orphaned(self) -> list[str]:
        """Return the ids of the chats whose claim nobody holds any more."""

    async def open(self) -> None:  # noqa: B027 (memory needs none)
        """Prepare the database. Raises :class:`~usechat.errors.UnusableChats` if it cannot be used."""

    async def check(self) -> None:  # noqa: B027 (memory needs none)
        """Raise :class:`~usechat.errors.ChatsUnreachable` if the database does not answer."""

    async def close(self) -> None:  # noqa: B027 (memory needs none)
        """Close the connections."""

    # -- A turn.

    async def begin(
        self,
        request: ChatRequest,
        *,
        owner: str,
        run_id: str,
        agent: str = "",
        files: FileUrls | None = None,
        check_import: Callable[[ChatRequest], ChatRequest] | None = None,
        is_queued: bool = False,
        turn: str = "",
    ) -> Begun | Joined | Busy | Answered:
        """Store what a request brings and claim the chat for its run, in one transaction.

        ``agent`` is the name of the agent, which is stored with the chat and the answer. ``is_queued`` says that
        another process will answer, so that the claim does not end with this one. ``turn`` is the request as the
        caller has encoded it, for :meth:`take`.

        With ``check_import`` the messages of the request are stored first, if the chat is not known. They are untrusted
        input: that function checks the answers to open calls in them, and returns the request with the calls that it
        found answered (``pending_calls``). ``files`` reads the URLs of stored files.

        Raises InvalidRequest, Unprocessable or ChatNotFound if the request cannot be served, and ChatChanged if others
        changed the chat at each attempt.
        """
        check_id(request.chat_id, "the chat id")
        extracted = []
        async for message in paced(request.messages):
            stored = message if files is None else files.read(message)
            extracted.append(extract_files(clean_if_valid(stored), self._inline_limit))
        request = msgspec.structs.replace(request, messages=[message for message, _ in extracted])
        blobs = {blob.id: blob for _, message_blobs in extracted for blob in message_blobs}
        claimant = Claimant(owner=owner, run_id=run_id, agent=agent, is_queued=is_queued, turn=turn)
        for _ in range(_ATTEMPTS):
            try:
                result = await self._begin(request, blobs, claimant, check_import=check_import)
            except ChatChanged:  # two requests have made the same chat at the same time
                continue
            if not isinstance(result, Expired):
                return result
            await self._declare_lost(request.chat_id)
        raise ChatChanged("The chat was changed by somebody else. Please try again.")

    async def _begin(
        self,
        request: ChatRequest,
        blobs: Mapping[str, Blob],
        claimant: Claimant,
        *,
        check_import: Callable[[ChatRequest], ChatRequest] | None,
    ) -> Begun | Joined | Busy | Answered | Expired:
        async with self.transaction(request.chat_id) as transaction:
            turn = Beginning(self, transaction, request, blobs, claimant)
            result = await turn.begin(check_import=check_import)
        if isinstance(result, Begun) and result.continues is not None:
            self._growing[claimant.run_id] = _Growing(result.continues, room=len(write_text(result.continues)))
        return result

    async def save(self, claim: Claim, message: UIMessage, *, chunks: int = 0, finished: int | None = None) -> None:
        """Store an answer that grows, and renew the claim. Raises :class:`~usechat.errors.ClaimLost`.

        ``chunks`` is how many chunks of it were sent, and ``finished`` how many parts it had when its last finished
        step ended, if one has finished since the claim was made or taken.
        """
        message, blobs = self._extracted(claim, message)
        growing = self._growing.get(claim.run_id)
        growth = {} if growing is None else difference(growing.message, message)
        if not message["parts"] or (growing is not None and not growth):
            await self.renew(claim, finished=finished)
            return
        size = len(write_text(growth))
        after = _Growing(message, growing.number + 1, growing.room - size) if growing is not None else None
        if growing is not None:
            growing.room = 0  # if this write fails, nobody knows whether it happened: the next one is whole
        async with self.transaction(claim.chat_id) as transaction:
            await self._hold(transaction, claim, chunks=chunks, finished=finished)
            await self.put_blobs(transaction, claim.chat_id, blobs)
            if after is not None and after.room >= 0:
                await transaction.grow(claim.key, after.number, growth)
            else:
                await self._put_answer(transaction, claim, message, "running")
                after = _Growing(message, room=len(write_text(message)))
        self._growing[claim.run_id] = after
        if self.readers is not None:
            await self.readers.tell(claim.run_id)

    async def renew(self, claim: Claim, *, finished: int | None = None) -> None:
        """Renew a claim. Raises :class:`~usechat.errors.ClaimLost` if it was taken, or its answer declared lost."""
        async with self.transaction(claim.chat_id) as transaction:
            await self._hold(transaction, claim, finished=finished)

    async def finish(
        self, claim: Claim, message: UIMessage, outcome: Outcome, *, answerable: Collection[str] | None = None
    ) -> UIMessage | None:
        """Store the end of an answer and give the claim back; return the message as it is stored.

        ``answerable`` are the calls that the page can still answer after a bad end, if the run knows them better than
        its claim. An answer without parts is not stored. Raises :class:`~usechat.errors.ClaimLost`.
        """
        message, blobs = self._extracted(claim, message)
        final = settled(message, outcome, claim.answerable if answerable is None else answerable)
        stored, growing = None, self._growing.get(claim.run_id)
        if not final["parts"] and growing is not None:  # an answer that was begun again, and came to nothing
            final = settled(growing.message, outcome, claim.answerable)
        is_new = growing is None
        async with self.ending(claim, is_new=is_new and bool(final["parts"])) as transaction:
            await self.put_blobs(transaction, claim.chat_id, blobs)
            if final["parts"]:
                node, stored = await self._answer_node(transaction, claim, final, outcome)
                await transaction.put_message(node, stored, has_grown=not is_new)
            if claim.run_id in self._stepped:
                await transaction.delete_steps()
        self._growing.pop(claim.run_id, None)
        self._stepped.discard(claim.run_id)
        if self.readers is not None:
            await self.readers.tell(claim.run_id)
            self.readers.forget(claim.run_id)
        return stored

    async def order_stop(self, chat_id: str) -> None:
        """Note that the running answer of a chat is to be stopped: if its process dies first, nobody continues it."""
        async with self.transaction(chat_id) as transaction:
            if transaction.chat is not None:
                await transaction.order_stop()

    # -- The steps of agent functions.

    async def begin_step(self, claim: Claim, name: str, ordinal: int, *, is_replayable: bool) -> StoredStep | None:
        """Store that a step begins; return it instead if it has returned before.

        Raises :class:`~usechat.errors.UnknownOutcome` if a process died in it, unless it ``is_replayable``, and
        :class:`~usechat.errors.ClaimLost`.
        """
        self._stepped.add(claim.run_id)
        async with self.transaction(claim.chat_id) as transaction:
            await self._hold(transaction, claim)
            step = await transaction.step(name, ordinal)
            if step is not None and step.result is not None:
                return step
            if step is not None and not is_replayable:
                raise UnknownOutcome(name)
            await transaction.put_step(name, ordinal, None)
        return None

    async def end_step(self, claim: Claim, name: str, ordinal: int, result: str) -> None:
        """Store the result of a step, as JSON. Raises :class:`~usechat.errors.ClaimLost`."""
        async with self.transaction(claim.chat_id) as transaction:
            await self._hold(transaction, claim)
            await transaction.put_step(name, ordinal, result)
            await transaction.put_stalled(0)

    # -- Answers whose process died.

    def would_continue(self, claim: Claim) -> bool:
        """Tell whether another process continues an answer of this one when this one ends."""
        if self.continues is None or not self.outlives_process:
            return False
        return self.continues(claim, claim.run_id in self._stepped)

    async def take(self, chat_id: str, accepts: Callable[[ClaimRow, bool], bool]) -> Orphan | None:
        """Take over the answer of a process that died; ``None`` if there is none, or it is not to be continued.

        ``accepts`` gets the claim, and whether the answer has steps. The answer of the third process in which no
        further step has finished is not given to a fourth one.
        """
        async with self.transaction(chat_id) as transaction:
            row = await transaction.claim() if transaction.chat is not None else None
            if row is None or row.is_held or not row.journal.turn:
                return None
            journal = row.journal
            has_steps = await transaction.steps()
            is_stuck = journal.stalled + 1 >= _MOST_STALLED and not journal.stop
            if is_stuck or not accepts(row, has_steps):
                return None
            orphan = await self._orphan(transaction, row.claim, journal, has_steps=has_steps)
            await transaction.delete_claim()
            await transaction.put_claim(orphan.claim, self.lease, journal=journal)
        if orphan.message is not None:  # without room: what the dead process has written is replaced as a whole
            self._growing[orphan.claim.run_id] = _Growing(orphan.message)
        if has_steps:
            self._stepped.add(orphan.claim.run_id)
        return orphan

    async def _orphan(self, transaction: Transaction, claim: Claim, journal: Journal, *, has_steps: bool) -> Orphan:
        chat = existing_chat(transaction)
        tree = Tree(await transaction.nodes(with_content=True), chat.leaf)
        answer = tree.nodes.get(claim.key)
        keys = [node.key for node in (tree.branch(claim.parent) if claim.parent is not None else [])]
        messages = await transaction.messages([*keys, *([] if answer is None else [answer.key])])
        message_id = claim.message_id if answer is None else answer.id  # its agent may have named it
        return Orphan(
            chat=chat,
            claim=msgspec.structs.replace(claim, attempt=claim.attempt + 1, message_id=message_id),
            journal=journal,
            history=[messages[key] for key in keys],
            message=None if answer is None else messages[answer.key],
            has_steps=has_steps,
            known_ids=frozenset(node.id for node in tree.nodes.values()),
        )

    async def count_attempt(self, claim: Claim, by: int = 1) -> None:
        """Count a process that goes on with an answer; with -1, take back one that leaves it in order.

        Raises :class:`~usechat.errors.ClaimLost`.
        """
        async with self.transaction(claim.chat_id) as transaction:
            await self._hold(transaction, claim)
            row = await transaction.claim()
            assert row is not None
            await transaction.put_stalled(row.journal.stalled + by)

    async def claimed(self, chat_id: str) -> ClaimRow | None:
        """Return the claim of a chat, held or not."""
        async with self.transaction(chat_id, writes=False) as transaction:
            return await transaction.claim() if transaction.chat is not None else None

    async def progress(self, chat_id: str, claim: Claim | None = None) -> Progress:
        """Return how far the answer of a claim is; without one, that of the answer which is running."""
        async with self.transaction(chat_id, writes=False) as transaction:
            row = await transaction.claim() if transaction.chat is not None else None
            claim = claim or (None if row is None else row.claim)
            if transaction.chat is None or claim is None:
                return Progress(None, None)
            if row is not None and row.claim.run_id == claim.run_id:
                return Progress(row, (await transaction.messages([claim.key])).get(claim.key))
            node = next((node for node in await transaction.nodes() if node.key == claim.key), None)
            message = None if node is None else (await transaction.messages([claim.key]))[claim.key]
        return Progress(None, message, None if node is None else node.outcome)

    async def is_alive(self, claim: Claim) -> bool:
        """Tell whether the process that holds a claim is alive, as far as can be said before its lease expires."""
        row = await self.claimed(claim.chat_id)
        return row is not None and row.is_held and row.claim.run_id == claim.run_id

    async def hand_over(self, claim: Claim, seconds: float) -> None:
        """Let another process write the answer; it must take it over within ``seconds``. Raises ``ClaimLost``."""
        async with self.transaction(claim.chat_id) as transaction:
            await self._hold(transaction, claim, seconds)
        self._growing.pop(claim.run_id, None)

    async def take_over(self, claim: Claim, *, run_id: str, instead_of: str = "") -> Claim:
        """Begin to write an answer that another process has handed over; return the claim of this run.

        With ``instead_of`` the answer was begun before by that run, which died: it cannot write any more, and the
        answer begins again. Raises :class:`~usechat.errors.ClaimLost` if the chat was given to another run meanwhile.
        """
        async with self.transaction(claim.chat_id) as transaction:
            row = await transaction.claim() if transaction.chat is not None else None
            if row is None or not row.is_held or row.claim.run_id not in (claim.run_id, run_id, instead_of):
                raise _claim_lost(claim)
            new_claim = msgspec.structs.replace(claim, run_id=run_id, attempt=row.claim.attempt + 1)
            await transaction.delete_claim()
            # The turn may be given to another process.
            await transaction.put_claim(new_claim, self.lease, is_ours=False, journal=row.journal)
            stored = None
            if any(node.key == claim.key for node in await transaction.nodes()):
                stored = (await transaction.messages([claim.key]))[claim.key]
        if stored is not None:  # without room: what the earlier run has written is replaced as a whole
            self._growing[run_id] = _Growing(stored)
        return new_claim

    async def collect_lost(self) -> list[LostAnswer]:
        """Declare the answers lost whose workers have died; return them. Each is returned once, by one worker."""
        for chat_id in await self.orphaned():
            await self._declare_lost(chat_id)
        return self._unreported()

    async def lose(self, chat_id: str, run_id: str) -> list[LostAnswer]:
        """Declare the answer of a run lost whose worker is known to be dead, before its lease expires.

        Returns it, and others that were declared lost meanwhile, as :meth:`collect_lost` does.
        """
        await self._declare_lost(chat_id, run_id=run_id)
        return self._unreported()

    def _unreported(self) -> list[LostAnswer]:
        answers, self._lost = self._lost, []
        return answers

    async def _declare_lost(self, chat_id: str, *, run_id: str | None = None) -> None:
        """Ask for the rest of a lost answer outside of the transaction that ends it: that may take a while.

        An answer that is continued is not lost.
        """
        if run_id is None and self.recover is not None and await self.recover(chat_id):
            return
        claim, logged = None, None
        if self.rest is not None:
            row = await self.claimed(chat_id)
            if row is not None and _is_lost(row, run_id):
                claim, logged = row.claim, await self.rest(row.claim)
        async with self.transaction(chat_id) as transaction:
            row = await transaction.claim() if transaction.chat is not None else None
            if row is None or not _is_lost(row, run_id):
                return
            is_logged = logged is not None and claim is not None and row.claim.is_same(claim)
            lost = await self._end_lost(transaction, row, logged if is_logged else None)
        # Only now: `self._lost += await …` would add to the list that was there before the wait, which may be reported.
        self._lost.append(lost)

    async def _end_lost(self, transaction: Transaction, row: ClaimRow, logged: LoggedAnswer | None) -> LostAnswer:
        """End the answer of a worker that died: with what was saved of it, or what its log has, if that is newer."""
        chat, claim = existing_chat(transaction), row.claim
        message = None
        if any(node.key == claim.key for node in await transaction.nodes()):
            message = (await transaction.messages([claim.key]))[claim.key]
        if logged is not None and logged.message["parts"] and (message is None or logged.chunks > row.chunks):
            message, blobs = self._extracted(claim, logged.message)
            await self.put_blobs(transaction, claim.chat_id, blobs)
        if message is not None:
            lost = settled(message, "lost", claim.answerable)
            message = await self._put_answer(transaction, claim, lost, "lost")
            chat = existing_chat(transaction)
        await transaction.delete_claim()
        await transaction.delete_steps()
        await transaction.put_chat(msgspec.structs.replace(chat, version=chat.version + 1))
        return LostAnswer(chat, claim, message)

    # -- Reading.

    async def load(self, chat_id: str, *, owner: str | None, tree: bool = False) -> LoadedChat:
        """Return the current branch of a chat; with ``tree`` also all other messages, as they were at that moment."""
        async with self._view(chat_id, owner) as view:
            branch = view.visible_branch()
            nodes = view.visible() if tree else branch
            messages = await view.messages([node.key for node in nodes])
        ids = {node.key: node.id for node in nodes}
        return LoadedChat(
            chat=view.chat,
            messages=[messages[node.key] for node in branch],
            head_id=branch[-1].id if branch else None,
            siblings=view.siblings(nodes),
            running=view.running if view.is_running_below(branch) else None,
            outcomes={node.id: node.outcome for node in nodes if node.outcome is not None},
            created={node.id: node.created for node in nodes},
            feedback={node.id: node.feedback for node in nodes if node.feedback is not None},
            tree=[
                {"parentId": None if node.parent is None else ids[node.parent], "message": messages[node.key]}
                for node in (nodes if tree else [])
            ],
        )

    async def answers(self, chat_id: str, *, owner: str | None) -> list[tuple[str, UIMessage]]:
        """Return all answers of a chat with the names of their agents, and of a running one what is stored."""
        async with self._view(chat_id, owner) as view:
            nodes = [node for node in view.tree.nodes.values() if node.role == "assistant"]
            messages = await view.messages([node.key for node in nodes])
        return [(node.agent, messages[node.key]) for node in nodes if node.key in messages]

    async def look_up(self, chat_id: str, *, owner: str | None) -> ListedChat:
        """Return a chat without its messages."""
        async with self.transaction(chat_id, writes=False) as transaction:
            chat = owned_chat(transaction, owner)
            row = await transaction.claim()
        if row is None or row.is_held:
            return ListedChat(chat, row is not None)
        await self._declare_lost(chat_id)
        return await self.look_up(chat_id, owner=owner)

    async def _listed(self, chat: ChatRow, *, is_claimed: bool, is_held: bool) -> ListedChat:
        """Return a chat as the list shows it. An answer whose worker died is ended, or continued, first."""
        if is_held or not is_claimed:
            return ListedChat(chat, is_held)
        try:
            return await self.look_up(chat.id, owner=None)
        except ChatNotFound:  # it was deleted meanwhile
            return ListedChat(chat, running=False)

    async def agents_of(self, request: ChatRequest, *, owner: str) -> tuple[str, str]:
        """Return the agent that answers a chat, and the agent whose answer the request continues; empty if none does.

        Raises InvalidRequest, Unprocessable or ChatNotFound if the request cannot be served.
        """
        async with self.transaction(request.chat_id, writes=False) as transaction:
            chat = owned_chat(transaction, owner)
            tree = Tree(await transaction.nodes(), chat.leaf)
        match interpret(tree, request):
            case Continue(key):  # an answer of an earlier version of the tables does not name its agent
                return chat.agent, tree.nodes[key].agent or chat.agent
        return chat.agent, ""

    async def file(self, chat_id: str, blob_id: str, *, owner: str | None) -> Blob:
        """Return a stored file of a chat."""
        async with self.transaction(chat_id, writes=False) as transaction:
            owned_chat(transaction, owner)
            blob = await self._blob(transaction, chat_id, blob_id)
        if blob is None:
            raise ChatNotFound("No such file.")
        return blob

    async def load_files(self, chat_id: str, messages: Sequence[UIMessage], *, limit: int) -> list[UIMessage]:
        """Return messages that hold the content of their stored files, as the page has sent them.

        The files of the last messages come first. A text names each file that is missing, or beyond ``limit`` bytes in
        all.
        """
        blob_ids = {blob_id: None for message in reversed(messages) for blob_id in stored_file_ids(message)}
        loaded: dict[str, Blob] = {}
        if blob_ids:
            async with self.transaction(chat_id, writes=False) as transaction:
                for blob_id in blob_ids:
                    blob = await self._blob(transaction, chat_id, blob_id)
                    limit -= 0 if blob is None else len(blob.data)
                    if limit < 0:
                        break
                    if blob is not None:
                        loaded[blob_id] = blob
        return [inline_files(message, loaded) for message in messages]

    # -- Changing.

    async def change(
        self,
        chat_id: str,
        *,
        owner: str | None,
        title: str | None = None,
        pinned: bool | None = None,
        archived: bool | None = None,
        head_id: str | None = None,
        version: int | None = None,
    ) -> ChatRow:
        """Rename a chat, pin or archive it, or show the branch to ``head_id``; return the chat.

        ``title``, ``pinned`` and ``archived`` stay as they are if they are ``None``. With a ``version``, a chat that
        has another one is not changed: :class:`~usechat.errors.ChatChanged`. Raises
        :class:`~usechat.errors.Unprocessable` if the chat has no message ``head_id``.
        """
        async with self.transaction(chat_id) as transaction:
            chat = owned_chat(transaction, owner)
            if version is not None and version != chat.version:
                raise ChatChanged(f"The chat has version {chat.version}, not {version}. Load it again.")
            changes: dict[str, Any] = {"pinned": pinned, "archived": archived}
            changes = {name: value for name, value in changes.items() if value is not None}
            if title is not None:
                changes |= {"title": clean_title(title), "titled_by": "person"}
            if head_id is not None:
                tree = Tree(await transaction.nodes(), chat.leaf)
                if (head := tree.version(head_id)) is None:
                    raise Unprocessable(f"The message {head_id!r} is not in this chat.")
                changes["leaf"] = head.key
            changed = msgspec.structs.replace(chat, **changes, version=chat.version + 1)
            await transaction.put_chat(changed)
        return changed

    async def share(self, chat_id: str, *, owner: str | None) -> str:
        """Return the token with which anyone can read a chat; the same one until :meth:`unshare`."""
        async with self.transaction(chat_id) as transaction:
            chat = owned_chat(transaction, owner)
            token = chat.share or secrets.token_urlsafe(24)
            await transaction.put_chat(msgspec.structs.replace(chat, share=token))
        return token

    async def unshare(self, chat_id: str, *, owner: str | None) -> None:
        """Revoke the token of a shared chat."""
        async with self.transaction(chat_id) as transaction:
            chat = owned_chat(transaction, owner)
            await transaction.put_chat(msgspec.structs.replace(chat, share=None))

    async def load_shared(self, token: str) -> LoadedChat:
        """Return the current branch of the chat that a token shares. Raises ``ChatNotFound``."""
        chat_id = await self.id_of_shared(token)
        if chat_id is None:
            raise ChatNotFound("There is no chat at this link, or it is no longer shared.")
        return await self.load(chat_id, owner=None)

    async def suggest_title(self, chat_id: str, title: str) -> ChatRow | None:
        """Give a chat the title that a function made, unless a person has given it one; return the chat if so."""
        async with self.transaction(chat_id) as transaction:
            chat = transaction.chat
            if chat is None or chat.titled_by == "person":
                return None
            changed = msgspec.structs.replace(
                chat, title=clean_title(title), titled_by="function", version=chat.version + 1
            )
            await transaction.put_chat(changed)
        return changed

    async def rate(self, chat_id: str, message_id: str, feedback: Any, *, owner: str | None) -> None:
        """Store what a person thinks of a message, as any JSON value; ``None`` takes it back.

        Raises :class:`~usechat.errors.Unprocessable` if the chat has no such message.
        """
        async with self.transaction(chat_id) as transaction:
            chat = owned_chat(transaction, owner)
            node = Tree(await transaction.nodes(), chat.leaf).find(message_id)
            if node is None:
                raise Unprocessable(f"The message {message_id!r} is not in this chat.")
            await transaction.put_feedback(node.key, feedback)

    async def delete(self, chat_id: str, *, owner: str | None) -> None:
        """Delete a chat with its messages and files. A run that answers it cannot write any more."""
        async with self.transaction(chat_id) as transaction:
            owned_chat(transaction, owner)
            await self._delete(transaction, chat_id)

    async def delete_owner(self, owner: str) -> int:
        """Delete all chats of an owner; return how many."""
        count = 0
        for chat_id in await self.ids_of(owner=owner):
            with contextlib.suppress(ChatNotFound):  # somebody else was faster
                await self.delete(chat_id, owner=owner)
                count += 1
        return count

    async def delete_unchanged(self, seconds: float) -> int:
        """Delete the chats that did not change for ``seconds``; return how many. For retention (``--keep 90d``).

        A chat that is being answered stays, however long that takes.
        """
        count = 0
        for chat_id in await self.ids_of(unchanged_for=seconds):
            async with self.transaction(chat_id) as transaction:
                is_unchanged = await _is_unchanged(transaction, seconds)
                if is_unchanged:
                    await self._delete(transaction, chat_id)
            count += is_unchanged
        return count

    def states_of(self, chat_id: str) -> PausedStates:
        """Return what keeps the states of agents that pause in a chat. They are deleted with it."""
        return (
            _ChatStates(self, chat_id) if self.readers is None else _SharedStates(self, chat_id, self.readers.signals)
        )

    async def recall(self, chat_id: str, message_id: str) -> bytes | None:
        """Return the state in which an answer has left its framework; nothing if none is stored."""
        async with self.transaction(chat_id, writes=False) as transaction:
            return None if transaction.chat is None else await transaction.state(_memory_handle(message_id))

    async def remember(self, claim: Claim, state: bytes) -> None:
        """Store the state in which an answer leaves its framework, until its chat is deleted. Raises ``ClaimLost``."""
        async with self.transaction(claim.chat_id) as transaction:
            await self._hold(transaction, claim)
            await transaction.put_state(_memory_handle(claim.message_id), state)

    # -- Export and import.

    async def export(self, chat_id: str, *, owner: str | None) -> ChatDocument:
        """Return a whole chat, files included, as a document for :meth:`restore`. A running answer is left out."""
        async with self._view(chat_id, owner) as view:
            nodes = view.visible()
            messages = await view.messages([node.key for node in nodes])
            if self._blobs is None:
                blobs = await view.transaction.blobs()
            else:
                blobs = await self._foreign_blobs(view.transaction, chat_id, messages)
        ids = {node.key: node.id for node in nodes}
        chat, branch = view.chat, view.visible_branch()
        return ChatDocument(
            id=chat.id,
            owner=chat.owner,
            title=chat.title,
            titled_by=chat.titled_by,
            agent=chat.agent,
            created_at=chat.created,
            updated_at=chat.updated,
            pinned=chat.pinned,
            archived=chat.archived,
            head_id=branch[-1].id if branch else None,
            messages=[
                DocumentMessage(
                    parent_id=None if node.parent is None else ids[node.parent],
                    message=messages[node.key],
                    client_id=node.alias,
                    outcome=node.outcome,
                    agent=node.agent,
                    created_at=node.created,
                    feedback=node.feedback,
                )
                for node in nodes
            ],
            files=[DocumentFile(id=blob.id, media_type=blob.media_type, data=blob.data) for blob in blobs],
        )

    async def export_markdown(self, chat_id: str, *, owner: str | None) -> str:
        """Return the current branch as Markdown, for people to read."""
        loaded = await self.load(chat_id, owner=owner)
        return markdown_of(loaded.chat.title, loaded.messages)

    async def restore(self, document: ChatDocument | Mapping[str, Any] | bytes, *, owner: str | None = None) -> ChatRow:
        """Store an exported chat; an ``owner`` replaces the one in the document.

        Raises :class:`~usechat.errors.ChatExists`.
        """
        chat = read_document(document)
        check_id(chat.id, "the chat id")
        nodes = nodes_of(chat)
        leaf = None if chat.head_id is None else next(node.key for node in nodes if node.id == chat.head_id)
        row = ChatRow(
            id=chat.id,
            owner=chat.owner if owner is None else owner,
            title=clean_title(chat.title),
            titled_by=chat.titled_by,
            agent=chat.agent,
            created=chat.created_at,
            updated=chat.updated_at,
            pinned=chat.pinned,
            archived=chat.archived,
            leaf=leaf,
        )
        async with self.transaction(chat.id) as transaction:
            if transaction.chat is not None:
                raise ChatExists(f"The chat {chat.id!r} is in the store already.")
            await transaction.put_chat(row)
            await self.put_blobs(
                transaction, chat.id, [Blob(file.id, file.media_type, file.data) for file in chat.files]
            )
            for node, listed in zip(nodes, chat.messages, strict=True):
                await transaction.put_message(node, listed.message)
        return row

    # -- Inside.

    @contextlib.asynccontextmanager
    async def _view(self, chat_id: str, owner: str | None) -> AsyncIterator[ChatView]:
        """Read a chat as its owner sees it. An answer whose worker died is ended first: what is shown does not change.

        Raises ``ChatNotFound``.
        """
        for _ in range(_ATTEMPTS):
            async with self.transaction(chat_id, writes=False) as transaction:
                view = await ChatView.of(transaction, owner)
                if not view.is_orphaned:
                    yield view
                    return
            await self._declare_lost(chat_id)
        raise ChatChanged("The chat was changed by somebody else. Please try again.")

    def _extracted(self, claim: Claim, message: UIMessage) -> tuple[UIMessage, list[Blob]]:
        """Return an answer as it can be stored, and its large files."""
        if not is_id(message["id"]):  # its agent has named it
            message = {**message, "id": claim.message_id}
        return extract_files(without_transient(message), self._inline_limit)

    async def put_blobs(self, transaction: Transaction, chat_id: str, blobs: Iterable[Blob]) -> None:
        """Store blobs where they belong."""
        for blob in blobs:
            if self._blobs is None:
                await transaction.put_blob(blob)
            else:
                await _reached(self._blobs.put(chat_id, blob))

    async def _blob(self, transaction: Transaction, chat_id: str, blob_id: str) -> Blob | None:
        if re.fullmatch(BLOB_ID, blob_id) is None:
            return None
        if self._blobs is None:
            return await transaction.blob(blob_id)
        return await _reached(self._blobs.get(chat_id, blob_id))

    async def _delete(self, transaction: Transaction, chat_id: str) -> None:
        """Delete a chat and its blobs; if they are elsewhere, and cannot be deleted, the chat stays."""
        if self._blobs is not None:
            await _reached(self._blobs.delete(chat_id))
        await transaction.delete()

    async def _foreign_blobs(
        self, transaction: Transaction, chat_id: str, messages: Mapping[int, UIMessage]
    ) -> list[Blob]:
        ids = {blob_id: None for message in messages.values() for blob_id in stored_file_ids(message)}
        blobs = [await self._blob(transaction, chat_id, blob_id) for blob_id in ids]
        return [blob for blob in blobs if blob is not None]

    async def _hold(
        self,
        transaction: Transaction,
        claim: Claim,
        seconds: float | None = None,
        *,
        chunks: int | None = None,
        finished: int | None = None,
    ) -> None:
        """Renew a claim for the lease time, or for some seconds."""
        lease = self.lease if seconds is None else seconds
        stop = None if transaction.chat is None else await transaction.renew_claim(claim, lease, chunks, finished)
        if stop is None:
            raise self.lost(claim)
        if stop and self.readers is not None:  # if the signal was lost
            self.readers.stop_soon(claim.run_id)

    def lost(self, claim: Claim) -> ClaimLost:
        """Forget an answer that grows here, and return the error to raise: its claim is not held any more."""
        self._growing.pop(claim.run_id, None)
        self._stepped.discard(claim.run_id)
        return _claim_lost(claim)

    async def _put_answer(
        self, transaction: Transaction, claim: Claim, message: UIMessage, outcome: Outcome
    ) -> UIMessage:
        """Write the whole answer; one that is new becomes the leaf, unless the page shows another branch by now."""
        node, stored = await self._answer_node(transaction, claim, message, outcome)
        await transaction.put_message(node, stored)
        chat = existing_chat(transaction)
        if chat.leaf == claim.parent and claim.run_id not in self._growing:
            await transaction.put_chat(msgspec.structs.replace(chat, leaf=claim.key))
        return stored

    async def _answer_node(
        self, transaction: Transaction, claim: Claim, message: UIMessage, outcome: Outcome
    ) -> tuple[MessageNode, UIMessage]:
        """Return how an answer is stored: with the id of its claim if another message has that of its agent."""
        nodes = await transaction.nodes() if message["id"] != claim.message_id else []
        is_taken = any(node.id == message["id"] for node in nodes if node.key != claim.key)
        stored: UIMessage = {**message, "id": claim.message_id} if is_taken else message
        node = MessageNode(
            key=claim.key,
            parent=claim.parent,
            id=stored["id"],
            role="assistant",
            outcome=outcome,
            given=claim.given if outcome == "running" or outcome in ENDED_BADLY else (),
            agent=claim.agent,
            created=transaction.now,
        )
        return node, stored


class _ChatStates:
    """Keeps the states of agents that pause in one chat; those of a chat that is gone go with it."""

    def __init__(self, store: ChatStore, chat_id: str) -> None:
        self._store = store
        self._chat_id = chat_id

    async def keep_state(self, handle: str, state: bytes) -> None:
        async with self._store.transaction(self._chat_id) as transaction:
            if transaction.chat is not None:
                await transaction.put_state(handle, state)

    async def take_state(self, handle: str) -> bytes | None:
        async with self._store.transaction(self._chat_id) as transaction:
            return None if transaction.chat is None else await transaction.take_state(handle)


class _SharedStates(_ChatStates):
    """Lets the processes that share a database post answers to each other, as a ``Mailbox``."""

    def __init__(self, store: ChatStore, chat_id: str, signals: Signals) -> None:
        super().__init__(store, chat_id)
        self._signals = signals
        self.worker = signals.instance

    async def post(self, worker: str, address: str, message: bytes) -> None:
        try:
            await self._signals.send(worker, address, message)
        except ChatsUnreachable:
            raise StoreUnreachable from None

    def receive(self, address: str, on_message: Callable[[bytes], None]) -> None:
        self._signals.receive(address, on_message)


async def _reached(answer: Awaitable[_Found]) -> _Found:
    """Return what a blob store of the application says; one that fails is away, like a database."""
    try:
        return await answer
    except Exception as error:
        _logger.error("the store of the files failed: %r", error)
        raise ChatsUnreachable from None


async def _is_unchanged(transaction: Transaction, seconds: float) -> bool:
    """Tell whether a chat did not change for ``seconds`` and is not being answered. It may have changed meanwhile."""
    chat, row = transaction.chat, await transaction.claim()
    is_answered = row is not None and row.is_held
    return chat is not None and not is_answered and chat.updated < transaction.now - seconds


def _drives_nothing(_run_id: str) -> bool:
    """Return ``False``: nobody drives runs here."""
    return False


def _memory_handle(message_id: str) -> str:
    return f"answer/{message_id}"


def _is_lost(row: ClaimRow, run_id: str | None) -> bool:
    return not row.is_held or row.claim.run_id == run_id


def _claim_lost(claim: Claim) -> ClaimLost:
    return ClaimLost(f"The run {claim.run_id!r} does not hold the chat {claim.chat_id!r} any more.")
