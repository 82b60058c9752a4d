"""What a database implements for a chat store: rows, transactions over one chat, and pages of the list.

:mod:`usechat.chats.store` has everything that does not depend on the database.
"""

import asyncio
import base64
from collections.abc import AsyncIterator, Collection, Iterable
from typing import Any, Final, Protocol, TypeVar, cast

import msgspec

from usechat.chats.blobs import Blob
from usechat.chats.chat import MessageNode, Outcome
from usechat.chats.documents import TitledBy
from usechat.chats.growth import Growth
from usechat.errors import ChatNotFound, InvalidRequest
from usechat.protocol.ui_messages import UIMessage

__all__ = [
    "ChatPage",
    "ChatRow",
    "Claim",
    "ClaimRow",
    "Journal",
    "ListedChat",
    "LostAnswer",
    "Orphan",
    "Progress",
    "StoredStep",
    "Transaction",
    "existing_chat",
    "owned_chat",
    "paced",
    "read_cursor",
    "write_cursor",
]

_Position = TypeVar("_Position", bound=tuple[Any, ...])
_Item = TypeVar("_Item")

_AT_ONCE: Final = 50
"""How many messages are read, copied or checked before others have the event loop."""


class ChatRow(msgspec.Struct, frozen=True, kw_only=True):
    """A chat without its messages. ``leaf`` is the key of the last message that is shown.

    ``agent`` names the agent of the chat. ``created`` and ``updated`` are seconds since 1970. ``pinned`` and
    ``archived`` are for the list.
    ``version`` grows with every change that another page should know of. ``titled_by`` says who made the title: a
    person's title is not replaced by a function's. ``share`` is the token of its read-only link, if it has one.

    >>> from usechat import ChatRequest
    >>> import asyncio
    >>> from usechat.chats import MemoryChats
    >>> question = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Hello"}]}
    >>> async def main(chats):
    ...     await chats.begin(ChatRequest.parse({"id": "c1", "messages": [question]}), owner="ada", run_id="r1")
    ...     return await chats.change("c1", owner="ada", title="A greeting", pinned=True)
    >>> row = asyncio.run(main(MemoryChats()))
    >>> row.title, row.titled_by, row.pinned
    ('A greeting', 'person', True)
    """

    id: str
    owner: str
    title: str = ""
    titled_by: TitledBy = "words"
    agent: str = ""
    created: float
    updated: float
    pinned: bool = False
    archived: bool = False
    leaf: int | None = None
    version: int = 1
    share: str | None = None


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """The right of one run to write the answer of a chat.

    ``key`` is the number of the answer in the chat, ``parent`` that of the message before it, and ``message_id`` the id
    that the answer gets. ``begun`` is how many parts it had when the run began. ``attempt`` grows with each process
    that writes the answer: ``(run_id, attempt)`` is the fence that keeps an earlier one from writing. ``answerable``
    are the calls that stay open for the page if the run ends badly: they were open before it. ``given`` are the calls
    whose answers the run was given. ``agent`` names the agent.

    >>> claim = Claim(chat_id="c1", run_id="r1", key=2, parent=1, message_id="m1")
    >>> claim.message_id
    'm1'
    """

    chat_id: str
    run_id: str
    key: int
    parent: int | None
    message_id: str
    answerable: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    agent: str = ""
    attempt: int = 1
    begun: int = 0

    def is_same(self, other: "Claim") -> bool:
        """Tell whether two claims are one: of the same run, in the same attempt."""
        return (self.run_id, self.attempt) == (other.run_id, other.attempt)


class Journal(msgspec.Struct, frozen=True, kw_only=True):
    """What a message does not say of the run that writes it, for a process that continues it.

    ``turn`` is the request as the server has encoded it; empty if the answer cannot be continued. ``finished`` is how
    many parts the answer had when its last finished step ended, ``stalled`` how many processes have gone on with it
    since then, without those that have left it in order. ``stop`` says that somebody has ordered its end.
    """

    turn: str = ""
    finished: int = 0
    stalled: int = 0
    stop: bool = False


