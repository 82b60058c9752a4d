"""A chat as a page sees it."""

from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from usechat.chats.chat import MessageNode, Outcome, Tree
from usechat.chats.transaction import ChatRow, Claim, ClaimRow, Transaction, owned_chat
from usechat.protocol.ui_messages import UIMessage

__all__ = ["ChatView", "LoadedChat"]


class LoadedChat(msgspec.Struct, frozen=True, kw_only=True):
    """A chat as a page loads it: the current branch, and data that is not part of a message.

    While an answer runs, ``messages`` ends before it, and ``running`` is its claim, with the id that is stored.
    ``siblings`` has an entry for each message that has other versions: the ids of all of them, the oldest first.
    ``head_id`` is the last message that is shown. ``outcomes`` (how an answer ended), ``created`` (seconds since 1970)
    and ``feedback`` are by message id. An answer that runs on another branch is not ``running`` here.

    ``tree`` has all messages but a running answer, as ``{parentId, message}``, parents first, if it was asked for; then
    ``siblings``, ``outcomes``, ``created`` and ``feedback`` are about all of them, too.

    >>> from usechat import ChatRequest
    >>> import asyncio
    >>> from usechat.chats import MemoryChats
    >>> question = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Hello"}]}
    >>> async def main(chats):
    ...     await chats.begin(ChatRequest.parse({"id": "c1", "messages": [question]}), owner="ada", run_id="r1")
    ...     return await chats.load("c1", owner="ada")
    >>> loaded = asyncio.run(main(MemoryChats()))
    >>> len(loaded.messages), loaded.running.run_id
    (1, 'r1')
    """

    chat: ChatRow
    messages: list[UIMessage]
    head_id: str | None
    siblings: dict[str, list[str]]
    running: Claim | None
    outcomes: dict[str, Outcome]
    created: dict[str, float]
    feedback: dict[str, Any]
    tree: list[dict[str, Any]] = []

    @property
    def version(self) -> int:
        """The version that a change must name."""
        return self.chat.version


class ChatView:
    """A chat as it is shown: without the answer that is running.

    ``is_orphaned`` says that the process of that answer is dead: it must be declared lost before the chat is shown.
    """

    def __init__(
        self, transaction: Transaction, chat: ChatRow, nodes: Iterable[MessageNode], row: ClaimRow | None
    ) -> None:
        self.chat = chat
        self.running = None if row is None else row.claim
        self.is_orphaned = row is not None and not row.is_held
        self.transaction = transaction
        self.tree = Tree(nodes, chat.leaf)
        if self.running is not None and (answer := self.tree.nodes.get(self.running.key)) is not None:
            # Its agent may have named the message since the claim was made.
            self.running = msgspec.structs.replace(self.running, message_id=answer.id)
        self._hidden = self._below_running()

    @classmethod
    async def of(cls, transaction: Transaction, owner: str | None) -> "ChatView":
        """Return the chat of a transaction as its owner sees it. Raises ``ChatNotFound``."""
        chat = owned_chat(transaction, owner)
        return cls(transaction, chat, await transaction.nodes(), await transaction.claim())

    def visible(self) -> list[MessageNode]:
        """Return all messages that are shown, parents first."""
        return [node for node in self.tree.nodes.values() if node.key not in self._hidden]

    def visible_branch(self) -> list[MessageNode]:
        """Return the messages of the current branch that are shown."""
        return [node for node in self.tree.branch() if node.key not in self._hidden]

    def is_running_below(self, branch: list[MessageNode]) -> bool:
        """Tell whether an answer is running that follows a branch."""
        return self.running is not None and self.running.parent == (branch[-1].key if branch else None)

    def siblings(self, nodes: Iterable[MessageNode]) -> dict[str, list[str]]:
        """Return the ids of all versions of each message that has several."""
        by_parent: dict[int | None, list[str]] = {}
        for node in self.visible():
            by_parent.setdefault(node.parent, []).append(node.id)
        return {node.id: by_parent[node.parent] for node in nodes if len(by_parent[node.parent]) > 1}

    async def messages(self, keys: Collection[int]) -> dict[int, UIMessage]:
        """Return the content of messages."""
        return await self.transaction.messages(keys)

    def _below_running(self) -> set[int]:
        """Return the running answer and everything below it: a message is not shown without its parent."""
        if self.running is None:
            return set()
        hidden = {self.running.key}
        for node in self.tree.nodes.values():  # parents first
            if node.parent in hidden:
                hidden.add(node.key)
        return hidden
