"""A run store in PostgreSQL: a flow that paused on one worker can be resumed by another, on any machine.

The driver is asynchronous, the methods of a run store are not. So the store runs an event loop in a background thread.
The tables are created when they are first used.
"""

import asyncio
import threading
import time
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from usechat.errors import InvalidSetting, MissingDependency
from usechat.open_harness.engine.batched_store import BatchedRunStore, Record
from usechat.values import decode_json

try:
    from sqlalchemy import (
        BigInteger,
        Column,
        Executable,
        Index,
        Integer,
        MetaData,
        Table,
        Text,
        delete,
        func,
        literal,
        select,
    )
    from sqlalchemy.dialects.postgresql import insert
    from sqlalchemy.exc import SQLAlchemyError

    from usechat.database import Schema
except ImportError:
    raise MissingDependency("sqlalchemy", "postgresql") from None

__all__ = ["PostgresRunStore"]

Result = TypeVar("Result")

_TABLES: Final = MetaData()
_EVENTS: Final = Table(
    "usechat_run_events",
    _TABLES,
    Column("run_id", Text, primary_key=True),
    Column("seq", Integer, primary_key=True),
    Column("event", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
)
_SNAPSHOTS: Final = Table(
    "usechat_run_snapshots",
    _TABLES,
    Column("run_id", Text, primary_key=True),
    Column("seq", Integer, primary_key=True),
    Column("chat_id", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Column("snapshot", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Index("usechat_run_snapshots_by_chat", "chat_id", "owner", "started_at"),
)
_SESSIONS: Final = Table(
    "usechat_agent_sessions",
    _TABLES,
    Column("session_id", Text, primary_key=True),
    Column("session", Text, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
)
_COMMANDS: Final = Table(
    "usechat_run_commands",
    _TABLES,
    Column("id", BigInteger, primary_key=True, autoincrement=True),
    Column("run_id", Text, nullable=False, index=True),
    Column("command", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
)
_CREATING: Final = 0x75636872
"""The advisory lock under which tables are created: workers start at the same time."""
_SCHEMA: Final = Schema(
    title="the run database",
    addresses="a PostgresRunStore needs a URL such as postgresql://USER@HOST/DATABASE",
    error=InvalidSetting,
    databases=("postgresql",),
)


class PostgresRunStore(BatchedRunStore):
    """Stores flow runs in PostgreSQL; all workers can use it at the same time.

    Raises :class:`~usechat.errors.InvalidSetting` for a URL of another kind and
    :class:`~usechat.errors.MissingDependency` if a package is missing. It connects when it is first used, or by
    :meth:`open`.

    >>> from usechat.open_harness import FlowRuntimes
    >>> flow = {"name": "greet", "nodes": [{"id": "a", "type": "echo", "input": {"text": "Hello."}}]}
    >>> with PostgresRunStore("postgresql://user@host/database") as store:
    ...     runtimes = FlowRuntimes(flow, store=store)
    """

    def __init__(self, url: str) -> None:
        self._engine = _SCHEMA.engine(url)
        self._is_created = False
        self._loop = asyncio.new_event_loop()
        self._looping = threading.Thread(target=self._loop.run_forever, name="usechat-postgres", daemon=True)
        self._looping.start()
        super().__init__()

    def open(self) -> None:
        """Connect, and create the tables; raise :class:`~usechat.errors.InvalidSetting` if that cannot be done."""
        try:
            self._wait_for(self._execute([]))
        except (SQLAlchemyError, OSError) as error:
            raise _SCHEMA.unusable(error) from None

    def _write_batch(self, batch: list[Record]) -> None:
        self._wait_for(self._execute([_statement(record, int(time.time() * 1000)) for record in batch]))

    def _read_snapshot(self, run_id: str) -> str | None:
        columns = select(_SNAPSHOTS.c.snapshot).where(_SNAPSHOTS.c.run_id == run_id)
        return next((row[0] for row in self._read(columns.order_by(_SNAPSHOTS.c.seq.desc()).limit(1))), None)

    def _read_latest(self, chat_id: str, owner: str) -> tuple[str, str] | None:
        of_chat = (_SNAPSHOTS.c.chat_id == chat_id) & (_SNAPSHOTS.c.owner == owner)
        order = [_SNAPSHOTS.c[name].desc() for name in ("started_at", "created_at", "run_id", "seq")]
        query = select(_SNAPSHOTS.c.run_id, _SNAPSHOTS.c.snapshot).where(of_chat).order_by(*order).limit(1)
        return next(((row[0], row[1]) for row in self._read(query)), None)

    def _read_events(self, run_id: str, after: int) -> list[tuple[int, str]]:
        query = select(_EVENTS.c.seq, _EVENTS.c.event).where((_EVENTS.c.run_id == run_id) & (_EVENTS.c.seq > after))
        return [(row[0], row[1]) for row in self._read(query.order_by(_EVENTS.c.seq))]

    def _read_session(self, session_id: str) -> str | None:
        rows = self._read(select(_SESSIONS.c.session).where(_SESSIONS.c.session_id == session_id))
        return next((row[0] for row in rows), None)

    def _take_commands(self, run_ids: list[str]) -> list[tuple[str, str]]:
        statement = delete(_COMMANDS).where(_COMMANDS.c.run_id.in_(run_ids))
        rows = self._read(statement.returning(_COMMANDS.c.id, _COMMANDS.c.run_id, _COMMANDS.c.command))
        return [(row[1], row[2]) for row in sorted(rows)]

    def _read(self, query: Executable) -> list[tuple[Any, ...]]:
        return self._wait_for(self._execute([query]))

    async def _execute(self, statements: list[Executable]) -> list[tuple[Any, ...]]:
        """Execute statements in one transaction; return the rows of the last."""
        async with self._engine.begin() as connection:
            if not self._is_created:
                await connection.execute(select(func.pg_advisory_xact_lock(_CREATING)))
                await connection.run_sync(_TABLES.create_all)
            rows: list[tuple[Any, ...]] = []
            for statement in statements:
                cursor = await connection.execute(statement)
                rows = [tuple(row) for row in cursor] if cursor.returns_rows else []
        self._is_created = True
        return rows

    def _wait_for(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _disconnect(self) -> None:
        self._wait_for(self._engine.dispose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._looping.join()
        self._loop.close()


def _statement(record: Record, now: int) -> Executable:
    match record.kind:
        case "event":
            return _append(_EVENTS, record.name, {"event": record.text, "created_at": now})
        case "snapshot":
            return _append(_SNAPSHOTS, record.name, {**_keys(record.text), "snapshot": record.text, "created_at": now})
        case "command":
            return insert(_COMMANDS).values(run_id=record.name, command=record.text, created_at=now)
        case "session":
            row = {"session_id": record.name, "session": record.text, "updated_at": now}
            put = insert(_SESSIONS).values(row)
            return put.on_conflict_do_update(index_elements=["session_id"], set_={**row})


def _append(table: Table, run_id: str, values: dict[str, Any]) -> Executable:
    """Return the statement that adds a row with the next number of its run, from one."""
    number = select(func.coalesce(func.max(table.c.seq), 0) + 1).where(table.c.run_id == run_id).scalar_subquery()
    return insert(table).values(run_id=literal(run_id), seq=number, **values)


def _keys(text: str) -> dict[str, Any]:
    """Return what a snapshot is found by."""
    snapshot = decode_json(text.encode())
    chat_id = snapshot.get("input", {}).get("chatId")
    return {
        "chat_id": chat_id if isinstance(chat_id, str) else "",
        "owner": snapshot.get("owner") or "",
        "started_at": snapshot.get("startedAt") or 0,
    }
