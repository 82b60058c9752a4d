"""Which instances of a chat store are alive: a claim of one that is dead is taken at once, before its lease expires.

Every open store has an id, and its claims carry it. While the store is open it holds a lock that the system releases
when the process ends, however it ends:

- **SQLite**: a lock on a file beside the database, one per instance. Whoever can lock that file knows that its owner is
  dead, and removes it. A process that was forked without ``exec`` shares the lock of its parent: then the lease
  decides.
- **PostgreSQL**: an advisory lock of a session. A session ends with its process, but also when the network or the
  database does, and its process opens another one soon. So an instance without a session counts as dead only if it has
  not renewed its claim for a while, either.

Where neither works (a system without ``flock``, an SQLite URI) every instance counts as alive, and the lease decides.
"""

import asyncio
import contextlib
import glob
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

from usechat.errors import MissingDependency
from usechat.ids import new_id

try:
    from sqlalchemy import text
    from sqlalchemy.exc import SQLAlchemyError
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
except ImportError:
    raise MissingDependency("sqlalchemy", "chats") from None
try:
    import fcntl
except ImportError:  # Windows
    _HAS_LOCKS = False
else:
    _HAS_LOCKS = True

__all__ = ["InstanceFile", "InstanceSession", "Instances", "channel_of", "instances_of"]


class Instances(Protocol):
    """One instance, and what it knows of the others that share its database."""

    id: str
    patience: float
    """For which part of the lease an instance must have been silent, besides having no lock, to count as dead."""

    async def hold(self) -> None:
        """Take the lock of this instance, unless it has it. Call it before a claim is written."""
        ...

    async def is_alive(self, instance: str, connection: AsyncConnection, /) -> bool:
        """Tell whether another instance holds its lock."""
        ...

    async def release(self) -> None:
        """Give the lock back."""
        ...


class InstanceFile:
    """An instance that locks a file beside an SQLite database."""

    patience = 0.0

    def __init__(self, database: str) -> None:
        self.id = new_id()
        self._database = Path(database)
        self._file: int | None = None
        self._can_lock = _HAS_LOCKS and not database.startswith("file:")

    async def hold(self) -> None:
        """Lock the file of this instance, and remove the files of those that died."""
        if self._file is None and self._can_lock:
            self._lock()

    async def is_alive(self, instance: str, _connection: AsyncConnection, /) -> bool:
        """Tell whether an instance holds its lock; one without a file was closed, or is known to be dead."""
        return not self._can_lock or instance == self.id or _is_locked(self._path(instance))

    async def release(self) -> None:
        """Remove the file of this instance."""
        file, self._file = self._file, None
        if file is not None:
            _remove(self._path(self.id), file)

    def _path(self, instance: str) -> Path:
        return self._database.with_name(f"{self._database.name}-instance-{instance}")

    def _lock(self) -> None:
        for path in self._database.parent.glob(f"{glob.escape(self._path('').name)}*"):
            _is_locked(path)
        while self._file is None:
            self._file = _locked(self._path(self.id))


def _locked(path: Path) -> int | None:
    """Return a new file that is locked; ``None`` if another instance took it for that of a dead one, and removed it."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(file, fcntl.LOCK_EX)
    with contextlib.suppress(FileNotFoundError):
        if os.path.samestat(path.stat(), os.fstat(file)):
            return file
    os.close(file)
    return None


def _is_locked(path: Path) -> bool:
    """Tell whether a file is locked; remove it if it is not."""
    try:
        file = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    except OSError:  # of another user: nobody can tell
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return True
    _remove(path, file)
    return False


def _remove(path: Path, file: int) -> None:
    """Remove a file that is locked, and then unlock it."""
    path.unlink(missing_ok=True)
    os.close(file)


_LOCK: Final = text("SELECT pg_advisory_lock(:number)")
_IS_LOCKED: Final = text(
    "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND (classid::bigint << 32 | objid::bigint) = :number)"
)


class InstanceSession:
    """An instance that holds an advisory lock of PostgreSQL, over a connection of its own.

    That connection listens, too: ``on_payload`` is called with what others notify this instance of, ``on_session`` when
    a new session has begun, which knows nothing of what was sent before.
    """

    patience = 1 / 3

    def __init__(self, engine: AsyncEngine) -> None:
        self.id = new_id()
        self.on_payload: Callable[[str], None] = _ignore_payload
        self.on_session: Callable[[], None] = _ignore_session
        self._engine = engine
        self._connection: AsyncConnection | None = None
        self._session: Any = None
        self._opening = asyncio.Lock()

    async def hold(self) -> None:
        """Open a session with the lock, unless there is one."""
        if self._session is None or self._session.is_closed():
            async with self._opening:
                await self._open()

    async def _open(self) -> None:
        if self._session is not None and not self._session.is_closed():
            return  # another task was faster
        await self.release()
        self._connection = await self._engine.execution_options(isolation_level="AUTOCOMMIT").connect()
        await self._connection.execute(_LOCK, {"number": _number(self.id)})
        session: Any = (await self._connection.get_raw_connection()).driver_connection
        self.on_session()
        await session.add_listener(channel_of(self.id), lambda *notice: self.on_payload(notice[-1]))
        self._session = session

    async def is_alive(self, instance: str, connection: AsyncConnection, /) -> bool:
        """Tell whether a session of the database has the lock of an instance."""
        if instance == self.id:
            return True
        return bool((await connection.execute(_IS_LOCKED, {"number": _number(instance)})).scalar_one())

    async def release(self) -> None:
        """End the session."""
        connection, self._connection, self._session = self._connection, None, None
        if connection is not None:
            with contextlib.suppress(SQLAlchemyError, OSError):  # it may be broken: that is why it is closed
                await connection.invalidate()
                await connection.close()


def channel_of(instance: str) -> str:
    """Return the channel at which an instance listens."""
    return f"usechat_{instance}"


def _ignore_payload(_payload: str) -> None:
    """Do nothing: nobody waits for signals."""


def _ignore_session() -> None:
    """Do nothing: nobody waits for signals."""


def _number(instance: str) -> int:
    """Return the number of an instance's lock."""
    digest = hashlib.blake2b(f"usechat {instance}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


def instances_of(engine: AsyncEngine) -> Instances:
    """Return what tells which instances of a database are alive."""
    if engine.dialect.name == "sqlite":
        return InstanceFile(str(engine.url.database))
    return InstanceSession(engine)
