"""Statements of SQLite that take one hop to the thread of their connection.

SQLite blocks, so a connection has a thread of its own, and a statement travels there and back. Over aiosqlite it
travels four times: to make a cursor, to execute, to fetch the rows, and to close the cursor. One more statement begins
the transaction. A hop costs as much as a short statement itself. So :class:`Connection` takes the place of aiosqlite's
below SQLAlchemy's adapter: a cursor exists here alone, takes its statement, and what the transaction begins with, to
the thread in one go, and returns with all rows. SQLAlchemy reads all rows of a statement anyway.

A statement cannot be taken back: one whose task was cancelled goes on in the thread, and may end after its event loop.
Then nobody waits for its result, and the thread goes on with what is next.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, TypeAlias

import msgspec

__all__ = ["Connection", "connect"]

_Work: TypeAlias = tuple["asyncio.Future[Any] | None", Callable[[], Any]]
_STOP: Final = object()


class _Result(msgspec.Struct, frozen=True):
    """What a statement has left."""

    description: Any = None
    rowcount: int = -1
    lastrowid: int | None = None
    rows: Sequence[Any] = ()


class Connection:
    """A connection for SQLAlchemy's adapter of aiosqlite, which uses ``_conn``, ``_connection`` and ``_tx``, too."""

    def __init__(self, connector: Callable[[], sqlite3.Connection]) -> None:
        self._connector = connector
        self._connection: sqlite3.Connection | None = None
        self._tx: SimpleQueue[_Work] = SimpleQueue()
        self._opening = ""
        self._is_clean = True
        """Whether nothing was executed since the last transaction ended; a pool rolls back what it gets back."""

    def __await__(self) -> "Generator[Any, None, Connection]":
        return self._open().__await__()

    async def _open(self) -> "Connection":
        # It is a daemon, because a process that ends does not wait for a statement.
        Thread(target=_work, args=(self._tx,), name="usechat-sqlite", daemon=True).start()
        try:
            await self.in_thread(self._open_in_thread)
        except BaseException:
            self.stop()
            raise
        return self

    def _open_in_thread(self) -> None:
        self._connection = self._connector()

    @property
    def isolation_level(self) -> str | None:
        """When sqlite3 begins transactions by itself."""
        return self._conn.isolation_level

    @property
    def _conn(self) -> sqlite3.Connection:
        if self._connection is None:
            raise ValueError("no active connection")  # as the adapter knows it
        return self._connection

    async def in_thread(self, function: Callable[..., Any], *values: Any, **options: Any) -> Any:
        """Call a function in the thread; return its result."""
        future = asyncio.get_running_loop().create_future()
        self._tx.put((future, partial(function, *values, **options)))
        return await future

    def begin_with(self, statement: str) -> None:
        """Execute a statement on the same way as the next one: it begins a transaction."""
        self._opening = statement

    def cursor(self) -> "_Cursor":
        """Return a cursor, which the thread knows nothing of."""
        return _Cursor(self)

    async def run(self, method: str, statement: str, parameters: Iterable[Any] = ()) -> _Result:
        """Execute a statement by a method of a cursor of sqlite3."""
        work = (_run, self._conn, self._opening, method, statement, parameters)
        self._opening, self._is_clean = "", False
        result: _Result = await self.in_thread(*work)
        return result

    async def create_function(self, *values: Any, **options: Any) -> None:
        """Add a function that statements can call."""
        await self.in_thread(self._conn.create_function, *values, **options)

    async def commit(self) -> None:
        """Commit what was executed."""
        await self._end(self._conn.commit)

    async def rollback(self) -> None:
        """Roll back what was executed."""
        await self._end(self._conn.rollback)

    async def _end(self, end: Callable[[], None]) -> None:
        self._opening = ""
        if not self._is_clean:
            await self.in_thread(end)
            self._is_clean = True

    async def close(self) -> None:
        """Close the connection after all statements that were begun."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            try:
                await self.in_thread(connection.close)
            finally:
                self.stop()

    def stop(self) -> None:
        """End the thread after what it has still to do. Nobody waits for that, so it needs no event loop."""
        self._tx.put((None, self._close_in_thread))

    def _close_in_thread(self) -> object:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        return _STOP


def _work(queue: "SimpleQueue[_Work]") -> None:
    """Do what is asked until the connection is stopped."""
    is_stopped = False
    while not is_stopped:
        is_stopped = _do(*queue.get())


def _do(future: "asyncio.Future[Any] | None", function: Callable[[], Any]) -> bool:
    """Do one thing; return whether it was the last."""
    result, error = None, None
    try:
        result = function()
    except BaseException as raised:  # whoever asked gets it
        error = raised
    if future is not None:
        with contextlib.suppress(RuntimeError):  # the event loop is closed of whoever asked
            future.get_loop().call_soon_threadsafe(_settle, future, result, error)
    return result is _STOP


def _settle(future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if future.done():  # it was cancelled
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


class _Cursor:
    """A cursor as SQLAlchemy's adapter uses it: it executes one statement, and all its rows are here then."""

    arraysize = 1

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._result = _Result()

    @property
    def description(self) -> Any:
        return self._result.description

    @property
    def rowcount(self) -> int:
        return self._result.rowcount

    @property
    def lastrowid(self) -> int | None:
        return self._result.lastrowid

    async def __aenter__(self) -> "_Cursor":
        return self

    async def execute(self, statement: str, parameters: Iterable[Any] = ()) -> "_Cursor":
        self._result = await self._connection.run("execute", statement, parameters)
        return self

    async def executemany(self, statement: str, parameters: Iterable[Any]) -> "_Cursor":
        self._result = await self._connection.run("executemany", statement, parameters)
        return self

    async def fetchall(self) -> Sequence[Any]:
        return self._result.rows

    async def close(self) -> None:
        """Do nothing: the thread has closed its cursor."""


def _run(
    connection: sqlite3.Connection, opening: str, method: str, statement: str, parameters: Iterable[Any]
) -> _Result:
    cursor = connection.cursor()
    try:
        if opening:
            cursor.execute(opening)
        getattr(cursor, method)(statement, parameters)
        rows = () if cursor.description is None else cursor.fetchall()
        return _Result(cursor.description, cursor.rowcount, cursor.lastrowid, rows)
    finally:
        cursor.close()


def connect(database: str, **options: Any) -> Connection:
    """Return a connection to await; the options are those of :func:`sqlite3.connect`."""
    return Connection(partial(sqlite3.connect, database, **options))
