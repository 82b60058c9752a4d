"""Chats in the memory of one process: bounded, and gone with it."""

import asyncio
import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from operator import attrgetter
from typing import Any, Final

import msgspec

from usechat.chats.blobs import Blob, BlobStore
from usechat.chats.chat import MessageNode, read_text, searchable, write_text
from usechat.chats.growth import Growth, grown
from usechat.chats.store import ChatStore
from usechat.chats.transaction import (
    ChatPage,
    ChatRow,
    Claim,
    ClaimRow,
    Journal,
    StoredStep,
    paced,
    read_cursor,
    write_cursor,
)
from usechat.errors import ChatNotFound
from usechat.protocol.ui_messages import UIMessage, text_of

__all__ = ["MemoryChats"]

_NEW_JOURNAL: Final = Journal()
_SIZE: Final = attrgetter("size")


class _MessageText(msgspec.Struct, frozen=True, kw_only=True):
    """A message as text, which nobody can change in place and which is read faster than a copy is made."""

    body: str
    growths: tuple[str, ...] = ()
    size: int

    @classmethod
    def of(cls, body: str, *growths: str) -> "_MessageText":
        return cls(body=body, growths=growths, size=len(body) + sum(map(len, growths)))

    def read(self) -> UIMessage:
        message: UIMessage = read_text(self.body)
        for growth in self.growths:
            message = grown(message, read_text(growth))
        return message


class _Chat(msgspec.Struct):
    """What is known of one chat; no value in it is changed in place, so that a shallow copy is a snapshot."""

    row: ChatRow | None = None
    nodes: dict[int, MessageNode] = {}
    messages: dict[int, _MessageText] = {}
    blobs: dict[str, Blob] = {}
    states: dict[str, bytes] = {}
    steps: dict[tuple[str, int], str | None] = {}
    claim: ClaimRow | None = None
    size: int = 0
    """The length of everything in it, as it was counted last."""

    def count(self) -> int:
        files = sum(len(blob.data) for blob in self.blobs.values())
        messages: int = sum(map(_SIZE, self.messages.values()))
        return messages + files + sum(map(len, self.states.values()))

    def snapshot(self) -> "_Chat":
        return msgspec.structs.replace(
            self,
            nodes=dict(self.nodes),
            messages=dict(self.messages),
            blobs=dict(self.blobs),
            states=dict(self.states),
            steps=dict(self.steps),
        )