class ClaimRow(msgspec.Struct, frozen=True):
    """A claim as it is stored.

    ``is_held`` is false if nobody holds it any more: its lease has expired, or its process is dead. A run that is alive
    in this process holds its claim in any case. ``chunks`` is how many chunks of the answer were sent when it was saved
    last. ``instance`` is the one that holds it, or empty if its lease alone decides.
    """

    claim: Claim
    expires: float
    is_held: bool = True
    chunks: int = 0
    journal: Journal = Journal()
    instance: str = ""

    def is_renewed_since(self, earlier: "ClaimRow") -> bool:
        """Tell whether the run that had the claim then has renewed it."""
        return self.claim.is_same(earlier.claim) and self.expires > earlier.expires


class Progress(msgspec.Struct, frozen=True):
    """How far an answer is.

    ``row`` is its claim, or ``None`` if it has ended. ``message`` is what is stored of it, if anything is, and
    ``outcome`` how it ended.
    """

    row: ClaimRow | None
    message: UIMessage | None
    outcome: Outcome | None = None


class ListedChat(msgspec.Struct, frozen=True):
    """A chat in the list.

    >>> listed = ListedChat(ChatRow(id="c1", owner="ada", title="Hello", created=0, updated=0), running=True)
    >>> f"{listed.chat.title} …" if listed.running else listed.chat.title
    'Hello …'
    """

    chat: ChatRow
    running: bool


class ChatPage(msgspec.Struct, frozen=True):
    """A page of the list; ``next_cursor`` begins the next one, if there is one.

    >>> import asyncio
    >>> from usechat.chats import MemoryChats
    >>> asyncio.run(MemoryChats().list_chats("ada"))
    ChatPage(chats=[], next_cursor=None)
    """

    chats: list[ListedChat]
    next_cursor: str | None = None


