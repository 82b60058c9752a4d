"""Chats in a database: an SQLite file, or PostgreSQL.

SQLite is opened in WAL mode with a busy timeout, so that several processes can use one file; a transaction that writes
takes the write lock when it begins (``BEGIN IMMEDIATE``), because one that upgrades later fails at once if another
writer was faster. Within a process, writers queue for that lock here: SQLite's own waiting is a poll. On PostgreSQL a
transaction that writes locks the row of its chat.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from usechat.chats.blobs import Blob, BlobStore
from usechat.chats.chat import MessageNode, is_id, read_text, searchable, write_text
from usechat.chats.growth import Growth, grown
from usechat.chats.instances import InstanceSession, channel_of, instances_of
from usechat.chats.remote_readers import RemoteReaders
from usechat.chats.signals import Signals
from usechat.chats.store import ChatStore
from usechat.chats.tables import BLOBS, CHATS, CLAIMS, GROWTH, MESSAGES, STATES, STEPS
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
from usechat.errors import ChatChanged, ChatNotFound, ChatsUnreachable, MissingDependency, UnusableChats
from usechat.protocol.ui_messages import UIMessage, text_of

try:
    from sqlalchemy import (
        URL,
        Boolean,
        Column,
        ColumnElement,
        Connection,
        Double,
        Integer,
        Row,
        and_,
        bindparam,
        case,
        delete,
        event,
        exists,
        false,
        func,
        insert,
        literal_column,
        or_,
        select,
        text,
        tuple_,
        update,
    )
    from sqlalchemy.dialects import postgresql, sqlite
    from sqlalchemy.exc import IntegrityError, OperationalError, SQLAlchemyError
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

    from usechat.database import Schema, cause_of
except ImportError:
    raise MissingDependency("sqlalchemy", "chats") from None

__all__ = ["SqlChats", "chats_url"]

_logger: Final = logging.getLogger("usechat.chats")
_BUSY_SECONDS: Final = 30
_READS: Final = "usechat_reads"
_NOTIFY: Final = text("SELECT pg_notify(:channel, :payload)")
_LARGEST_DRIFT: Final = 1.0
"""Seconds by which a clock may run ahead between two transactions without having jumped."""

_SCHEMA: Final = Schema(
    title="the chat database",
    addresses="chats are stored in a file, or at sqlite+aiosqlite:///FILE or postgresql+asyncpg://USER@HOST/DATABASE",
    error=UnusableChats,
    extra="chats",
    migrations=Path(__file__).parent / "migrations",
    versions="usechat_chats_version",
)

_Key: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""A key of a table; a larger number cannot be compared with one."""

_CLOCKS: Final[Mapping[str, Any]] = {
    "sqlite": literal_column("(julianday('now') - 2440587.5) * 86400.0"),
    "postgresql": literal_column("CAST(extract(epoch FROM clock_timestamp()) AS double precision)"),
}
_NEW_JOURNAL: Final = Journal()
_INSERTS: Final[Mapping[str, Any]] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}

_OF_CHAT: Final[Any] = bindparam("of_chat")
_NODE: Final = [column for column in MESSAGES.c if column.name not in ("chat", "search", "body")]
_REPLACED: Final = ("parent", "id", "alias", "digest", "outcome", "given", "agent", "search", "body")
"""What a message that is written again replaces; its time and the feedback stay."""


def chats_url(url: str) -> str:
    """Return the URL of a chat database; a plain path is an SQLite file.

    >>> chats_url("chats.db")
    'sqlite+aiosqlite:///chats.db'
    """
    return url if "://" in url else f"sqlite+aiosqlite:///{url}"


