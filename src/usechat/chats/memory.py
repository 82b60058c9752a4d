"""Chats in the memory of one process: bounded, and gone with it."""

import asyncio
import copy
import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from usechat.chats.blobs import Blob, BlobStore
from usechat.chats.chat import MessageNode, searchable, text_of, write_text
from usechat.chats.growth import Growth, grown
from usechat.chats.store import ChatStore
from usechat.chats.transaction import (
    ChatPage,
    ChatRow,
    Claim,
    ClaimRow,
    ListedChat,
    paced,
    read_cursor,
    write_cursor,
)
from usechat.errors import ChatNotFound
from usechat.protocol.ui_messages import UIMessage

__all__ = ["MemoryChats"]


class _Chat(msgspec.Struct):
    """What is known of one chat; messages are never changed in place, so that a shallow copy is a snapshot."""

    row: ChatRow | None = None
    nodes: dict[int, MessageNode] = {}
    messages: dict[int, UIMessage] = {}
    sizes: dict[int, int] = {}
    blobs: dict[str, Blob] = {}
    states: dict[str, bytes] = {}
    claim: ClaimRow | None = None

    @property
    def size(self) -> int:
        files = sum(len(blob.data) for blob in self.blobs.values())
        return sum(self.sizes.values()) + files + sum(map(len, self.states.values()))

    def snapshot(self) -> "_Chat":
        return msgspec.structs.replace(
            self,
            nodes=dict(self.nodes),
            messages=dict(self.messages),
            sizes=dict(self.sizes),
            blobs=dict(self.blobs),
            states=dict(self.states),
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
            yield _MemoryTransaction(self._chats.get(chat_id, _Chat()).snapshot())
            return
        async with self._lock:
            before = self._chats.get(chat_id)
            changed = _MemoryTransaction((before or _Chat()).snapshot())
            yield changed
            self._replace(chat_id, before, changed.found)

    def _replace(self, chat_id: str, before: _Chat | None, after: _Chat) -> None:
        self._bytes += (after.size if after.row is not None else 0) - (before.size if before is not None else 0)
        self._chats.pop(chat_id, None)
        if after.row is not None:
            self._chats[chat_id] = after
        self._forget()

    def _forget(self) -> None:
        """Forget the oldest chats until what is left is within the limits."""
        if len(self._chats) <= self._maximum_chats and self._bytes <= self._maximum_bytes:
            return
        idle = [chat for chat in self._chats.values() if chat.claim is None]
        for chat in sorted(idle, key=lambda chat: chat.row.updated if chat.row else 0)[: -1 if len(idle) > 1 else None]:
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
        found = [chat for chat in self._chats.values() if owner is None or _row(chat).owner == owner]
        after = self._position(owner, cursor, starting_after)
        matching = [
            chat
            for chat in found
            if (archived is None or _row(chat).archived == archived) and _matches(chat, searchable(query))
        ]
        ordered = sorted(matching, key=_order, reverse=True)
        page = [chat for chat in ordered if after is None or _order(chat) < after][: limit + 1]
        now = time.time()
        listed = [ListedChat(_row(chat), chat.claim is not None and chat.claim.expires > now) for chat in page[:limit]]
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

    async def expired(self) -> list[str]:
        """Return the ids of the chats whose claim has expired."""
        now = time.time()
        return [chat_id for chat_id, chat in self._chats.items() if chat.claim and chat.claim.expires <= now]


def _row(chat: _Chat) -> ChatRow:
    assert chat.row is not None
    return chat.row


def _order(chat: _Chat) -> tuple[bool, float, str]:
    row = _row(chat)
    return row.pinned, row.updated, row.id


def _matches(chat: _Chat, query: str) -> bool:
    texts = [_row(chat).title, *(text_of(message) for message in chat.messages.values())] if query else [""]
    return any(query in searchable(text) for text in texts)


class _MemoryTransaction:
    """A copy of one chat."""

    def __init__(self, found: _Chat) -> None:
        self.found = found
        self.now = time.time()

    @property
    def chat(self) -> ChatRow | None:
        return self.found.row

    @chat.setter
    def chat(self, row: ChatRow | None) -> None:
        self.found.row = row

    async def put_chat(self, row: ChatRow) -> None:
        self.found.row = row

    async def nodes(self) -> list[MessageNode]:
        return list(self.found.nodes.values())

    async def messages(self, keys: Collection[int]) -> dict[int, UIMessage]:
        return {key: copy.deepcopy(self.found.messages[key]) async for key in paced(keys)}

    async def put_message(self, node: MessageNode, message: UIMessage) -> None:
        if (before := self.found.nodes.get(node.key)) is not None:
            node = msgspec.structs.replace(node, created=before.created, feedback=before.feedback)
        self.found.nodes[node.key] = node
        self.found.messages[node.key] = copy.deepcopy(message)
        self.found.sizes[node.key] = len(write_text(message))

    async def put_feedback(self, key: int, feedback: Any) -> None:
        self.found.nodes[key] = msgspec.structs.replace(self.found.nodes[key], feedback=feedback)

    async def grow(self, key: int, number: int, growth: Growth) -> None:  # noqa: ARG002 (nothing is kept apart here)
        self.found.messages[key] = grown(self.found.messages[key], copy.deepcopy(growth))
        self.found.sizes[key] += len(write_text(growth))

    async def claim(self) -> ClaimRow | None:
        return self.found.claim

    async def put_claim(self, claim: Claim, lease: float) -> None:
        assert self.found.claim is None
        self.found.claim = ClaimRow(claim, time.time() + lease)

    async def renew_claim(self, run_id: str, lease: float) -> bool:
        row = self.found.claim
        if row is None or row.claim.run_id != run_id or row.expires <= self.now:
            return False
        self.found.claim = ClaimRow(row.claim, time.time() + lease)
        return True

    async def delete_claim(self) -> None:
        self.found.claim = None

    async def put_blob(self, blob: Blob) -> None:
        self.found.blobs[blob.id] = blob

    async def blob(self, blob_id: str) -> Blob | None:
        return self.found.blobs.get(blob_id)

    async def blobs(self) -> list[Blob]:
        return sorted(self.found.blobs.values(), key=lambda blob: blob.id)

    async def put_state(self, handle: str, state: bytes) -> None:
        self.found.states[handle] = state

    async def take_state(self, handle: str) -> bytes | None:
        return self.found.states.pop(handle, None)

    async def delete(self) -> None:
        self.found = _Chat()
