"""Databases: the addresses, engines, revisions and migrations of every store that has tables.

Chats, the session directory and flow runs are kept in an SQLite file or in PostgreSQL. What differs is their tables;
what they have in common is here. A store describes itself once, as a :class:`Schema`, and asks that for the rest::

    schema = Schema(title="the chat database", error=UnusableChats, extra="chats", versions="usechat_chats_version", …)
    engine = schema.engine("postgresql://user@host/database")      # raises UnusableChats with a sentence
    async with engine.begin() as connection:
        await schema.migrate(connection)

**Addresses.** A URL names SQLite or PostgreSQL, with or without the driver; there is one driver for each. A package
that is missing raises :class:`~usechat.errors.MissingDependency` with the line that installs it. No error repeats a
password.

**Lost connections.** A connection of the pool may have been closed while it rested. If the server closed it, the driver
knows without asking. Only a connection that rested for long is asked, because a firewall closes in silence. To ask each
time (``pool_pre_ping``) costs three round trips per transaction.

**Revisions.** Each schema has its own version table, so that several can share a database with each other and with the
application. A database may be older than the program: the caller upgrades it, or prints the command that does. It may
also be newer, after a downgrade of the program: that is an error, because nobody knows what the newer tables mean.

**Migrations run one at a time.** alembic keeps the migration that runs in variables of its modules, and a migration
over an asynchronous connection lets other tasks run in between. Without a lock, stores that are opened at the same time
would take each other's variables.
"""

import asyncio
import functools
import threading
import time
from pathlib import Path
from typing import Any, Final

import msgspec

from usechat.errors import MissingDependency, UsechatError

try:
    from alembic import command
    from alembic.config import Config
    from alembic.migration import MigrationContext
    from alembic.script import ScriptDirectory
    from sqlalchemy import URL, Connection, event, make_url
    from sqlalchemy.exc import ArgumentError, DisconnectionError
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
except ImportError as error:
    raise MissingDependency((error.name or "sqlalchemy").partition(".")[0], "chats") from None

__all__ = ["Schema", "cause_of"]

_DRIVERS: Final = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg", "postgres": "postgresql+asyncpg"}
_BUSY_SECONDS: Final = 30
"""Seconds that a writer of SQLite waits for another process."""
_migrating: Final = threading.Lock()
"""Stores may be opened in several event loops, and a lock of asyncio belongs to one."""
_PAUSE: Final = 0.01
_LONG_REST: Final = 30
"""Seconds after which a connection of PostgreSQL is asked whether it lives."""
_RESTING: Final = "usechat_resting"