class ClockJumps:
    """Tells by how much the clock of a database has jumped ahead lately.

    A jump looks like the death of all workers: their leases expire in the same moment. It differs from it in one point:
    the monotonic clock of this process did not jump. So both clocks are compared at every transaction. After a jump
    leases are judged by the time before it, for as long as a lease lasts: every worker that lives renews its own
    meanwhile.
    """

    def __init__(self, lease: float) -> None:
        self._lease = lease
        self._ahead: float | None = None
        self._jump = 0.0
        self._until = 0.0

    def lease_time(self, now: float, monotonic: float) -> float:
        """Return the time by which to judge leases while the two clocks show these times."""
        ahead = now - monotonic
        if monotonic >= self._until:
            self._jump = 0.0
        if self._ahead is not None and ahead - self._ahead > _LARGEST_DRIFT:
            self._jump += ahead - self._ahead
            self._until = monotonic + self._lease
        self._ahead = ahead
        return now - self._jump


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
        self._jumps = ClockJumps(lease)
        self._instances = instances_of(self.engine)
        if isinstance(self._instances, InstanceSession):
            signals = Signals(self._instances.id, self._notify)
            self._instances.on_payload, self._instances.on_session = signals.take, signals.forget_pieces
            self.readers = RemoteReaders(signals, lease)
        self._failures: dict[bool, str] = {}
        """Why the last transaction that wrote (``True``), or that only read, has failed; logged once."""
        self.insert_into = _INSERTS[self._dialect]
        self.statements = _Statements(self._clock, self.insert_into)
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
                        if not await _SCHEMA.is_newest(connection):
                            raise UnusableChats(_must_migrate(self.engine.url))
                await self._instances.hold()
            except (SQLAlchemyError, OSError) as error:
                raise _SCHEMA.unusable(error) from None
            self._is_open = True

    async def migrate(self, revision: str = "head") -> None:
        """Bring the tables to a revision: ``head`` is the newest, ``base`` is none at all."""
        if self._dialect == "sqlite":
            await asyncio.to_thread(_open_once, str(self.engine.url.database))
        try:
            async with self.engine.begin() as connection:
                if not await _SCHEMA.is_newest(connection) or revision != "head":
                    await _SCHEMA.migrate(connection, revision)
        except (SQLAlchemyError, OSError) as error:
            raise _SCHEMA.unusable(error) from None

    async def check(self) -> None:
        """Raise :class:`~usechat.errors.ChatsUnreachable` if the database does not answer."""
        async with self._connection(writes=False) as connection:
            await connection.execute(select(CHATS.c.key).limit(1))
        if True in self._failures:  # a full disk can be read
            async with self._connection(writes=True) as connection:
                await connection.execute(text(f"UPDATE {_SCHEMA.versions} SET version_num = version_num"))

    async def close(self) -> None:
        """Close the connections."""
        await self._instances.release()
        self._is_open = False
        await self.engine.dispose()

    @asynccontextmanager
    async def transaction(self, chat_id: str, *, writes: bool = True) -> AsyncIterator["_SqlTransaction"]:
        """Begin a transaction over one chat, which need not exist."""
        async with self._connection(writes=writes) as connection:
            transaction = _SqlTransaction(self, connection)
            await transaction.begin(chat_id, writes=writes)
            transaction.lease_now = self.lease_time(transaction.now)
            yield transaction

    @asynccontextmanager
    async def ending(self, claim: Claim, *, is_new: bool) -> AsyncIterator["_SqlTransaction"]:
        """Begin the transaction that ends an answer."""
        async with self._connection(writes=True) as connection:
            transaction = _SqlTransaction(self, connection)
            if not await transaction.end(claim, is_new=is_new):
                raise self.lost(claim)
            yield transaction

    async def is_alive(self, claim: Claim) -> bool:
        """Tell whether the process that holds a claim is alive, as far as can be said before its lease expires."""
        row = await self.claimed(claim.chat_id)
        if row is None or not row.is_held or row.claim.run_id != claim.run_id:
            return False
        async with self._connection(writes=False) as connection:
            return not row.instance or await self._instances.is_alive(row.instance, connection)

    @property
    def instance(self) -> str:
        """The id of this instance."""
        return self._instances.id

    def lease_time(self, now: float) -> float:
        """Return the time by which to judge leases, given that of the database."""
        return self._jumps.lease_time(now, time.monotonic())

    async def is_held(self, connection: AsyncConnection, row: Row[Any], lease_now: float) -> bool:
        """Tell whether the claim of a row is held still; ``instance`` is empty if its lease alone decides."""
        if self.drives(row.run_id):
            return True
        if row.expires <= lease_now:
            return False
        is_silent = row.expires <= lease_now + self.lease * (1 - self._instances.patience)
        return not row.instance or not is_silent or await self._instances.is_alive(row.instance, connection)

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
        claim = CLAIMS.c.owner.label("instance"), CLAIMS.c.run_id, CLAIMS.c.expires
        statement = select(CHATS, *claim, self._clock.label("now")).select_from(
            CHATS.outerjoin(CLAIMS, CLAIMS.c.chat == CHATS.c.key)
        )
        statement = statement.order_by(*[column.desc() for column in (CHATS.c.pinned, CHATS.c.updated, CHATS.c.key)])
        if owner is not None:
            statement = statement.where(CHATS.c.owner == owner)
        if archived is not None:
            statement = statement.where(CHATS.c.archived == archived)
        if query:
            statement = statement.where(_contains(query))
        async with self._connection(writes=False) as connection:
            if cursor is not None:
                statement = statement.where(order < read_cursor(cursor, tuple[bool, float, _Key]))
            elif starting_after is not None:
                statement = statement.where(order < await _position(connection, owner, starting_after))
            rows = (await connection.execute(statement.limit(limit + 1))).all()
            held = [
                row.instance is not None and await self.is_held(connection, row, self.lease_time(row.now))
                for row in rows[:limit]
            ]
        listed = [
            await self._listed(_chat_row(row), is_claimed=row.instance is not None, is_held=is_held)
            for row, is_held in zip(rows[:limit], held, strict=True)
        ]
        last = rows[limit - 1] if len(rows) > limit else None
        return ChatPage(listed, None if last is None else write_cursor((bool(last.pinned), last.updated, last.key)))

    async def ids_of(self, *, owner: str | None = None, unchanged_for: float | None = None) -> list[str]:
        """Return the ids of an owner's chats, or of those in which nothing was said for ``unchanged_for`` seconds."""
        statement = select(CHATS.c.id).order_by(CHATS.c.key)
        if owner is not None:
            statement = statement.where(CHATS.c.owner == owner)
        if unchanged_for is not None:
            statement = statement.where(CHATS.c.updated < self._clock - unchanged_for)
        async with self._connection(writes=False) as connection:
            return list((await connection.execute(statement)).scalars())

    async def id_of_shared(self, token: str) -> str | None:
        """Return the id of the chat that a token shares."""
        async with self._connection(writes=False) as connection:
            result = await connection.execute(select(CHATS.c.id).where(_equals(CHATS.c.share, token)))
            return result.scalar_one_or_none()

    async def _notify(self, instance: str, payloads: Sequence[str]) -> None:
        async with self._connection(writes=True) as connection:
            for payload in payloads:
                await connection.execute(_NOTIFY, {"channel": channel_of(instance), "payload": payload})

    async def orphaned(self) -> list[str]:
        """Return the ids of the chats whose claim nobody holds any more."""
        async with self._connection(writes=False) as connection:
            await self._instances.hold()  # an instance that only listens notices so that its session has ended
            now = float((await connection.execute(select(self._clock))).scalar_one())
            lease_now = self.lease_time(now)
            claim = CLAIMS.c.owner.label("instance"), CLAIMS.c.run_id, CLAIMS.c.expires
            claims: Any = select(CHATS.c.id, *claim).join(CLAIMS, CLAIMS.c.chat == CHATS.c.key)
            rows = (await connection.execute(claims)).all()
            return [row.id for row in rows if not await self.is_held(connection, row, lease_now)]

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
                await self._instances.hold()  # a session may have ended
                async with self.engine.begin() as connection:
                    yield connection
        except IntegrityError:
            raise ChatChanged("The chat was changed by somebody else. Please try again.") from None
        except (SQLAlchemyError, OSError) as error:
            self._note_failure(_reason_of(error), writes=writes)
            raise ChatsUnreachable from None
        else:
            self._note_success(writes=writes)

    def _note_failure(self, reason: str, *, writes: bool) -> None:
        if self._failures.get(writes) != reason:  # it is asked again four times a second
            self._failures[writes] = reason
            _logger.error("the chat database cannot be %s: %s", "written" if writes else "read", reason)

    def _note_success(self, *, writes: bool) -> None:
        if self._failures.pop(writes, None) is not None:
            _logger.info("the chat database can be %s again", "written" if writes else "read")

    async def _prepare_file(self) -> None:
        """Turn WAL mode on, which the file remembers. SQLite does not wait for other connections that do the same."""
        await asyncio.to_thread(_open_once, str(self.engine.url.database))
        deadline = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                async with self.engine.connect() as connection:
                    raw = await connection.get_raw_connection()
                    await raw.driver_connection.run("execute", "PRAGMA journal_mode=WAL")  # type: ignore[union-attr]
                return
            except (OperationalError, OSError, _sqlite_error()) as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.05)


