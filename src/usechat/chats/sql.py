"""Chats in a database: an SQLite file, or PostgreSQL.

SQLite is opened in WAL mode with a busy timeout, so that several processes can use one file; a transaction that writes
takes the write lock when it begins (``BEGIN IMMEDIATE``), because one that upgrades later fails at once if another
writer was faster. Within a process, writers queue for that lock here: SQLite's own waiting is a poll. On PostgreSQL a
transaction that writes locks the row of its chat.
"""

import asyncio
import functools
import logging
import time
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from usechat.chats.blobs import Blob, BlobStore
from usechat.chats.chat import MessageNode, is_id, read_text, searchable, text_of, write_text
from usechat.chats.growth import Growth, grown
from usechat.chats.store import ChatStore
from usechat.chats.tables import BLOBS, CHATS, CLAIMS, GROWTH, MESSAGES, STATES
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
from usechat.errors import ChatChanged, ChatNotFound, ChatsUnreachable, MissingDependency, UnusableChats
from usechat.protocol.ui_messages import UIMessage

try:
    from alembic.config import Config
    from alembic.migration import MigrationContext
    from alembic.script import ScriptDirectory
    from sqlalchemy import (
        URL,
        Column,
        ColumnElement,
        Connection,
        Row,
        bindparam,
        delete,
        event,
        exists,
        false,
        insert,
        literal_column,
        make_url,
        or_,
        select,
        tuple_,
        update,
    )
    from sqlalchemy.dialects import postgresql, sqlite
    from sqlalchemy.exc import ArgumentError, IntegrityError, OperationalError, SQLAlchemyError
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

    from usechat.migrations import migrate
except ImportError:
    raise MissingDependency("sqlalchemy", "chats") from None

__all__ = ["SqlChats", "chats_url"]

_logger: Final = logging.getLogger("usechat.chats")
_MIGRATIONS: Final = Path(__file__).parent / "migrations"
_VERSIONS: Final = "usechat_chats_version"
_BUSY_SECONDS: Final = 30
_READS: Final = "usechat_reads"

_DRIVERS: Final = {
    "sqlite": ("sqlite+aiosqlite", "chats"),
    "sqlite+aiosqlite": ("sqlite+aiosqlite", "chats"),
    "postgresql": ("postgresql+asyncpg", "postgresql"),
    "postgres": ("postgresql+asyncpg", "postgresql"),
    "postgresql+asyncpg": ("postgresql+asyncpg", "postgresql"),
}
"""The driver behind the scheme of a URL, and the extra that brings it."""