class Schema(msgspec.Struct, frozen=True, kw_only=True):
    """The tables of one kind of store: what they are called in sentences, and where their migrations are.

    - ``title`` is what an error calls the database, and ``addresses`` are the addresses that it can have.
    - ``error`` is raised if the database cannot be used, with a sentence.
    - ``extra`` installs what SQLite needs; PostgreSQL needs the extra ``postgresql``.
    - ``databases`` are those that the store can use.
    - ``migrations`` is the folder of the migrations, and ``versions`` the table that names the current one.

    >>> from usechat.errors import UsechatError
    >>> notes = Schema(title="the notes", addresses="give sqlite:///FILE", error=UsechatError, extra="chats")
    >>> notes.engine("sqlite:///notes.db").dialect.name
    'sqlite'
    """

    title: str
    addresses: str
    error: type[UsechatError]
    extra: str = "postgresql"
    databases: tuple[str, ...] = ("sqlite", "postgresql")
    migrations: Path | None = None
    versions: str = "alembic_version"

    def engine(self, url: str, **options: Any) -> AsyncEngine:
        """Return an engine for an address; ``options`` are SQLAlchemy's. It connects when it is first used.

        Raises ``error`` for an address of another kind, and :class:`~usechat.errors.MissingDependency`.
        """
        address = _address(url)
        database = "" if address is None else address.get_backend_name()
        if address is None or database not in self.databases:
            raise self.error(self.addresses)
        try:
            if database == "sqlite":
                return create_async_engine(address, connect_args=_sqlite_arguments(), **options)
            return _without_lost_connections(create_async_engine(address, **options))
        except ModuleNotFoundError as error:
            extra = self.extra if database == "sqlite" else "postgresql"
            raise MissingDependency(error.name or address.drivername, extra) from None

    def unusable(self, error: Exception) -> UsechatError:
        """Return the error to raise in place of one of the driver."""
        return self.error(f"{self.title} cannot be used: {cause_of(error)}")

    async def is_newest(self, connection: AsyncConnection) -> bool:
        """Tell whether the tables are the newest. Raises ``error`` if a newer release has made them."""
        revision = await connection.run_sync(self._revision)
        if revision is not None and revision not in _revisions(self):
            raise self.error(
                f"{self.title} was made by a newer usechat: its tables have the revision {revision!r}, and this one "
                f"knows none after {_newest(self)!r}; upgrade usechat, or use another database"
            )
        return revision == _newest(self)

    async def migrate(self, connection: AsyncConnection, revision: str = "head") -> None:
        """Bring the tables to a revision: ``head`` is the newest, ``base`` is none at all."""
        change = command.downgrade if revision == "base" else command.upgrade
        while not _migrating.acquire(blocking=False):  # noqa: ASYNC110 - events belong to one loop, too
            await asyncio.sleep(_PAUSE)
        try:
            await connection.run_sync(lambda sync: change(_config(self, sync), revision))
        finally:
            _migrating.release()

    def _revision(self, connection: Connection) -> str | None:
        return MigrationContext.configure(connection, opts={"version_table": self.versions}).get_current_revision()


def _sqlite_arguments() -> dict[str, Any]:
    from usechat.sqlite import connect

    return {"timeout": _BUSY_SECONDS, "async_creator_fn": connect}


def _without_lost_connections(engine: AsyncEngine) -> AsyncEngine:
    """Let the pool of an engine replace connections that were closed while they rested."""

    def rest(_connection: Any, record: Any) -> None:
        record.info[_RESTING] = time.monotonic()

    def use(connection: Any, record: Any, _fairy: Any) -> None:
        since = record.info.pop(_RESTING, None)
        if since is None:  # it is new
            return
        if connection.driver_connection.is_closed():
            raise DisconnectionError
        if time.monotonic() - since > _LONG_REST and not _answers(connection):
            raise DisconnectionError

    event.listen(engine.sync_engine, "checkin", rest)
    event.listen(engine.sync_engine, "checkout", use)
    return engine


def _answers(connection: Any) -> bool:
    try:
        connection.ping()
    except Exception:  # of the driver, or of the network
        return False
    return True


def cause_of(error: Exception) -> str:
    """Return what a driver says of a failure: SQLAlchemy's own text may hold values of the query.

    >>> cause_of(TimeoutError("no answer"))
    'TimeoutError: no answer'
    """
    cause = getattr(error, "orig", None) or error
    return f"{type(cause).__name__}: {cause}"


def _address(url: str) -> URL | None:
    """Return a URL with the driver that is used for its database; ``None`` if it is of no such database."""
    try:
        address: URL = make_url(url)
    except ArgumentError:
        return None
    driver = address.drivername if address.drivername in _DRIVERS.values() else _DRIVERS.get(address.drivername)
    return None if driver is None else address.set(drivername=driver)


def _config(schema: Schema, connection: Connection | None = None) -> Config:
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(schema.migrations).replace("%", "%%"))
    return config


@functools.cache
def _revisions(schema: Schema) -> frozenset[str]:
    return frozenset(script.revision for script in ScriptDirectory.from_config(_config(schema)).walk_revisions())


@functools.cache
def _newest(schema: Schema) -> str | None:
    return ScriptDirectory.from_config(_config(schema)).get_current_head()