class _Statements:
    """The statements of a turn, built once: building one takes longer than running it.

    Parameters that are not columns begin with ``of_``: SQLAlchemy keeps the names of columns for itself.
    """

    def __init__(self, clock: Any, insert_into: Any) -> None:
        claim = [column for column in CLAIMS.c if column.name not in ("chat", "owner")]
        chat = select(CHATS, *claim, CLAIMS.c.owner.label("instance"), clock.label("now")).select_from(
            CHATS.outerjoin(CLAIMS, CLAIMS.c.chat == CHATS.c.key)
        )
        is_message = (MESSAGES.c.chat == _OF_CHAT, MESSAGES.c.sequence == bindparam("of_sequence"))
        within: tuple[Any, Any] = (bindparam("of_first"), bindparam("of_last"))
        is_claim = (
            CLAIMS.c.chat == _OF_CHAT,
            CLAIMS.c.run_id == bindparam("of_run"),
            CLAIMS.c.attempt == bindparam("of_attempt"),
        )
        is_next = CHATS.c.leaf.is_not_distinct_from(bindparam("of_parent", type_=Integer))
        leaf = case((and_(bindparam("of_new", type_=Boolean), is_next), bindparam("of_key", type_=Integer)))
        expires = clock + bindparam("of_lease", type_=Double)
        written = insert_into(MESSAGES)
        self.now = select(clock)
        self.find = chat.where(CHATS.c.id == bindparam("of_id"))
        self.lock = self.find.with_for_update(of=CHATS)
        self.insert_chat = insert(CHATS).returning(CHATS.c.key)
        self.update_chat = update(CHATS).where(CHATS.c.key == _OF_CHAT)
        self.end_answer = (
            update(CHATS)
            .where(CHATS.c.id == bindparam("of_id"))
            .values(updated=clock, version=CHATS.c.version + 1, leaf=func.coalesce(leaf, CHATS.c.leaf))
            .returning(CHATS, clock.label("now"))
        )
        self.nodes = select(*_NODE).where(MESSAGES.c.chat == _OF_CHAT).order_by(MESSAGES.c.sequence)
        self.contents = self.nodes.add_columns(MESSAGES.c.body)
        self.bodies = select(MESSAGES.c.sequence, MESSAGES.c.body).where(
            MESSAGES.c.chat == _OF_CHAT, MESSAGES.c.sequence.between(*within)
        )
        self.growth = (
            select(GROWTH.c.sequence, GROWTH.c.growth)
            .where(GROWTH.c.chat == _OF_CHAT, GROWTH.c.sequence.between(*within))
            .order_by(GROWTH.c.sequence, GROWTH.c.number)
        )
        self.put_message = written.on_conflict_do_update(
            index_elements=["chat", "sequence"], set_={name: written.excluded[name] for name in _REPLACED}
        )
        self.update_message = update(MESSAGES).where(*is_message)
        self.grow = insert(GROWTH)
        self.delete_growth = delete(GROWTH).where(
            GROWTH.c.chat == _OF_CHAT, GROWTH.c.sequence == bindparam("of_sequence")
        )
        self.put_claim = insert(CLAIMS).values(expires=expires)
        chunks = func.coalesce(bindparam("of_chunks", type_=Integer), CLAIMS.c.chunks)
        finished = func.coalesce(bindparam("of_finished", type_=Integer), CLAIMS.c.finished)
        stalled = case((finished > CLAIMS.c.finished, 0), else_=CLAIMS.c.stalled)
        self.renew_claim = (
            update(CLAIMS)
            .where(*is_claim)
            .values(expires=expires, chunks=chunks, finished=finished, stalled=stalled)
            .returning(CLAIMS.c.stop)
        )
        self.put_stalled = update(CLAIMS).where(CLAIMS.c.chat == _OF_CHAT).values(stalled=bindparam("of_stalled"))
        self.order_stop = update(CLAIMS).where(CLAIMS.c.chat == _OF_CHAT).values(stop=True)
        is_step = (STEPS.c.name == bindparam("of_name"), STEPS.c.ordinal == bindparam("of_ordinal"))
        self.steps = select(exists().where(STEPS.c.chat == _OF_CHAT))
        self.step = select(STEPS.c.result).where(STEPS.c.chat == _OF_CHAT, *is_step)
        step = insert_into(STEPS)
        self.put_step = step.on_conflict_do_update(
            index_elements=["chat", "name", "ordinal"], set_={"result": step.excluded.result}
        )
        self.delete_steps = delete(STEPS).where(STEPS.c.chat == _OF_CHAT)
        self.end_claim = delete(CLAIMS).where(*is_claim)
        self.delete_claim = delete(CLAIMS).where(CLAIMS.c.chat == _OF_CHAT)