_Key: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""A key of a table; a larger number cannot be compared with one."""

_CLOCKS: Final[Mapping[str, Any]] = {
    "sqlite": literal_column("(julianday('now') - 2440587.5) * 86400.0"),
    "postgresql": literal_column("CAST(extract(epoch FROM clock_timestamp()) AS double precision)"),
}
_INSERTS: Final[Mapping[str, Any]] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}

_NODE: Final = [column for column in MESSAGES.c if column.name not in ("chat", "search", "body")]
_REPLACED: Final = ("parent", "id", "alias", "digest", "outcome", "given", "agent", "search", "body")
"""What a message that is written again replaces; its time and the feedback stay."""


def chats_url(given: str) -> str:
    """Return the URL of a chat database; a plain path is an SQLite file.

    >>> chats_url("chats.db")
    'sqlite+aiosqlite:///chats.db'
    """
    return given if "://" in given else f"sqlite+aiosqlite:///{given}"


class SqlChats(ChatStore):
    """Chats in a database: ``SqlChats("chats.db")``, ``SqlChats("postgresql+asyncpg://user@host/database")``.

    An SQLite file is created and its tables are upgraded by :meth:`open`, which every method calls. The tables of a
    PostgreSQL are made and upgraded by :meth:`migrate` alone: ``usechat chats migrate``. The other arguments are those
    of :class:`ChatStore`.

    Raises :class:`~usechat.errors.UnusableChats` for a URL of another kind, and from :meth:`open` if the database
    cannot be used.

    >>> import asyncio
    >>> async def main() -> list[str]:
    ...     chats = SqlChats("chats.db")
    ...     await chats.open()
    ...     try:
    ...         return await chats.ids_of(owner="ada")
    ...     finally:
    ...         await chats.close()
    >>> asyncio.run(main())
    []
    """

    def __init__(
        self, url: str, *, lease: float = 30, inline_limit: int = 16 * 1024, blobs: BlobStore | None = None
    ) -> None:
        super().__init__(lease=lease, inline_limit=inline_limit, blobs=blobs)
        self.engine, self._dialect = _engine(chats_url(url))
        self._is_open = False
        self._opening = asyncio.Lock()
        self._writing = asyncio.Lock()
        self._clock = _CLOCKS[self._dialect]
        self._insert = _INSERTS[self._dialect]
        reading = {"isolation_level": "REPEATABLE READ"} if self._dialect == "postgresql" else {}
        self._reader = self.engine.execution_options(**{_READS: True}, **reading)

    async def open(self) -> None:
        """Create or upgrade an SQLite file; check that the tables are the newest."""
        async with self._opening:
            if self._is_open:
                return
            try:
                if self._dialect == "sqlite":
                    await self._prepare_file()
                    await self.migrate()
                else:
                    async with self.engine.connect() as connection:
                        if await connection.run_sync(_revision) != _newest():
                            raise UnusableChats(_must_migrate(self.engine.url))
            except (SQLAlchemyError, OSError) as error:
                cause = getattr(error, "orig", None) or error
                raise UnusableChats(f"the chat database cannot be used: {type(cause).__name__}: {cause}") from None
            self._is_open = True

    async def migrate(self, revision: str = "head") -> None:
        """Bring the tables to a revision: ``head`` is the newest, ``base`` is none at all."""
        try:
            async with self.engine.begin() as connection:
                if revision != "head" or await connection.run_sync(_revision) != _newest():
                    await migrate(connection, _config, revision)
        except (SQLAlchemyError, OSError) as error:
            cause = getattr(error, "orig", None) or error
            raise UnusableChats(f"the chat database cannot be used: {type(cause).__name__}: {cause}") from None

    async def check(self) -> None:
        """Raise :class:`~usechat.errors.ChatsUnreachable` if the database does not answer."""
        async with self._connection(writes=False) as connection:
            await connection.execute(select(CHATS.c.key).limit(1))

    async def close(self) -> None:
        """Close the connections."""
        await self.engine.dispose()

    @asynccontextmanager
    async def transaction(self, chat_id: str, *, writes: bool = True) -> AsyncIterator["_SqlTransaction"]:
        """Begin a transaction over one chat, which need not exist."""
        async with self._connection(writes=writes) as connection:
            transaction = _SqlTransaction(connection, self._clock, self._insert)
            await transaction.begin(chat_id, writes=writes)
            yield transaction

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
        order = tuple_(CHATS.c.pinned, CHATS.c.updated, CHATS.c.key)
        running = exists().where(CLAIMS.c.chat == CHATS.c.key, CLAIMS.c.expires > self._clock)
        asked = select(CHATS, running.label("running"))
        asked = asked.order_by(*[column.desc() for column in (CHATS.c.pinned, CHATS.c.updated, CHATS.c.key)])
        if owner is not None:
            asked = asked.where(CHATS.c.owner == owner)
        if archived is not None:
            asked = asked.where(CHATS.c.archived == archived)
        if query:
            asked = asked.where(_contains(query))
        async with self._connection(writes=False) as connection:
            if cursor is not None:
                asked = asked.where(order < read_cursor(cursor, tuple[bool, float, _Key]))
            elif starting_after is not None:
                asked = asked.where(order < await _position(connection, owner, starting_after))
            rows = (await connection.execute(asked.limit(limit + 1))).all()
        listed = [ListedChat(_chat_row(row), bool(row.running)) for row in rows[:limit]]
        last = rows[limit - 1] if len(rows) > limit else None
        return ChatPage(listed, None if last is None else write_cursor((bool(last.pinned), last.updated, last.key)))

    async def ids_of(self, *, owner: str | None = None, unchanged_for: float | None = None) -> list[str]:
        """Return the ids of an owner's chats, or of those in which nothing was said for ``unchanged_for`` seconds."""
        asked = select(CHATS.c.id).order_by(CHATS.c.key)
        if owner is not None:
            asked = asked.where(CHATS.c.owner == owner)
        if unchanged_for is not None:
            asked = asked.where(CHATS.c.updated < self._clock - unchanged_for)
        async with self._connection(writes=False) as connection:
            return list((await connection.execute(asked)).scalars())

    async def id_of_shared(self, token: str) -> str | None:
        """Return the id of the chat that a token shares."""
        async with self._connection(writes=False) as connection:
            found = await connection.execute(select(CHATS.c.id).where(_equals(CHATS.c.share, token)))
            return found.scalar_one_or_none()

    async def expired(self) -> list[str]:
        """Return the ids of the chats whose claim has expired."""
        asked = select(CHATS.c.id).join(CLAIMS, CLAIMS.c.chat == CHATS.c.key).where(CLAIMS.c.expires <= self._clock)
        async with self._connection(writes=False) as connection:
            return list((await connection.execute(asked)).scalars())

    @asynccontextmanager
    async def _connection(self, *, writes: bool) -> AsyncIterator[AsyncConnection]:
        if not self._is_open:
            await self.open()
        try:
            if not writes:
                async with self._reader.begin() as connection:
                    yield connection
            elif self._dialect == "sqlite":
                async with self._writing, self.engine.begin() as connection:
                    yield connection
            else:
                async with self.engine.begin() as connection:
                    yield connection
        except IntegrityError:
            raise ChatChanged("The chat was changed by somebody else. Please try again.") from None
        except (SQLAlchemyError, OSError) as error:
            # The error's own text may hold values of the query, or the address with its password.
            _logger.error("the chat database does not answer: %s", type(error).__name__)
            raise ChatsUnreachable from None

    async def _prepare_file(self) -> None:
        """Turn WAL mode on, which the file remembers. SQLite does not wait for other connections that do the same."""
        await asyncio.to_thread(_open_once, str(self.engine.url.database))
        deadline = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                async with self.engine.connect() as connection:
                    raw = await connection.get_raw_connection()
                    cursor = await raw.driver_connection.execute("PRAGMA journal_mode=WAL")  # type: ignore[union-attr]
                    await cursor.close()
                return
            except (OperationalError, OSError, _sqlite_error()) as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.05)


