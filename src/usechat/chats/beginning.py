"""The beginning of a turn: what a request changes in a stored chat, in one transaction, and the result."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from usechat.chats.blobs import Blob, stored_file_ids
from usechat.chats.chat import (
    ENDED_BADLY,
    MessageNode,
    Outcome,
    Tree,
    check_id,
    digest_of,
    is_behind,
    open_calls,
    take_answers,
    without_transient,
)
from usechat.chats.meaning import AnswerTo, Continue, Join, Running, interpret
from usechat.chats.titles import first_words
from usechat.chats.transaction import ChatRow, Claim, Journal, Transaction, existing_chat, owned_chat, paced
from usechat.errors import InvalidMessages, InvalidRequest
from usechat.ids import new_id
from usechat.protocol.mcp_apps import without_apps
from usechat.protocol.request import ChatRequest
from usechat.protocol.ui_messages import UIMessage, is_settled, tool_parts_of
from usechat.protocol.validation import validate_messages

__all__ = ["Answered", "Beginning", "Begun", "Busy", "Claimant", "Expired", "Joined", "clean_if_valid"]


class Begun(msgspec.Struct, frozen=True, kw_only=True):
    """A run may start. ``request`` is what its agent gets: the stored branch, and the answers that were taken.

    ``claim`` is the right to write the answer, ``chat`` the chat, and ``is_new`` says whether this request created it.
    ``continues`` is the stored message that the answer continues. ``known_ids`` are the ids that the answer must not
    have, unless it continues that message.

    >>> from usechat import ChatRequest
    >>> import asyncio
    >>> from usechat.chats import MemoryChats
    >>> question = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Hello"}]}
    >>> request = ChatRequest.parse({"id": "c1", "messages": [question]})
    >>> result = asyncio.run(MemoryChats().begin(request, owner="ada", run_id="r1"))
    >>> result.is_new, result.request.text, result.chat.title
    (True, 'Hello', 'Hello')
    """

    claim: Claim
    request: ChatRequest
    chat: ChatRow
    continues: UIMessage | None = None
    known_ids: frozenset[str] = frozenset()
    is_new: bool = False


class Joined(msgspec.Struct, frozen=True):
    """The request is for the answer that is running.

    ``has_message`` says whether the page has the message that this answer continues.

    >>> from usechat import ChatRequest
    >>> import asyncio
    >>> from usechat.chats import MemoryChats
    >>> question = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Hello"}]}
    >>> async def main(chats):
    ...     request = ChatRequest.parse({"id": "c1", "messages": [question]})
    ...     return [await chats.begin(request, owner="ada", run_id=run_id) for run_id in ("r1", "r2")]
    >>> first, joined = asyncio.run(main(MemoryChats()))
    >>> type(joined).__name__, joined.claim == first.claim
    ('Joined', True)
    """

    claim: Claim
    has_message: bool = False


class Busy(msgspec.Struct, frozen=True):
    """Another answer is running; nothing was stored. The conflict policy decides, and may ask again.

    ``is_edit`` says whether the request replaces the very message that is being answered.

    >>> from usechat import ChatRequest
    >>> import asyncio
    >>> from usechat.chats import MemoryChats
    >>> async def main(chats):
    ...     for number in (1, 2):
    ...         question = {"id": f"u{number}", "role": "user", "parts": [{"type": "text", "text": "Hello"}]}
    ...         request = ChatRequest.parse({"id": "c1", "messages": [question]})
    ...         result = await chats.begin(request, owner="ada", run_id=f"r{number}")
    ...     return result
    >>> busy = asyncio.run(main(MemoryChats()))
    >>> type(busy).__name__, busy.claim.run_id
    ('Busy', 'r1')
    """

    claim: Claim
    is_edit: bool = False


class Answered(msgspec.Struct, frozen=True):
    """Everything that the request answers was answered before.

    ``message`` is the answer as it is stored, ``copy`` is the page's copy, which is older.

    >>> stored = {"id": "m1", "role": "assistant", "parts": [{"type": "text", "text": "Done."}]}
    >>> match Answered(stored, {**stored, "parts": []}):
    ...     case Answered(message, copy):
    ...         print("send", message["parts"][len(copy["parts"]) :])
    send [{'type': 'text', 'text': 'Done.'}]
    """

    message: UIMessage
    copy: UIMessage


class Claimant(msgspec.Struct, frozen=True, kw_only=True):
    """The run for which a chat is claimed.

    ``owner`` is who asks, ``agent`` names what answers, ``is_queued`` says that another process will, and ``turn`` is
    the request as the server has encoded it, for a process that continues the answer.
    """

    owner: str
    run_id: str
    agent: str = ""
    is_queued: bool = False
    turn: str = ""


class Expired(msgspec.Struct, frozen=True):
    """A request found an answer that must be declared lost first; nothing was done."""


class _Store(Protocol):
    """What a beginning needs of the chat store."""

    lease: float

    async def put_blobs(self, transaction: Transaction, chat_id: str, blobs: Iterable[Blob]) -> None: ...


def _clean(message: UIMessage) -> UIMessage:
    """Return a message as the AI SDK would accept it; raises InvalidRequest if it would not."""
    try:
        return validate_messages([message])[0]
    except InvalidMessages as error:
        raise InvalidRequest(f"a message cannot be stored: {error}") from None


def clean_if_valid(message: UIMessage) -> UIMessage:
    """Return a user message without keys that are not stored, so that it can be compared with a stored one."""
    try:
        return message if message["role"] == "assistant" else _clean(message)
    except InvalidRequest:
        return message


def _approved_and_settled(message: UIMessage) -> frozenset[str]:
    """Return the calls whose outcome the server knows: it is no output that the page has given."""
    return frozenset(part["toolCallId"] for part in tool_parts_of(message) if "approval" in part and is_settled(part))


class Beginning:
    """Carries out one request in a transaction."""

    def __init__(
        self,
        store: _Store,
        transaction: Transaction,
        request: ChatRequest,
        blobs: Mapping[str, Blob],
        claimant: Claimant,
    ) -> None:
        self._store = store
        self._transaction = transaction
        self._request = request
        self._blobs = blobs
        self._claimant = claimant
        self._owner = claimant.owner
        self._run_id = claimant.run_id
        self._agent = claimant.agent
        self._tree = Tree()
        self._is_new = transaction.chat is None

    async def begin(
        self, *, check_import: Callable[[ChatRequest], ChatRequest] | None
    ) -> Begun | Joined | Busy | Answered | Expired:
        """Do what the request means; without effect if it cannot be done now."""
        transaction = self._transaction
        row = None
        if not self._is_new:
            owned_chat(transaction, self._owner)
            row = await transaction.claim()
            if row is not None and not row.is_held:
                return Expired()
            # While an answer runs nothing is given to an agent.
            nodes = await transaction.nodes(with_content=row is None)
            self._tree = Tree(nodes, existing_chat(transaction).leaf)
        elif check_import is not None:
            self._request = check_import(self._request)
            await self._import()
        running = None if row is None else Running(row.claim.key, row.claim.parent)
        match interpret(self._tree, self._request, running):
            case Join(has_message):
                assert row is not None
                return Joined(row.claim, has_message)
            case meaning if row is not None:
                return Busy(row.claim, isinstance(meaning, AnswerTo) and self._replaces(row.claim.parent, meaning))
            case AnswerTo() as meaning:
                return await self._answer(meaning)
            case Continue() as meaning:
                return await self._continue(meaning)

    def _replaces(self, question: int | None, meaning: AnswerTo) -> bool:
        """Tell whether the last new message is another version of a stored one."""
        if question is None or not meaning.new:
            return False
        node = self._tree.nodes[question]
        return bool(meaning.new[-1]["id"]) and meaning.new[-1]["id"] in (node.id, node.alias)

    async def _answer(self, meaning: AnswerTo) -> Begun:
        parent = meaning.parent
        for message in meaning.new:
            parent = (await self._store_message(message, parent)).key
        branch = [] if parent is None else self._tree.branch(parent)
        message_id = self._tree.free_id("", lambda: f"msg-{new_id()}")
        claim = Claim(
            chat_id=self._request.chat_id,
            run_id=self._run_id,
            key=self._tree.next_key,
            parent=parent,
            message_id=message_id,
            agent=self._agent,
        )
        messages = await self._messages(branch)
        request = msgspec.structs.replace(self._request, messages=messages, message_id=None, pending_calls=frozenset())
        return await self._begun(claim, request, None, leaf=parent, agent=self._agent)

    async def _continue(self, meaning: Continue) -> Begun | Answered:
        node = self._tree.nodes[meaning.key]
        *earlier, stored = await self._messages(self._tree.branch(meaning.key))
        merged, call_ids = take_answers(stored, meaning.copy)
        if not call_ids and meaning.copy is not None and is_behind(meaning.copy, stored):
            return Answered(stored, meaning.copy)
        given_ids = {*call_ids, *(node.given if node.outcome in ENDED_BADLY else ())} - _approved_and_settled(stored)
        if self._is_new:  # an imported message: its answers were checked by the server
            given_ids |= self._request.pending_calls or set()
        claim = Claim(
            chat_id=self._request.chat_id,
            run_id=self._run_id,
            key=node.key,
            parent=node.parent,
            message_id=node.id,
            answerable=tuple(sorted(open_calls(merged))),
            given=tuple(sorted(given_ids)),
            agent=self._agent or node.agent,
            begun=len(merged["parts"]),
        )
        running = msgspec.structs.replace(node, outcome="running", given=claim.given)
        await self._transaction.put_message(running, merged)
        request = msgspec.structs.replace(
            self._request,
            messages=[*earlier, merged],
            trigger="submit-message",
            message_id=node.id,
            pending_calls=frozenset(given_ids),
        )
        is_earlier = node.key in {each.key for each in self._tree.branch()} and node.key != self._tree.leaf
        leaf = self._tree.leaf if is_earlier else node.key
        return await self._begun(claim, request, merged, leaf=leaf, agent="" if is_earlier else claim.agent)

    async def _begun(
        self, claim: Claim, request: ChatRequest, continues: UIMessage | None, *, leaf: int | None, agent: str
    ) -> Begun:
        """Claim the chat; without an ``agent``, the one that answers it stays the same."""
        transaction = self._transaction
        chat = await self._chat()
        title = chat.title if chat.title or chat.titled_by != "words" else first_words(request.messages)
        chat = msgspec.structs.replace(
            chat,
            leaf=leaf,
            title=title,
            agent=agent or chat.agent,
            updated=transaction.now,
            version=chat.version if self._is_new else chat.version + 1,
        )
        await transaction.put_chat(chat)
        finished = 0 if continues is None else len(continues["parts"])
        journal = Journal(turn=self._claimant.turn, finished=finished)
        await transaction.put_claim(claim, self._store.lease, is_ours=not self._claimant.is_queued, journal=journal)
        known_ids = frozenset(node.id for node in self._tree.nodes.values())
        return Begun(
            claim=claim, request=request, chat=chat, continues=continues, known_ids=known_ids, is_new=self._is_new
        )

    async def _import(self) -> None:
        """Store the messages that the page has of a chat that the store does not know, besides a new question."""
        messages = self._request.messages
        if messages and messages[-1]["role"] != "assistant":
            messages = messages[:-1]
        async for message in paced(messages):
            try:
                node = await self._store_message(without_apps(message), self._tree.leaf)
            except InvalidRequest:  # the page's copy is not to be trusted: what no client would accept is left out
                continue
            self._tree.leaf = node.key

    async def _store_message(self, message: UIMessage, parent: int | None) -> MessageNode:
        message = without_transient(_clean(message))
        check_id(message["id"], "the message id")
        message_id = self._tree.free_id(message["id"], new_id)
        is_answer = message["role"] == "assistant"
        outcome: Outcome = "waiting" if open_calls(message) else "finished"
        node = MessageNode(
            key=self._tree.next_key,
            parent=parent,
            id=message_id,
            role=message["role"],
            alias="" if is_answer else message["id"],
            digest="" if is_answer else digest_of(message),
            outcome=outcome if is_answer else None,
            created=self._transaction.now,
        )
        await self._chat()
        used = [self._blobs[blob_id] for blob_id in stored_file_ids(message) if blob_id in self._blobs]
        await self._store.put_blobs(self._transaction, self._request.chat_id, used)
        await self._transaction.put_message(node, {**message, "id": message_id}, has_grown=False)
        self._tree.add(node)
        return node

    async def _chat(self) -> ChatRow:
        """Return the chat, which is made if it does not exist."""
        transaction = self._transaction
        if transaction.chat is None:
            now = transaction.now
            await transaction.put_chat(ChatRow(id=self._request.chat_id, owner=self._owner, created=now, updated=now))
        return existing_chat(transaction)

    async def _messages(self, branch: Sequence[MessageNode]) -> list[UIMessage]:
        messages = await self._transaction.messages([node.key for node in branch])
        return [messages[node.key] for node in branch]