class _SqlTransaction:
    """Reads and writes one chat over one connection."""

    def __init__(self, store: "SqlChats", connection: AsyncConnection) -> None:
        self.chat: ChatRow | None = None
        self.now = 0.0
        self.lease_now = 0.0
        self._connection = connection
        self._statements = store.statements
        self._insert_into = store.insert_into
        self._instance = store.instance
        self._is_held = store.is_held
        self._key = 0
        self._claim: Row[Any] | None = None
        self._bodies: dict[int, str] = {}
        self._growing: set[int] | None = None

    async def _run(self, statement: Any, **parameters: Any) -> Any:
        return await self._connection.execute(statement, parameters)

    async def begin(self, chat_id: str, *, writes: bool) -> None:
        """Read the chat, its claim and the time, and lock the chat against other writers."""
        # What no database can keep is in none, and asking for it would fail.
        statement = self._statements.lock if writes else self._statements.find
        row = (await self._run(statement, of_id=chat_id)).one_or_none() if is_id(chat_id) else None
        if row is None:
            self.now = float((await self._run(self._statements.now)).scalar_one())
        else:
            self.chat, self._key, self.now = _chat_row(row), row.key, float(row.now)
            self._claim = row if row.run_id is not None else None

    async def end(self, claim: Claim, *, is_new: bool) -> bool:
        """Count a change of the chat, and give a claim back; tell whether the chat and the claim were there.

        The answer becomes the leaf if it ``is_new``, unless the page shows another branch by now.
        """
        values = {"of_id": claim.chat_id, "of_key": claim.key, "of_parent": claim.parent, "of_new": is_new}
        row = (await self._run(self._statements.end_answer, **values)).one_or_none()
        if row is None:
            return False
        self.chat, self._key, self.now = _chat_row(row), row.key, float(row.now)
        fence = {"of_run": claim.run_id, "of_attempt": claim.attempt}
        return bool((await self._run(self._statements.end_claim, of_chat=self._key, **fence)).rowcount)

    async def put_chat(self, row: ChatRow) -> None:
        values = {**msgspec.structs.asdict(row), "search": searchable(row.title)}
        if self.chat is None:
            self._key = (await self._run(self._statements.insert_chat, **values)).scalar_one()
        else:
            await self._run(self._statements.update_chat, of_chat=self._key, **values)
        self.chat = row

    async def nodes(self, *, with_content: bool = False) -> list[MessageNode]:
        statement = self._statements.contents if with_content else self._statements.nodes
        nodes = []
        async for row in paced(await self._run(statement, of_chat=self._key)):
            nodes.append(_node(row))
            if with_content:
                self._bodies[row.sequence] = row.body
        self._growing = {node.key for node in nodes if node.outcome == "running"}
        return nodes

    async def messages(self, keys: Collection[int]) -> dict[int, UIMessage]:
        if not keys:
            return {}
        messages: dict[int, UIMessage] = {}
        # Parameters are bounded in both databases; a branch is nearly all of its chat, so a range is read.
        within = {"of_chat": self._key, "of_first": min(keys), "of_last": max(keys)}
        sequences = set(keys)
        if not sequences <= self._bodies.keys():
            rows = await self._run(self._statements.bodies, **within)
            self._bodies.update((row.sequence, row.body) for row in rows)
        async for sequence in paced(sequences & self._bodies.keys()):
            messages[sequence] = read_text(self._bodies[sequence])
        if self._growing is None or self._growing & sequences:  # only an answer that runs has grown
            for row in await self._run(self._statements.growth, **within):
                if row.sequence in sequences:
                    messages[row.sequence] = grown(messages[row.sequence], read_text(row.growth))
        return messages

    async def put_message(self, node: MessageNode, message: UIMessage, *, has_grown: bool = True) -> None:
        body = self._bodies[node.key] = write_text(message)
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
            "search": searchable(text_of(message, "\n")),
            "body": body,
        }
        await self._run(self._statements.put_message, **values)
        if has_grown:
            await self._run(self._statements.delete_growth, of_chat=self._key, of_sequence=node.key)

    async def put_feedback(self, key: int, feedback: Any) -> None:
        values = {"of_chat": self._key, "of_sequence": key, "feedback": _feedback_text(feedback)}
        await self._run(self._statements.update_message, **values)

    async def grow(self, key: int, number: int, growth: Growth) -> None:
        await self._run(self._statements.grow, chat=self._key, sequence=key, number=number, growth=write_text(growth))

    async def claim(self) -> ClaimRow | None:
        row = self._claim
        if row is None:
            return None
        is_held = await self._is_held(self._connection, row, self.lease_now)
        claim = msgspec.convert(read_text(row.claim), Claim)
        journal = Journal(turn=row.turn, finished=row.finished, stalled=row.stalled, stop=row.stop)
        return ClaimRow(claim, row.expires, is_held, row.chunks, journal, row.instance)

    async def put_claim(
        self, claim: Claim, lease: float, *, is_ours: bool = True, journal: Journal = _NEW_JOURNAL
    ) -> None:
        await self._run(
            self._statements.put_claim,
            chat=self._key,
            run_id=claim.run_id,
            attempt=claim.attempt,
            owner=self._instance if is_ours else "",
            claim=write_text(msgspec.to_builtins(claim)),
            **msgspec.structs.asdict(journal),
            of_lease=lease,
        )

    async def renew_claim(
        self, claim: Claim, lease: float, chunks: int | None = None, finished: int | None = None
    ) -> bool | None:
        fence = {"of_run": claim.run_id, "of_attempt": claim.attempt}
        values = {"of_chat": self._key, **fence, "of_lease": lease, "of_chunks": chunks, "of_finished": finished}
        stop: bool | None = (await self._run(self._statements.renew_claim, **values)).scalar_one_or_none()
        return stop

    async def put_stalled(self, stalled: int) -> None:
        await self._run(self._statements.put_stalled, of_chat=self._key, of_stalled=stalled)

    async def order_stop(self) -> None:
        await self._run(self._statements.order_stop, of_chat=self._key)

    async def steps(self) -> bool:
        return bool((await self._run(self._statements.steps, of_chat=self._key)).scalar_one())

    async def step(self, name: str, ordinal: int) -> StoredStep | None:
        values = {"of_chat": self._key, "of_name": name, "of_ordinal": ordinal}
        row = (await self._run(self._statements.step, **values)).one_or_none()
        return None if row is None else StoredStep(row.result)

    async def put_step(self, name: str, ordinal: int, result: str | None) -> None:
        await self._run(self._statements.put_step, chat=self._key, name=name, ordinal=ordinal, result=result)

    async def delete_steps(self) -> None:
        await self._run(self._statements.delete_steps, of_chat=self._key)

    async def delete_claim(self) -> None:
        await self._run(self._statements.delete_claim, of_chat=self._key)
        self._claim = None

    async def put_blob(self, blob: Blob) -> None:
        values = {"chat": self._key, "id": blob.id, "media_type": blob.media_type, "data": blob.data}
        await self._connection.execute(self._insert_into(BLOBS).values(values).on_conflict_do_nothing())

    async def blob(self, blob_id: str) -> Blob | None:
        statement = select(BLOBS).where(BLOBS.c.chat == self._key, _equals(BLOBS.c.id, blob_id))
        row = (await self._connection.execute(statement)).one_or_none()
        return None if row is None else Blob(row.id, row.media_type, row.data)

    async def blobs(self) -> list[Blob]:
        statement = select(BLOBS).where(BLOBS.c.chat == self._key).order_by(BLOBS.c.id)
        return [Blob(row.id, row.media_type, row.data) for row in await self._connection.execute(statement)]

    async def put_state(self, handle: str, state: bytes) -> None:
        statement = self._insert_into(STATES).values(chat=self._key, handle=handle, state=state)
        await self._connection.execute(
            statement.on_conflict_do_update(index_elements=["chat", "handle"], set_={"state": statement.excluded.state})
        )

    async def state(self, handle: str) -> bytes | None:
        statement = select(STATES.c.state).where(STATES.c.chat == self._key, _equals(STATES.c.handle, handle))
        return (await self._connection.execute(statement)).scalar_one_or_none()

    async def take_state(self, handle: str) -> bytes | None:
        statement = (
            delete(STATES).where(STATES.c.chat == self._key, STATES.c.handle == handle).returning(STATES.c.state)
        )
        return (await self._connection.execute(statement)).scalar_one_or_none()

    async def delete(self) -> None:
        await self._connection.execute(delete(CHATS).where(CHATS.c.key == self._key))
        self.chat, self._key = None, 0