class _SqlTransaction:
    """Reads and writes one chat over one connection."""

    def __init__(self, connection: AsyncConnection, clock: Any, insert_into: Any) -> None:
        self.chat: ChatRow | None = None
        self.now = 0.0
        self._connection = connection
        self._clock = clock
        self._insert_into = insert_into
        self._key = 0

    async def begin(self, chat_id: str, *, writes: bool) -> None:
        """Read the chat and the time, and lock the chat against other writers."""
        asked = select(CHATS, self._clock.label("now")).where(_equals(CHATS.c.id, chat_id))
        if writes:
            asked = asked.with_for_update(of=CHATS)
        row = (await self._connection.execute(asked)).one_or_none()
        if row is None:
            self.now = float((await self._connection.execute(select(self._clock))).scalar_one())
        else:
            self.chat, self._key, self.now = _chat_row(row), row.key, float(row.now)

    async def put_chat(self, row: ChatRow) -> None:
        values = {**msgspec.structs.asdict(row), "search": searchable(row.title)}
        if self.chat is None:
            made = await self._connection.execute(insert(CHATS).values(values).returning(CHATS.c.key))
            self._key = made.scalar_one()
        else:
            await self._connection.execute(update(CHATS).where(CHATS.c.key == self._key).values(values))
        self.chat = row

    async def nodes(self) -> list[MessageNode]:
        asked = select(*_NODE).where(MESSAGES.c.chat == bindparam("key")).order_by(MESSAGES.c.sequence)
        return [_node(row) async for row in paced(await self._connection.execute(asked, {"key": self._key}))]

    async def messages(self, keys: Collection[int]) -> dict[int, UIMessage]:
        if not keys:
            return {}
        found: dict[int, UIMessage] = {}
        # Parameters are bounded in both databases; a branch is nearly all of its chat, so a range is read.
        within = (min(keys), max(keys))
        asked = select(MESSAGES.c.sequence, MESSAGES.c.body).where(
            MESSAGES.c.chat == self._key, MESSAGES.c.sequence.between(*within)
        )
        wanted = set(keys)
        async for row in paced(await self._connection.execute(asked)):
            if row.sequence in wanted:
                found[row.sequence] = read_text(row.body)
        asked_growth = select(GROWTH.c.sequence, GROWTH.c.growth).where(
            GROWTH.c.chat == self._key, GROWTH.c.sequence.between(*within)
        )
        for row in await self._connection.execute(asked_growth.order_by(GROWTH.c.sequence, GROWTH.c.number)):
            if row.sequence in wanted:
                found[row.sequence] = grown(found[row.sequence], read_text(row.growth))
        return found

    async def put_message(self, node: MessageNode, message: UIMessage) -> None:
        values = {
            "chat": self._key,
            "sequence": node.key,
            "parent": node.parent,
            "id": node.id,
            "alias": node.alias,
            "role": node.role,
            "digest": node.digest,
            "outcome": node.outcome,
            "given": write_text(node.given),
            "agent": node.agent,
            "created": node.created,
            "feedback": _feedback_text(node.feedback),
            "search": searchable(text_of(message)),
            "body": write_text(message),
        }
        statement = self._insert_into(MESSAGES).values(values)
        replaced = {name: statement.excluded[name] for name in _REPLACED}
        await self._connection.execute(
            statement.on_conflict_do_update(index_elements=["chat", "sequence"], set_=replaced)
        )
        await self._connection.execute(delete(GROWTH).where(GROWTH.c.chat == self._key, GROWTH.c.sequence == node.key))

    async def put_feedback(self, key: int, feedback: Any) -> None:
        await self._connection.execute(
            update(MESSAGES)
            .where(MESSAGES.c.chat == self._key, MESSAGES.c.sequence == key)
            .values(feedback=_feedback_text(feedback))
        )

    async def grow(self, key: int, number: int, growth: Growth) -> None:
        values = {"chat": self._key, "sequence": key, "number": number, "growth": write_text(growth)}
        await self._connection.execute(insert(GROWTH).values(values))

    async def claim(self) -> ClaimRow | None:
        asked = select(CLAIMS.c.claim, CLAIMS.c.expires).where(CLAIMS.c.chat == self._key)
        row = (await self._connection.execute(asked)).one_or_none()
        return None if row is None else ClaimRow(msgspec.convert(read_text(row.claim), Claim), row.expires)

    async def put_claim(self, claim: Claim, lease: float) -> None:
        values = {
            "chat": self._key,
            "run_id": claim.run_id,
            "claim": write_text(msgspec.to_builtins(claim)),
            "expires": self._clock + lease,
        }
        await self._connection.execute(insert(CLAIMS).values(values))

    async def renew_claim(self, run_id: str, lease: float) -> bool:
        held = (CLAIMS.c.chat == self._key, CLAIMS.c.run_id == run_id, CLAIMS.c.expires > self._clock)
        renewed = await self._connection.execute(update(CLAIMS).where(*held).values(expires=self._clock + lease))
        return bool(renewed.rowcount)

    async def delete_claim(self) -> None:
        await self._connection.execute(delete(CLAIMS).where(CLAIMS.c.chat == self._key))

    async def put_blob(self, blob: Blob) -> None:
        values = {"chat": self._key, "id": blob.id, "media_type": blob.media_type, "data": blob.data}
        await self._connection.execute(self._insert_into(BLOBS).values(values).on_conflict_do_nothing())

    async def blob(self, blob_id: str) -> Blob | None:
        asked = select(BLOBS).where(BLOBS.c.chat == self._key, _equals(BLOBS.c.id, blob_id))
        row = (await self._connection.execute(asked)).one_or_none()
        return None if row is None else Blob(row.id, row.media_type, row.data)

    async def blobs(self) -> list[Blob]:
        asked = select(BLOBS).where(BLOBS.c.chat == self._key).order_by(BLOBS.c.id)
        return [Blob(row.id, row.media_type, row.data) for row in await self._connection.execute(asked)]

    async def put_state(self, handle: str, state: bytes) -> None:
        statement = self._insert_into(STATES).values(chat=self._key, handle=handle, state=state)
        await self._connection.execute(
            statement.on_conflict_do_update(index_elements=["chat", "handle"], set_={"state": statement.excluded.state})
        )

    async def take_state(self, handle: str) -> bytes | None:
        taken = delete(STATES).where(STATES.c.chat == self._key, STATES.c.handle == handle).returning(STATES.c.state)
        return (await self._connection.execute(taken)).scalar_one_or_none()

    async def delete(self) -> None:
        await self._connection.execute(delete(CHATS).where(CHATS.c.key == self._key))
        self.chat, self._key = None, 0