class MemoryChats(ChatStore):
    """Chats of one process, for development, tests and demos.

    When there are more than ``maximum_chats``, or they take more than ``maximum_bytes``, those that were not changed
    for the longest time are forgotten, but none that is being answered. The other arguments are those of
    :class:`ChatStore`.

    >>> import asyncio
    >>> chats = MemoryChats(maximum_chats=100)
    >>> asyncio.run(chats.list_chats("ada")).chats
    []
    """

    outlives_process = False

    def __init__(
        self,
        *,
        maximum_chats: int = 1_000,
        maximum_bytes: int = 256 * 1024 * 1024,
        lease: float = 30,
        inline_limit: int = 16 * 1024,
        blobs: BlobStore | None = None,
    ) -> None:
        super().__init__(lease=lease, inline_limit=inline_limit, blobs=blobs)
        self._chats: dict[str, _Chat] = {}
        self._lock = asyncio.Lock()
        self._maximum_chats = maximum_chats
        self._maximum_bytes = maximum_bytes
        self._bytes = 0

    @asynccontextmanager
    async def transaction(self, chat_id: str, *, writes: bool = True) -> AsyncIterator["_MemoryTransaction"]:
        """Begin a transaction: a copy that replaces the chat when it ends well."""
        if not writes:
            yield _MemoryTransaction(self, self._chats.get(chat_id, _Chat()).snapshot())
            return
        async with self._lock:
            before = self._chats.get(chat_id)
            changed = _MemoryTransaction(self, (before or _Chat()).snapshot())
            yield changed
            self._replace(chat_id, before, changed.record)

    @asynccontextmanager
    async def ending(self, claim: Claim, *, is_new: bool) -> AsyncIterator["_MemoryTransaction"]:
        """Begin the transaction that ends an answer."""
        async with self.transaction(claim.chat_id) as transaction:
            chat, row = transaction.chat, await transaction.claim()
            if chat is None or row is None or not row.claim.is_same(claim):
                raise self.lost(claim)
            leaf = claim.key if is_new and chat.leaf == claim.parent else chat.leaf
            after = msgspec.structs.replace(chat, leaf=leaf, updated=transaction.now, version=chat.version + 1)
            await transaction.put_chat(after)
            await transaction.delete_claim()
            yield transaction

    def _replace(self, chat_id: str, before: _Chat | None, after: _Chat) -> None:
        if before is not None:
            del self._chats[chat_id]
            self._bytes -= before.size
        if after.row is not None:
            self._chats[chat_id] = after
            after.size = after.count()
            self._bytes += after.size
        self._forget()

    def _forget(self) -> None:
        """Forget the oldest chats until what is left is within the limits."""
        if len(self._chats) <= self._maximum_chats and self._bytes <= self._maximum_bytes:
            return
        idle = [chat for chat in self._chats.values() if chat.claim is None]  # in the order of their last changes
        for chat in idle[: -1 if len(idle) > 1 else None]:
            if len(self._chats) <= self._maximum_chats and self._bytes <= self._maximum_bytes:
                return
            assert chat.row is not None
            del self._chats[chat.row.id]
            self._bytes -= chat.size

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
        """Return chats, pinned ones first, then the last updated ones."""
        chats = [chat for chat in self._chats.values() if owner is None or _row(chat).owner == owner]
        after = self._position(owner, cursor, starting_after)
        matching = [
            chat
            for chat in chats
            if (archived is None or _row(chat).archived == archived) and _matches(chat, searchable(query))
        ]
        ordered = sorted(matching, key=_order, reverse=True)
        page = [chat for chat in ordered if after is None or _order(chat) < after][: limit + 1]
        now = time.monotonic()
        listed = [
            await self._listed(
                _row(chat),
                is_claimed=chat.claim is not None,
                is_held=chat.claim is not None and self.is_held(chat.claim, now),
            )
            for chat in page[:limit]
        ]
        return ChatPage(listed, write_cursor(_order(page[limit - 1])) if len(page) > limit else None)

    def _position(
        self, owner: str | None, cursor: str | None, starting_after: str | None
    ) -> tuple[bool, float, str] | None:
        if cursor is not None:
            return read_cursor(cursor, tuple[bool, float, str])
        if starting_after is None:
            return None
        chat = self._chats.get(starting_after)
        if chat is None or (owner is not None and _row(chat).owner != owner):
            raise ChatNotFound("No such chat.")
        return _order(chat)

    async def ids_of(self, *, owner: str | None = None, unchanged_for: float | None = None) -> list[str]:
        """Return the ids of an owner's chats, or of those in which nothing was said for ``unchanged_for`` seconds."""
        before = None if unchanged_for is None else time.time() - unchanged_for
        return [
            chat_id
            for chat_id, chat in self._chats.items()
            if (owner is None or _row(chat).owner == owner) and (before is None or _row(chat).updated < before)
        ]

    async def id_of_shared(self, token: str) -> str | None:
        """Return the id of the chat that a token shares."""
        return next((chat_id for chat_id, chat in self._chats.items() if _row(chat).share == token), None)

    async def orphaned(self) -> list[str]:
        """Return the ids of the chats whose claim nobody holds any more."""
        now = time.monotonic()
        claims = {chat_id: chat.claim for chat_id, chat in self._chats.items()}
        return [chat_id for chat_id, claim in claims.items() if claim and not self.is_held(claim, now)]

    def is_held(self, row: ClaimRow, now: float) -> bool:
        """Tell whether a claim is held still."""
        return row.expires > now or self.drives(row.claim.run_id)


def _row(chat: _Chat) -> ChatRow:
    assert chat.row is not None
    return chat.row


def _order(chat: _Chat) -> tuple[bool, float, str]:
    row = _row(chat)
    return row.pinned, row.updated, row.id


def _matches(chat: _Chat, query: str) -> bool:
    if not query:
        return True
    texts = (_row(chat).title, *(text_of(message.read(), "\n") for message in chat.messages.values()))
    return any(query in searchable(text) for text in texts)