def _chat_row(row: Row[Any]) -> ChatRow:
    fields = {name: getattr(row, name) for name in ChatRow.__struct_fields__}
    return ChatRow(**fields)


def _node(row: Row[Any]) -> MessageNode:
    # By position: a chat has many messages, and a look-up by name costs more than the rest.
    sequence, parent, message_id, alias, role, digest, outcome, given, agent, created, feedback = row[: len(_NODE)]
    return MessageNode(
        key=sequence,
        parent=parent,
        id=message_id,
        role=role,
        alias=alias,
        digest=digest,
        outcome=outcome,
        given=() if given == "[]" else tuple(read_text(given)),
        agent=agent,
        created=created,
        feedback=None if feedback is None else read_text(feedback),
    )


def _feedback_text(feedback: Any) -> str | None:
    return None if feedback is None else write_text(feedback)


def _contains(query: str) -> Any:
    """Return the condition that a text is in the title of a chat, or in one of its messages."""
    words = searchable(query)
    in_message = exists().where(MESSAGES.c.chat == CHATS.c.key, MESSAGES.c.search.contains(words, autoescape=True))
    return or_(CHATS.c.search.contains(words, autoescape=True), in_message)


def _equals(column: "Column[str]", value: str) -> "ColumnElement[bool]":
    """Compare an id that anybody may have sent: what no database can keep is in none, and asking for it would fail."""
    return column == value if is_id(value) else false()