def _chat_row(row: Row[Any]) -> ChatRow:
    found = {name: getattr(row, name) for name in ChatRow.__struct_fields__}
    return ChatRow(**found)


def _node(row: Row[Any]) -> MessageNode:
    return MessageNode(
        key=row.sequence,
        parent=row.parent,
        id=row.id,
        role=row.role,
        alias=row.alias,
        digest=row.digest,
        outcome=row.outcome,
        given=tuple(read_text(row.given)),
        agent=row.agent,
        created=row.created,
        feedback=None if row.feedback is None else read_text(row.feedback),
    )


def _feedback_text(feedback: Any) -> str | None:
    return None if feedback is None else write_text(feedback)


def _contains(query: str) -> Any:
    """Return the condition that a text is in the title of a chat, or in one of its messages."""
    text = searchable(query)
    in_message = exists().where(MESSAGES.c.chat == CHATS.c.key, MESSAGES.c.search.contains(text, autoescape=True))
    return or_(CHATS.c.search.contains(text, autoescape=True), in_message)


def _equals(column: "Column[str]", value: str) -> "ColumnElement[bool]":
    """Compare an id that anybody may have sent: what no database can keep is in none, and asking for it would fail."""
    return column == value if is_id(value) else false()


async def _position(connection: AsyncConnection, owner: str | None, chat_id: str) -> tuple[bool, float, int]:
    asked = select(CHATS).where(_equals(CHATS.c.id, chat_id))
    if owner is not None:
        asked = asked.where(CHATS.c.owner == owner)
    row = (await connection.execute(asked)).one_or_none()
    if row is None:
        raise ChatNotFound("No such chat.")
    return row.pinned, row.updated, row.key