class _MemoryTransaction:
    """A copy of one chat."""

    def __init__(self, store: MemoryChats, record: _Chat) -> None:
        self.record = record
        self._is_held = store.is_held
        self.now = time.time()
        self.lease_now = time.monotonic()  # leases are of this process only, and a wall clock may jump

    @property
    def chat(self) -> ChatRow | None:
        return self.record.row

    @chat.setter
    def chat(self, row: ChatRow | None) -> None:
        self.record.row = row

    async def put_chat(self, row: ChatRow) -> None:
        self.record.row = row

    async def nodes(self, *, with_content: bool = False) -> list[MessageNode]:
        del with_content  # it is there
        return list(self.record.nodes.values())

    async def messages(self, keys: Collection[int]) -> dict[int, UIMessage]:
        messages = self.record.messages
        return {key: messages[key].read() async for key in paced(keys) if key in messages}

    async def put_message(self, node: MessageNode, message: UIMessage, *, has_grown: bool = True) -> None:
        del has_grown  # a message is replaced as a whole
        if (before := self.record.nodes.get(node.key)) is not None:
            node = msgspec.structs.replace(node, created=before.created, feedback=before.feedback)
        self.record.nodes[node.key] = node
        self.record.messages[node.key] = _MessageText.of(write_text(message))

    async def put_feedback(self, key: int, feedback: Any) -> None:
        self.record.nodes[key] = msgspec.structs.replace(self.record.nodes[key], feedback=feedback)

    async def grow(self, key: int, number: int, growth: Growth) -> None:  # noqa: ARG002 (nothing is kept apart here)
        before = self.record.messages[key]
        self.record.messages[key] = _MessageText.of(before.body, *before.growths, write_text(growth))

    async def claim(self) -> ClaimRow | None:
        row = self.record.claim
        return None if row is None else msgspec.structs.replace(row, is_held=self._is_held(row, self.lease_now))

    async def put_claim(
        self, claim: Claim, lease: float, *, is_ours: bool = True, journal: Journal = _NEW_JOURNAL
    ) -> None:
        del is_ours  # a process that dies takes its chats with it
        assert self.record.claim is None
        self.record.claim = ClaimRow(claim, time.monotonic() + lease, journal=journal)

    async def renew_claim(
        self, claim: Claim, lease: float, chunks: int | None = None, finished: int | None = None
    ) -> bool | None:
        row = self.record.claim
        if row is None or not row.claim.is_same(claim):
            return None
        journal = row.journal
        if finished is not None and finished > journal.finished:
            journal = msgspec.structs.replace(journal, finished=finished, stalled=0)
        sent = row.chunks if chunks is None else chunks
        self.record.claim = ClaimRow(row.claim, time.monotonic() + lease, chunks=sent, journal=journal)
        return journal.stop

    async def put_stalled(self, stalled: int) -> None:
        if (row := self.record.claim) is not None:
            journal = msgspec.structs.replace(row.journal, stalled=stalled)
            self.record.claim = msgspec.structs.replace(row, journal=journal)

    async def order_stop(self) -> None:
        if (row := self.record.claim) is not None:
            journal = msgspec.structs.replace(row.journal, stop=True)
            self.record.claim = msgspec.structs.replace(row, journal=journal)

    async def steps(self) -> bool:
        return bool(self.record.steps)

    async def step(self, name: str, ordinal: int) -> StoredStep | None:
        key = (name, ordinal)
        return StoredStep(self.record.steps[key]) if key in self.record.steps else None

    async def put_step(self, name: str, ordinal: int, result: str | None) -> None:
        self.record.steps[name, ordinal] = result

    async def delete_steps(self) -> None:
        self.record.steps = {}

    async def delete_claim(self) -> None:
        self.record.claim = None

    async def put_blob(self, blob: Blob) -> None:
        self.record.blobs[blob.id] = blob

    async def blob(self, blob_id: str) -> Blob | None:
        return self.record.blobs.get(blob_id)

    async def blobs(self) -> list[Blob]:
        return sorted(self.record.blobs.values(), key=lambda blob: blob.id)

    async def put_state(self, handle: str, state: bytes) -> None:
        self.record.states[handle] = state

    async def state(self, handle: str) -> bytes | None:
        return self.record.states.get(handle)

    async def take_state(self, handle: str) -> bytes | None:
        return self.record.states.pop(handle, None)

    async def delete(self) -> None:
        self.record = _Chat()