async def _position(connection: AsyncConnection, owner: str | None, chat_id: str) -> tuple[bool, float, int]:
    statement = select(CHATS).where(_equals(CHATS.c.id, chat_id))
    if owner is not None:
        statement = statement.where(CHATS.c.owner == owner)
    row = (await connection.execute(statement)).one_or_none()
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
    engine = _SCHEMA.engine(url)
    if engine.dialect.name == "sqlite":
        if engine.url.database in (None, "", ":memory:"):
            raise UnusableChats("an SQLite database in memory cannot be shared; name a file, or use MemoryChats()")
        event.listen(engine.sync_engine, "connect", _prepare_connection)
        event.listen(engine.sync_engine, "begin", _begin)
    return engine, engine.dialect.name


def _prepare_connection(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # transactions are begun below, and not by the driver
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys=ON")
    # In WAL mode a commit survives a crash of the process; one of the machine may undo the last ones.
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.close()


def _begin(connection: Connection) -> None:
    reads = connection.get_execution_options().get(_READS)
    connection.connection.driver_connection.begin_with("BEGIN" if reads else "BEGIN IMMEDIATE")  # type: ignore[union-attr]


def _reason_of(error: SQLAlchemyError | OSError) -> str:
    """Return why a database has failed.

    The text of an error may hold values of the query, or the address with its password. Only SQLite's is free of both.
    """
    cause = getattr(error, "orig", None) or error
    return str(cause) if isinstance(cause, _sqlite_error()) else type(cause).__name__


def _open_once(path: str) -> None:
    """Raise ``UnusableChats`` if a file cannot be opened, with what is wrong."""
    import sqlite3

    try:
        if not path.startswith("file:"):
            sqlite3.connect(path).close()
    except sqlite3.Error as error:
        folder = Path(path).absolute().parent
        reason = cause_of(error) if folder.is_dir() else f"there is no folder {folder}; create it first"
        raise UnusableChats(f"the chat database {path} cannot be used: {reason}") from None


def _sqlite_error() -> type[Exception]:
    import sqlite3

    return sqlite3.OperationalError