# The engine and its tables.


def _must_migrate(url: URL) -> str:
    """Return an error text with the command that helps. It names the database without its password."""
    bare = url._replace(password=None).difference_update_query(["password"])
    how = "run" if bare == url else "set PGPASSWORD and run"
    return f"the chat tables are missing or old; {how}: usechat chats migrate --chats {quote(bare.render_as_string())}"


def _engine(url: str) -> tuple[AsyncEngine, str]:
    try:
        parsed: URL = make_url(url)
        driver, extra = _DRIVERS[parsed.drivername]
    except (ArgumentError, KeyError):
        raise UnusableChats(
            "chats are stored in a file, or at sqlite+aiosqlite:///FILE or postgresql+asyncpg://USER@HOST/DATABASE"
        ) from None
    if driver.startswith("sqlite") and parsed.database in (None, "", ":memory:"):
        raise UnusableChats("an SQLite database in memory cannot be shared; name a file, or use MemoryChats()")
    is_file = driver.startswith("sqlite")
    options: dict[str, Any] = {"connect_args": {"timeout": _BUSY_SECONDS}} if is_file else {"pool_pre_ping": True}
    try:
        engine = create_async_engine(parsed.set(drivername=driver), **options)
    except ModuleNotFoundError as error:
        raise MissingDependency(error.name or driver, extra) from None
    if is_file:
        event.listen(engine.sync_engine, "connect", _prepare_connection)
        event.listen(engine.sync_engine, "begin", _begin)
    return engine, "sqlite" if is_file else "postgresql"


def _prepare_connection(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # transactions are begun below, and not by the driver
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys=ON")
    # In WAL mode a commit survives a crash of the process; one of the machine may undo the last ones.
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.close()


def _begin(connection: Connection) -> None:
    reads = connection.get_execution_options().get(_READS)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")


def _open_once(path: str) -> None:
    """Raise ``UnusableChats`` if a file cannot be opened.

    aiosqlite reports the same, but its thread calls the event loop once more, which a command may have closed by then.
    """
    import sqlite3

    try:
        if not path.startswith("file:"):
            sqlite3.connect(path).close()
    except sqlite3.Error as error:
        raise UnusableChats(f"the chat database cannot be used: {type(error).__name__}: {error}") from None


def _sqlite_error() -> type[Exception]:
    import sqlite3

    return sqlite3.OperationalError


def _config(connection: Connection | None = None) -> Config:
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    return config


@functools.cache
def _newest() -> str | None:
    return ScriptDirectory.from_config(_config()).get_current_head()


def _revision(connection: Connection) -> str | None:
    return MigrationContext.configure(connection, opts={"version_table": _VERSIONS}).get_current_revision()
