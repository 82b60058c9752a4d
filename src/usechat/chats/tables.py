"""The tables of the chat store. The migrations make them; a test keeps both in step.

Their names begin with ``usechat_``, so that they can stand in a database of your own. Times are seconds since 1970, by
the clock of the database.
"""

from typing import Final

from usechat.errors import MissingDependency

try:
    from sqlalchemy import (
        BigInteger,
        Boolean,
        CheckConstraint,
        Column,
        Double,
        ForeignKey,
        ForeignKeyConstraint,
        Index,
        Integer,
        LargeBinary,
        MetaData,
        Table,
        Text,
        UniqueConstraint,
        false,
    )
except ImportError:
    raise MissingDependency("sqlalchemy", "chats") from None

__all__ = ["BLOBS", "CHATS", "CLAIMS", "GROWTH", "MESSAGES", "METADATA", "STATES", "STEPS"]

METADATA: Final = MetaData()

_KEY: Final = BigInteger().with_variant(Integer, "sqlite")
"""SQLite numbers the rows of a table by itself only if the type is called INTEGER."""

CHATS: Final = Table(
    "usechat_chats",
    METADATA,
    Column("key", _KEY, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("owner", Text, nullable=False),
    Column("title", Text, nullable=False),
    Column("titled_by", Text, nullable=False),
    Column("search", Text, nullable=False),
    Column("agent", Text, nullable=False),
    Column("created", Double, nullable=False),
    Column("updated", Double, nullable=False),
    Column("pinned", Boolean, nullable=False),
    Column("archived", Boolean, nullable=False),
    Column("leaf", Integer),
    Column("version", Integer, nullable=False),
    Column("share", Text),
    Index("usechat_chats_by_share", "share", unique=True),
    Index("usechat_chats_by_owner", "owner", "pinned", "updated", "key"),
    Index("usechat_chats_by_update", "updated"),
)
"""A chat. ``leaf`` is the ``sequence`` of a message; ``search`` is the title in lower case; ``share``
is the token of its share link, if it has one."""

MESSAGES: Final = Table(
    "usechat_messages",
    METADATA,
    Column("chat", _KEY, ForeignKey("usechat_chats.key", ondelete="CASCADE"), primary_key=True),
    Column("sequence", Integer, primary_key=True, autoincrement=False),
    Column("parent", Integer),
    Column("id", Text, nullable=False),
    Column("alias", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("outcome", Text),
    Column("given", Text, nullable=False),
    Column("agent", Text, nullable=False, server_default=""),
    Column("created", Double, nullable=False),
    Column("feedback", Text),
    Column("search", Text, nullable=False),
    Column("body", Text, nullable=False),
    UniqueConstraint("chat", "id", name="usechat_messages_id"),
    CheckConstraint("parent < sequence", name="usechat_messages_parent"),
)
"""A message: ``sequence`` is its key within the chat, ``parent`` that of its parent, which was there before it."""

GROWTH: Final = Table(
    "usechat_growth",
    METADATA,
    Column("chat", _KEY, primary_key=True),
    Column("sequence", Integer, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("growth", Text, nullable=False),
    ForeignKeyConstraint(
        ["chat", "sequence"], ["usechat_messages.chat", "usechat_messages.sequence"], ondelete="CASCADE"
    ),
)
"""How a message has grown since its body was written."""

CLAIMS: Final = Table(
    "usechat_claims",
    METADATA,
    Column("chat", _KEY, ForeignKey("usechat_chats.key", ondelete="CASCADE"), primary_key=True),
    Column("run_id", Text, nullable=False),
    Column("attempt", Integer, nullable=False, server_default="1"),
    Column("owner", Text, nullable=False, server_default=""),
    Column("chunks", Integer, nullable=False, server_default="0"),
    Column("turn", Text, nullable=False, server_default=""),
    Column("finished", Integer, nullable=False, server_default="0"),
    Column("stalled", Integer, nullable=False, server_default="0"),
    Column("stop", Boolean, nullable=False, server_default=false()),
    Column("claim", Text, nullable=False),
    Column("expires", Double, nullable=False),
    Index("usechat_claims_by_end", "expires"),
)
"""The run that may write a chat. The primary key is what guarantees that it is one, ``run_id`` and ``attempt`` are the
fence. ``owner`` is the instance that holds the claim, empty if its lease alone decides; ``chunks`` is how many chunks
of the answer were sent when it was saved last. The journal of the answer is ``turn`` (the request, as JSON),
``finished`` (how many parts it had when its last finished step ended), ``stalled`` (how many processes have gone
on with it since then, without those that have left it in order) and ``stop`` (whether somebody has ordered its end)."""

BLOBS: Final = Table(
    "usechat_blobs",
    METADATA,
    Column("chat", _KEY, ForeignKey("usechat_chats.key", ondelete="CASCADE"), primary_key=True),
    Column("id", Text, primary_key=True),
    Column("media_type", Text, nullable=False),
    Column("data", LargeBinary, nullable=False),
)
"""The files of a chat."""

STATES: Final = Table(
    "usechat_states",
    METADATA,
    Column("chat", _KEY, ForeignKey("usechat_chats.key", ondelete="CASCADE"), primary_key=True),
    Column("handle", Text, primary_key=True),
    Column("state", LargeBinary, nullable=False),
)
"""The states of paused agents, see :mod:`usechat.pauses.states`."""

STEPS: Final = Table(
    "usechat_steps",
    METADATA,
    Column("chat", _KEY, ForeignKey("usechat_chats.key", ondelete="CASCADE"), primary_key=True),
    Column("name", Text, primary_key=True),
    Column("ordinal", Integer, primary_key=True, autoincrement=False),
    Column("result", Text),
)
"""The steps of the agent function that answers a chat (``turn.step``); ``result`` is empty while one runs."""