class Orphan(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that this process has taken over from one that died.

    ``history`` are the messages before it. ``message`` is what was stored of it, if anything was. ``has_steps`` says
    that its agent is a function which used ``turn.step``; it begins again. ``known_ids`` are those of all messages.
    """

    chat: ChatRow
    claim: Claim
    journal: Journal
    history: list[UIMessage]
    message: UIMessage | None
    has_steps: bool
    known_ids: frozenset[str]


class LostAnswer(msgspec.Struct, frozen=True):
    """An answer whose worker has died; ``message`` is what was stored of it, if anything was.

    >>> from usechat import ChatRequest
    >>> import asyncio
    >>> from usechat.chats import MemoryChats
    >>> question = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Hello"}]}
    >>> async def main(chats):
    ...     await chats.begin(ChatRequest.parse({"id": "c1", "messages": [question]}), owner="ada", run_id="r1")
    ...     return await chats.collect_lost()
    >>> [lost.claim.run_id for lost in asyncio.run(main(MemoryChats(lease=0)))]
    ['r1']
    """

    chat: ChatRow
    claim: Claim
    message: UIMessage | None


class StoredStep(msgspec.Struct, frozen=True):
    """A step of an agent function; ``result`` is JSON, or ``None`` if the step has not returned."""

    result: str | None


_NEW_JOURNAL: Final = Journal()


class Transaction(Protocol):
    """Reads and writes one chat. All of it is written, or nothing.

    No two transactions that write the same chat overlap. ``chat`` is the chat as the transaction sees it, ``now`` the
    time of the database when the transaction began, and ``lease_now`` the time by which claims expire.
    """

    chat: ChatRow | None
    now: float
    lease_now: float

    async def put_chat(self, row: ChatRow) -> None:
        """Insert or replace the chat. Raises ChatChanged if another transaction has inserted it meanwhile."""
        ...

    async def nodes(self, *, with_content: bool = False) -> list[MessageNode]:
        """Return all messages without their content; ``with_content`` reads that, too, for ``messages``."""
        ...

    async def messages(self, keys: Collection[int]) -> dict[int, UIMessage]:
        """Return the content of messages, grown as far as it was saved."""
        ...

    async def put_message(self, node: MessageNode, message: UIMessage, *, has_grown: bool = True) -> None:
        """Insert a message, or replace its content and outcome and forget how it has grown, if it has."""
        ...

    async def put_feedback(self, key: int, feedback: Any) -> None:
        """Store what a person thinks of a message."""
        ...

    async def grow(self, key: int, number: int, growth: Growth) -> None:
        """Store how a message has grown."""
        ...

    async def claim(self) -> ClaimRow | None:
        """Return the claim of the chat, expired or not."""
        ...

    async def put_claim(
        self, claim: Claim, lease: float, *, is_ours: bool = True, journal: Journal = _NEW_JOURNAL
    ) -> None:
        """Insert a claim that expires in ``lease`` seconds. The chat must have none.

        ``is_ours`` says that this process holds it: if it dies, the claim is void at once.
        """
        ...

    async def renew_claim(
        self, claim: Claim, lease: float, chunks: int | None = None, finished: int | None = None
    ) -> bool | None:
        """Let a claim, expired or not, expire in ``lease`` seconds from now; return ``None`` if it is not there.

        Otherwise return whether somebody has ordered the end of the answer. ``chunks`` is how many chunks of the answer
        were sent, if more of it is saved now, and ``finished`` how many parts it had at the end of its last finished
        step, if one has finished in this attempt.
        """
        ...

    async def put_stalled(self, stalled: int) -> None:
        """Store in the claim of the chat how many processes have gone on with its answer."""
        ...

    async def order_stop(self) -> None:
        """Note in the claim of the chat that its answer is to be stopped."""
        ...

    async def steps(self) -> bool:
        """Tell whether the answer has steps."""
        ...

    async def step(self, name: str, ordinal: int) -> StoredStep | None:
        """Return a step that was begun."""
        ...

    async def put_step(self, name: str, ordinal: int, result: str | None) -> None:
        """Store that a step has begun, or its result."""
        ...

    async def delete_steps(self) -> None:
        """Forget the steps of the answer."""
        ...

    async def delete_claim(self) -> None:
        """Remove the claim of the chat."""
        ...

    async def put_blob(self, blob: Blob) -> None:
        """Store a blob, unless it is there already."""
        ...

    async def blob(self, blob_id: str) -> Blob | None:
        """Return a blob."""
        ...

    async def blobs(self) -> list[Blob]:
        """Return all blobs of the chat."""
        ...

    async def put_state(self, handle: str, state: bytes) -> None:
        """Store the state of a paused agent, instead of an earlier one under the same handle."""
        ...

    async def state(self, handle: str) -> bytes | None:
        """Return a state that stays."""
        ...

    async def take_state(self, handle: str) -> bytes | None:
        """Return the state of a paused agent and delete it."""
        ...

    async def delete(self) -> None:
        """Delete the chat with everything that belongs to it."""
        ...


def existing_chat(transaction: Transaction) -> ChatRow:
    """Return the chat of a transaction. Raises ``ChatNotFound`` if it does not exist."""
    if transaction.chat is None:
        raise ChatNotFound("No such chat.")
    return transaction.chat


def owned_chat(transaction: Transaction, owner: str | None) -> ChatRow:
    """Return the chat of a transaction if it is the owner's; ``None`` owns all. Raises ``ChatNotFound``."""
    chat = existing_chat(transaction)
    if owner is not None and owner != chat.owner:
        raise ChatNotFound("No such chat.")
    return chat


async def paced(items: Iterable[_Item]) -> AsyncIterator[_Item]:
    """Yield items, and yield to the event loop after each few: a long chat must not delay the answers of others."""
    for number, item in enumerate(items, 1):
        yield item
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)


def write_cursor(position: tuple[Any, ...]) -> str:
    """Write a position in the list of chats as text that needs no escaping in a URL."""
    return base64.urlsafe_b64encode(msgspec.json.encode(position)).rstrip(b"=").decode()


def read_cursor(cursor: str, kind: type[_Position]) -> _Position:
    """Read what :func:`write_cursor` wrote, or raise :class:`~usechat.errors.InvalidRequest`."""
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        return cast("_Position", msgspec.json.decode(text, type=kind))
    except ValueError:  # of base64, of UTF-8 and of msgspec
        raise InvalidRequest("cursor is not one that a list of chats has given out") from None
